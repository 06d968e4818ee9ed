"""Entries of results, plain data in results/*/*.json, and docs/results.md from them: what really was run, beside what the papers print."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from continua.errors import ConfigError
from continua.files import write_text
from continua.reading import read_json_object
from continua.report.draw import draw_figure
from continua.report.page import Figure, Maps, Page, Part
from continua.report.plain import from_plain, to_plain
from continua.report.text import markdown
from continua.tally import DECLARED, Judged, counted, each_once, how_far, tally_of_declared

VERSION = 2  # of the format of entries; version 1 had claims as sentences among the notes, and no study or scale
"""The format of kept entries."""
PICTURES = "pictures/results"
HEAD = """# Results

What was really run with this code, beside what the papers print, made from `results/*/*.json` by `make results`. Runs were made to fit a
small CPU. Each entry says what differs from the paper, computed by comparing the two recipes. A claim is decided by a t test over seeds,
paired by seed, at α = 0.05 after Holm's correction within a study, once all its planned seeds are there. Brackets hold the mean effect and
its 95 % interval, which is that of the claim alone, before the correction. Facts, such as counts of parameters, need no test. Undecided
claims are counted in front and stand in full, with their effects, among the numbers.
"""

EARLIER = "Made by earlier recipes than those the study has today; each run's own `config.yaml` holds its recipe."
"""What is said of an entry whose runs the study would make otherwise today."""

Verdict = Literal["holds", "fails", "undecided", "not run"]
"""What became of a claim."""
SAID: Mapping[Verdict, str] = {"holds": "holds here", "fails": "fails here", "undecided": "undecided", "not run": "not run"}


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what became of it here.

    Attributes:
        test: how it was decided, in words: "difference paired by seed: t test over 8 seeds"
        statistic: the number that decided, held against `threshold`, in `unit`; a mean over `seeds`, where it is one
        below: whether the claim holds where the statistic is below the threshold, rather than above
        p_value: of the test, where it has one; `adjusted`: corrected for the other claims of the study
        interval: from where to where the statistic lies with 95 %; `detectable`: the effect that would have been seen four times in five
        planned: how many seeds the claim was to have before it is judged; 0: as many as there are
    """

    hypothesis: str
    verdict: Verdict
    test: str = ""
    statistic: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""
    seeds: int = 0
    adjusted: float | None = None
    detectable: float | None = None
    planned: int = 0
    below: bool = False

    @property
    def fact(self) -> bool:
        """Whether it is found by counting or comparing, without statistics: it has a test, and no threshold for a mean over seeds."""
        return Judged.of(vars(self)).fact

    @property
    def early(self) -> bool:
        """Whether seeds that were planned are still missing."""
        return 0 < self.seeds < self.planned

    @property
    def said(self) -> str:
        """The verdict in words."""
        return SAID[self.verdict]

    @property
    def effect(self) -> str:
        """The number that was looked at, and its interval: +4.1 points, 95 % interval +1.0 to +7.2.

        The interval is that of the claim alone, and says so where it seems to decide what the corrected p-value does not.
        """
        words = [] if self.statistic is None else [f"{_without_rounding(self.statistic):+.3g}" + (f" {self.unit}" if self.unit else "")]
        if self.interval is not None:
            low, high = self.interval
            beside = self.verdict == "undecided" and not self.early and not low <= (self.threshold or 0.0) <= high
            words.append(f"95 % interval {low:+.3g} to {high:+.3g}" + (" of this claim alone" if beside else ""))
        if self.early:
            words.append(f"so far, {self.seeds} of {self.planned} seeds")
        return ", ".join(words)

    @property
    def evidence(self) -> str:
        """The numbers behind the verdict: +4.1 points, 95 % interval +1.0 to +7.2, p = 0.012, 8 seeds."""
        unit = f" {self.unit}" if self.unit else ""
        words = [self.effect] if self.effect else []
        if self.threshold and words:
            words.append(f"held against {self.threshold:+.3g}{unit}")
        if self.adjusted is not None:
            words.append("p < 0.001" if self.adjusted < 0.001 else f"p = {self.adjusted:.2g}")
        if self.seeds and not self.early:
            words.append(f"{self.seeds} seed{'s' * (self.seeds > 1)}")
        if self.detectable is not None:
            words.append(f"tested alone, an effect of {self.detectable:.2g}{unit} would have been seen four times in five")
        return ", ".join(words)

    @property
    def sentence(self) -> str:
        """Hypothesis, verdict and the numbers behind it."""
        return f"{self.hypothesis}: {self.said}" + (f" ({self.evidence})" if self.evidence else "")


