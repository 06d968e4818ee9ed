"""docs/results.md from results/*/*.json: what really was run, beside what the papers print. `make results` calls this."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from continua.errors import ConfigError
from continua.report.draw import draw_figure
from continua.report.files import markdown, write_text
from continua.report.page import Figure, Maps, Page, Part
from continua.report.plain import from_plain, to_plain

PICTURES = "pictures/results"
HEAD = """# Results

What was really run with this code, beside what the papers print. This page is made from `results/*/*.json` by `make results`; their
format, and the weights beside some of them, are described in `results/README.md`. Runs were made to fit a small CPU: each entry
says what was reduced, and its numbers are comparable with the printed ones only as far as that allows.
"""


@dataclass(frozen=True)
class Entry:
    """One real run or table: what was asked, how to run it again, what differs from the paper, the numbers. All text is for readers."""

    title: str
    paper: str
    asked: str
    commands: Sequence[str]
    reduced: Sequence[str]
    environment: dict[str, Any]
    parts: Sequence[Part]
    notes: Sequence[str] = ()
    runs: Sequence[dict[str, Any]] = ()  # of a study: row, seed and folder's name of each

    def write(self, target: Path) -> Path:
        """As the JSON file that `make results` reads."""
        return write_text(target, json.dumps(to_plain(self), indent=1, ensure_ascii=False) + "\n")


def read_entry(path: Path) -> Entry:
    """An entry from its file, every key checked."""
    try:
        data = json.loads(path.read_text("utf-8"))
        known, needed = ({item.name for item in fields(Entry) if some or item.default is MISSING} for some in (True, False))
        wrong = sorted(set(data) - known), sorted(needed - set(data))
        if wrong != ([], []):
            raise ConfigError(f"{path.name} has unknown keys {wrong[0]} and lacks {wrong[1]}; results/README.md shows the format")
        return from_plain(Entry, data)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path.name} is not an entry of results ({error}); results/README.md shows the format") from None


def results_page(folder: Path) -> str:
    """The whole page as Markdown, with links to pictures that `draw_results` makes."""
    entries = [(path, read_entry(path)) for path in result_files(folder)]
    summary = folder / "SUMMARY.md"  # what agrees with the papers and what does not, in a person's words
    said = "\n" + summary.read_text("utf-8") if summary.is_file() else ""
    return HEAD + said + "".join(f"\n{_entry_text(entry, _stem(path, folder))}" for path, entry in entries)


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
    """The entries: JSON files one level down. Deeper ones belong to runs."""
    return sorted(folder.glob("*/*.json"))


def _entry_text(entry: Entry, stem: str) -> str:
    """One entry: its numbers first, then how they were made."""
    named = [replace(part, name=f"{stem}-{part.name}") if isinstance(part, Figure | Maps) else part for part in entry.parts]
    text = ""
    for part in named:  # maps are pixels, so PNG; curves are lines, so SVG
        text += markdown(Page("", [part]), _kind(part), folder=f"{PICTURES}/").partition("\n\n")[2] + "\n"
    lines = [f"## {entry.title}", "", f"*{entry.paper}.* {entry.asked}", "", text.strip(), ""]
    for note in entry.notes:
        lines += [note, ""]
    reduced = "; ".join(entry.reduced)
    lines += [f"Reduced from the paper: {reduced}." if reduced else "Nothing was reduced from the paper's setting.", ""]
    lines += ["```sh", *entry.commands, "```", ""]
    lines += [f"Run on: {', '.join(f'{name} {value}' for name, value in entry.environment.items())}.", ""]
    return "\n".join(lines)


def _kind(part: Part) -> str:
    return "png" if isinstance(part, Maps) else "svg"


def _stem(path: Path, folder: Path) -> str:
    return "-".join(path.relative_to(folder).with_suffix("").parts)


def entry_environment(environment: dict[str, Any]) -> dict[str, Any]:
    """From a run's environment.json what a reader may want to know, and nothing about whose machine it was."""
    packages = environment.get("packages", {})
    versions = {name: packages[name] for name in ("torch", "continua") if name in packages}
    return {name: environment[name] for name in ("processor", "threads", "python") if name in environment} | versions


def main() -> None:
    """Write docs/results.md and its pictures."""
    folder, docs = Path("results"), Path("docs")
    made = [write_text(docs / "results.md", results_page(folder)), *draw_results(folder, docs)]
    print(f"wrote {made[0]} and {len(made) - 1} pictures")
