"""Pictures as files: figures and maps for papers and documents (PNG, SVG, PDF), and contact sheets of data sets."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int, UInt8

from continua.errors import ConfigError
from continua.files import written_whole
from continua.report.page import Figure, Maps, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# --- colours that stay apart for every kind of colour vision (Okabe and Ito 2008), in an order in which neighbours differ most

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C8C8C", "#B8A500")
"""Colours of series, told apart by colour-blind eyes too."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # for matplotlib
DASHES = ("-", "--", ":", "-.", (0, (8, 2)), (0, (6, 2, 1, 2, 1, 2)))  # for matplotlib
PLOTLY_DASHES = ("solid", "dash", "dot", "dashdot", "10px 3px", "8px 3px 2px 3px 2px 3px")  # the same for plotly
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")  # the same for plotly


def colour(place: int) -> str:
    """The colour of the series at a place, from the beginning again after the last.

    Args:
        place: of the series, from 0.

    Returns:
        A hexadecimal colour.

    Examples:
        >>> from continua.report import colour
        >>> colour(0)
        '#0072B2'
    """
    return PALETTE[place % len(PALETTE)]


def faint(colour: str, opacity: float) -> str:
    """A colour as CSS has it, with some of what is behind it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


# --- figures and maps ---------------------------------------------------------------------------------------------------

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
    """Draw to a file; its suffix says the format. `on_page`: for a page that is light or dark and has the title as text.

    Args:
        figure: what is drawn.
        target: the file; its suffix is the format.
        on_page: for a page that is light or dark and shows the title itself.

    Returns:
        The file.

    Raises:
        ConfigError: the name of the file does not end with a known format.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import Axis, Figure, Series, draw_figure
        >>> figure = Figure("f", "A line", Axis("x"), Axis("y"), [Series("s", [0, 1], [0, 1])])
        >>> draw_figure(figure, Path("line.svg"))  # doctest: +SKIP
    """
    from matplotlib import rc_context

    kind = target.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{target.name} cannot be drawn; expected a name that ends with .{', .'.join(FORMATS)}")
    with rc_context(STYLE | (ON_PAGE if on_page else {})), written_whole(target) as temporary:
        canvas = matplotlib_figure(figure, on_page=on_page)
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        canvas.savefig(temporary, format=kind, dpi=150, metadata=metadata, bbox_inches="tight")
    return target


def matplotlib_figure(figure: Figure | Maps, *, on_page: bool = False) -> "Canvas":
    """The figure as one of matplotlib's, for notebooks and for one's own changes.

    Args:
        figure: series or maps.
        on_page: in the colours and sizes of the HTML page.

    Returns:
        A `matplotlib.figure.Figure`.

    Examples:
        >>> from continua.report import Axis, Figure, Series, matplotlib_figure
        >>> figure = Figure("loss", "Training loss", Axis("epoch"), Axis("loss"), [Series("net", [1, 2], [2.0, 1.0])])
        >>> matplotlib_figure(figure).savefig("loss.png")  # doctest: +SKIP
    """
    from matplotlib import rc_context

    with rc_context(STYLE | (ON_PAGE if on_page else {})):
        return _maps(figure, titled=not on_page) if isinstance(figure, Maps) else _series(figure)


def _series(figure: Figure) -> "Canvas":
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
        low, high = getattr(axes, f"get_{name}lim")()
        if axis.log and (marks := [mark for mark in log_marks(low, high) if low <= mark <= high]):
            getattr(axes, f"set_{name}ticks")(marks, [f"{mark:g}" for mark in marks])
            getattr(axes, f"set_{name}ticks")([], minor=True)
    if figure.x_marks:
        axes.set_xticks(figure.x_marks, [str(mark) for mark in figure.x_marks])
        axes.set_xticks([], minor=True)
    elif figure.x.whole:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if categories:
        names = [str(name) for name in categories]
        slanted = sum(map(len, names)) > 70
        axes.set_xticks(range(len(names)), names, rotation=25 if slanted else 0, ha="right" if slanted else "center")
        axes.grid(False, axis="x")
        axes.set_xlim(-0.5, len(names) - 0.5)  # as much room beside the first and the last name as between two
    if len(figure.series) > 1:
        order = [series.name for series in figure.series]
        entries = sorted(zip(*axes.get_legend_handles_labels(), strict=True), key=lambda entry: order.index(entry[1]))
        where: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(1.0, 1.0)) if beside else dict(loc="best")
        axes.legend(*zip(*entries, strict=True), **where)
    return canvas


def log_marks(low: float, high: float) -> list[float]:
    """What to write along a logarithmic axis: 0.1, 0.2, 0.5, 1, …, and every digit over less than half a decade.

    None over three decades and more, where powers of ten are enough, and where fewer than two of them lie on the axis.
    """
    decades = math.log10(high / low) if 0 < low < high else 0.0
    if decades >= 3:
        return []
    digits = (1, 2, 5) if decades >= 0.5 else range(1, 10)
    first, last = (round(math.floor(math.log10(edge))) for edge in (low, high)) if low > 0 else (0, 0)
    marks = [float(f"{digit}e{power}") for power in range(first - 1, last + 2) for digit in digits]
    if sum(low <= mark <= high for mark in marks) < 2:
        return []
    return [mark for mark in marks if low / 1.5 <= mark <= high * 1.5]


def _categories(series: Sequence[Series]) -> dict[float | str, int]:
    """Where each name on the x-axis stands; empty if x is numbers."""
    names = dict.fromkeys(value for curve in series for value in curve.x)
    return {name: place for place, name in enumerate(names)} if any(isinstance(name, str) for name in names) else {}


def _curve(axes: "Axes", series: Series, x: np.ndarray, place: int) -> None:
    ink, y = colour(place if series.colour is None else series.colour), np.asarray(series.y, float)
    if series.style == "steps":
        axes.fill_between(x, y, step="mid", color=ink, alpha=0.15, linewidth=0)
        axes.step(x, y, where="mid", color=ink, label=series.name, linestyle=DASHES[series.pattern % len(DASHES)])
        return
    line = "" if series.style == "points" else DASHES[series.pattern % len(DASHES)]
    look: dict[str, Any] = dict(color=ink, linestyle=line, label=series.name, linewidth=1.6)
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


def _bars(axes: "Axes", series: Series, x: np.ndarray, order: int, count: int, place: int) -> None:
    """Bars of several series stand side by side."""
    gap = float(np.diff(np.unique(x)).min()) if len(np.unique(x)) > 1 else 1.0
    width = 0.8 * gap / count
    ink = colour(place if series.colour is None else series.colour)
    axes.bar(x + (order - (count - 1) / 2) * width, series.y, width, yerr=series.error, capsize=2.5, color=ink, label=series.name)


def _maps(maps: Maps, titled: bool) -> "Canvas":
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


# --- a contact sheet: some images of every class, one class per row, to see at a glance what a data set holds -------------------

GAP, MARGIN, TEXT = 4, 16, 15  # pixels
PAPER, INK = (255, 255, 255), (40, 40, 40)


def contact_sheet(
    target: Path,
    images: UInt8[np.ndarray, "n channels height width"],
    labels: Int[np.ndarray, "n"],
    classes: Sequence[str],
    *,
    title: str,
    per_class: int = 16,
    thumb: int = 48,
) -> Path:
    """Write a PNG with the first `per_class` images of each class, each enlarged or reduced to about `thumb` pixels.

    Args:
        target: the PNG file.
        images: bytes.
        labels: class of each image.
        classes: their names.
        title: heading.
        per_class: how many of each class.
        thumb: about how many pixels a side.

    Returns:
        The file.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import contact_sheet
        >>> contact_sheet(Path("digits.png"), images, labels, classes, title="digits")  # doctest: +SKIP
    """
    from PIL import Image, ImageDraw, ImageFont

    font, large = ImageFont.load_default(TEXT), ImageFont.load_default(TEXT + 5)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    left = MARGIN + int(max(ruler.textlength(name, font) for name in classes)) + 2 * GAP
    top = MARGIN + TEXT + 5 + 3 * GAP
    width, height = _thumb_size(images.shape[3], images.shape[2], thumb)
    sheet_width = max(left + per_class * (width + GAP), MARGIN + int(ruler.textlength(title, large))) + MARGIN
    sheet = Image.new("RGB", (sheet_width, top + len(classes) * (height + GAP) + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN), title, INK, large)
    for row, name in enumerate(classes):
        y = top + row * (height + GAP)
        draw.text((left - 2 * GAP, y + height // 2), name, INK, font, anchor="rm")
        for column, index in enumerate(np.flatnonzero(labels == row)[:per_class]):
            # Whole enlargements keep pixels square and sharp: what is shown is what the network sees.
            enlarged = width >= images.shape[3]
            picture = _picture(images[index]).resize((width, height), Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + column * (width + GAP), y))
    with written_whole(target) as temporary:
        sheet.save(temporary, format="PNG")
    return target


def _thumb_size(width: int, height: int, thumb: int) -> tuple[int, int]:
    """About `thumb` pixels on the longer side: a whole multiple of the image where it is smaller."""
    longest = max(width, height)
    if longest <= thumb:
        return width * (thumb // longest), height * (thumb // longest)
    return max(1, width * thumb // longest), max(1, height * thumb // longest)


def _picture(image: np.ndarray):
    from PIL import Image

    if len(image) not in (1, 3):
        raise ValueError(f"an image of shape {image.shape} has {len(image)} channels, expected 1 (grey) or 3 (RGB)")
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))).convert("RGB")
