"""Numbers in, pictures and tables out. Nothing here knows where the numbers come from."""

from continua.report.compare import overlaid
from continua.report.contact_sheet import contact_sheet
from continua.report.draw import draw_figure
from continua.report.files import draw_page, markdown, page_from, page_json, write_csv, write_page, write_text
from continua.report.html import write_html
from continua.report.page import Axis, Cell, Column, Figure, Link, Look, Maps, Page, Part, PlusMinus, Series, Table, cell_text
from continua.report.palette import PALETTE, colour
from continua.report.plain import from_plain, to_plain
from continua.report.plot import plotly_figure
from continua.report.results import Entry, entry_environment, read_entry
from continua.report.runs import RunFacts, over_seeds, runs_page
from continua.report.terminal import show_page, show_table, size_text
from continua.report.write import written_whole

__all__ = [
    "PALETTE",
    "Axis",
    "Cell",
    "Column",
    "Entry",
    "Figure",
    "Link",
    "Look",
    "Maps",
    "Page",
    "Part",
    "PlusMinus",
    "RunFacts",
    "Series",
    "Table",
    "cell_text",
    "colour",
    "contact_sheet",
    "draw_figure",
    "draw_page",
    "entry_environment",
    "from_plain",
    "markdown",
    "over_seeds",
    "overlaid",
    "page_from",
    "page_json",
    "plotly_figure",
    "read_entry",
    "runs_page",
    "show_page",
    "show_table",
    "size_text",
    "to_plain",
    "write_csv",
    "write_html",
    "write_page",
    "write_text",
    "written_whole",
]
