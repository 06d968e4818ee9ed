"""What a data set is: named splits of images with labels, and the names of the classes."""

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Int64, UInt8
from torch import Tensor


class Split(Protocol):
    """Some labelled images, each with an index 0 … len − 1."""

    @property
    def labels(self) -> Int64[Tensor, "n"]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class MemorySplit:
    """A split held whole in memory, as uint8: CIFAR-10's 50,000 training images are 154 MB."""

    images: UInt8[Tensor, "n channels height width"]
    labels: Int64[Tensor, "n"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A named set: `splits["train"]`, `splits["test"]` and, where the official set has one, `splits["val"]`."""

    name: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
