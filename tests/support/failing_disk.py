"""A disk that fails on purpose: one stand-in for `os` under `continua.files`, through which everything in a run folder is written.

Each call that touches the disk is a point. At the point it was told, the stand-in ends the process (`kill`), cuts the power (what was not
synced is lost, also new names in folders that were not synced, then the process ends), or fails as a disk does: `ENOSPC`, `EIO`, a `short`
write, and `EINTR`, which the system's calls answer when a signal comes in between.
"""

import errno
import os
import shutil
import signal
import stat
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from training import QUIET, begin_or_resume, lasting_lines, weights

from continua.runs import Run

WAYS = ("kill", "power", "ENOSPC", "EIO", "EINTR", "short")
CHANGES: dict[str, Any] = dict(epochs=2, per_class=4, ema=0.9)


class Ledger:
    """What would survive a power cut: the contents of each file when it was last synced, the names in each folder likewise."""

    def __init__(self, root: Path) -> None:
        self.root, self.names = root, count()
        self.ids: dict[int, int] = {}  # by the number of a file, which the system uses again
        self.contents: dict[int, bytes] = {}
        self.folders: dict[Path, dict[str, int]] = {}
        if root.is_dir():
            for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
                for path in folder.iterdir():
                    self.contents[self.new(path.lstat().st_ino)] = path.read_bytes() if path.is_file() else b""
                self.sync_folder(folder)

    def new(self, number: int) -> int:
        """A file that was just made, with nothing in it that would survive."""
        self.ids[number] = next(self.names)
        return self.ids[number]

    def sync_file(self, path: Path) -> None:
        number = path.stat().st_ino
        self.contents[self.ids.get(number) or self.new(number)] = path.read_bytes()

    def sync_folder(self, folder: Path) -> None:
        entries = {path.name: path.lstat().st_ino for path in folder.iterdir()}
        self.folders[folder] = {name: self.ids[number] if number in self.ids else self.new(number) for name, number in entries.items()}

    def cut_power(self) -> None:
        """Leave on the disk what would be there afterwards."""
        if self.root not in self.folders and self.root.parent not in self.folders:
            shutil.rmtree(self.root, ignore_errors=True)
            return
        self._put_back(self.root)

    def _put_back(self, folder: Path) -> None:
        kept = self.folders.get(folder, {})
        for path in list(folder.iterdir()):
            if path.is_dir() and path.name in kept:
                self._put_back(path)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for name, number in kept.items():
            if not (folder / name).is_dir():
                (folder / name).write_bytes(self.contents.get(number, b""))


class FailingFile:
    """A file whose writes are points."""

    def __init__(self, file: Any, disk: "FailingDisk") -> None:
        self.file, self.disk = file, disk

    def write(self, data: Any) -> int:
        if self.disk.point("write") == "short":
            self.file.write(memoryview(data)[: len(data) // 2])
            self.file.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "FailingFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class FailingDisk:
    """Stands in for `os`. Points are counted from 1; at number `at` it fails in its `way`. 0: it only counts."""

    def __init__(self, root: Path, way: str, at: int) -> None:
        self.way, self.at, self.points = way, at, 0
        self.ledger = Ledger(root) if way == "power" else None

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def point(self, what: str) -> str:
        self.points += 1
        if self.points != self.at:
            return ""
        if self.way in ("kill", "power"):
            if self.ledger is not None:
                self.ledger.cut_power()
            self.end()
        if self.way == "short" and what == "write":
            return "short"
        number = {"EIO": errno.EIO, "EINTR": errno.EINTR}.get(self.way, errno.ENOSPC)
        raise OSError(number, os.strerror(number))

    def end(self) -> None:
        """The process is over."""
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self.point("open")
        try:
            there = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
        except OSError:
            there = None
        handle = os.open(path, flags, mode, dir_fd=dir_fd)
        if self.ledger is not None and there is None:
            self.ledger.new(os.fstat(handle).st_ino)
        return handle

    def mkdir(self, path: Any, *words: Any, **options: Any) -> None:
        self.point("mkdir")
        os.mkdir(path, *words, **options)

    def fdopen(self, handle: int, mode: str) -> Any:
        file = os.fdopen(handle, mode)
        return file if mode == "rb" else FailingFile(file, self)

    def fsync(self, handle: int) -> None:
        self.point("fsync")
        self.sync(handle)
        if self.ledger is not None:
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            (self.ledger.sync_folder if stat.S_ISDIR(os.fstat(handle).st_mode) else self.ledger.sync_file)(path)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def replace(self, *words: Any, **options: Any) -> None:
        self.point("replace")
        os.replace(*words, **options)

    def unlink(self, *words: Any, **options: Any) -> None:
        self.point("unlink")
        os.unlink(*words, **options)

    def ftruncate(self, *words: Any) -> None:
        self.point("ftruncate")
        os.ftruncate(*words)


def tortured(folder: Path, way: str, at: int, counted: Path | None = None) -> None:
    """In a child process: train, or go on, on a disk that fails. `counted`: where the number of points is written at the end."""
    from continua import files
    from continua.errors import ContinuaError

    disk = FailingDisk(folder.resolve(), way, at)
    files.os = disk  # pyright: ignore[reportAttributeAccessIssue]
    with suppress(ContinuaError):  # what a person is told; anything else is a traceback, and ends the child with 1
        begin_or_resume(folder, CHANGES)
    if counted is not None:
        counted.write_text(str(disk.points))


def differences(run: Run, reference: Run) -> list[str]:
    """What of a run that survived differs from one that was left alone; bit for bit."""
    import torch

    wrong = [] if run.result is not None else ["it is not finished"]
    if lasting_lines(run) != lasting_lines(reference):
        wrong.append("its metrics differ")
    expected, mine = weights(reference), weights(run)
    if expected.keys() != mine.keys() or not all(torch.equal(mine[name], value) for name, value in expected.items()):
        wrong.append("its weights differ")
    return wrong


def end_well(folder: Path) -> None:
    """In a child process: what a person does afterwards, on a disk that works."""
    begin_or_resume(folder, CHANGES, QUIET)
