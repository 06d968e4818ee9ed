"""One progress bar for everything that takes time. On a terminal it moves; elsewhere one line is left when it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(what: str, total: int | None, *, of_bytes: bool = False, done: int = 0) -> Iterator[Advance]:
    """A bar on stderr; call the function it gives with the number of items (or bytes) finished since the last call."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    amounts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda amount: progress.advance(task, amount)
