"""Pages as text: Markdown, numbers as CSV and JSON, tables on the terminal; and all of a page's files in a folder."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from continua.errors import unknown_name
from continua.files import write_text, written_whole
from continua.report.draw import FORMATS, draw_figure
from continua.report.page import Cell, Figure, Link, Maps, Page, PlusMinus, Table
from continua.report.plain import from_plain, to_plain
from continua.showing import harmless, show_table


def write_page(page: Page, folder: Path, formats: Sequence[str] = ("png",), *, anew: bool = False) -> list[Path]:
    """page.md and page.json, a CSV for each table and figure, a picture of each figure in each format. Pictures stay, unless `anew`.

    Args:
        page: what is written.
        folder: where.
        formats: of pictures.
        anew: draw pictures again that are there.

    Returns:
        The files.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import Page, write_page
        >>> write_page(Page("Title", ["A sentence."]), Path("page"))  # doctest: +SKIP
    """
    made = [write_text(folder / "page.md", markdown(page, formats[0] if formats else None))]
    made.append(write_text(folder / "page.json", page_json(page)))
    made += [write_csv(part, folder / f"{part.name}.csv") for part in [*page.every(Table), *page.every(Figure)]]
    return made + draw_page(page, folder, formats, anew=anew)


def draw_page(page: Page, folder: Path, formats: Sequence[str], *, anew: bool = False) -> list[Path]:
    """The pictures of a page that are not in the folder yet; with `anew`, all of them: where numbers may have changed.

    Args:
        page: whose figures are drawn.
        folder: where.
        formats: such as ("png", "svg").
        anew: draw those again that are there.

    Returns:
        The files.

    Raises:
        ConfigError: an unknown format.

    Examples:
        >>> from continua.report import draw_page
        >>> draw_page(page, folder, ("png",))  # doctest: +SKIP
    """
    wrong = [kind for kind in formats if kind not in FORMATS]
    if wrong:
        raise unknown_name("format of pictures", wrong[0], FORMATS)
    parts = [*page.every(Figure), *page.every(Maps)]
    wanted = [(part, folder / f"{part.name}.{kind}") for part in parts for kind in formats]
    missing = [(part, path) for part, path in wanted if anew or not path.exists()]
    return [draw_figure(part, path) for part, path in missing]


def page_json(page: Page) -> str:
    """The page as JSON text, for `page_from`.

    Args:
        page: what is written.

    Returns:
        JSON.

    Examples:
        >>> from continua.report import Page, page_json
        >>> text = page_json(Page("Title"))
    """
    return json.dumps(to_plain(_rounded(page)), ensure_ascii=False, separators=(",", ":")) + "\n"


def page_from(data: Any) -> Page:
    """The page that `page_json` wrote.

    Args:
        data: what `json.loads` reads of it.

    Returns:
        The page.

    Examples:
        >>> import json
        >>> from continua.report import Page, page_from, page_json
        >>> page_from(json.loads(page_json(Page("Title")))).title
        'Title'
    """
    return from_plain(Page, data)


def markdown(page: Page, pictures: str | None = "png", level: int = 1, folder: str = "") -> str:
    """The page as Markdown; figures as links to their pictures in `folder`, or left out.

    Args:
        page: what is written.
        pictures: suffix of its pictures; None: leave them out.
        level: of the first heading.
        folder: of the pictures.

    Returns:
        The text.

    Examples:
        >>> from continua.report import Page, markdown
        >>> text = markdown(Page("Title", ["A sentence."]))
    """
    lines = [f"{'#' * level} {page.title}", ""]
    for part in page.parts:
        if isinstance(part, str):
            lines += [part, ""]
        elif isinstance(part, Table):
            lines += [f"**{part.title}**", "", *table_lines(part), ""]
        elif pictures:
            lines += [f"![{part.title}]({folder}{part.name}.{pictures})", ""]
        if not isinstance(part, str) and part.caption:
            lines += [part.caption, ""]
    return "\n".join(lines) + "".join(f"\n{markdown(section, pictures, level + 1, folder)}" for section in page.sections)


def table_lines(table: Table) -> list[str]:
    """A table in Markdown; columns of numbers to the right."""
    right = [all(not isinstance(row[place], str | Link) for row in table.rows) for place in range(len(table.heads))]
    rule = ["---:" if number else "---" for number in right]
    return [_row(column.text for column in table.heads), _row(rule), *map(_row, table.texts)]


def write_csv(part: Table | Figure, target: Path) -> Path:
    """The numbers of a table, or of a figure's series one after the other, at full precision.

    Args:
        part: a table or a figure.
        target: the file.

    Returns:
        The file.

    Examples:
        >>> from pathlib import Path
        >>> from continua.report import Table, write_csv
        >>> write_csv(Table("t", "T", ["a"], [[1]]), Path("t.csv"))  # doctest: +SKIP
    """
    rows = _table_rows(part) if isinstance(part, Table) else _figure_rows(part)
    with written_whole(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return target


def _table_rows(table: Table) -> Iterable[Sequence[Cell]]:
    """A column with spreads becomes two."""
    wide = [any(isinstance(row[place], PlusMinus) for row in table.rows) for place in range(len(table.heads))]
    heads = [(head.text, f"± {head.text}") for head in table.heads]
    rows = [[(cell.value, cell.error) if isinstance(cell, PlusMinus) else (cell, None) for cell in row] for row in table.rows]
    for pairs in [heads, *rows]:
        cells = [cell for pair, both in zip(pairs, wide, strict=True) for cell in (pair if both else pair[:1])]
        yield [cell.text if isinstance(cell, Link) else cell for cell in cells]


def _figure_rows(figure: Figure) -> Iterable[Sequence[Cell]]:
    spread = any(series.error is not None for series in figure.series)
    yield ["series", figure.x.text, figure.y.text, *([f"± {figure.y.text}"] if spread else [])]
    for series in figure.series:
        errors = [None] * len(series.y) if series.error is None else series.error
        for x, y, error in zip(series.x, series.y, errors, strict=True):
            yield [series.name, x, y, *([error] if spread else [])]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"


def _rounded(page: Page) -> Page:
    """Four digits of each map are enough to draw it again, and a third of the size."""
    short = np.vectorize(lambda value: float(f"{value:.4g}"), otypes=[float])
    parts = [replace(part, values=short(part.values)) if isinstance(part, Maps) else part for part in page.parts]
    return replace(page, parts=parts, sections=[_rounded(section) for section in page.sections])


# --- the terminal -------------------------------------------------------------------------------------------------------

MOST_ROWS = 24  # of a page's table


def show_page(page: Page) -> None:
    """Sentences and tables on the terminal.

    Args:
        page: what is shown.

    Examples:
        >>> from continua.report import Page, show_page
        >>> show_page(Page("Title", ["A sentence."]))  # doctest: +SKIP
    """
    print(harmless(page.title))
    for part in page.parts:
        if isinstance(part, str):
            print(harmless(part))
        elif isinstance(part, Table):
            words = [place for place in range(len(part.heads)) if any(isinstance(row[place], str) for row in part.rows)]
            show_table(part.title, [head.text for head in part.heads], part.texts[:MOST_ROWS], text=words)
            if len(part.rows) > MOST_ROWS:
                print(f"… and {len(part.rows) - MOST_ROWS} rows more in {part.name}.csv\n")
    for section in page.sections:
        show_page(section)


def size_text(size: int) -> str:
    """A number of bytes as people say it.

    Args:
        size: in bytes.

    Returns:
        The text.

    Examples:
        >>> from continua.report import size_text
        >>> text = size_text(2_000_000)
    """
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