def _without_rounding(value: float) -> float:
    """A difference that only rounding makes is none."""
    return 0.0 if abs(value) < 1e-12 else value


@dataclass(frozen=True)
class Printed:
    """A number that a paper prints, whose it is, and which cell of our tables stands beside it.

    Attributes:
        of: whose number it is, in the paper's words; `note`: what else belongs to it ("top-1")
        about: whether the paper gives it as approximate
        row: the first cells of our row (default: `of`); `column`: the label of our column
    """

    value: float
    of: str
    column: str
    row: tuple[str, ...] = ()
    error: float | None = None
    unit: str = ""
    digits: int = 2
    note: str = ""
    about: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """The first cells of our row."""
        return self.row or (self.of,)

    @property
    def text(self) -> str:
        """As people read it: 44.5 ± 0.8 % (DCN-ODE, 52 per class)."""
        numbers = " ± ".join(f"{number:.{self.digits}f}" for number in (self.value, self.error) if number is not None)
        return " ".join(word for word in ("about" if self.about else "", numbers, self.unit, self.note, f"({self.of})") if word)


@dataclass(frozen=True)
class RunOfEntry:
    """A run that an entry's numbers are from: which row of the study, which seed, the name of its folder."""

    row: str
    seed: int
    folder: str


@dataclass(frozen=True)
class Entry:
    """One real run or table: what was asked, how to run it again, what differs from the paper, the numbers, what they say about its claims.

    `study` and `scale` name the study that was carried out; both are empty in an entry written by hand. `printed` is the published number
    that stands for the whole, or a statement without one. `earlier`: made by other recipes than those the study has today.
    `plain` is what it is about in a sentence that anybody understands.
    """

    title: str
    paper: str
    asked: str
    commands: Sequence[str]
    reduced: Sequence[str]
    environment: Mapping[str, Any]
    parts: Sequence[Part]
    notes: Sequence[str] = ()
    study: str = ""
    scale: str = ""
    printed: Printed | str = ""
    claims: Sequence[Claim] = ()
    runs: Sequence[RunOfEntry] = ()
    earlier: bool = False
    plain: str = ""

    @property
    def differs(self) -> str:
        """What was reduced from the paper, in a sentence. That it is nothing is said only of recipes that were compared."""
        if self.reduced:
            return f"Reduced from the paper: {'; '.join(self.reduced)}."
        if not self.study:
            return "What was reduced from the paper is not said."
        if self.runs:
            return "Nothing was reduced: the recipes are the paper's."
        return "The study names no trainings, so no recipe was compared with the paper's."

    def write(self, target: Path) -> Path:
        """As the JSON file that `make results` reads."""
        return write_text(target, json.dumps({"version": VERSION, **to_plain(self)}, indent=1, ensure_ascii=False) + "\n")


def read_entry(path: Path) -> Entry:
    """An entry from its file, every key checked.

    Args:
        path: a JSON file under results/.

    Returns:
        The entry.

    Raises:
        ConfigError: the file is not an entry.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import read_entry
        >>> read_entry(Path("results/dcn/table2a.json"))  # doctest: +SKIP
    """
    try:
        data = read_json_object(path)
        version = data.pop("version", 1)
        if version != VERSION:
            raise ConfigError(
                f"{path.name} is an entry of format {version}, expected {VERSION}; write it again: `continua reproduce ID --keep FOLDER`, "
                f"or by hand as results/README.md shows"
            )
        known = {item.name for item in fields(Entry)}
        needed = {item.name for item in fields(Entry) if item.default is MISSING}
        if not needed <= set(data) <= known:
            unknown, missing = sorted(set(data) - known), sorted(needed - set(data))
            raise ConfigError(f"{path.name} has unknown keys {unknown} and lacks {missing}; results/README.md shows the format")
        return from_plain(Entry, data)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path.name} is not an entry of results ({error}); results/README.md shows the format") from None


