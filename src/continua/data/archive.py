"""Unpacking archives safely: only plain files and folders, only below the one folder expected, all of it or nothing."""

import io
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from continua.data.files import progress_bar
from continua.errors import DataError


@dataclass(frozen=True)
class _Member:
    name: str
    kind: str  # "file", "folder", or what else it is
    source: tarfile.TarInfo | zipfile.ZipInfo


def unpack(archive: Path, root: Path, folder: str) -> Path:
    """Unpack `archive`, which must hold one folder named `folder`, to root/folder.

    Every member is judged before the first is written. All is written to a temporary folder that is renamed at the end, so
    root/folder is either whole or not there.
    """
    target = root / folder
    if target.exists():
        raise DataError(f"{target} exists already; move it away to unpack {archive.name} there")
    try:
        with _opened(archive) as pack:
            members = list(_members(pack))
            for member in members:
                _judge(member, archive, folder)
            with tempfile.TemporaryDirectory(prefix=f".{folder}.", dir=root) as temporary:
                with progress_bar(f"unpacking {archive.name}", len(members)) as advance:
                    for member in members:
                        _write(pack, member, Path(temporary) / member.name)
                        advance(1)
                if not (Path(temporary) / folder).is_dir():
                    raise DataError(f"{archive} does not hold a folder {folder}; it is not the official archive")
                (Path(temporary) / folder).rename(target)
    except DataError:
        raise
    except Exception as error:  # each archive format and compression has its own errors for damage
        raise DataError(f"{archive} cannot be unpacked ({error}); delete it and fetch again") from None
    return target


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    with zipfile.ZipFile(archive) if archive.suffix == ".zip" else tarfile.open(archive, "r:gz") as pack:
        yield pack


def _members(pack: tarfile.TarFile | zipfile.ZipFile) -> Iterator[_Member]:
    if isinstance(pack, tarfile.TarFile):
        for entry in pack:
            kind = "file" if entry.isreg() else "folder" if entry.isdir() else "link" if entry.issym() or entry.islnk() else "device"
            yield _Member(entry.name, kind, entry)
    else:
        for entry in pack.infolist():
            mode = entry.external_attr >> 16
            plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
            kind = ("folder" if entry.is_dir() else "file") if plain else "link" if stat.S_ISLNK(mode) else "device"
            yield _Member(entry.filename, kind, entry)


def _judge(member: _Member, archive: Path, folder: str) -> None:
    path = PurePosixPath(member.name)
    outside = path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name or path.parts[:1] != (folder,)
    if outside:
        raise DataError(f"{archive} holds {member.name!r}, which is not below {folder}/: refused, nothing was unpacked")
    if member.kind not in ("file", "folder"):
        raise DataError(
            f"{archive} holds the {member.kind} {member.name!r}, expected only files and folders: refused, nothing was unpacked"
        )


def _write(pack: tarfile.TarFile | zipfile.ZipFile, member: _Member, target: Path) -> None:
    if member.kind == "folder":
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _stream(pack, member) as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)


def _stream(pack: tarfile.TarFile | zipfile.ZipFile, member: _Member) -> io.BufferedIOBase:
    if isinstance(pack, zipfile.ZipFile):
        return cast(io.BufferedIOBase, pack.open(cast(zipfile.ZipInfo, member.source)))
    return cast(io.BufferedIOBase, pack.extractfile(cast(tarfile.TarInfo, member.source)))
