"""The front page of the report: one row per study, what is printed beside what was found, each leading to the study's own page."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from continua.analysis import curves_over_seeds
from continua.report import Figure, Link, Maps, Page, Part, Table, cell_text
from continua.runs import RunView
from continua.studies.claims import SAID, verdict
from continua.studies.reproduce import study_page
from continua.studies.study import Study
from continua.studies.written import Written

NOT_RUN = "not run"


def front_page(studies: Sequence[Study], found: Mapping[str, Written], title: str | None = None) -> Page:
    """A row for every study, found or not; then the page of each that was found."""
    rows = [_row(study, found.get(study.id)) for study in studies]
    verdicts = Counter(str(row[-1]).partition(":")[0] for row in rows)
    told = ", ".join(f"{count} {word}" for word, count in verdicts.most_common())
    columns = ["study", "what", "published", "ours", "scale", "verdict"]
    caption = "A verdict counts claims of the paper that hold here; at smoke nothing is judged. Every page says what was reduced."
    table = Table("studies", "Studies", columns, rows, caption)
    papers = len({study.id.partition("/")[0] for study in studies})
    words = f"{len(studies)} studies of {papers} papers: {told}." if papers > 1 else f"{told}."
    return Page(title or "Continua: studies", [words, table])


def _row(study: Study, written: Written | None) -> list[str | Link]:
    published = study.printed or "—"
    if written is None:
        return [study.id, study.title, published, "—", "—", NOT_RUN]
    ours = headline(written) or "—"
    said = verdict(written.claims, written.scale)
    return [Link(study.id, page_title(written)), study.title, published, ours, written.scale, said]


def page_title(written: Written) -> str:
    return f"{written.study.id} at {written.scale}: {written.study.title}"


def headline(written: Written) -> str:
    """Ours beside the published number: that cell of the study's tables; where none is named, what became of the first claim."""
    row, column = written.study.compared
    for part in written.entry.parts:
        if isinstance(part, Table) and row:
            found = _cell(part, row, column)
            if found is not None:
                return found
    claims = written.claims
    return f"{claims[0].text}: {SAID[claims[0].holds]}" if claims and written.scale != "smoke" else ""


def _cell(table: Table, row: str, column: str) -> str | None:
    """The cell of a row by its leading words, in the first column whose name begins so, with its unit."""
    place = next((place for place, head in enumerate(table.heads) if head.label.startswith(column)), None)
    for cells in table.rows if place is not None else ():
        words = ", ".join(str(cell) for cell in takewhile(lambda cell: isinstance(cell, str), cells))
        if place is not None and words == row and cells[place] is not None:
            head = table.heads[place]
            return f"{cell_text(cells[place], head.digits)}\u00a0{head.unit}".strip()  # never a line between number and unit
    return None


def written_page(written: Written, folders: Mapping[str, Path]) -> Page:
    """A study's page, and how its runs went as far as their folders are found by name."""
    prefix = f"{written.study.id}-{written.scale}".replace("/", "-")
    page = study_page(written.entry, written.claims)
    parts = [_own(part, prefix) for part in page.parts]
    groups: dict[str, list[RunView]] = defaultdict(list)
    for one in written.entry.runs:
        if one["folder"] in folders:
            groups[one["row"]].append(RunView(folders[one["folder"]]))
    sections = [Page(f"{written.study.id} at {written.scale}: runs", [_own(part, f"{prefix}-runs") for part in _runs(groups)])]
    return Page(page_title(written), parts, sections if groups else [])


def _runs(groups: Mapping[str, Sequence[RunView]]) -> Iterable[Part]:
    rows = [
        [name, str(run.recipe.seed), len(run.epochs), _percent(run), result.get("test_loss"), result.get("parameters"), run.name]
        for name, some in groups.items()
        for run in some
        for result in [run.result or {}]
    ]
    columns = ["row", "seed", "epochs", "test accuracy (%)", "test loss", "parameters", "run"]
    return [Table("table", "Runs", columns, rows), *curves_over_seeds(groups)]


def _percent(run: RunView) -> float | None:
    accuracy = (run.result or {}).get("test_accuracy")
    return None if accuracy is None else round(100 * accuracy, 2)


def _own(part: Part, prefix: str) -> Part:
    """Files of several studies lie in one folder, so each figure's name says whose it is."""
    return replace(part, name=f"{prefix}-{part.name}") if isinstance(part, Figure | Table | Maps) else part
