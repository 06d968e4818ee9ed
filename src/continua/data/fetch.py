"""Downloading: mirrors in order, resumed where it stopped, and nothing under its final name before its checksum holds; then unpacking."""

import http.client
import os
import shutil
import ssl
import stat
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from continua.data.files import Advance, md5_of, progress_bar
from continua.data.sources import Remote
from continua.errors import DataError
from continua.files import make_folder, own_folder, remove_leftovers, sync
from continua.limits import DOWNLOAD, UNPACKED

CHUNK = 1 << 16
MEMBERS = 5_000_000  # of an archive; ImageNet has 1.3 million images


@dataclass(frozen=True)
class Patience:
    """How long to wait for a silent server, how often to try again while nothing at all arrives, and how slow a server may be."""

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0  # before the second attempt, then doubled
    slowest: float = 1000.0  # bytes a second on average, once `grace` seconds have passed: a drip would otherwise never end
    grace: float = 120.0


class _Pace:
    """How fast a file arrives, over all requests for it."""

    def __init__(self, patience: Patience) -> None:
        self.patience, self.started, self.arrived = patience, time.monotonic(), 0

    def add(self, count: int) -> None:
        """So many more bytes are here. Raises `_GiveUp` where they come too slowly."""
        self.arrived += count
        seconds = time.monotonic() - self.started
        if seconds > self.patience.grace and self.arrived < self.patience.slowest * seconds:
            raise _GiveUp(f"only {self.arrived:,} bytes arrived in {seconds:.0f} s, less than {self.patience.slowest:g} a second")


class _TryAgain(Exception):
    """The transfer broke off; what has arrived is kept and the rest asked for again."""


class _GiveUp(Exception):
    """This mirror cannot serve the file."""


def fetch_data(remotes: Sequence[Remote], root: Path, mirrors: Sequence[str] = (), patience: Patience | None = None) -> list[Path]:
    """Download each file below `root`, from `mirrors` first, and unpack archives; what is there already is verified, not fetched again.

    Args:
        remotes: the files, with their sizes and checksums.
        root: folder below which they are written.
        mirrors: addresses that are tried before a file's own.
        patience: how often and how long to try again.

    Returns:
        The files.

    Raises:
        DataError: a file could not be had, or is not what it should be.

    Examples:
        >>> from continua.data import catalogue_entry, fetch_data
        >>> fetch_data(catalogue_entry("cifar10").remotes, folder)  # doctest: +SKIP
    """
    made = []
    make_folder(root)
    for remote in remotes:
        if not remote.is_archive:
            made.append(download(remote, root / remote.folder / remote.file, mirrors, patience))
            continue
        if (root / remote.folder).exists():
            forget_fetched([remote], root)
            raise DataError(f"{root / remote.folder} exists already; move it away to fetch {remote.file} again")
        given = root / remote.file  # one that somebody put there is used, and stays
        archive = download(remote, given if given.exists() else _fetched(remote, root), mirrors, patience)
        made.append(unpack(archive, root, remote.folder))
        if archive != given:
            archive.unlink()
    return made


def forget_fetched(remotes: Sequence[Remote], root: Path) -> None:
    """Remove what killed processes, or disks that failed, left beside data that are there: unpacked archives and half-unpacked folders.

    Args:
        remotes: the files of a data set.
        root: the folder of all data sets.

    Examples:
        >>> from pathlib import Path
        >>> from continua.data import REMOTES, forget_fetched
        >>> forget_fetched(REMOTES["cifar10"]["python"], Path("data"))
    """
    for remote in remotes:
        if remote.is_archive:
            _fetched(remote, root).unlink(missing_ok=True)
            remove_leftovers(root, remote.folder)


def _fetched(remote: Remote, root: Path) -> Path:
    return root / f".fetched-{remote.file}"


