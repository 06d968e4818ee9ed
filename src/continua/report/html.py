"""A page as one HTML file that needs nothing else: figures to zoom and hover over, tables that sort, light and dark, phone and paper."""

import base64
import json
import math
import re
import tempfile
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from continua.files import written_whole
from continua.report.draw import PLOTLY_DASHES, SYMBOLS, colour, draw_figure, faint, log_marks
from continua.report.page import Axis, Cell, Figure, Link, Maps, Page, PlusMinus, Series, Table, cell_text

Json = dict[str, Any]  # what plotly reads


def write_html(page: Page, target: Path) -> Path:
    """Write the page; the file can be mailed, archived and opened without a network.

    Args:
        page: what is written.
        target: the file.

    Returns:
        The file.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import Page, write_html
        >>> write_html(Page("Title", ["A sentence."]), Path("page.html"))  # doctest: +SKIP
    """
    numbers = count()
    body = _page(page, 1, numbers)
    places = {"{{title}}": escape(page.title), "{{contents}}": _contents(page), "{{body}}": body, "{{plotly}}": ""}
    if page.every(Figure):
        from plotly.offline import get_plotlyjs

        places["{{plotly}}"] = f"<script>{get_plotlyjs()}</script>"
    text = (files("continua.report") / "page.html").read_text("utf-8")
    with written_whole(target) as temporary, temporary.open("w", encoding="utf-8") as file:
        # Split once: what is filled in may itself look like a place.
        file.writelines(places.get(piece, piece) for piece in re.split(r"(\{\{\w+\}\})", text))
    return target


def notebook_html(page: Page, folder: Path) -> str:
    """The sentences and tables of a page for a notebook, and those of its pictures that are in the folder.

    Args:
        page: what is shown.
        folder: of its pictures.

    Returns:
        HTML.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import Page, notebook_html
        >>> html = notebook_html(Page("Title", ["A sentence."]), Path("."))
    """
    made = [f"<b>{escape(page.title)}</b>"]
    for part in page.parts:
        if isinstance(part, str):
            made.append(f"<p>{_sentence(part)}</p>")
        elif isinstance(part, Table):
            made.append(_table(part))
        elif (picture := folder / f"{part.name}.png").is_file():
            made.append(f'<img alt="{escape(part.title)}" src="data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}">')
    return "".join([*made, *(notebook_html(section, folder) for section in page.sections)])


def _page(page: Page, level: int, numbers: "count[int]") -> str:
    head = f"h{min(level, 4)}"
    parts = "\n".join(_part(part, numbers) for part in page.parts)
    inside = "\n".join(_page(section, level + 1, numbers) for section in page.sections)
    up = '<a class="up" href="#top" aria-label="to the top">↑</a>' if level == 2 else ""
    return f'<section id="{_anchor(page.title)}"><{head}>{escape(page.title)}{up}</{head}>\n{parts}\n{inside}</section>'


