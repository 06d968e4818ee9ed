"""A page as one HTML file that needs nothing else: figures to zoom and hover over, tables that sort, light and dark, phone and paper."""

import base64
import json
import math
import re
import tempfile
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path

from continua.report.draw import draw_figure
from continua.report.page import Cell, Figure, Link, Maps, Page, PlusMinus, Table, cell_text
from continua.report.plot import plotly_figure
from continua.report.write import written_whole


def write_html(page: Page, target: Path) -> Path:
    """Write the page; the file can be mailed, archived and opened without a network."""
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


def _page(page: Page, level: int, numbers: "count[int]") -> str:
    head = f"h{min(level, 4)}"
    parts = "\n".join(_part(part, numbers) for part in page.parts)
    inside = "\n".join(_page(section, level + 1, numbers) for section in page.sections)
    up = '<a class="up" href="#top" aria-label="to the top">↑</a>' if level == 2 else ""
    return f'<section id="{_anchor(page.title)}"><{head}>{escape(page.title)}{up}</{head}>\n{parts}\n{inside}</section>'


def _part(part: "str | Figure | Table | Maps", numbers: "count[int]") -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
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


def _contents(page: Page) -> str:
    """Links to sections that no table of the page leads to already."""
    led = {cell.section for part in page.parts if isinstance(part, Table) for row in part.rows for cell in row if isinstance(cell, Link)}
    links = [f'<a href="#{_anchor(section.title)}">{escape(section.title)}</a>' for section in page.sections if section.title not in led]
    return f"<nav>{''.join(links)}</nav>" if links else ""


def _anchor(title: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in title.lower()).split())
