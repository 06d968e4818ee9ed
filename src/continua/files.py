"""Files that appear whole under their own name or not at all, whatever happens while they are written."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Json = dict[str, Any]  # an object as JSON and YAML hold it


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A temporary name beside `target` to write to; it becomes `target` when the block ends well, and goes when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> Path:
    """Write a whole text file or none."""
    with written_whole(target) as temporary:
        temporary.write_text(text, "utf-8")
    return target


def write_synced(path: Path, data: "bytes | memoryview") -> None:
    """Write a file that survives a crash of the machine: it gets its own name once it is on the disk."""
    temporary = path.with_name(f".{path.name}.part")  # always the same: what a killed process leaves, the next one writes over
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    handle = os.open(path.parent, os.O_RDONLY)  # a new name is safe only once its folder is synced
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_reading_umask = threading.Lock()


def _umask() -> int:
    with _reading_umask:  # it can only be read by writing it
        mask = os.umask(0)
        os.umask(mask)
    return mask
