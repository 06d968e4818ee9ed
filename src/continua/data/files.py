"""Reading official files, with errors that name the file, what was found, what was expected and what to do."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from continua.errors import DataError

CHUNK = 1 << 20


@contextmanager
def opened(path: Path, remedy: str) -> Iterator[BinaryIO]:
    """The file's contents as a stream, unpacked on the way where its name ends in .gz; trouble becomes a `DataError`."""
    try:
        with cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb") as stream:
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
        found = f"more than {size:,}" if len(contents) > size else f"{len(contents):,}"
        raise DataError(f"{path} holds {found} bytes, expected {size:,}: it is truncated or not the official file; {remedy}")
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
    digest = hashlib.md5(usedforsecurity=False)
    with opened(path, remedy) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
