"""What a data set is: named splits of images with labels, and the names of the classes."""

from dataclasses import dataclass
from typing import Protocol, Self

from jaxtyping import Int64, UInt8
from torch import Tensor

from continua.errors import DataError


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

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int64[Tensor, "m"]) -> "MemorySplit":
        return MemorySplit(self.images[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named set: `splits["train"]`, `splits["test"]` and, where the official set has one, `splits["val"]`."""

    name: str
    classes: tuple[str, ...]
    splits: dict[str, Split]

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise DataError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        return self.splits[split]