def results_page(folder: Path) -> str:
    """The whole page as Markdown, with links to pictures that `draw_results` makes."""
    entries = [(path, read_entry(path)) for path in result_files(folder)]
    summary = folder / "SUMMARY.md"  # what the numbers mean, in a person's words
    said = "\n" + summary.read_text("utf-8") if summary.is_file() else ""
    counts = _counted([entry for _, entry in entries])
    return (
        HEAD
        + said
        + counts
        + _not_yet(folder, [entry for _, entry in entries])
        + "".join(f"\n{_entry_text(entry, _stem(path, folder))}" for path, entry in entries)
    )


COUNTED_AT = "cpu"  # the scale of which results are kept


def _counted(entries: Sequence[Entry]) -> str:
    """How far the studies are and what became of all their claims, as `continua reproduce --list` says it; and which are decided."""
    known = {entry.study: entry for entry in entries if entry.scale == COUNTED_AT}
    declared = [study for study in DECLARED["studies"] if COUNTED_AT in study["runs"]]
    tallies = [tally_of_declared(study, to_plain(known[study["id"]]) if study["id"] in known else None, COUNTED_AT) for study in declared]
    lines = ["", f"**{len(declared)} studies at `{COUNTED_AT}`: {how_far(tallies)}. {counted(tallies)}**", ""]
    judged = {claim.about: claim.verdict for claim in each_once(tallies)}
    decided: dict[object, str] = {}
    for entry, claim in ((known[study["id"]], claim) for study in declared if study["id"] in known for claim in known[study["id"]].claims):
        about = Judged.of(vars(claim)).about
        line = f"(`{entry.study}`{', a fact' if claim.fact else ''}): {claim.hypothesis}"
        verdict = claim.verdict if about is None else judged[about]
        if verdict in ("holds", "fails"):
            decided.setdefault(about or line, f"- *{verdict}* {line}")
    if decided:  # each stands with its study too, so here it is folded
        ordered = sorted(decided.values(), key=lambda line: not line.startswith("- *holds*"))
        lines += ['<details markdown="1"><summary>Which are decided</summary>', "", *ordered, "", "</details>"]
    return "\n".join([*lines, ""])


def _not_yet(folder: Path, entries: Sequence[Entry]) -> str:
    """Studies that are not whole by today's recipes, each with what its trainings take, from checks/hours.json; folded."""
    path = folder / "checks" / "hours.json"
    kept = read_json_object(path) if path.is_file() else {}
    there = {entry.study: len(entry.runs) for entry in entries if not entry.earlier}
    missing = {study: known for study, known in kept.get("studies", {}).items() if there.get(study, 0) < known["runs"]}
    if not missing:
        return ""
    said = (
        f"Hours of one core ({kept['cpu']}), from updates that were measured one network at a time; what studies share is counted in each. "
        f"Together, each network once: {kept['together']['hours']:.0f} hours. Testing and analyses come on top. Where claims turn on a "
        f"difference in accuracy, more seeds than planned would have to be trained to see it four times in five, as the difference between "
        f"two of our networks has a standard deviation of {kept['spread']:.1f} points over seeds: the last columns say how many, and for "
        "how long."
    )
    title = f"{len(missing)} studies lack trainings by today's recipes: which, and the hours that all of theirs take"
    head = ["", f'<details markdown="1"><summary>{title}</summary>', "", said, ""]
    columns = ("study", "trainings", "finished", "hours of all", "turns on (points)", "seeds to see it", "hours to see it")
    head += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    rows = [_missing_row(study, known, there.get(study, 0)) for study, known in missing.items()]
    return "\n".join([*head, *rows, "", "</details>", ""])


def _missing_row(study: str, known: Mapping[str, Any], finished: int) -> str:
    cells = [f"`{study}`", str(known["runs"]), str(finished), f"{known['hours']:.1f}"]
    if "turns on" in known:
        cells += [f"{known['turns on']:.2g}", f"{known['seeds that see it']} ({known['seeds']} planned)", f"{known['hours to see it']:,}"]
    else:
        cells += ["—"] * 3
    return f"| {' | '.join(cells)} |"


def draw_results(folder: Path, docs: Path) -> list[Path]:
    """The pictures of all entries; those of figures that are gone are removed."""
    wanted: dict[Path, Figure | Maps] = {}
    for path in result_files(folder):
        for part in read_entry(path).parts:
            if isinstance(part, Figure | Maps):
                wanted[docs / PICTURES / f"{_stem(path, folder)}-{part.name}.{_kind(part)}"] = part
    for stale in set((docs / PICTURES).glob("*")) - set(wanted):
        stale.unlink()
    return [draw_figure(part, target) for target, part in wanted.items()]


