"""MNIST (LeCun, Cortes and Burges 1998) and Fashion-MNIST (Xiao et al. 2017): idx files, gzipped or not.

An idx file is a magic number (two zero bytes, the element type, the number of dimensions), the dimensions as big-endian
32-bit integers, then the elements.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from continua.data.dataset import DataSet, MemorySplit, OfficialSet, checked_labels
from continua.data.files import opened
from continua.errors import DataError

UNSIGNED_BYTE = 0x08
PREFIX = {"train": "train", "test": "t10k"}


def read_idx(path: Path, shape: tuple[int, ...], remedy: str) -> np.ndarray:
    """An array of bytes of exactly this shape. The header is judged before the elements are read."""
    header_size, size = 4 + 4 * len(shape), int(np.prod(shape))
    with opened(path, remedy) as stream:
        header = stream.read(header_size)
        if len(header) < header_size:
            raise DataError(f"{path} ends within its header ({len(header)} bytes, expected {header_size}): it is truncated; {remedy}")
        zeros, kind, dimensions = struct.unpack(">HBB", header[:4])
        if (zeros, kind, dimensions) != (0, UNSIGNED_BYTE, len(shape)):
            expected = struct.pack(">HBB", 0, UNSIGNED_BYTE, len(shape)).hex()
            raise DataError(f"{path} begins with {header[:4].hex()}, expected {expected} ({len(shape)}-dimensional bytes); {remedy}")
        stored = struct.unpack(f">{len(shape)}I", header[4:])
        if stored != shape:
            raise DataError(f"{path} holds an array of shape {stored}, expected {shape}; {remedy}")
        elements = stream.read(size + 1)
    if len(elements) != size:
        more = "more than " if len(elements) > size else ""
        raise DataError(
            f"{path} holds {more}{min(len(elements), size):,} elements, expected {size:,}: it is truncated or damaged; {remedy}"
        )
    return np.frombuffer(elements, dtype=np.uint8).reshape(shape)


@dataclass(frozen=True)
class Idx(OfficialSet):
    """One of the two sets; its folders are ours, then where other software and distributions put the same files."""

    classes: tuple[str, ...]

    def is_there(self, folder: Path) -> bool:
        return len(self.missing(folder)) < 4  # of its files; somebody else may have a folder of that name

    def official_files(self, folder: Path) -> Iterator[Path]:
        for prefix in PREFIX.values():
            for kind in ("images-idx3", "labels-idx1"):
                plain = folder / f"{prefix}-{kind}-ubyte"
                yield plain if plain.is_file() else plain.with_name(f"{plain.name}.gz")

    def read(self, folder: Path, splits: Sequence[str] | None, remedy: str) -> DataSet:
        return DataSet(
            self.name, self.classes, {split: self._split(folder, split, remedy) for split in (self.counts if splits is None else splits)}
        )

    def _split(self, folder: Path, split: str, remedy: str) -> MemorySplit:
        count = sum(self.counts[split])
        images_path, labels_path = (path for path in self.official_files(folder) if path.name.startswith(PREFIX[split]))
        images = read_idx(images_path, (count, *self.shape[1:]), remedy)[:, None]
        labels = read_idx(labels_path, (count,), remedy).tolist()
        return MemorySplit(torch.from_numpy(images.copy()), checked_labels(labels, len(self.classes), count, labels_path, remedy))


MNIST = Idx(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    shape=(1, 28, 28),
    classes=tuple("0123456789"),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
)

FASHION_MNIST = Idx(
    name="fashion_mnist",
    folders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
    shape=(1, 28, 28),
    classes=("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    counts={"train": (6000,) * 10, "test": (1000,) * 10},
)
