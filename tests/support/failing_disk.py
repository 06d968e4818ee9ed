"""A disk that fails on purpose: stands in for the calls of `os` and for `open` by which a process touches the files below one folder.

Each call that opens, reads, writes, syncs, names or removes one of them is a point. At the point it was told, the stand-in

- ends the process (`kill`),
- cuts the power and ends it: what was not synced is gone, as are names in folders that were not synced (`power`); or names survive up
  to a moment drawn at random and the contents that were not synced are kept, emptied or torn, as a journal would leave them (`torn`),
- or fails as a disk does: `ENOSPC` and `EIO` once, `EINTR` once, a `short` write and no room for the rest, no room from here on (`full`).
"""

import builtins
import errno
import io
import os
import random
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

ENDS = ("kill", "power", "torn")
WAYS = (*ENDS, "ENOSPC", "EIO", "EINTR", "short", "full")
CODES = {"EIO": errno.EIO, "EINTR": errno.EINTR}
PATHS = ("mkdir", "rmdir", "unlink", "remove", "truncate", "chmod")  # each names its file first
PAIRS = ("replace", "rename", "link", "symlink")  # these name the file that is made second
HANDLES = ("ftruncate", "fchmod", "write", "pwrite")
ROOM = ("open", "mkdir", "write", "pwrite", "replace", "rename", "sendfile")  # what needs room on the disk

Entries = dict[str, int]


class Ledger:
    """What would survive a power cut: the contents of each file when it was last synced, the names in each folder likewise."""

    def __init__(self, root: Path) -> None:
        self.root, self.names = root, count()
        self.ids: dict[int, int] = {}  # by the number of a file, which the system uses again
        self.are_folders: set[int] = set()
        self.contents: dict[int, bytes] = {}
        self.folders: dict[int, Entries] = {}  # as they were last synced
        self.log: list[dict[int, Entries]] = []  # every change of names, in its order
        self.committed = 0  # changes before this one are on the disk: syncing a folder writes the whole journal
        for folder, _, files in os.walk(root):
            self.folders[self.id(folder)] = self.entries(folder)
            self.contents |= {
                self.id(path): Path(path).read_bytes() for name in files if os.path.isfile(path := os.path.join(folder, name))
            }
        self.first = dict(self.folders)

    def id(self, path: "str | Path | int") -> int:
        """What a file is called here, as long as it is that file."""
        about = os.stat(path) if isinstance(path, int) else os.lstat(path)
        if about.st_ino not in self.ids:
            self.ids[about.st_ino] = next(self.names)
            if stat.S_ISDIR(about.st_mode):
                self.are_folders.add(self.ids[about.st_ino])
        return self.ids[about.st_ino]

    def entries(self, folder: "str | Path | int") -> Entries:
        return {name: self.id(os.path.join(folder, name)) for name in os.listdir(folder)}

    def forget(self, path: str) -> None:
        """A file that goes: its number may come back as another one's."""
        if os.path.lexists(path) and (os.path.isdir(path) or os.lstat(path).st_nlink == 1):
            self.ids.pop(os.lstat(path).st_ino, None)

    def changed(self, *folders: str) -> None:
        """Names in these folders have changed, at once."""
        self.log.append({self.id(folder): self.entries(folder) for folder in folders if os.path.isdir(folder)})

    def sync(self, handle: int, path: str) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self.folders[self.id(path)] = self.entries(path)
            self.committed = len(self.log)
        else:
            self.contents[self.id(handle)] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def sync_all(self) -> None:
        for folder, _, files in os.walk(self.root):
            self.folders[self.id(folder)] = self.entries(folder)
            self.contents |= {
                self.id(path): Path(path).read_bytes() for name in files if os.path.isfile(path := os.path.join(folder, name))
            }
        self.committed = len(self.log)

    def cut_power(self, draw: random.Random | None) -> None:
        """Leave on the disk what would be there afterwards; with a `draw`, one of the things that a journal might leave."""
        top, folders, contents = self.id(self.root), self.folders, self.contents
        if draw is not None:
            folders, contents = dict(self.first), dict(contents)
            for change in self.log[: draw.randint(self.committed, len(self.log))]:
                folders |= change
            for folder, _, files in os.walk(self.root):
                for name in files:
                    self._tear(Path(folder) / name, contents, draw)
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._put_back(self.root, top, folders, contents)

    def _tear(self, path: Path, contents: dict[int, bytes], draw: random.Random) -> None:
        now, synced = path.read_bytes(), contents.get(self.id(path), b"")
        kept = len(synced) if now.startswith(synced) else 0  # of a file that has only grown, what was synced is there
        new = now[kept:]
        if now != synced:
            torn = draw.choice((new, b"", new[: draw.randint(0, len(new))], bytes(len(new))))
            contents[self.id(path)] = draw.choice((synced, now[:kept] + torn))

    def _put_back(self, folder: Path, number: int, folders: dict[int, Entries], contents: dict[int, bytes]) -> None:
        for name, inner in folders.get(number, {}).items():
            if inner in self.are_folders:
                (folder / name).mkdir()
                self._put_back(folder / name, inner, folders, contents)
            else:
                (folder / name).write_bytes(contents.get(inner, b""))