def download(remote: Remote, target: Path, mirrors: Sequence[str] = (), patience: Patience | None = None) -> Path:
    """The verified file at `target`. A `.part` file beside it holds what has arrived, for this or a later attempt."""
    if target.exists():
        digest = _md5(target)
        if digest != remote.md5:
            raise DataError(f"{target} has MD5 {digest}, expected {remote.md5}; delete it and fetch again")
        return target
    make_folder(target.parent)
    part = target.with_name(target.name + ".part")
    failures = []
    for address in [*(mirror.rstrip("/") + "/" + remote.file for mirror in mirrors), *remote.addresses]:
        try:
            _download_from(address, remote, part, patience or Patience())
        except _GiveUp as failure:
            failures.append(f"{address}: {failure}")
        else:
            sync(part)
            part.replace(target)
            sync(target.parent)
            return target
    raise DataError(f"{remote.file} could not be fetched ({'; '.join(failures)}); try again later, or put the file at {target} yourself")


def _download_from(address: str, remote: Remote, part: Path, patience: Patience) -> None:
    """Fill `part` from one address and verify it. Raises `_GiveUp` where that cannot be done."""
    fruitless, inherited, pace = 0, part.exists(), _Pace(patience)
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _transfer(address, remote, part, pace)
        except _TryAgain as trouble:
            arrived = part.stat().st_size if part.exists() else 0
            fruitless = 0 if arrived > before else fruitless + 1
            if fruitless >= patience.attempts:
                raise _GiveUp(f"{trouble}, {fruitless} times without a byte arriving") from None
            if fruitless:
                time.sleep(patience.pause * 2 ** (fruitless - 1))
            pace.add(0)
            continue
        digest = _md5(part)
        if digest == remote.md5:
            return
        part.unlink()
        if not inherited:
            raise _GiveUp(f"wrong checksum: MD5 {digest}, expected {remote.md5}")
        inherited = False  # the beginning was from an earlier attempt and may be what is wrong: once more, from nothing


