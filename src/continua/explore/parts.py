"""How a panel shows its parts: a sentence, charts, maps and tables, each with its numbers and its picture to take away."""

import csv
import html
import io
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from continua.errors import ContinuaError
from continua.explore.answers import Pending
from continua.report import Figure, Maps, Table, colour, draw_figure, plotly_figure, write_csv

SIDE = 200  # pixels of an image on the page
QUIET = {"displayModeBar": False, "responsive": True}
ROW, HEAD, GAP = 190, 26, 0.02  # pixels of a row and of the words above it; share of the width between columns
WIDE = 760  # pixels that all columns of a grid have on a usual screen: rows that were higher would leave a gap below
INK = "#3a8fcb"  # words that can be read on light paper and on dark
GREY = "rgba(128,128,128,0.35)"
CLEAR = "rgba(0,0,0,0)"
Plot = dict[str, Any]


def sentence(text: str, paper: str) -> None:
    """What is seen, and which figure of which paper shows the same."""
    st.markdown(f"{text} *{paper}*")


def part(shown: "Figure | Maps | Table", plot: Plot | None = None, *, key: str, height: int = 300) -> None:
    """A chart, maps or a table under their title, with buttons for the numbers and the picture."""
    with st.container(gap="xxsmall"):
        st.markdown(f"**{shown.title}**")
        if isinstance(shown, Table):
            st.html(table(shown, narrow=on_a_phone()))
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


def pair(left: Maps, right: Maps, plot: Plot, *, title: str, key: str) -> None:
    """Maps of two networks in one plot, and the files of each."""
    with st.container(gap="xxsmall"):
        st.markdown(f"**{title}**")
        st.plotly_chart(plot, key=f"{key}-plot", config=QUIET, alt=title)
        for side, maps in (("left", left), ("right", right)):
            st.caption(maps.title)
            _buttons(maps, f"{key}-{side}")


def table(shown: Table, narrow: bool = False) -> str:
    """Every cell in full: words wrap, and where the page is narrow one or two rows stand upright and longer tables scroll sideways."""
    cells = [[head.text for head in shown.heads], *shown.texts]
    if narrow and len(cells) <= 3:
        cells = [list(column) for column in zip(*cells, strict=True)]
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in cells[0])
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells[1:])
    return f'<div class="numbers"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def on_a_phone() -> bool:
    """Whether the browser says so."""
    return "Mobi" in (st.context.headers.get("User-Agent") or "")


@st.fragment(run_every=0.5)
def waiting(pending: Pending) -> None:
    """An answer that takes long: how long already, and a button that stops it; everything else on the page can be used meanwhile."""
    job = pending.job
    if job.stopped:
        st.info(f"Stopped after {job.seconds:.0f} s. Choose something else, or compute it after all.", icon=":material/stop_circle:")
        if st.button("Compute it after all", key="computing-again"):
            pending.forget()
            st.rerun()
        return
    if job.ended.is_set():
        st.rerun()
    job.look()
    with st.container(horizontal=True, vertical_alignment="center", key="computing"):
        st.markdown(f":material/hourglass_top: computing: {job.seconds:.0f} s, {job.operations:,} operations so far")
        if st.button("Stop", key="computing-stop"):
            job.stop()
            st.rerun()


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


# --- for plotly -------------------------------------------------------------------------------------------------------


def chart(figure: Figure, height: int = 300) -> Plot:
    """Curves and bars, as in reports; points are drawn over lines."""
    plot = plotly_figure(figure)
    plot["layout"] |= {"height": height, "margin": {"l": 56, "r": 12, "t": 12, "b": 48}}
    for trace in plot["data"]:
        if "markers" in trace.get("mode", ""):
            trace["cliponaxis"] = False  # a point on the edge is a whole point
        if trace.get("name") in ("solver steps", "rejected steps"):  # ticks of the time axis
            refused = trace["name"] == "rejected steps"
            trace["marker"] |= {"symbol": "x-thin-open" if refused else "line-ns-open", "size": 12, "line": {"width": 2}}
    return plot


