"""Files of data sets: the folder they live in, reading and hashing them with errors that say what to do, a bar while that takes time."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from continua.errors import DataError

Advance = Callable[[int], None]
"""What a long task calls with the number of units done."""


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all data sets, there or not: the one asked for, else `CONTINUA_DATA`, else one in the user's cache.

    Args:
        data_dir: the folder asked for.

    Returns:
        The folder; it need not exist.

    Examples:
        >>> from continua.data import data_folder
        >>> data_folder("images").name
        'images'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if configured := os.environ.get("CONTINUA_DATA"):
        return Path(configured).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("continua", appauthor=False) / "data"


@contextmanager
def opened(path: Path, remedy: str) -> Iterator[BufferedIOBase]:
    """The file's contents as a stream, unpacked on the way where its name ends in .gz; trouble becomes a `DataError`."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {remedy}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}); it is truncated or damaged: {remedy}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from None


def read(path: Path, size: int, remedy: str) -> bytes:
    """The whole contents, which must be `size` bytes; never more than that is held, whatever the file claims."""
    with opened(path, remedy) as stream:
        contents = stream.read(size + 1)
    if len(contents) != size:
        length = f"more than {size:,}" if len(contents) > size else f"{len(contents):,}"
        raise DataError(f"{path} holds {length} bytes, expected {size:,}: it is truncated or not the official file; {remedy}")
    return contents


def read_lines(path: Path, remedy: str) -> list[str]:
    """The non-empty lines of a text file."""
    with opened(path, remedy) as stream:
        contents = stream.read()
    try:
        text = contents.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text ({error.reason} at byte {error.start}); {remedy}") from None
    return [line for line in text.splitlines() if line.strip()]


def md5(path: Path, remedy: str) -> str:
    """MD5 of the contents; of a .gz, of what it holds, since the same contents can be packed in many ways."""
    with opened(path, remedy) as stream:
        return md5_of(stream)


def md5_of(stream: BufferedIOBase) -> str:
    """MD5 of what is left of a stream."""
    return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def progress_bar(what: str, total: int | None, *, of_bytes: bool = False, done: int = 0) -> Iterator[Advance]:
    """A bar on stderr, elsewhere than on a terminal one line at the end; call what it gives with the items (or bytes) done since last.

    Args:
        what: words in front of the bar.
        total: how much there is in all; None: not known.
        of_bytes: whether bytes are counted.
        done: how much was done before.

    Returns:
        A function to call with what was done since the last call, in a `with` statement.

    Examples:
        >>> from continua.data import progress_bar
        >>> with progress_bar("reading", 10) as advance:
        ...     advance(10)
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    amounts = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda amount: progress.advance(task, amount)