def result_files(folder: Path) -> list[Path]:
    """The entries: JSON files in the papers' folders. Deeper ones belong to runs; `checks` and `benchmarks` are no results."""
    return sorted(path for path in folder.glob("*/*.json") if path.parent.name not in ("checks", "benchmarks"))


def _entry_text(entry: Entry, stem: str) -> str:
    """One entry: in front what it is about, its first picture and its verdicts; folded behind them the numbers and how they were made."""
    named = [replace(part, name=f"{stem}-{part.name}") if isinstance(part, Figure | Maps) else part for part in entry.parts]
    front = next((part for part in named if isinstance(part, Figure)), None) or next(
        (part for part in named if isinstance(part, Maps)), None
    )
    lines = [f"## {entry.title}", "", entry.plain or entry.asked, ""]
    lines += [_part_text(front), ""] if front is not None else []
    lines += [*_verdicts(entry.claims), ""] if entry.claims else []
    lines += [f"*{EARLIER}*", ""] if entry.earlier else []
    lines += ['<details markdown="1"><summary>The numbers, and how they were made</summary>', "", f"*{entry.paper}.* {entry.asked}", ""]
    lines += [f"- {claim.sentence}" for claim in entry.claims if not _decided(claim) or claim.evidence != claim.effect]
    lines += [""] if entry.claims else []
    lines += [_part_text(part) for part in named if part is not front]
    for said in entry.notes:
        lines += [said, ""]
    lines += [entry.differs, ""]
    lines += ["```sh", *entry.commands, "```", ""]
    lines += [f"Run on: {', '.join(f'{name} {value}' for name, value in entry.environment.items())}.", "", "</details>", ""]
    return "\n".join(lines)


def _verdicts(claims: Sequence[Claim]) -> list[str]:
    """A line for each claim that was decided; the others are counted, and stand among the numbers."""
    lines = [f"- **{claim.said}**: {claim.hypothesis}{_effect(claim)}" for claim in claims if _decided(claim)]
    early = [claim for claim in claims if claim.early]
    so_far = f"{min(claim.seeds for claim in early)} of {max(claim.planned for claim in early)} seeds" if early else ""
    counts = {
        "undecided": sum(claim.verdict == "undecided" and not claim.early for claim in claims),
        f"undecided so far, with {so_far}": len(early),
        "not run": sum(claim.verdict == "not run" for claim in claims),
    }
    return lines + [f"- **{words}**: {count} claim{'s' * (count > 1)}" for words, count in counts.items() if count]


def _effect(claim: Claim) -> str:
    return f" ({claim.effect.replace('95 % interval ', '')})" if claim.effect else ""


def _decided(claim: Claim) -> bool:
    return claim.verdict in ("holds", "fails")


def _part_text(part: Part) -> str:
    """A sentence, a table, or a link to a picture: maps are pixels, so PNG; curves are lines, so SVG."""
    return markdown(Page("", [part]), _kind(part), folder=f"{PICTURES}/").partition("\n\n")[2]


def _kind(part: Part) -> str:
    return "png" if isinstance(part, Maps) else "svg"


def _stem(path: Path, folder: Path) -> str:
    return "-".join(path.relative_to(folder).with_suffix("").parts)


def entry_environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    """From a run's environment.json what a reader may want to know, and nothing about whose machine it was.

    Args:
        environment: what environment.json holds.

    Returns:
        Some of it.

    Examples:
        >>> from continua.report import entry_environment
        >>> entry_environment({"torch": "2.13.0", "host": "mine"})  # doctest: +SKIP
    """
    packages = environment.get("packages", {})
    versions = {name: packages[name] for name in ("torch", "continua") if name in packages}
    return {name: environment[name] for name in ("processor", "threads", "python") if name in environment} | versions


def write_results_page() -> None:
    """Write docs/results.md and its pictures: `make results`."""
    folder, docs = Path("results"), Path("docs")
    made = [write_text(docs / "results.md", results_page(folder)), *draw_results(folder, docs)]
    print(f"wrote {made[0]} and {len(made) - 1} pictures")
