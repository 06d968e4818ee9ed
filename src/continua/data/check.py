"""Is a data set on disk the official one? Checksums where published, then shapes and images per class."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from continua.data.catalogue import Known, remedy
from continua.data.dataset import MemorySplit
from continua.data.files import md5
from continua.data.sources import CONTENTS_MD5
from continua.errors import DataError


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
        found = known.load(root, remedy(known))
    except DataError as error:
        if str(error) not in result.problems:
            result.problems.append(str(error))
        return result
    result.classes = found.classes
    result.absent = list(found.absent)
    for split, images in found.splits.items():
        if isinstance(images, MemorySplit):
            counts = torch.bincount(images.labels, minlength=len(found.classes)).tolist()
            means = _channel_means(images.images)
            result.splits.append(SplitCheck(split, tuple(images.images.shape[1:]), tuple(counts), means))
            result.problems += _deviations(known, result.splits[-1], folder)
    return result


def _check_file(name: str, path: Path, problems: list[str], what_to_do: str) -> FileCheck:
    expected = CONTENTS_MD5.get(name, {}).get(path.name.removesuffix(".gz"))
    found = md5(path, what_to_do)
    if expected is not None and found != expected:
        problems.append(f"{path} has MD5 {found}, expected {expected}: it is not the official file; {what_to_do}")
    return FileCheck(path, path.stat().st_size, None if expected is None else found == expected)


def _channel_means(images: torch.Tensor) -> tuple[float, ...]:
    sums = sum(chunk.sum(dim=(0, 2, 3), dtype=torch.int64) for chunk in images.split(10_000))
    return tuple((torch.as_tensor(sums) / (255 * images[:, 0].numel())).tolist())


def _deviations(known: Known, found: SplitCheck, folder: Path) -> Iterator[str]:
    if found.shape != known.shape:
        yield f"{folder}: {found.split} images have shape {found.shape}, expected {known.shape}; {remedy(known)}"
    for label, (count, expected) in enumerate(zip(found.counts, known.counts[found.split], strict=True)):
        if count != expected:
            yield f"{folder}: {found.split} has {count} images of class {label}, expected {expected}; {remedy(known)}"
