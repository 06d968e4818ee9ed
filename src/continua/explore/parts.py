"""How a panel shows its parts: a sentence, charts, maps and tables, each with its numbers and its picture to take away."""

import csv
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from continua.errors import ContinuaError
from continua.explore.plot import Plot, chart, grid
from continua.report import Figure, Maps, Table, draw_figure, write_csv

SIDE = 160  # pixels of an image on the page
QUIET = {"displayModeBar": False, "responsive": True}


def sentence(text: str, paper: str) -> None:
    """What is seen, and which figure of which paper shows the same."""
    st.markdown(f"{text} *{paper}*")


def part(shown: "Figure | Maps | Table", plot: Plot | None = None, *, key: str, height: int = 300) -> None:
    """A chart, maps or a table under their title, with buttons for the numbers and the picture."""
    with st.container(gap="xxsmall"):
        st.markdown(f"**{shown.title}**")
        if isinstance(shown, Table):  # scrolls by itself where the page is narrow
            heads = [head.text for head in shown.heads]
            st.dataframe([dict(zip(heads, row, strict=True)) for row in shown.texts], hide_index=True, key=f"{key}-table")
        else:
            drawn = plot or (grid(shown) if isinstance(shown, Maps) else chart(shown, height))
            st.plotly_chart(drawn, key=f"{key}-plot", config=QUIET, alt=shown.title)
        if shown.caption:
            st.caption(shown.caption)
        _buttons(shown, key)


def enlarged(values: np.ndarray) -> np.ndarray:
    """Bytes of an image 0 … 1, its pixels as squares large enough to see."""
    times = max(1, -(-2 * SIDE // max(values.shape[:2])))
    return np.kron((255 * values).round().astype(np.uint8), np.ones((times, times) if values.ndim == 2 else (times, times, 1), np.uint8))


def _buttons(shown: "Figure | Maps | Table", key: str) -> None:
    """Files are made when they are asked for: drawing takes longer than anything else here."""
    kinds: dict[str, Callable[[], bytes]] = {"csv": lambda: numbers(shown)}
    if not isinstance(shown, Table):
        kinds |= {"png": lambda: picture(shown, "png"), "svg": lambda: picture(shown, "svg")}
    mime = {"csv": "text/csv", "png": "image/png", "svg": "image/svg+xml"}
    with st.container(horizontal=True, gap="small"):
        for kind, make in kinds.items():
            options: dict[str, Any] = dict(mime=mime[kind], key=f"{key}-{kind}", on_click="ignore", type="tertiary")
            options |= dict(icon=":material/download:", help=f"{shown.title}: {'its numbers' if kind == 'csv' else 'the picture'}")
            st.download_button(kind.upper(), make, f"{shown.name}.{kind}", **options)


def problem(error: ContinuaError) -> None:
    """A problem, in the words it came with."""
    st.warning(str(error), icon=":material/info:")


# --- files to take away -----------------------------------------------------------------------------------------------


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


def _pixels(maps: Maps) -> Iterator[list[object]]:
    yield ["row", "column", "y", "x", maps.label]
    for row, name in enumerate(maps.rows):
        for column, moment in enumerate(maps.columns):
            values = maps.values[row, column]
            for y, line in enumerate(values.tolist()):
                yield from ([name, moment, y, x, value] for x, value in enumerate(line))
