"""Figures and maps as files for papers and documents: PNG, SVG or PDF, through matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from continua.errors import ConfigError
from continua.report.page import Figure, Maps, Series
from continua.report.palette import DASHES, MARKERS, colour
from continua.report.write import written_whole

FORMATS = ("png", "svg", "pdf")
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "continua",  # the same figure is the same file
    "svg.fonttype": "none",
}


GREY = "#808080"  # to be read on white and on black
ON_PAGE: Any = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), GREY) | {"savefig.transparent": True}


def draw_figure(figure: Figure | Maps, target: Path, *, on_page: bool = False) -> Path:
    """Draw to a file; its suffix says the format. `on_page`: for a page that is light or dark and has the title as text."""
    from matplotlib import rc_context

    kind = target.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{target.name} cannot be drawn; expected a name that ends with .{', .'.join(FORMATS)}")
    with rc_context(STYLE | (ON_PAGE if on_page else {})), written_whole(target) as temporary:
        canvas = _maps(figure, titled=not on_page) if isinstance(figure, Maps) else _series(figure)
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        canvas.savefig(temporary, format=kind, dpi=150, metadata=metadata, bbox_inches="tight")
    return target


def _series(figure: Figure) -> Any:
    from matplotlib.figure import Figure as Canvas

    beside = len(figure.series) > 4  # a long legend stands beside the axes, in a wider picture
    room = 0.5 + 0.075 * max(len(series.name) for series in figure.series) if beside else 0.0
    canvas = Canvas(figsize=(6.4 + room, 4.0), layout="constrained")
    axes = canvas.add_subplot()
    categories = _categories(figure.series)
    bars = [place for place, series in enumerate(figure.series) if series.style == "bars"]
    for place, series in enumerate(figure.series):
        x = [categories[value] for value in series.x] if categories else series.x
        if place in bars:
            _bars(axes, series, np.asarray(x, float), bars.index(place), len(bars), place)
        else:
            _curve(axes, series, np.asarray(x, float), place)
    axes.set_title(figure.title)
    for axis, name in ((figure.x, "x"), (figure.y, "y")):
        getattr(axes, f"set_{name}label")(axis.text)
        if axis.log:
            getattr(axes, f"set_{name}scale")("log")
        if axis.limits:
            getattr(axes, f"set_{name}lim")(axis.limits)
    if figure.x_marks:
        axes.set_xticks(figure.x_marks, [str(mark) for mark in figure.x_marks])
        axes.set_xticks([], minor=True)
    elif figure.x.whole:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if categories:
        slanted = sum(map(len, categories)) > 70
        axes.set_xticks(range(len(categories)), list(categories), rotation=25 if slanted else 0, ha="right" if slanted else "center")
        axes.grid(False, axis="x")
    if len(figure.series) > 1:
        order = [series.name for series in figure.series]
        entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: order.index(entry[1]))
        where: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(1.0, 1.0)) if beside else dict(loc="best")
        axes.legend(*zip(*entries, strict=True), **where)
    return canvas


def _categories(series: Sequence[Series]) -> dict[Any, int]:
    """Where each name on the x-axis stands; empty if x is numbers."""
    names = dict.fromkeys(value for one in series for value in one.x)
    return {name: place for place, name in enumerate(names)} if any(isinstance(name, str) for name in names) else {}


def _curve(axes: Any, series: Series, x: np.ndarray, place: int) -> None:
    ink, y = colour(place if series.colour is None else series.colour), np.asarray(series.y, float)
    if series.style == "steps":
        axes.fill_between(x, y, step="mid", color=ink, alpha=0.15, linewidth=0)
        axes.step(x, y, where="mid", color=ink, label=series.name, linestyle=DASHES[series.pattern % len(DASHES)])
        return
    line = "" if series.style == "points" else DASHES[series.pattern % len(DASHES)]
    look = dict(color=ink, linestyle=line, label=series.name, linewidth=1.6)
    if series.style != "line":
        look |= dict(marker=MARKERS[place % len(MARKERS)], markersize=4.5)
    if series.error is None:
        axes.plot(x, y, **look)
    elif series.spread == "band":
        error = np.asarray(series.error, float)
        axes.plot(x, y, **look)
        axes.fill_between(x, y - error, y + error, color=ink, alpha=0.18, linewidth=0)
    else:
        axes.errorbar(x, y, yerr=series.error, capsize=2.5, elinewidth=1.0, **look)


def _bars(axes: Any, series: Series, x: np.ndarray, order: int, count: int, place: int) -> None:
    """Bars of several series stand side by side."""
    gap = float(np.diff(np.unique(x)).min()) if len(np.unique(x)) > 1 else 1.0
    width = 0.8 * gap / count
    ink = colour(place if series.colour is None else series.colour)
    axes.bar(x + (order - (count - 1) / 2) * width, series.y, width, yerr=series.error, capsize=2.5, color=ink, label=series.name)


def _maps(maps: Maps, titled: bool) -> Any:
    from matplotlib.figure import Figure as Canvas

    rows, columns = len(maps.rows), len(maps.columns)
    canvas = Canvas(figsize=(1.2 + 1.05 * columns, 0.8 + 1.1 * rows), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False)
    if titled:
        canvas.suptitle(maps.title, x=0.01, ha="left", fontsize=11)
    grey, picture = maps.values.ndim == 4, None
    for row in range(rows):
        shown = maps.values if maps.one_scale else maps.values[row]
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        for column in range(columns):
            axes, here = grid[row][column], maps.values[row, column]
            picture = axes.imshow(here, cmap="cividis", vmin=low, vmax=high) if grey else axes.imshow(np.clip(here, 0, 1))
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for side in axes.spines.values():
                side.set_visible(False)
            if row == 0:
                axes.set_title(maps.columns[column], loc="center", fontsize=9)
            if column == 0:
                axes.set_ylabel(maps.rows[row], fontsize=9, rotation=0, ha="right", va="center")
        if grey and picture is not None and (not maps.one_scale or row == rows - 1):
            where = list(grid.ravel()) if maps.one_scale else list(grid[row])
            canvas.colorbar(picture, ax=where, shrink=0.9, label=maps.label if maps.one_scale or row == rows // 2 else "")
    return canvas
