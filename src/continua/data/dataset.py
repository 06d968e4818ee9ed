"""What a data set is: named splits of images with labels, and the names of the classes."""

from collections.abc import Iterable, Sequence
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
    """A named set: `splits["train"]`, `splits["test"]` and, where the official set has one, `splits["val"]`.

    `absent` says, for an official split that is not here, why not.
    """

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