def _transfer(address: str, remote: Remote, part: Path, pace: _Pace) -> None:
    """One request: append what arrives to `part`. Raises `_TryAgain` where it ends early."""
    timeout = pace.patience.timeout
    start = part.stat().st_size if part.exists() else 0
    if start and start == remote.size:
        return
    headers = {"User-Agent": "continua", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout) as response:
            goes_on = response.status == 206 and (response.headers["Content-Range"] or "").startswith(f"bytes {start}-")
            if start and not goes_on:
                start = 0  # the server sends the whole file whatever we ask for
            total = start + int(response.headers["Content-Length"]) if response.headers["Content-Length"] else remote.size
            if remote.size is not None and total != remote.size:
                raise _GiveUp(f"offers {total:,} bytes, expected {remote.size:,}")
            if total is not None and DOWNLOAD.exceeded(total):
                raise _GiveUp(f"offers {total:,} bytes; {DOWNLOAD.advice()}")
            with progress_bar(remote.file, total, of_bytes=True, done=start) as advance:
                arrived = start + _append(response, part, start, total, advance, pace)
            if total is not None and arrived < total:
                raise _TryAgain(f"the transfer ended after {arrived:,} of {total:,} bytes")
            if total is not None and arrived > total:
                part.unlink()
                raise _GiveUp(f"sent {arrived:,} bytes, expected {total:,}")
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # "range not satisfiable": our part is not a beginning of this file, or all of it
            if _md5(part) != remote.md5:
                part.unlink()
                raise _TryAgain("the part kept from an earlier attempt does not fit") from None
        elif error.code >= 500 or error.code == 429:
            raise _TryAgain(f"HTTP {error.code} {error.reason}") from None
        else:
            raise _GiveUp(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _TryAgain(f"no connection ({error.reason})") from None
    except TimeoutError:
        raise _TryAgain(f"nothing arrived for {timeout:g} s") from None
    except (ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _TryAgain(f"the connection broke ({type(error).__name__})") from None
    except ValueError as error:
        raise _GiveUp(f"not a usable address or answer ({error})") from None


def _append(response: http.client.HTTPResponse, part: Path, start: int, total: int | None, advance: Advance, pace: _Pace) -> int:
    arrived, most = 0, DOWNLOAD.value
    with part.open("ab" if start else "wb") as copy:
        while chunk := response.read1(CHUNK):  # what is there now, so that a stall loses nothing
            copy.write(chunk)
            arrived += len(chunk)
            advance(len(chunk))
            pace.add(len(chunk))
            if total is not None and start + arrived > total:
                break
            if start + arrived > most:
                copy.truncate(0)  # whatever it is, it is not the file
                raise _GiveUp(f"sends without end: more than {most:,} bytes; {DOWNLOAD.advice()}")
    return arrived


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return md5_of(stream)


# --- unpacking: only plain files and folders, only below the one folder expected, all of it or nothing


@dataclass(frozen=True)
class _Member:
    name: str
    kind: str  # "file", "folder", or what else it is
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, root: Path, folder: str) -> Path:
    """Unpack `archive`, which must hold one folder named `folder`, to root/folder.

    Every member is judged before the first is written. All is written to a temporary folder that is renamed at the end, so
    root/folder is either whole or not there.
    """
    target = root / folder
    if target.exists():
        raise DataError(f"{target} exists already; move it away to unpack {archive.name} there")
    try:
        with zipfile.ZipFile(archive) if archive.suffix == ".zip" else tarfile.open(archive, "r:gz") as pack:
            members = _judged(pack, archive, folder)
            with own_folder(root, folder) as temporary:
                with progress_bar(f"unpacking {archive.name}", len(members)) as advance:
                    for member in members:
                        _write(member, temporary / member.name)
                        advance(1)
                if not (temporary / folder).is_dir():
                    raise DataError(f"{archive} does not hold a folder {folder}; it is not the official archive")
                os.sync()  # thousands of files at once: after a power cut there is the whole folder or none
                (temporary / folder).rename(target)
                sync(root)
    except DataError:
        raise
    except Exception as error:  # each archive format and compression has its own errors for damage
        raise DataError(f"{archive} cannot be unpacked ({error}); delete it and fetch again") from None
    return target


def _judged(pack: tarfile.TarFile | zipfile.ZipFile, archive: Path, folder: str) -> list[_Member]:
    """Every member, none of which is written yet. Judged one by one: an archive without end is not listed to its end."""
    members: list[_Member] = []
    size = 0
    for member in _members(pack):
        _judge(member, archive, folder)
        size += member.size
        members.append(member)
        if UNPACKED.exceeded(size) or len(members) > MEMBERS:
            raise DataError(f"{archive} holds {len(members):,} files of {size:,} bytes and more: nothing was unpacked; {UNPACKED.advice()}")
    return members


def _members(pack: tarfile.TarFile | zipfile.ZipFile) -> Iterator[_Member]:
    if isinstance(pack, tarfile.TarFile):
        for entry in pack:
            kind = "file" if entry.isreg() else "folder" if entry.isdir() else "link" if entry.issym() or entry.islnk() else "device"
            yield _Member(entry.name, kind, entry.size, partial(pack.extractfile, entry))
    else:
        for entry in pack.infolist():
            mode = entry.external_attr >> 16
            plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
            kind = ("folder" if entry.is_dir() else "file") if plain else "link" if stat.S_ISLNK(mode) else "device"
            yield _Member(entry.filename, kind, entry.file_size, partial(pack.open, entry))


def _judge(member: _Member, archive: Path, folder: str) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name or path.parts[:1] != (folder,):
        raise DataError(f"{archive} holds {member.name!r}, which is not below {folder}/: refused, nothing was unpacked")
    if member.kind not in ("file", "folder"):
        raise DataError(
            f"{archive} holds the {member.kind} {member.name!r}, expected only files and folders: refused, nothing was unpacked"
        )


def _write(member: _Member, target: Path) -> None:
    folder = target if member.kind == "folder" else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    if member.kind == "file" and (source := member.open()) is not None:
        with source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
