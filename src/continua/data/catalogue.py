"""The data sets known by name, and `load`, which everything else calls."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from continua.data.cifar import CIFAR10, CIFAR100
from continua.data.dataset import DataSet, chosen_splits
from continua.data.digits import DIGITS, DIGITS16, DIGITS32
from continua.data.files import data_folder
from continua.data.idx import FASHION_MNIST, MNIST
from continua.data.image_folder import load_image_folder
from continua.data.sources import REMOTES
from continua.data.subset import hold_out, take_per_class
from continua.data.tiny_imagenet import TINY_IMAGENET_200
from continua.errors import ConfigError, unknown_name


class Known(Protocol):
    """A data set the catalogue knows: what it should contain, where it is and how to read it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def counts(self) -> Mapping[str, tuple[int, ...]]:
        """Images of each class, for every split."""
        ...

    def locate(self, root: Path) -> Path | None:
        """The folder its files are in."""
        ...

    def missing(self, folder: Path) -> list[str]:
        """What should be in that folder and is not."""
        ...

    def official_files(self, folder: Path) -> Iterator[Path]:
        """The files that can be compared with a published checksum."""
        ...

    def load(self, root: Path, remedy: str, splits: Iterable[str] | None = None) -> DataSet:
        """Read it. `remedy` ends every error message: what the reader can do about it."""
        ...


IMAGE_FOLDER = "image_folder"  # also image_folder64: the same at 64 × 64
FOLDER_SIZE = 224  # as for ImageNet
CATALOGUE: dict[str, Known] = {
    known.name: known for known in (DIGITS, DIGITS16, DIGITS32, CIFAR10, CIFAR100, MNIST, FASHION_MNIST, TINY_IMAGENET_200)
}


def folder_size(name: str) -> int | None:
    """The height and width of images of a folder: 224 for "image_folder", 64 for "image_folder64"; None for any other name."""
    named = re.fullmatch(rf"{IMAGE_FOLDER}([1-9]\d{{0,3}})?", name)
    return int(named[1] or FOLDER_SIZE) if named else None


def catalogue_entry(name: str) -> Known:
    """The set of this name, or an error that suggests the nearest."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    if folder_size(name):
        raise ConfigError(f"{name} is a tree of your own: there is no official copy to fetch or to compare it with")
    raise unknown_name("data set", name, [*CATALOGUE, IMAGE_FOLDER])


def remedy(known: Known) -> str:
    """What to do when the files of a set are missing or wrong."""
    if known.name not in REMOTES:
        return "install scikit-learn again"
    return (
        f"run `continua data fetch {known.name}` (after moving a damaged copy away), "
        "or name the folder that has it with --data-dir or CONTINUA_DATA"
    )


def _whole(name: str, root: Path, splits: Iterable[str] | None) -> DataSet:
    if size := folder_size(name):
        dataset = load_image_folder(root, size=size, name=name)
        return replace(dataset, splits={split: dataset.splits[split] for split in chosen_splits(name, splits, tuple(dataset.splits))})
    known = catalogue_entry(name)
    return known.load(root, remedy(known), splits)


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
    """
    dataset = _whole(name, data_folder(data_dir), splits)
    if per_class is None and holdout is None:
        return dataset
    train = dataset["train"]
    if per_class is not None:
        train = take_per_class(train, per_class, seed, dataset.classes)
    if holdout is None:
        return replace(dataset, splits=dataset.splits | {"train": train})
    kept, held = hold_out(train, holdout, seed)
    return replace(dataset, splits=dataset.splits | {"train": kept, "holdout": held})
