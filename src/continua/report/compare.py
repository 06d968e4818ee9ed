"""The same page about several runs as one: their curves in one figure, their rows in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from continua.report.page import Figure, Maps, Page, Part, Series, Table


def overlaid(pages: Mapping[str, Page]) -> Page:
    """One page of several that present the same question, by the name of each run."""
    first, *_ = pages.values()
    shared: dict[tuple[type, str], Figure | Table] = {}
    for page in sorted(pages.values(), key=lambda page: -len(page.parts)):  # some runs have figures that others lack: a solver's cost
        shared = {(type(part), part.name): part for part in page.parts if isinstance(part, Figure | Table)} | shared
    parts: list[Part] = []
    for part in shared.values():
        found = {run: same for run, page in pages.items() if (same := _same(page, part))}
        parts.append(_figure(part, found) if isinstance(part, Figure) else _table(part, found))
    parts += [
        replace(maps, name=f"{maps.name}-{place}", title=f"{run}: {maps.title}")
        for place, (run, page) in enumerate(pages.items())
        for maps in page.every(Maps)
    ]
    return Page(first.title, [*_sentences(pages), *parts])


def _same(page: Page, part: Part) -> "Figure | Table | None":
    return next((p for p in page.parts if isinstance(p, Figure | Table) and isinstance(part, type(p)) and p.name == part.name), None)


def _sentences(pages: Mapping[str, Page]) -> list[str]:
    """What all say is said once; what differs is said of each run."""
    told = {run: [part for part in page.parts if isinstance(part, str)] for run, page in pages.items()}
    everyone = [text for text in next(iter(told.values())) if all(text in texts for texts in told.values())]
    own = {run: " ".join(text for text in texts if text not in everyone) for run, texts in told.items()}
    return [*everyone, *(f"{run}: {text}" for run, text in own.items() if text)]


def _figure(figure: Figure, found: "Mapping[str, Figure | Table]") -> Figure:
    """Colours are for runs where line styles already tell a run's series apart."""
    several = max(len(_series(other)) for other in found.values()) > 1
    styles = [(series.style, series.dashed) for series in figure.series]
    by_run = len(set(styles)) == len(styles)
    series = [
        replace(one, name=f"{run}: {one.name}" if several else run, **_look(place, by_run, several))
        for place, (run, other) in enumerate(found.items())
        for one in _series(other)
    ]
    return replace(figure, series=series)


def _look(place: int, by_run: bool, several: bool) -> dict[str, Any]:
    """A run's colour; and its dash, where dashes do not tell its own series apart."""
    return {"colour": place if by_run else None} | ({} if several else {"dash": place})


def _series(part: "Figure | Table") -> Sequence[Series]:
    return part.series if isinstance(part, Figure) else ()


def _table(table: Table, found: "Mapping[str, Figure | Table]") -> Table:
    rows = [(run, *row) for run, other in found.items() if isinstance(other, Table) for row in other.rows]
    return replace(table, columns=("run", *table.columns), rows=rows)
