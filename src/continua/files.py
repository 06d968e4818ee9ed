"""Files that appear whole under their own name or not at all, and files in a folder that somebody else made: no link in it is followed."""

import errno
import glob
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from continua.errors import ContinuaError
from continua.limits import Limit

Json = dict[str, Any]  # an object as JSON and YAML hold it
NOT_PLAIN = "is a pipe or a device, expected a plain file: it was left alone; remove it"
# How files are opened: not passed on to child processes, and without waiting for somebody to write to a pipe. As far as the system has it.
PLAINLY = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))


class ForeignFile(ContinuaError):
    """A link, a pipe or a device where a plain file of ours is expected: it may lead anywhere, so it is neither read nor written."""


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A temporary name beside `target` to write to. When the block ends well it becomes `target`, on the disk; else it goes.

    Args:
        target: the file.

    Returns:
        A context that gives the temporary path.

    Examples:
        >>> from pathlib import Path
        >>> from continua.files import written_whole
        >>> with written_whole(Path("x.bin")) as path: path.write_bytes(b"...")  # doctest: +SKIP
    """
    make_folder(target.parent)
    with _held_name(target.parent, f".{target.stem}.", target.suffix) as temporary:
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> Path:
    """Write a whole text file or none.

    Args:
        target: the file.
        text: its contents.

    Returns:
        The file.

    Examples:
        >>> from pathlib import Path
        >>> from continua.files import write_text
        >>> write_text(Path("notes.txt"), "...")  # doctest: +SKIP
    """
    with written_whole(target) as temporary:
        temporary.write_text(text, "utf-8")
    return target


@contextmanager
def own_folder(parent: Path, name: str) -> Iterator[Path]:
    """A temporary folder beside the folder `name` in `parent`, to be filled and renamed; what is left of it goes when the block ends."""
    with _held_name(parent, f".{name}.", None) as temporary:
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _held_name(parent: Path, prefix: str, suffix: str | None) -> Iterator[Path]:
    """A new file, or a folder where there is no `suffix`, that is locked; those of killed processes, which are not, are removed."""
    import fcntl  # of POSIX alone, and needed in few places

    with ExitStack() as while_made:
        _remove_leftovers(parent, prefix, suffix, while_made)
        if suffix is None:
            made = tempfile.mkdtemp(prefix=prefix, dir=parent)
            mine = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
        else:
            mine, made = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=parent)
        with suppress(OSError):
            fcntl.flock(mine, fcntl.LOCK_EX)
    try:
        yield Path(made)
    finally:
        os.close(mine)


def remove_leftovers(parent: Path, name: str) -> None:
    """Remove what killed processes, or a disk that failed while it was removed, left of `own_folder(parent, name)`.

    Args:
        parent: the folder in which `name` is made.
        name: of the folder.

    Examples:
        >>> from pathlib import Path
        >>> from continua.files import remove_leftovers
        >>> remove_leftovers(Path("nowhere"), "cifar-10-batches-py")
    """
    with ExitStack() as while_removed:
        _remove_leftovers(parent, f".{name}.", None, while_removed)


def _remove_leftovers(parent: Path, prefix: str, suffix: str | None, held: ExitStack) -> None:
    """Those that nobody has locked. The parent stays locked until `held` ends: nobody takes a name that is being made for a leftover."""
    import fcntl

    with suppress(OSError):  # some network file systems have no locks, some folders may not be read: then no leftover is looked for
        fcntl.flock(held.enter_context(_opened(parent)), fcntl.LOCK_EX)
        for leftover in parent.glob(f"{glob.escape(prefix)}*{glob.escape(suffix or '')}"):
            if re.fullmatch(r"\w{8}", leftover.name.removeprefix(prefix).removesuffix(suffix or "")) and not leftover.is_symlink():
                _remove_unlocked(leftover)


def _remove_unlocked(leftover: Path) -> None:
    import fcntl

    with suppress(OSError), _opened(leftover) as handle:  # a BlockingIOError: somebody is writing there
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | PLAINLY)
    try:
        yield handle
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk when this returns."""
    with suppress(PermissionError), _opened(path) as handle:  # one may be allowed to write into a folder and not to read it
        os.fsync(handle)


# --- below a folder that may be a stranger's ----------------------------------------------------------------------------
#
# Every function takes the folder `root` that is trusted to be what the user named (it may itself be reached by links), and a path below it.
# From `root` on each step is taken from the folder before it, by its descriptor and without following links: there is no moment in
# between at which something else could be put in the way.


