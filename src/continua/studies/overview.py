"""What is known about all studies: how far each is (`continua reproduce --list`), and as one page with their runs (`continua report`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from continua.analysis import curves_over_seeds, runs_page
from continua.errors import ConfigError, DataError, unknown_name
from continua.report import Figure, Link, Maps, Page, Part, Printed, Table, cell_text
from continua.runs import RunView, run_folders, runs_folder
from continua.studies.claims import verdict_text
from continua.studies.reproduction import KEPT, Written, largest, study_page, written_studies
from continua.studies.runs import Places, Wanted, wanted_runs
from continua.studies.study import OWN, SCALES, STUDIES, Study, find_studies
from continua.tally import Tally, counted, how_far, state_of
from continua.train import RunOptions

NOT_RUN = "not run"


# --- how far each study is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """One study at one scale: runs that are finished of all it wants (None where its data set is not here), and what was written."""

    study: Study
    scale: str
    finished: int | None
    total: int
    seconds_left: float | None
    written: Mapping[str, Written]

    @property
    def text(self) -> str:
        """done, partly or not run; with the other scales at which it was done."""
        others = [scale for scale in SCALES if scale in self.written and scale != self.scale]
        if self.earlier:
            return f"kept from earlier recipes; {self.finished or 0} of {self.total} runs of today's"
        if self.whole:
            return "done" + (f" (also at {', '.join(others)})" if others else "")
        if self.finished is None:
            here = "not run: its data set is not here"
        elif self.finished:
            here = f"partly: {self.finished} of {self.total} runs"
        else:
            here = "not run" + (f": {self.total} run{'s' * (self.total > 1)}" if self.total else "")
        return here + (f" (done at {', '.join(others)})" if others else "")

    @property
    def whole(self) -> bool:
        """Whether it was carried out at this scale with all the runs that it wants."""
        written = self.written.get(self.scale)
        return written is not None and len(written.entry.runs) >= self.total

    @property
    def earlier(self) -> bool:
        """Whether what was written was made by other recipes than today's."""
        written = self.written.get(self.scale)
        return written is not None and written.entry.earlier

    @property
    def time(self) -> str:
        """What is left, as people say it; nothing where no run of the study has finished, so that it cannot be known."""
        if (self.whole and not self.earlier) or self.seconds_left is None:
            return ""
        minutes = self.seconds_left / 60
        return f"about {minutes / 60:.1f} h" if minutes >= 90 else f"about {max(1, round(minutes))} min"

    @property
    def verdict(self) -> str:
        """What became of the claims at this scale."""
        return self.tally.text if self.scale in self.written or self.study.claims else ""

    @property
    def tally(self) -> Tally:
        """The claims, counted; those of a study that was not carried out are not run."""
        return tally_of(self.study, self.written.get(self.scale), self.scale)


def tally_of(study: Study, written: Written | None, scale: str = "") -> Tally:
    """The claims of a study, counted, carried out or not."""
    if written is None:
        return Tally.not_run(study.claims, scale, study.own)
    entry = written.entry
    state = state_of({"earlier": entry.earlier, "runs": entry.runs}, wanted_count(study, written.scale))
    return Tally.of(map(vars, entry.claims), written.scale, state, study.own)


def study_states(
    scale: str, *, studies: Iterable[Study] | None = None, seeds: int | None = None, runs: "Path | None" = None, options: RunOptions
) -> list[State]:
    """Every study that has this scale, or those of `studies` that do.

    Args:
        scale: of the studies.
        studies: which; None: all.
        seeds: runs of each row; None: the scale's own number.
        runs: folder of all runs.
        options: data folder and device.

    Returns:
        A state for each study.

    Examples:
        >>> from continua.studies import study_states
        >>> from continua.train import RunOptions
        >>> study_states("cpu", options=RunOptions())  # doctest: +SKIP
    """
    places, written = Places(runs, [KEPT], options), written_studies(runs)
    having = [study for study in (STUDIES.values() if studies is None else studies) if scale in study.settings]
    return [_state(study, scale, seeds, places, written.get(study.id, {})) for study in having]


def wanted_count(study: Study, scale: str, seeds: int | None = None) -> int:
    """How many runs a study wants, by the scale's own number of seeds where none is given."""
    return len(study.rows(scale)) * (seeds or study.setting(scale).seeds)


