"""Tables on the terminal."""

import sys
from collections.abc import Iterable, Sequence

WIDE = 160  # columns


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, text: Sequence[int] = (0,)) -> None:
    """Print a table; all columns but those in `text` are aligned to the right and never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A pipe or file has no width: a table squeezed into the usual 80 columns there would be hard to read or search.
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for position, column in enumerate(columns):
        words = position in text
        table.add_column(Text(column), justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)) for cell in row))
    console.print(Text(title), style="bold", soft_wrap=True)
    console.print(table)
    console.print()


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