class FailingFile(io.FileIO):
    """A file whose reads and writes are points."""

    disk: "FailingDisk"

    def write(self, data: Any) -> int:
        if self.disk.point("write") == "short":
            return super().write(memoryview(data).cast("B")[: max(1, memoryview(data).nbytes // 2)])
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self.disk.point("read")
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self.disk.point("read")
        return super().readall()


class FailingDisk:
    """Points are counted from 1; at number `at` the disk fails in its `way`. 0: it only counts."""

    def __init__(self, root: Path, way: str, at: int, seed: int = 0) -> None:
        self.root, self.way, self.at, self.points = str(root.resolve()), way, at, 0
        self.draw = random.Random(seed) if way == "torn" else None
        self.ledger = Ledger(root.resolve()) if way in ("power", "torn") else None
        self.busy = self.half = False
        self.real: dict[str, Any] = {name: getattr(os, name) for name in (*PATHS, *PAIRS, *HANDLES, "open", "fsync", "sendfile", "sync")}

    @contextmanager
    def installed(self) -> Iterator["FailingDisk"]:
        """In this process, from here on: every call passes here."""
        real_open = io.open
        own: dict[str, Any] = {"open": self.open, "fsync": self.fsync, "sendfile": self.sendfile, "sync": self.sync}
        own |= {name: self._by_path(name) for name in PATHS} | {name: self._by_paths(name) for name in PAIRS}
        own |= {name: self._by_handle(name) for name in HANDLES}
        try:
            for name, call in own.items():
                setattr(os, name, call)
            io.open = builtins.open = self._file  # pyright: ignore[reportAttributeAccessIssue]
            yield self
        finally:
            io.open = builtins.open = real_open
            for name, call in self.real.items():
                setattr(os, name, call)

    # --- points -------------------------------------------------------------------------------------------------------

    def point(self, what: str) -> str:
        """One more call; raises, or never returns, where this is the one. "short": only half of it is written."""
        if self.busy:
            return ""
        self.points += 1
        if self.half and what in ROOM:
            self.half = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        late = self.way == "full" and 0 < self.at < self.points and what in ROOM
        if self.points != self.at and not late:
            return ""
        if self.way in ENDS:
            self.busy = True
            if self.ledger is not None:
                self.ledger.cut_power(self.draw)
            self.end()
        if self.way == "short" and what == "write":
            self.half = True
            return "short"
        if self.way == "full" and what not in ROOM:
            return ""
        number = CODES.get(self.way, errno.ENOSPC)
        raise OSError(number, os.strerror(number))

    def end(self) -> None:
        """The process is over."""
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The whole path, where it is below the folder that is watched."""
        if self.busy or isinstance(path, bytes):
            return None
        if isinstance(path, int):
            full = os.readlink(f"/proc/self/fd/{path}") if path > 2 else ""
        else:
            start = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
            full = os.path.normpath(os.path.join(start, os.fspath(path)))
        return full if full == self.root or full.startswith(self.root + "/") else None

    def record(self, *changed: str) -> None:
        """Names have changed in the folders of these paths."""
        if self.ledger is not None:
            self.busy = True
            self.ledger.changed(*{os.path.dirname(path) for path in changed})
            self.busy = False

    # --- the calls ----------------------------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        full = self.below(path, dir_fd)
        if full is None:
            return self.real["open"](path, flags, mode, dir_fd=dir_fd)
        self.point("open" if flags & os.O_CREAT else "open to read")
        new = flags & os.O_CREAT and not os.path.lexists(full)
        handle = self.real["open"](path, flags, mode, dir_fd=dir_fd)
        if new:
            self.record(full)
        return handle

    def fsync(self, handle: int) -> None:
        full = self.below(handle)
        if full is not None:
            self.point("fsync")
        self.really_sync(handle)
        if self.ledger is not None and full is not None:
            self.busy = True
            self.ledger.sync(handle, full)
            self.busy = False

    def really_sync(self, handle: int) -> None:
        """The ledger knows what is synced; no real disk has to."""

    def sync(self) -> None:
        self.point("sync")
        if self.ledger is not None:
            self.busy = True
            self.ledger.sync_all()
            self.busy = False

    def sendfile(self, target: int, *words: Any, **options: Any) -> int:
        if self.below(target) is not None:
            self.point("sendfile")
        return self.real["sendfile"](target, *words, **options)

    def _by_path(self, name: str) -> Callable[..., Any]:
        real, removes = self.real[name], name in ("rmdir", "unlink", "remove")

        def call(path: Any, *words: Any, dir_fd: int | None = None, **options: Any) -> Any:
            full = self.below(path, dir_fd)
            where = {} if dir_fd is None else {"dir_fd": dir_fd}
            if full is None:
                return real(path, *words, **where, **options)
            self.point(name)
            if removes and self.ledger is not None:
                self.ledger.forget(full)
            answer = real(path, *words, **where, **options)
            if removes or name == "mkdir":
                self.record(full)
            return answer

        return call

    def _by_paths(self, name: str) -> Callable[..., Any]:
        def call(source: Any, target: Any, *words: Any, **options: Any) -> Any:
            full = self.below(target, options.get("dst_dir_fd", options.get("dir_fd")))
            if full is None:
                return self.real[name](source, target, *words, **options)
            self.point(name)
            before = self.below(source, options.get("src_dir_fd"))
            if self.ledger is not None:
                self.ledger.forget(full)
            self.real[name](source, target, *words, **options)
            self.record(full, before or full)
            return None

        return call

    def _by_handle(self, name: str) -> Callable[..., Any]:
        def call(handle: int, *words: Any) -> Any:
            if self.below(handle) is not None and self.point(name) == "short":
                words = (words[0][: max(1, len(words[0]) // 2)], *words[1:])
            return self.real[name](handle, *words)

        return call

    def _file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """`open`, with a file of ours underneath."""
        if self.below(file) is None:
            return _OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        plain = mode.replace("b", "").replace("t", "")
        kind = type("File", (FailingFile,), {"disk": self})
        by = None if isinstance(file, int) else opener or (lambda path, flags: self.open(path, flags, 0o666))
        raw = kind(file, plain, closefd, by)
        if buffering == 0:
            return raw
        many = io.BufferedRandom if "+" in plain else io.BufferedReader if plain == "r" else io.BufferedWriter
        buffered = many(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, io.text_encoding(encoding), errors, newline)
        text.mode = mode  # pyright: ignore[reportAttributeAccessIssue]
        return text


_OPEN = io.open


class Ended(BaseException):
    """In place of the end of the process: nothing of ours may catch it."""


class EndingDisk(FailingDisk):
    """A disk whose kill and power cut come back to the test."""

    def end(self) -> None:
        raise Ended