def _state(study: Study, scale: str, seeds: int | None, places: Places, written: Mapping[str, Written]) -> State:
    count = seeds or study.setting(scale).seeds
    total = wanted_count(study, scale, count)
    try:
        wanted = list(wanted_runs(study, scale, range(count), places))
    except DataError:
        return State(study, scale, None, total, None, written)
    return State(study, scale, sum(run.finished for run in wanted), total, seconds_left(wanted, total), written)


def seconds_left(wanted: Sequence[Wanted], total: int) -> float | None:
    """In one process, from what finished runs took: of the same row where there is one, else of the study. None if none has finished."""
    took: dict[str, list[float]] = defaultdict(list)
    for run in wanted:
        if run.run.result is not None:
            took[run.row.label].append(float(run.run.result["seconds"]))
    if not took:
        return None
    typical = fmean(seconds for row in took.values() for seconds in row)
    missing = [run for run in wanted if not run.finished]
    known = sum(fmean(took[run.row.label]) if run.row.label in took else typical for run in missing)
    return known + typical * (total - len(wanted))  # decoders whose encoder is not trained yet are not among the wanted


# --- the report: the words of the command in, a page with a part for each out ---------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What the words of the command name: folders of runs, and studies with the scale asked for (None: the largest there is)."""

    runs: Sequence[Path]
    studies: Sequence[tuple[Study, str | None]]


def asked_for(words: Sequence[str], runs: "Path | None" = None) -> Asked:
    """A word is a run where it is the folder of one, else a study; no word at all means all studies, and all runs that none of them has.

    Args:
        words: names of studies, folders of runs.
        runs: folder of all runs.

    Returns:
        The studies and runs that are meant.

    Raises:
        ConfigError: a word is neither.

    Examples:
        >>> from continua.studies import asked_for
        >>> asked_for(["dcn/table2a"])  # doctest: +SKIP
    """
    if not words:
        return Asked(_loose_runs(runs), [(study, None) for study in STUDIES.values()])
    folders, studies, papers = [], [], {study.partition("/")[0] for study in STUDIES}
    for word in words:
        name, at, scale = word.partition("@")
        if (Path(word) / "config.yaml").is_file():
            folders.append(Path(word))
        elif Path(word).is_dir() and name not in papers:
            raise ConfigError(f"{word} is not a run: it has no config.yaml")
        elif at and scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        elif not get_close_matches(name.partition("/")[0], papers):
            raise ConfigError(
                f"{word} is neither the folder of a run nor a study; studies are called dcn/table2a, `continua reproduce --list` shows all"
            )
        else:
            studies += [(study, scale or None) for study in find_studies(name)]
    return Asked(folders, studies)


def report_page(asked: Asked, runs: "Path | None" = None, title: str | None = None) -> Page:
    """Runs alone as they always were; with studies, a front page that leads to each of them, and the runs behind.

    Args:
        asked: as `asked_for` gives it.
        runs: folder of all runs.
        title: heading.

    Returns:
        A page for `continua.report.write_html`.

    Examples:
        >>> from continua.studies import asked_for, report_page
        >>> report_page(asked_for([]))  # doctest: +SKIP
    """
    name = title if not asked.studies else "Runs that belong to no study here" if len(asked.runs) > 1 else None
    about = runs_page([RunView(folder) for folder in asked.runs], name) if asked.runs else None
    if not asked.studies and about is not None:
        return about
    on_disk, shown = written_studies(runs), {}
    for study, scale in asked.studies:
        scales = on_disk.get(study.id, {})
        if scale is None and scales:
            shown[study.id] = largest(scales)
        elif scale in scales:
            shown[study.id] = scales[scale]
    page = front_page([study for study, _ in asked.studies], shown, title)
    folders = {folder.name: folder for folder in _all_runs(runs)}
    sections = [written_page(written, folders) for written in shown.values()]
    return replace(page, sections=[*sections, *([about] if about is not None else [])])


def _all_runs(runs: "Path | None") -> list[Path]:
    return [*run_folders(KEPT), *run_folders(runs_folder(runs))]


