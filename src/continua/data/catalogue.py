"""The data sets known by name; `load`, which everything else calls; and whether a set is here and is the official one."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from continua.data.cifar import CIFAR10, CIFAR100
from continua.data.dataset import DataSet, MemorySplit, OfficialSet, chosen_splits
from continua.data.digits import DIGITS, DIGITS16, DIGITS32
from continua.data.draws import hold_out, take_per_class
from continua.data.files import data_folder, md5
from continua.data.idx import FASHION_MNIST, MNIST
from continua.data.image_folder import load_image_folder
from continua.data.sources import CONTENTS_MD5, REMOTES
from continua.data.tiny_imagenet import TINY_IMAGENET_200
from continua.errors import ConfigError, DataError, unknown_name

IMAGE_FOLDER = "image_folder"  # also image_folder64: the same at 64 × 64
FOLDER_SIZE = 224  # as for ImageNet
CATALOGUE: dict[str, OfficialSet] = {
    known.name: known for known in (DIGITS, DIGITS16, DIGITS32, CIFAR10, CIFAR100, MNIST, FASHION_MNIST, TINY_IMAGENET_200)
}


def folder_size(name: str) -> int | None:
    """The height and width of images of a folder: 224 for "image_folder", 64 for "image_folder64"; None for any other name.

    Args:
        name: of a data set.

    Returns:
        Pixels, or None.

    Examples:
        >>> from continua.data import folder_size
        >>> folder_size("image_folder64")
        64
    """
    named = re.fullmatch(rf"{IMAGE_FOLDER}([1-9]\d{{0,3}})?", name)
    return int(named[1] or FOLDER_SIZE) if named else None


def catalogue_entry(name: str) -> OfficialSet:
    """The set of this name, or an error that suggests the nearest.

    Args:
        name: a name that `continua data list` shows.

    Returns:
        The set, with its files, sizes and checksums.

    Raises:
        ConfigError: there is none of this name; the nearest are suggested.

    Examples:
        >>> from continua.data import catalogue_entry
        >>> catalogue_entry("cifar10").shape
        (3, 32, 32)
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    if folder_size(name):
        raise ConfigError(f"{name} is a tree of your own: there is no official copy to fetch or to compare it with")
    raise unknown_name("data set", name, [*CATALOGUE, IMAGE_FOLDER])


def remedy(known: OfficialSet) -> str:
    """What to do when the files of a set are missing or wrong."""
    if known.name not in REMOTES:
        return "install scikit-learn again"
    return (
        f"run `continua data fetch {known.name}` (after moving a damaged copy away), "
        "or name the folder that has it with --data-dir or CONTINUA_DATA"
    )


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    splits: Iterable[str] | None = None,
    per_class: int | None = None,
    seed: int = 0,
    holdout: float | None = None,
) -> DataSet:
    """The data set `name`, its images in memory; or "image_folder", the tree of class folders at `data_dir`, read as it is used, at
    224 × 224 ("image_folder64": at 64 × 64).

    `splits`: which to read (default: all that are there). `per_class`: keep this many training images of each class.
    `holdout`: move this fraction of the training images that are left to a split "holdout". Both are drawn by `seed`.

    Args:
        name: a data set of `continua data list`, or "image_folder" for your own.
        data_dir: folder of all data sets; for "image_folder", the tree of class folders itself.
        splits: which to read; None: all that are there.
        per_class: keep this many training images of each class.
        seed: decides which images `per_class` and `holdout` take.
        holdout: move this share of the training images to a split "holdout".

    Returns:
        The data set: a mapping from the names of splits to their images.

    Raises:
        ConfigError: there is no such set.
        DataError: it is not there, or damaged.

    Examples:
        >>> from continua.data import load
        >>> len(load("digits")["test"])
        359
    """
    root = data_folder(data_dir)
    if size := folder_size(name):
        dataset = load_image_folder(root, size=size, name=name)
        dataset = replace(dataset, splits={split: dataset[split] for split in chosen_splits(name, splits, tuple(dataset.splits))})
    else:
        known = catalogue_entry(name)
        dataset = known.load(root, remedy(known), splits)
    if per_class is not None:
        train = take_per_class(dataset["train"], per_class, seed, dataset.classes)
        dataset = replace(dataset, splits=dataset.splits | {"train": train})
    if holdout is not None:
        kept, held = hold_out(dataset["train"], holdout, seed)
        dataset = replace(dataset, splits=dataset.splits | {"train": kept, "holdout": held})
    return dataset


