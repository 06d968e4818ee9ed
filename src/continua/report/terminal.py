"""Pages and tables on the terminal."""

import sys
from collections.abc import Iterable, Sequence

from continua.report.page import Page, Table, cell_text

WIDE = 160  # columns
MOST_ROWS = 24  # of a page's table


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, text: Sequence[int] = (0,)) -> None:
    """Print a table; all columns but those in `text` are aligned to the right and never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    # A pipe or file has no width: a table squeezed into the usual 80 columns there would be hard to read or search.
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, column in enumerate(columns):
        words = position in text
        table.add_column(Text(column), justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)) for cell in row))
    console.print(Text(title), style="bold", soft_wrap=True)
    console.print(table)
    console.print()


def show_page(page: Page) -> None:
    """Sentences and tables on the terminal."""
    print(page.title)
    for part in page.parts:
        if isinstance(part, str):
            print(part)
        elif isinstance(part, Table):
            rows = [[cell_text(cell, head.digits) for cell, head in zip(row, part.heads, strict=True)] for row in part.rows]
            words = [place for place in range(len(part.heads)) if any(isinstance(row[place], str) for row in part.rows)]
            show_table(part.title, [head.text for head in part.heads], rows[:MOST_ROWS], text=words)
            if len(rows) > MOST_ROWS:
                print(f"… and {len(rows) - MOST_ROWS} rows more in {part.name}.csv\n")
    for section in page.sections:
        show_page(section)


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
