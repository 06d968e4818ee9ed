"""What a data set is: named splits of images with labels, and the names of the classes; and what every official set is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from continua.errors import DataError, unknown_name


class Split(Protocol):
    """Some labelled images, each with an index 0 … len − 1."""

    @property
    def labels(self) -> Int64[Tensor, "n"]: ...

    def __len__(self) -> int: ...

    def select(self, indices: Int64[Tensor, "m"]) -> Self:
        """The same kind of split with only these images, in this order: what subsets and hold-outs are made with."""
        ...


@dataclass(frozen=True, eq=False)
class MemorySplit:
    """A split held whole in memory, as uint8: CIFAR-10's 50,000 training images are 154 MB."""

    images: UInt8[Tensor, "n channels height width"]
    labels: Int64[Tensor, "n"]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise DataError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)}, expected uint8 (n, channels, height, width)"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            given = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise DataError(f"labels are {given}, expected int64 of shape ({len(self.images)},), one per image")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int64[Tensor, "m"]) -> "MemorySplit":
        return MemorySplit(self.images[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named set with its splits, by "train", "test", "val"; `absent` says, for an official split that is not here, why not."""

    name: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    absent: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, split: str) -> Split:
        if split in self.absent:
            raise DataError(self.absent[split])
        if split not in self.splits:
            raise unknown_name(f"split of {self.name}", split, self.splits, error=DataError)
        return self.splits[split]


@dataclass(frozen=True)
class OfficialSet(ABC):
    """A data set the catalogue knows: what it should contain, where it is and how to read it."""

    name: str
    counts: Mapping[str, tuple[int, ...]]  # images of each class, for every split
    folders: tuple[str, ...]  # where it may lie below the folder of all sets: the usual place first
    shape: tuple[int, int, int]

    def locate(self, root: Path) -> Path | None:
        """The first of its folders that is whole, else the first that is there at all."""
        there = [root / folder for folder in self.folders if self.is_there(root / folder)]
        return next((folder for folder in there if not self.missing(folder)), there[0] if there else None)

    def folder_below(self, root: Path, remedy: str) -> Path:
        """The same, or an error that says where it was looked for."""
        folder = self.locate(root)
        if folder is None:
            raise DataError(f"{self.name} is not at {' or '.join(str(root / name) for name in self.folders)}; {remedy}")
        return folder

    def is_there(self, folder: Path) -> bool:
        """Whether a folder is that of the set, whole or not."""
        return folder.is_dir()

    def missing(self, folder: Path) -> list[str]:
        """What should be in that folder and is not."""
        return [path.name for path in self.official_files(folder) if not path.is_file()]

    @abstractmethod
    def official_files(self, folder: Path) -> Iterator[Path]:
        """The files that can be compared with a published checksum."""

    @abstractmethod
    def read(self, folder: Path, splits: Sequence[str] | None, remedy: str) -> DataSet:
        """These splits (None: all that are there) from the folder."""

    def load(self, root: Path, remedy: str, splits: Iterable[str] | None = None) -> DataSet:
        """Read it. `remedy` ends every error message: what the reader can do about it."""
        return self.read(
            self.folder_below(root, remedy), None if splits is None else chosen_splits(self.name, splits, tuple(self.counts)), remedy
        )


def chosen_splits(name: str, wanted: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """`wanted` (all of `known` where None), refused where the set has no such split."""
    if wanted is None:
        return tuple(known)
    wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for split in wanted:
        if split not in known:
            raise unknown_name(f"split of {name}", split, known)
    return wanted


def checked_labels(labels: Sequence[object], classes: int, count: int, path: Path, remedy: str) -> Int64[Tensor, "n"]:
    """Labels as a tensor, once there are `count` of them and each is 0 … classes − 1."""
    if len(labels) != count:
        raise DataError(f"{path} holds {len(labels):,} labels, expected {count:,}; {remedy}")
    for position, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < classes:
            raise DataError(f"{path}: label {position} is {label!r}, expected 0 … {classes - 1}; {remedy}")
    return torch.tensor(labels, dtype=torch.int64)