def _part(part: "str | Figure | Table | Maps", numbers: "count[int]") -> str:
    if isinstance(part, str):
        return f"<p>{_sentence(part)}</p>"
    caption = f"<figcaption>{escape(part.caption)}</figcaption>" if part.caption else ""
    title = f'<div class="title">{escape(part.title)}</div>'
    if isinstance(part, Table):
        return f"<figure>{title}{_table(part)}{caption}</figure>"
    if isinstance(part, Maps):
        return f"<figure>{title}{_picture(part)}{caption}</figure>"
    name = f"plot{next(numbers)}"
    data = json.dumps(plotly_figure(part), ensure_ascii=False).replace("</", "<\\/")  # "</script>" in a name must not end the script
    plot = f'<div class="plot" id="{name}" role="img" aria-label="{escape(part.title)}"></div>'
    return f'<figure>{title}{plot}<script type="application/json" data-for="{name}">{data}</script>{caption}</figure>'


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col"><button type="button">{escape(column.text)}</button></th>' for column in table.heads)
    rows = "".join(
        "<tr>" + "".join(_cell(cell, column.digits) for cell, column in zip(row, table.heads, strict=True)) + "</tr>" for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(cell: Cell, digits: int | None) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    if isinstance(cell, Link):
        return f'<td><a href="#{_anchor(cell.section)}">{escape(cell.text)}</a></td>'
    value = cell.value if isinstance(cell, PlusMinus) else cell
    key = "" if value is None or math.isnan(value) else repr(float(value))
    return f'<td class="number" data-value="{key}">{escape(cell_text(cell, digits))}</td>'


def _picture(maps: Maps) -> str:
    with tempfile.TemporaryDirectory() as folder:
        data = base64.b64encode(draw_figure(maps, Path(folder) / "maps.png", on_page=True).read_bytes()).decode()
    return f'<div class="wide"><img alt="{escape(maps.title)}" src="data:image/png;base64,{data}"></div>'


def _sentence(text: str) -> str:
    """Text of a paragraph; what stands between backticks is code, as in Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _contents(page: Page) -> str:
    """Links to sections that no table of the page leads to already."""
    led = {cell.section for part in page.parts if isinstance(part, Table) for row in part.rows for cell in row if isinstance(cell, Link)}
    links = [f'<a href="#{_anchor(section.title)}">{escape(section.title)}</a>' for section in page.sections if section.title not in led]
    return f"<nav>{''.join(links)}</nav>" if links else ""


def _anchor(title: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in title.lower()).split())


# --- figures as plotly draws them, as plain data; colours of paper and ink are left to the page, which knows light and dark ----


def plotly_figure(figure: Figure) -> Json:
    """Traces and layout.

    Args:
        figure: what is drawn.

    Returns:
        A mapping with `data` and `layout`, as plotly reads them.

    Examples:
        >>> from continua.report import Axis, Figure, Series, plotly_figure
        >>> drawn = plotly_figure(Figure("f", "F", Axis("x"), Axis("y"), [Series("s", [0, 1], [0, 1])]))
    """
    traces = [trace for place, series in enumerate(figure.series) for trace in _traces(series, place, figure)]
    layout = {
        "xaxis": _axis(figure.x) | _x_ticks(figure),
        "yaxis": _axis(figure.y) | _ticks(figure.y, [series.y for series in figure.series]),
        "showlegend": len(figure.series) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 64, "r": 16, "t": 16, "b": 56},
        "hovermode": "closest",
        "barmode": "group",
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": traces, "layout": layout}


def _x_ticks(figure: Figure) -> Json:
    if any(isinstance(value, str) for series in figure.series for value in series.x):
        return {"type": "category"}
    return {"tickvals": figure.x_marks} if figure.x_marks else _ticks(figure.x, [series.x for series in figure.series])


def _axis(axis: Axis) -> Json:
    shown: Json = {"title": {"text": axis.text}, "type": "log" if axis.log else "-", "zeroline": False, "automargin": True}
    if axis.limits:
        shown["range"] = [float(np.log10(limit)) for limit in axis.limits] if axis.log else list(axis.limits)
    return shown


def _ticks(axis: Axis, values: Sequence[Any]) -> Json:
    """Powers of ten over three decades and more, else 0.1, 0.2, 0.5, 1; whole numbers over a few epochs, where plotly would mark halves."""
    known = [float(value) for numbers in values for value in numbers if np.isfinite(value) and (value > 0 or not axis.log)]
    low, high = axis.limits or ((min(known), max(known)) if known else (1.0, 1.0))
    if axis.log:
        marks = log_marks(low, high)
        if marks:
            return {"tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}
        return {"exponentformat": "power", "dtick": 1} if high >= 1000 * low else {}  # plotly's own ticks within less than a digit
    return {"dtick": 1} if axis.whole and high - low < 10 else {}


def _traces(series: Series, place: int, figure: Figure) -> list[Json]:
    ink = colour(place if series.colour is None else series.colour)
    x, y = list(series.x), _gaps(series.y)
    same: Json = {"name": series.name, "legendgroup": f"{place}"}
    hover = f"%{{x:.5~g}}, %{{y:.5~g}} {figure.y.unit}<extra>{escape(series.name, quote=False)}</extra>"
    if series.x and isinstance(series.x[0], str):
        hover = hover.replace("%{x:.5~g}", "%{x}")
    if series.style == "bars":
        return [{"type": "bar", "x": x, "y": y, "marker": {"color": ink}, "hovertemplate": hover, **same, **_error_bars(series)}]
    line = {"color": ink, "width": 2, "dash": PLOTLY_DASHES[series.pattern % len(PLOTLY_DASHES)]}
    if series.style == "steps":
        line["shape"] = "hvh"
    main = {"type": "scatter", "x": x, "y": y, "line": line, "hovertemplate": hover, **same}
    main["mode"] = {"points": "markers", "both": "lines+markers"}.get(series.style, "lines")
    main["marker"] = {"color": ink, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7}
    if series.style == "steps":
        main |= {"fill": "tozeroy", "fillcolor": faint(ink, 0.15)}
    if series.error is not None and series.spread == "band":
        return [*_band(series, ink, figure.y.log, same), main]
    return [main | _error_bars(series)]


def _band(series: Series, ink: str, log: bool, same: Json) -> list[Json]:
    """Two invisible edges with colour between them."""
    y, error = np.asarray(series.y, float), np.asarray(series.error, float)
    low, high = y - error, y + error
    if log:  # an edge at or below zero is nowhere on a logarithmic axis
        low = np.where(low > 0, low, y / 10)
    quiet: Json = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": list(series.x)}
    edge = quiet | same | {"showlegend": False}
    return [edge | {"y": _gaps(low)}, edge | {"y": _gaps(high), "fill": "tonexty", "fillcolor": faint(ink, 0.18)}]


def _error_bars(series: Series) -> Json:
    return {} if series.error is None else {"error_y": {"type": "data", "array": _gaps(series.error), "thickness": 1.2, "width": 3}}


def _gaps(values: "Sequence[float] | np.ndarray") -> list[float | None]:
    """JSON has no NaN; plotly takes null as a gap. Six digits are more than the eye sees, and a third of the file."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]
