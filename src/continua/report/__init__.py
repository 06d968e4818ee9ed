"""Numbers in, pictures and tables out. Nothing here knows where the numbers come from."""

from continua.report.contact_sheet import contact_sheet
from continua.report.draw import draw_figure
from continua.report.files import markdown, page_from, page_json, write_page
from continua.report.html import write_html
from continua.report.page import Axis, Column, Figure, Maps, Page, PlusMinus, Series, Table
from continua.report.results import Entry, entry_environment, read_entry
from continua.report.table import show_table, size_text
from continua.report.write import written_whole

__all__ = [
    "Axis",
    "Column",
    "Entry",
    "Figure",
    "Maps",
    "Page",
    "PlusMinus",
    "Series",
    "Table",
    "contact_sheet",
    "draw_figure",
    "entry_environment",
    "markdown",
    "page_from",
    "page_json",
    "read_entry",
    "show_table",
    "size_text",
    "write_html",
    "write_page",
    "written_whole",
]
