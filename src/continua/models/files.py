"""Files that survive a crash: whole under their own name, or not there."""

import os
from pathlib import Path


def write_synced(path: Path, data: "bytes | memoryview") -> None:
    """Write to a temporary name, wait until it is on the disk, then give it its own name."""
    temporary = path.with_name(f".{path.name}.part")
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