# --- is a set here, and is it the official one? -------------------------------------------------------------------------


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


def data_presence(known: OfficialSet, root: Path) -> Presence:
    """What of a set is below `root`, judged by names alone: `check_data` looks inside.

    Args:
        known: the set, as `catalogue_entry` gives it.
        root: folder of the set.

    Returns:
        Whether it is there, in part, or not.

    Examples:
        >>> from pathlib import Path
        >>> from continua.data import catalogue_entry, data_presence
        >>> presence = data_presence(catalogue_entry("cifar10"), Path("nowhere"))
    """
    folder = known.locate(root)
    layouts = REMOTES.get(known.name)
    if layouts is None:
        return Presence("embedded", folder, sum(path.stat().st_size for path in known.official_files(folder)) if folder else None, None)
    sizes = [remote.size for remote in next(iter(layouts.values()))]
    download = None if None in sizes else sum(size for size in sizes if size is not None)
    if folder is None:
        return Presence("no", None, None, download)
    missing = known.missing(folder)
    size = sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names)
    return Presence(f"lacks {', '.join(missing)}" if missing else "yes", folder, size, download)


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


def check_data(known: OfficialSet, root: Path) -> Check:
    """Look at every file of a set. Raises `DataError` only where the set is not there at all.

    Args:
        known: the set, as `catalogue_entry` gives it.
        root: folder of the set.

    Returns:
        What was found, file by file and split by split.

    Raises:
        DataError: the set is not there at all.

    Examples:
        >>> from continua.data import catalogue_entry, check_data, data_folder
        >>> check_data(catalogue_entry("cifar10"), data_folder() / "cifar10")  # doctest: +SKIP
    """
    advice = remedy(known)
    folder = known.folder_below(root, advice)
    result = Check(known.name, folder)
    for path in known.official_files(folder):
        try:
            result.files.append(_check_file(known.name, path, result.problems, advice))
        except DataError as error:
            result.problems.append(str(error))
    try:
        dataset = known.load(root, advice)
    except DataError as error:
        if str(error) not in result.problems:
            result.problems.append(str(error))
        return result
    result.classes = dataset.classes
    result.absent = list(dataset.absent)
    for split, images in dataset.splits.items():
        if isinstance(images, MemorySplit):
            counts = torch.bincount(images.labels, minlength=len(dataset.classes)).tolist()
            result.splits.append(SplitCheck(split, tuple(images.images.shape[1:]), tuple(counts), _channel_means(images.images)))
            result.problems += _deviations(known, result.splits[-1], folder)
    return result


def _check_file(name: str, path: Path, problems: list[str], advice: str) -> FileCheck:
    expected = CONTENTS_MD5.get(name, {}).get(path.name.removesuffix(".gz"))
    digest = md5(path, advice)
    if expected is not None and digest != expected:
        problems.append(f"{path} has MD5 {digest}, expected {expected}: it is not the official file; {advice}")
    return FileCheck(path, path.stat().st_size, None if expected is None else digest == expected)


def _channel_means(images: torch.Tensor) -> tuple[float, ...]:
    sums = sum(chunk.sum(dim=(0, 2, 3), dtype=torch.int64) for chunk in images.split(10_000))
    return tuple((torch.as_tensor(sums) / (255 * images[:, 0].numel())).tolist())


def _deviations(known: OfficialSet, read: SplitCheck, folder: Path) -> Iterator[str]:
    if read.shape != known.shape:
        yield f"{folder}: {read.split} images have shape {read.shape}, expected {known.shape}; {remedy(known)}"
    for label, (count, expected) in enumerate(zip(read.counts, known.counts[read.split], strict=True)):
        if count != expected:
            yield f"{folder}: {read.split} has {count} images of class {label}, expected {expected}; {remedy(known)}"