def grid(maps: Maps, row: int = ROW) -> Plot:
    """Every map in its place, named along the edges. Maps of one scale are one picture: plotly is slow with many small ones."""
    groups = [range(len(maps.rows))] if maps.one_scale else [range(k, k + 1) for k in range(len(maps.rows))]
    row = min(row, WIDE // len(maps.columns))
    height = len(maps.rows) * (row + 6) + HEAD
    layout, data, top = _layout(height), [], 1 - HEAD / height
    for place, group in enumerate(groups):
        share = len(group) * (row + 6) / height
        values, centres = _mosaic(maps.values[group.start : group.stop])
        layout |= _axes(place, (0.0, 1.0), (top - share + 6 / height, top))
        axis = str(place + 1) if place else ""
        named = {"showticklabels": True, "tickfont": {"size": 12}, "automargin": True}
        if place == 0:
            layout["xaxis"] |= named | {"tickvals": centres[1], "ticktext": list(maps.columns), "side": "top", "tickangle": 0}
        if len(maps.rows) > 1:
            layout[f"yaxis{axis}"] |= named | {"tickvals": centres[0], "ticktext": [maps.rows[k] for k in group]}
        data.append(_heat(values, place, *_span(values), maps.label))
        top -= share
    return {"data": data, "layout": layout}


def _mosaic(values: np.ndarray) -> tuple[np.ndarray, tuple[list[float], list[float]]]:
    """Maps (rows, columns, height, width) as one, with gaps between them; and where their middles are."""
    rows, columns, height, width = values.shape
    gap = max(1, min(height, width) // 10)
    whole = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for r in range(rows):
        for c in range(columns):
            whole[r * (height + gap) : r * (height + gap) + height, c * (width + gap) : c * (width + gap) + width] = values[r, c]
    middles = [[k * (size + gap) + (size - 1) / 2 for k in range(count)] for count, size in ((rows, height), (columns, width))]
    return whole, (middles[0], middles[1])


def player(
    maps: "Maps | Sequence[Maps]", bars: "tuple[tuple[str, ...], np.ndarray] | None" = None, across: int = 4, row: int = ROW
) -> Plot:
    """One row of maps at a time, its columns being moments: a slider moves through them from the last, a button plays them from the first.

    Several `maps` move together, each at the same share of its own moments. `bars` are names of classes and their probabilities
    (moment, class), drawn below and moving along.
    """
    several = [maps] if isinstance(maps, Maps) else list(maps)
    moments = max(len(each.columns) for each in several)
    names = several[0].columns if len(several) == 1 else [f"{share:.0%} of the block" for share in np.linspace(0, 1, moments)]
    panes = [pane for each in several for pane in _panes(each, moments)]
    across = min(across, len(panes))
    lines = math.ceil(len(panes) / across)
    below = 150 if bars else 0
    height = lines * (row + HEAD) + (below + 2 * HEAD if bars else 0)
    layout, data = _layout(height), []
    for k, (name, values, span, label) in enumerate(panes):
        top = 1 - ((k // across) * (row + HEAD) + HEAD) / height
        where = (k % across) / across, (k % across + 1) / across - (GAP if across > 1 else 0.0)
        layout |= _axes(k, where, (max(0.0, top - row / height), top))
        data.append(_heat(values[-1], k, *span, label))
        layout["annotations"].append(_words(name, where[0], top))
    if bars:
        layout |= _bar_axes(len(panes), (0.0, below / height))
        layout["annotations"].append(_words("class probabilities (%)", 0.0, (below + 6) / height))
        data.append(_bars(*bars, moments - 1, len(panes)))
    # A frame holds only what moves.
    frames = []
    for moment, name in enumerate(names):
        moved: list[Plot] = [{"type": "heatmap", "z": _compact(values[moment])} for _, values, _, _ in panes]
        moved += [{"type": "bar", "y": (100 * bars[1][moment]).round(2).tolist()}] if bars else []
        frames.append({"name": name, "data": moved, "traces": list(range(len(moved)))})
    layout |= _controls(names, height)
    layout["meta"] = {"moments": moments}
    return {"data": data, "layout": layout, "frames": frames}


def _panes(maps: Maps, moments: int) -> "list[tuple[str, np.ndarray, tuple[float, float], str]]":
    """Name, values (moment, height, width), limits of the colours and label of each row, at that many moments."""
    chosen = np.rint(np.linspace(0, len(maps.columns) - 1, moments)).astype(int)
    spans = [_span(maps.values if maps.one_scale else values) for values in maps.values]
    return [(name, values[chosen], span, maps.label) for name, values, span in zip(maps.rows, maps.values, spans, strict=True)]


def _heat(values: np.ndarray, place: int, low: float, high: float, label: str) -> Plot:
    axis = str(place + 1) if place else ""
    hover = f"%{{z:.4~g}}<extra>{label}</extra>"
    look = {"colorscale": "Cividis", "zmin": low, "zmax": high, "showscale": False, "hovertemplate": hover, "hoverongaps": False}
    return {"type": "heatmap", "z": _compact(values), "xaxis": f"x{axis}", "yaxis": f"y{axis}", **look}


def _compact(values: np.ndarray) -> np.ndarray:
    """Half the bytes: plotly sends arrays as they are, and the eye sees no eighth digit."""
    return np.ascontiguousarray(values, dtype=np.float32)


def _bars(names: tuple[str, ...], shares: np.ndarray, moment: int, place: int) -> Plot:
    axis = str(place + 1)
    y = (100 * shares[moment]).round(2).tolist()
    hover = "%{x}: %{y:.1f} %<extra></extra>"
    where = {"xaxis": f"x{axis}", "yaxis": f"y{axis}", "marker": {"color": colour(0)}, "hovertemplate": hover}
    return {"type": "bar", "x": list(names), "y": y, **where}


def _bar_axes(place: int, domain: tuple[float, float]) -> Plot:
    axis = str(place + 1)
    x = {"anchor": f"y{axis}", "type": "category", "domain": [0.04, 1.0], "fixedrange": True}
    return {f"xaxis{axis}": x, f"yaxis{axis}": {"anchor": f"x{axis}", "domain": list(domain), "range": [0, 100], "fixedrange": True}}


def _axes(place: int, across: tuple[float, float], up: tuple[float, float]) -> Plot:
    """Square pixels, no ticks, the first row on top."""
    axis = str(place + 1) if place else ""
    bare = {"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False, "showline": False, "fixedrange": True}
    x = bare | {"domain": list(across), "anchor": f"y{axis}", "constrain": "domain", "constraintoward": "left"}
    y = bare | {"domain": list(up), "anchor": f"x{axis}", "autorange": "reversed", "scaleanchor": f"x{axis}", "constrain": "domain"}
    return {f"xaxis{axis}": x, f"yaxis{axis}": y | {"constraintoward": "top"}}


def _words(text: str, x: float, y: float) -> Plot:
    look = {"showarrow": False, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}}
    return {"text": text, "x": x, "y": y, **look}


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _layout(height: int) -> Plot:
    margin = {"l": 4, "r": 4, "t": 4, "b": 8}
    return {"height": height + 12, "margin": margin, "annotations": [], "paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "showlegend": False}


def _controls(names: Sequence[str], height: int) -> Plot:
    """A slider of moments and a button that plays them. Changes are drawn at once: half-way maps would be none of the network's."""
    still = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    run = {"fromcurrent": False, "frame": {"duration": 120, "redraw": True}, "transition": {"duration": 0}}
    steps = [{"label": name, "method": "animate", "args": [[name], still]} for name in names]
    slider = {"active": len(names) - 1, "steps": steps, "x": 0, "len": 1, "y": 0, "yanchor": "top", "pad": {"t": 38, "b": 4}}
    slider |= {"bgcolor": GREY, "activebgcolor": colour(0), "bordercolor": GREY, "ticklen": 0, "minorticklen": 0}
    slider |= {"currentvalue": {"xanchor": "left", "font": {"size": 14, "color": INK}}, "font": {"size": 1, "color": CLEAR}}
    play = {"label": "play", "method": "animate", "args": [None, run]}
    pause = {"label": "pause", "method": "animate", "args": [[None], still]}
    menu = {"type": "buttons", "direction": "right", "showactive": False, "buttons": [play, pause]}
    menu |= {"x": 1, "xanchor": "right", "y": 0, "yanchor": "top", "pad": {"t": 26}}
    menu |= {"bgcolor": CLEAR, "bordercolor": GREY, "font": {"color": INK}}
    return {"sliders": [slider], "updatemenus": [menu], "height": height + 100, "margin": {"l": 4, "r": 4, "t": 4, "b": 92}}
