"""The numbers and the picture of what a panel shows, as the bytes of a file."""

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from continua.report import Figure, Maps, Table, draw_figure, write_csv


def numbers(part: "Figure | Table | Maps") -> bytes:
    """CSV: the rows of a table, the points of a figure, every pixel of maps."""
    if isinstance(part, Maps):
        text = io.StringIO()
        csv.writer(text).writerows(_pixels(part))
        return text.getvalue().encode()
    with tempfile.TemporaryDirectory() as folder:
        return write_csv(part, Path(folder) / "numbers.csv").read_bytes()


def picture(part: "Figure | Maps", kind: str) -> bytes:
    """PNG or SVG, as `continua report` draws it."""
    with tempfile.TemporaryDirectory() as folder:
        return draw_figure(part, Path(folder) / f"picture.{kind}").read_bytes()


def _pixels(maps: Maps) -> Iterator[list[Any]]:
    yield ["row", "column", "y", "x", maps.label]
    for row, name in enumerate(maps.rows):
        for column, moment in enumerate(maps.columns):
            values = maps.values[row, column]
            for y, line in enumerate(values.tolist()):
                yield from ([name, moment, y, x, value] for x, value in enumerate(line))
