"""What a page is made of: figures, tables, grids of maps and sentences, all plain data; and several pages as one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np

from continua.errors import ConfigError

Style = Literal["line", "points", "both", "bars", "steps"]
Spread = Literal["bars", "band"]


@dataclass(frozen=True)
class Axis:
    """What is along an axis: `label` and, in brackets behind it, its `unit` ("%", "pixels", "s"; none for pure numbers and names)."""

    label: str
    unit: str = ""
    log: bool = False
    limits: tuple[float, float] | None = None
    whole: bool = False  # only whole numbers mean anything: epochs; on a logarithmic axis the numbers that occur are marked

    def __post_init__(self) -> None:
        if not self.label:
            raise ConfigError("an axis without a label says nothing; give Axis(label, unit)")

    @property
    def text(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


class Look(TypedDict, total=False):
    """How a series is drawn: those fields of `Series` that are not its numbers."""

    style: Style
    spread: Spread
    dashed: bool
    colour: int | None
    dash: int | None


@dataclass(frozen=True)
class Series:
    """One curve, cloud or set of bars: y against x, ± `error` where there is a spread. NaN leaves a gap.

    Attributes:
        style: "line", "points", "both" (a line with markers), "bars", "steps" (a histogram's outline: y over the bin around x)
        spread: how `error` is drawn: "bars" at each point, or a "band" around a line
        colour: its place in the palette, for the same colour in every figure (default: its place in the figure)
        dash: its place among the dash patterns, for many lines that colour alone does not tell apart (default: solid, or `dashed`)
    """

    name: str
    x: Sequence[float] | Sequence[str] | np.ndarray
    y: Sequence[float] | np.ndarray
    error: Sequence[float] | np.ndarray | None = None
    style: Style = "line"
    spread: Spread = "bars"
    dashed: bool = False
    colour: int | None = None
    dash: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _plain_list(self.x))
        object.__setattr__(self, "y", _plain_list(self.y))
        if self.error is not None:
            object.__setattr__(self, "error", _plain_list(self.error))
        if self.style == "line" and len(self.x) == 1:
            object.__setattr__(self, "style", "both")  # a line of one point shows nothing
        lengths = [len(part) for part in (self.x, self.y, self.error) if part is not None]
        if len(set(lengths)) > 1:
            raise ConfigError(f"series {self.name!r} has x, y and error of lengths {lengths}; expected one of each per point")

    @property
    def pattern(self) -> int:
        """The place of its dash pattern: 0 is a solid line."""
        return int(self.dashed) if self.dash is None else self.dash


@dataclass(frozen=True)
class Figure:
    """Series over two labelled axes. `name` becomes the name of its files."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    caption: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "series", tuple(self.series))

    @property
    def x_marks(self) -> list[int]:
        """Whole numbers to mark on a logarithmic x-axis: those that occur, unless they would stand too close (none: as usual)."""
        if not (self.x.log and self.x.whole):
            return []
        known = sorted({int(value) for series in self.series for value in series.x if float(value) >= 1})
        room = math.log(known[-1] / known[0]) / 20 if known else 0.0
        marks: list[int] = []
        for value in known:
            if not marks or math.log(value / marks[-1]) >= room:
                marks.append(value)
        return marks


@dataclass(frozen=True)
class PlusMinus:
    """A mean with its spread, as one cell of a table: 87.2 ± 0.4. Written as two columns of a CSV file."""

    value: float
    error: float


@dataclass(frozen=True)
class Link:
    """A cell that leads to a section of the same page, by the section's title."""

    text: str
    section: str


Cell = str | int | float | bool | PlusMinus | Link | None
"""What a cell of a table may hold."""


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers are written with `digits` after the point (default: as many as matter)."""

    label: str
    unit: str = ""
    digits: int | None = None

    @property
    def text(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Table:
    """Rows of cells under labelled columns. A column may be given by its label alone."""

    name: str
    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    def __post_init__(self) -> None:
        columns = tuple(Column(column) if isinstance(column, str) else column for column in self.columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", tuple(tuple(_plain_cell(cell) for cell in row) for row in self.rows))
        wrong = [len(row) for row in self.rows if len(row) != len(columns)]
        if wrong:
            raise ConfigError(f"table {self.name!r} has {len(columns)} columns and a row of {wrong[0]} cells")

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns, each a `Column`."""
        return tuple(column for column in self.columns if isinstance(column, Column))

    @property
    def texts(self) -> list[list[str]]:
        """The cells of each row as people read them."""
        return [[cell_text(cell, head.digits) for cell, head in zip(row, self.heads, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class Maps:
    """A grid of small pictures: feature maps (rows, columns, height, width), or images with a last axis of three colours in [0, 1].

    `label` says what the grey values are, with their unit; each row has a scale of its own, or all share one with `one_scale`.
    """

    name: str
    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    label: str
    caption: str = ""
    one_scale: bool = False

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "columns", tuple(self.columns))
        expected = (len(self.rows), len(self.columns))
        if values.ndim not in (4, 5) or values.shape[:2] != expected or (values.ndim == 5 and values.shape[4] != 3):
            raise ConfigError(
                f"maps {self.name!r} have shape {values.shape}; expected {(*expected, 'height', 'width')}, or that and 3 colours"
            )


Part = str | Figure | Table | Maps
"""What a page is made of."""
Kind = TypeVar("Kind", str, Figure, Table, Maps)


@dataclass(frozen=True)
class Page:
    """A title over parts: sentences (a string is a paragraph), figures, tables, maps; then sections, which are pages themselves."""

    title: str
    parts: Sequence[Part] = ()
    sections: Sequence["Page"] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "sections", tuple(self.sections))

    def every(self, kind: type[Kind]) -> list[Kind]:
        """All parts of one kind, of this page and its sections, in order."""
        here = [part for part in self.parts if isinstance(part, kind)]
        return here + [part for section in self.sections for part in section.every(kind)]


def cell_text(cell: Cell, digits: int | None = None) -> str:
    """A cell as people read it.

    Args:
        cell: of a table.
        digits: after the point; None: as many as matter.

    Returns:
        The text.

    Examples:
        >>> from continua.report import PlusMinus, cell_text
        >>> cell_text(PlusMinus(87.23, 0.41), 1)
        '87.2 ± 0.4'
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "—"
    if isinstance(cell, PlusMinus):
        numbers = [cell.value] if math.isnan(cell.error) else [cell.value, cell.error]
        return " ± ".join(cell_text(number, digits) for number in numbers)
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.{digits}f}" if digits is not None else f"{cell:.4g}"
    return cell


def _plain_list(values: Any) -> tuple[float | str, ...]:
    """Numbers of NumPy and PyTorch as Python's own, all of them floats; names as they are."""
    plain = values.tolist() if hasattr(values, "tolist") else [_plain_cell(value) for value in values]
    return tuple(value if isinstance(value, str) else math.nan if value is None else float(value) for value in plain)


def _plain_cell(cell: Any) -> Any:
    return cell.item() if hasattr(cell, "item") else cell


# --- the same page about several runs as one: their curves in one figure, their rows in one table -------------------------


def overlaid(pages: Mapping[str, Page]) -> Page:
    """One page of several that present the same question, by the name of each run.

    Args:
        pages: by the name of each run.

    Returns:
        One page, its figures holding the series of all.

    Raises:
        ConfigError: the pages do not have the same figures.

    Examples:
        >>> from continua.report import overlaid
        >>> overlaid({"one": page, "two": other})  # doctest: +SKIP
    """
    first, *_ = pages.values()
    shared: dict[tuple[type, str], Figure | Table] = {}
    for page in sorted(pages.values(), key=lambda page: -len(page.parts)):  # some runs have figures that others lack: a solver's cost
        shared = {(type(part), part.name): part for part in page.parts if isinstance(part, Figure | Table)} | shared
    parts: list[Part] = [_figure(part, pages) if isinstance(part, Figure) else _table(part, pages) for part in shared.values()]
    parts += [
        replace(maps, name=f"{maps.name}-{place}", title=f"{run}: {maps.title}")
        for place, (run, page) in enumerate(pages.items())
        for maps in page.every(Maps)
    ]
    return Page(first.title, [*_sentences(pages), *parts])


def _sentences(pages: Mapping[str, Page]) -> list[str]:
    """What all say is said once; what differs is said of each run."""
    sentences = {run: [part for part in page.parts if isinstance(part, str)] for run, page in pages.items()}
    everyone = [text for text in next(iter(sentences.values())) if all(text in texts for texts in sentences.values())]
    own = {run: " ".join(text for text in texts if text not in everyone) for run, texts in sentences.items()}
    return [*everyone, *(f"{run}: {text}" for run, text in own.items() if text)]


def _figure(figure: Figure, pages: Mapping[str, Page]) -> Figure:
    """A run's colour, where line styles tell its own series apart; and its dash, where it has only one series."""
    same = {run: part.series for run, page in pages.items() for part in page.parts if isinstance(part, Figure) and part.name == figure.name}
    several = max(map(len, same.values())) > 1
    styles = [(series.style, series.dashed) for series in figure.series]
    by_run = len(set(styles)) == len(styles)
    series = []
    for place, (run, curves) in enumerate(same.items()):
        look: Look = {"colour": place if by_run else None} if several else {"colour": place if by_run else None, "dash": place}
        series += [replace(curve, name=f"{run}: {curve.name}" if several else run, **look) for curve in curves]
    return replace(figure, series=series)


def _table(table: Table, pages: Mapping[str, Page]) -> Table:
    same = {run: part.rows for run, page in pages.items() for part in page.parts if isinstance(part, Table) and part.name == table.name}
    return replace(table, columns=("run", *table.columns), rows=[(run, *row) for run, rows in same.items() for row in rows])