def _loose_runs(runs: "Path | None") -> list[Path]:
    """Runs that no written study names: one's own trainings."""
    named = {run.folder for scales in written_studies(runs).values() for written in scales.values() for run in written.entry.runs}
    return [folder for folder in _all_runs(runs) if folder.name not in named]


def front_page(studies: Sequence[Study], written: Mapping[str, Written], title: str | None = None) -> Page:
    """A row for every study, carried out or not: what is printed beside ours, and what became of the claims."""
    columns = ["study", "what", "published", "ours", "scale", "verdict"]
    caption = "A verdict counts the paper's claims; at smoke nothing is judged. Every page says what was reduced."
    rows = [_row(study, written.get(study.id)) for study in studies]
    table = Table("studies", "Studies", columns, rows, caption)
    papers = len({study.id.partition("/")[0] for study in studies if study.paper != OWN})
    own = " and of our own" if any(study.paper == OWN for study in studies) else ""
    tallies = [tally_of(study, written.get(study.id)) for study in studies]
    first = f"{len(studies)} studies of {papers} paper{'s' * (papers > 1)}{own}: {how_far(tallies)}. {counted(tallies)}"
    return Page(title or "Continua: studies", [first, table])


def _row(study: Study, written: Written | None) -> list[str | Link]:
    published = study.published or "—"
    if written is None:
        return [study.id, study.title, published, "—", "—", NOT_RUN]
    ours, claims = headline(written) or "—", written.entry.claims
    return [Link(study.id, page_title(written)), study.title, published, ours, written.scale, verdict_text(claims, written.scale)]


def page_title(written: Written) -> str:
    """What the section of a study is called on the page."""
    return f"{written.study.id} at {written.scale}: {written.study.title}"


def headline(written: Written) -> str:
    """Ours beside the published number: that cell of the study's tables; where none is named, what became of the first claim."""
    printed, claims = written.study.printed, written.entry.claims
    for part in written.entry.parts:
        if isinstance(part, Table) and isinstance(printed, Printed):
            text = _cell(part, printed)
            if text is not None:
                return text
    return f"{claims[0].hypothesis}: {claims[0].said}" if claims and written.scale != "smoke" else ""


def _cell(table: Table, printed: Printed) -> str | None:
    """The cell of the row that begins with these names, in that column, with its unit; None where the table has none."""
    place = next((place for place, head in enumerate(table.heads) if head.label == printed.column), None)
    for cells in table.rows if place is not None else ():
        names = tuple(takewhile(lambda cell: isinstance(cell, str), cells))
        if place is not None and names == printed.cells and cells[place] is not None:
            head = table.heads[place]
            return f"{cell_text(cells[place], head.digits)}\u00a0{head.unit}".strip()  # never a line between number and unit
    return None


def written_page(written: Written, folders: Mapping[str, Path]) -> Page:
    """A study's page, and how its runs went as far as their folders are known by name."""
    prefix = f"{written.study.id}-{written.scale}".replace("/", "-")
    parts = [_own(part, prefix) for part in study_page(written.entry).parts]
    groups: dict[str, list[RunView]] = defaultdict(list)
    for run in written.entry.runs:
        if run.folder in folders:
            groups[run.row].append(RunView(folders[run.folder]))
    sections = [Page(f"{written.study.id} at {written.scale}: runs", [_own(part, f"{prefix}-runs") for part in _runs(groups)])]
    return Page(page_title(written), parts, sections if groups else [])


def _runs(groups: Mapping[str, Sequence[RunView]]) -> Iterable[Part]:
    rows = []
    for name, run in ((name, run) for name, group in groups.items() for run in group):
        result = run.result or {}
        accuracy = None if result.get("test_accuracy") is None else round(100 * result["test_accuracy"], 2)
        rows.append([name, str(run.recipe.seed), len(run.epochs), accuracy, result.get("test_loss"), result.get("parameters"), run.name])
    columns = ["row", "seed", "epochs", "test accuracy (%)", "test loss", "parameters", "run"]
    return [Table("table", "Runs", columns, rows), *curves_over_seeds(groups)]


def _own(part: Part, prefix: str) -> Part:
    """Files of several studies lie in one folder, so each figure's name says whose it is."""
    return replace(part, name=f"{prefix}-{part.name}") if isinstance(part, Figure | Table | Maps) else part