def write_synced(path: Path, data: "bytes | memoryview", root: Path | None = None) -> None:
    """Write a file that survives a crash of the machine: it gets its own name once it is on the disk. `root`: by default its own folder.

    Args:
        path: the file.
        data: its contents.
        root: folder below which no link is followed; None: that of the file.

    Examples:
        >>> from pathlib import Path
        >>> from continua.files import write_synced
        >>> write_synced(Path("state.bin"), b"...")  # doctest: +SKIP
    """
    part = f".{path.name}.part"  # always the same: what a killed process leaves, the next one takes away
    with folder_below(root or path.parent, path.parent) as folder:
        _remove(part, folder)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove(part, folder)
            raise
        os.fsync(folder)  # a new name is safe only once its folder is synced


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; each name is on the disk when this returns, as a file in it will rely on it."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        with suppress(FileExistsError):  # another process was quicker
            os.mkdir(new)
        with suppress(PermissionError), folder_below(new.parent, new.parent) as above:  # one may be allowed to write and not to read
            os.fsync(above)


def append_below(path: Path, data: bytes, root: Path, *, synced: bool = True) -> None:
    """Add to the end of a file, made where it is not there; on the disk when this returns, if `synced`."""
    new = not os.path.lexists(path)
    with os.fdopen(open_below(path, root, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(data)
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if new and synced:
        with folder_below(root, path.parent) as folder:
            os.fsync(folder)


def truncate_below(path: Path, length: int, root: Path) -> None:
    """Cut a file to a length."""
    handle = open_below(path, root, os.O_WRONLY)
    try:
        os.ftruncate(handle, length)
    finally:
        os.close(handle)


def read_below(path: Path, root: Path | None = None, most: int | None = None, limit: Limit | None = None) -> bytes:
    """The contents of a file, or its first `most` bytes; one beyond its limit is refused unread.

    Without a `root`, links are followed: the user named the file itself.
    """
    with os.fdopen(open_below(path, root, os.O_RDONLY), "rb") as file:
        if limit is not None and limit.exceeded(size := os.fstat(file.fileno()).st_size):
            raise ForeignFile(f"{path} has {size:,} bytes and was not read; {limit.advice()}")
        return file.read() if most is None else file.read(most)


def open_below(path: Path, root: Path | None, flags: int) -> int:
    """A descriptor of the plain file at `path`. Raises OSError, and `ForeignFile` for what is no plain file of this folder alone."""
    flags |= PLAINLY
    if root is None:
        handle = os.open(path, flags)
    else:
        with folder_below(root, path.parent) as folder:
            try:
                handle = os.open(path.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
            except OSError as error:
                _refuse_link(path, path.name, folder)
                if error.errno == errno.ENXIO:  # of a pipe that is opened to write, and that nobody reads
                    raise ForeignFile(f"{path} {NOT_PLAIN}") from None
                raise
    try:
        about = os.fstat(handle)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(21, f"{path} is a folder")
        if not stat.S_ISREG(about.st_mode):
            raise ForeignFile(f"{path} {NOT_PLAIN}")
        if about.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise ForeignFile(
                f"{path} is one file under {about.st_nlink} names (hard links), and writing to it would change it under the others too; "
                f"replace it by a copy: cp {path.name} copy && mv copy {path.name}"
            )
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def folder_below(root: Path, folder: Path) -> Iterator[int]:
    """A descriptor of a folder that is `root` or below it, reached without following links."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = root
        for name in folder.relative_to(root).parts:
            seen = seen / name
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            except OSError:
                _refuse_link(seen, name, here)
                raise
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def refuse_links(root: Path, path: Path) -> Path:
    """`path`, unless it or a folder on the way to it from `root` is a link: for what other libraries open by name."""
    seen = root
    for name in path.relative_to(root).parts:
        seen = seen / name
        if seen.is_symlink():
            raise _is_link(seen)
    return path


def _refuse_link(path: Path, name: str, folder: int) -> None:
    try:
        linked = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return
    if linked:
        raise _is_link(path) from None


def _is_link(path: Path) -> ForeignFile:
    return ForeignFile(
        f"{path} is a link, expected a file or folder of its own: nothing was read from where it leads, and nothing written; "
        "put a copy in its place if you trust what it leads to"
    )


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)  # of a link, the link: never what it leads to
    except FileNotFoundError:
        return


_reading_umask = threading.Lock()


def _umask() -> int:
    with _reading_umask:  # it can only be read by writing it
        mask = os.umask(0)
        os.umask(mask)
    return mask
