"""Numbers in, pictures and tables out. Nothing here knows where the numbers come from."""

from continua.files import write_text, written_whole
from continua.report.draw import PALETTE, colour, contact_sheet, draw_figure, matplotlib_figure
from continua.report.html import notebook_html, plotly_figure, write_html
from continua.report.page import Axis, Cell, Column, Figure, Link, Look, Maps, Page, Part, PlusMinus, Series, Table, cell_text, overlaid
from continua.report.plain import from_plain, to_plain
from continua.report.results import EARLIER, VERSION, Claim, Entry, Printed, RunOfEntry, Verdict, entry_environment, read_entry
from continua.report.text import draw_page, markdown, page_from, page_json, show_page, size_text, write_csv, write_page
from continua.showing import show_table

__all__ = [
    "EARLIER",
    "PALETTE",
    "VERSION",
    "Axis",
    "Cell",
    "Claim",
    "Column",
    "Entry",
    "Figure",
    "Link",
    "Look",
    "Maps",
    "Page",
    "Part",
    "PlusMinus",
    "Printed",
    "RunOfEntry",
    "Series",
    "Table",
    "Verdict",
    "cell_text",
    "colour",
    "contact_sheet",
    "draw_figure",
    "draw_page",
    "entry_environment",
    "from_plain",
    "markdown",
    "matplotlib_figure",
    "notebook_html",
    "overlaid",
    "page_from",
    "page_json",
    "plotly_figure",
    "read_entry",
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
