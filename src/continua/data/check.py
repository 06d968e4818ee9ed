"""Is a data set here, and is it the official one? By names at a glance; by checksums, shapes and images per class on a closer look."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from continua.data.catalogue import Known, remedy
from continua.data.dataset import MemorySplit
from continua.data.files import md5
from continua.data.sources import CONTENTS_MD5, REMOTES
from continua.errors import DataError


@dataclass(frozen=True)
class Presence:
    """`state` is "embedded", "yes", "no", or "lacks …" with what is not there; sizes are in bytes, None where not known."""

    state: str
    folder: Path | None
    size: int | None
    download: int | None

    def where(self, root: Path) -> str:
        """One phrase for a table: the folder as it reads below `root`, and what is wrong with it."""
        if self.folder is None or self.state == "embedded":
            return self.state
        below = self.folder.relative_to(root)
        return str(below) if self.state == "yes" else f"{below} ({self.state})"


def data_presence(known: Known, root: Path) -> Presence:
    """What of a set is below `root`, judged by names alone: `check_data` looks inside."""
    folder = known.locate(root)
    layouts = REMOTES.get(known.name)
    if layouts is None:
        return Presence("embedded", folder, sum(path.stat().st_size for path in known.official_files(folder)) if folder else None, None)
    sizes = [remote.size for remote in next(iter(layouts.values()))]
    download = None if None in sizes else sum(size for size in sizes if size is not None)
    if folder is None:
        return Presence("no", None, None, download)
    missing = known.missing(folder)
    return Presence(f"lacks {', '.join(missing)}" if missing else "yes", folder, _bytes_below(folder), download)


def _bytes_below(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            total += _bytes_below(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_size
    return total


@dataclass(frozen=True)
class FileCheck:
    """One file: its size in bytes and whether its checksum is the published one (None: none is published)."""

    path: Path
    size: int
    official: bool | None


@dataclass(frozen=True)
class SplitCheck:
    """One split as it was read."""

    split: str
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    means: tuple[float, ...]  # per channel, of pixels scaled to 0 … 1


@dataclass
class Check:
    """What was found, and everything that is wrong with it."""

    name: str
    folder: Path
    classes: tuple[str, ...] = ()
    files: list[FileCheck] = field(default_factory=list)
    splits: list[SplitCheck] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check_data(known: Known, root: Path) -> Check:
    """Look at every file of a set. Raises `DataError` only where the set is not there at all."""
    folder = known.locate(root)
    if folder is None:
        known.load(root, remedy(known))  # says where it looked
        raise DataError(f"{known.name} is not below {root}; {remedy(known)}")
    result = Check(known.name, folder)
    for path in known.official_files(folder):
        try:
            result.files.append(_check_file(known.name, path, result.problems, remedy(known)))
        except DataError as error:
            result.problems.append(str(error))
    try:
        dataset = known.load(root, remedy(known))
    except DataError as error:
        if str(error) not in result.problems:
            result.problems.append(str(error))
        return result
    result.classes = dataset.classes
    result.absent = list(dataset.absent)
    for split, images in dataset.splits.items():
        if isinstance(images, MemorySplit):
            counts = torch.bincount(images.labels, minlength=len(dataset.classes)).tolist()
            means = _channel_means(images.images)
            result.splits.append(SplitCheck(split, tuple(images.images.shape[1:]), tuple(counts), means))
            result.problems += _deviations(known, result.splits[-1], folder)
    return result


def _check_file(name: str, path: Path, problems: list[str], what_to_do: str) -> FileCheck:
    expected = CONTENTS_MD5.get(name, {}).get(path.name.removesuffix(".gz"))
    digest = md5(path, what_to_do)
    if expected is not None and digest != expected:
        problems.append(f"{path} has MD5 {digest}, expected {expected}: it is not the official file; {what_to_do}")
    return FileCheck(path, path.stat().st_size, None if expected is None else digest == expected)


def _channel_means(images: torch.Tensor) -> tuple[float, ...]:
    sums = sum(chunk.sum(dim=(0, 2, 3), dtype=torch.int64) for chunk in images.split(10_000))
    return tuple((torch.as_tensor(sums) / (255 * images[:, 0].numel())).tolist())


def _deviations(known: Known, read: SplitCheck, folder: Path) -> Iterator[str]:
    if read.shape != known.shape:
        yield f"{folder}: {read.split} images have shape {read.shape}, expected {known.shape}; {remedy(known)}"
    for label, (count, expected) in enumerate(zip(read.counts, known.counts[read.split], strict=True)):
        if count != expected:
            yield f"{folder}: {read.split} has {count} images of class {label}, expected {expected}; {remedy(known)}"
