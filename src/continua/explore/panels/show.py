"""How a panel shows its parts: a sentence, charts, maps and tables, each with its numbers and its picture to take away."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from continua.errors import ContinuaError
from continua.explore import download
from continua.explore.plot import Plot, chart, grid
from continua.report import Figure, Maps, Table, cell_text

QUIET = {"displayModeBar": False, "responsive": True}


def sentence(text: str, paper: str) -> None:
    """What is seen, and which figure of which paper shows the same."""
    st.markdown(f"{text} *{paper}*")


def part(shown: "Figure | Maps", plot: Plot | None = None, *, key: str, height: int = 300) -> None:
    """A chart or maps under their title, with buttons for the numbers and the picture."""
    with st.container(gap="xxsmall"):
        st.markdown(f"**{shown.title}**")
        drawn = plot or (grid(shown) if isinstance(shown, Maps) else chart(shown, height))
        st.plotly_chart(drawn, key=f"{key}-plot", config=QUIET, alt=shown.title)
        if shown.caption:
            st.caption(shown.caption)
        _buttons(shown, key)


def table(shown: Table, *, key: str) -> None:
    """A table that scrolls by itself where the page is narrow."""
    with st.container(gap="xxsmall"):
        _table(shown, key)


def _table(shown: Table, key: str) -> None:
    st.markdown(f"**{shown.title}**")
    rows = [[cell_text(cell, head.digits) for cell, head in zip(row, shown.heads, strict=True)] for row in shown.rows]
    st.dataframe([dict(zip([head.text for head in shown.heads], row, strict=True)) for row in rows], hide_index=True, key=f"{key}-table")
    if shown.caption:
        st.caption(shown.caption)
    _buttons(shown, key)


def _buttons(shown: "Figure | Maps | Table", key: str) -> None:
    """Files are made when they are asked for: drawing takes longer than anything else here."""
    kinds: dict[str, Callable[[], bytes]] = {"csv": lambda: download.numbers(shown)}
    if not isinstance(shown, Table):
        kinds |= {"png": lambda: download.picture(shown, "png"), "svg": lambda: download.picture(shown, "svg")}
    mime = {"csv": "text/csv", "png": "image/png", "svg": "image/svg+xml"}
    with st.container(horizontal=True, gap="small"):
        for kind, make in kinds.items():
            options: dict[str, Any] = dict(mime=mime[kind], key=f"{key}-{kind}", on_click="ignore", type="tertiary")
            options |= dict(icon=":material/download:", help=f"{shown.title}: {'its numbers' if kind == 'csv' else 'the picture'}")
            st.download_button(kind.upper(), make, f"{shown.name}.{kind}", **options)


def said(error: ContinuaError) -> None:
    """A problem, in the words it came with."""
    st.warning(str(error), icon=":material/info:")
