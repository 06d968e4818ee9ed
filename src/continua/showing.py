"""Objects as people see them at a prompt or in a notebook: shapes and ranges instead of pages of numbers; tables on the terminal."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any

WIDTH = 120  # of a line
MOST = 160  # characters of a value
FEW = 6  # values that are written out
WIDE = 160  # columns of a table where the terminal has no width
# What a terminal obeys instead of showing it: control characters but tab and line feed, and those that turn the direction of writing.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Shown:
    """A dataclass (`repr=False`) whose text and table say what it holds in a few lines."""

    def shown(self) -> dict[str, object]:
        """What is shown, by name; a dataclass shows its fields."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.repr} if is_dataclass(self) else dict(vars(self))

    def __repr__(self) -> str:
        parts = {name: brief(value) for name, value in self.shown().items()}
        line = f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in parts.items())})"
        if len(line) <= WIDTH:
            return line
        wide = max(map(len, parts), default=0)
        return "\n".join([type(self).__name__, *(f"  {name:<{wide}}  {text}" for name, text in parts.items())])

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, [(name, brief(value)) for name, value in self.shown().items()])


def html_table(title: str, rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A small table for notebooks."""

    def row(cells: Sequence[str], tag: str) -> str:
        made = "".join(f'<{tag} style="text-align:left">{escape(cell)}</{tag}>' for cell in cells)
        return f"<tr>{made}</tr>"

    head = f"<thead>{row(heads, 'th')}</thead>" if heads else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f"<b>{escape(title)}</b><table>{head}<tbody>{body}</tbody></table>"


def brief(value: object, depth: int = 0) -> str:
    """A value in one line of at most a few words: the shape and range of many numbers, the first and last of a list."""
    text = _brief(value, depth)
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def _brief(value: object, depth: int) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _numbers(value)
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if isinstance(value, list | tuple):
        return _items(value, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value, depth)
    return repr(value)


def _numbers(array: Any) -> str:
    """A tensor or an array: its values where they are few, else its shape, type and range."""
    array = array.detach() if hasattr(array, "detach") else array
    shape, dtype = tuple(array.shape), str(array.dtype).removeprefix("torch.")
    count = 1
    for size in shape:
        count *= size
    try:
        if count <= FEW and len(shape) <= 1:
            values = array.tolist()
            return _items(values, 1) if isinstance(values, list) else _brief(values, 1)
        low, high, middle = float(array.min()), float(array.max()), float(array.sum()) / count
    except (RuntimeError, ValueError, TypeError, NotImplementedError):  # without numbers: of a graph, on no device, of text
        return f"{shape} {dtype}"
    return f"{shape} {dtype}, {low:.4g} … {high:.4g}, mean {middle:.4g}"


def _items(values: Sequence[Any], depth: int) -> str:
    left, right = ("(", ")") if isinstance(values, tuple) else ("[", "]")
    if len(values) <= FEW and (depth < 2 or all(isinstance(value, str | int | float) for value in values)):
        return f"{left}{', '.join(brief(value, depth + 1) for value in values)}{right}"
    if values and all(value == values[0] for value in values if isinstance(value, Enum | str)) and isinstance(values[0], Enum | str):
        return f"{len(values)} × {brief(values[0], depth + 1)}"
    kinds = {type(value).__name__ for value in values}
    if kinds <= {"int", "float"}:
        return f"{left}{_brief(values[0], 1)}, {_brief(values[1], 1)}, …, {_brief(values[-1], 1)}{right}, {len(values)} numbers"
    return f"{len(values)} × {kinds.pop()}" if len(kinds) == 1 else f"{len(values)} items"


def _mapping(values: Mapping[Any, Any], depth: int) -> str:
    if len(values) <= FEW and depth < 2:
        return f"{{{', '.join(f'{name}: {brief(value, depth + 1)}' for name, value in values.items())}}}"
    names = [str(name) for name in values][:3]
    return f"{len(values)} entries: {', '.join(names)}{', …' if len(values) > 3 else ''}"


def _fields(value: Any, depth: int) -> str:
    name = type(value).__name__
    if depth > 1:
        return name
    return f"{name}({', '.join(f'{item.name}={brief(getattr(value, item.name), depth + 1)}' for item in fields(value) if item.repr)})"


# --- the terminal ----------------------------------------------------------------------------------------------------


def harmless(text: object) -> str:
    """A text for the terminal, which may hold names and values of strangers: what would command the terminal is written out instead."""
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, text: Sequence[int] = (0,)) -> None:
    """Print a table.

    Args:
        title: printed above it.
        columns: heads of the columns.
        rows: as many values as there are columns, in each.
        text: which columns are text; the others are aligned to the right and never wrapped.

    Examples:
        >>> from continua.report import show_table
        >>> show_table("Results", ["network", "accuracy"], [("dcn_ode", 0.99)])  # doctest: +SKIP
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    # A pipe or file has no width: a table squeezed into the usual 80 columns there would be hard to read or search.
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, column in enumerate(columns):
        words = position in text
        table.add_column(Text(harmless(column)), justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else harmless(cell)) for cell in row))
    console.print(Text(harmless(title)), style="bold", soft_wrap=True)
    console.print(table)
    console.print()
