"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in both official layouts: Python pickles and the binary version.

Both hold the same images in the same order: planes of red, green and blue, 32×32 each, row by row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from continua.data.dataset import DataSet, MemorySplit, OfficialSet, checked_labels
from continua.data.files import read, read_lines
from continua.data.pickles import read_pickle
from continua.errors import DataError

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """One way the set is stored: the files of each split, the file with the class names."""

    files: Mapping[str, tuple[str, ...]]
    names: str
    names_key: str | None = None  # the key in the pickle; None: a text file with one name per line
    label_key: str | None = None  # the key in the pickle; None: the last of `label_bytes` before the pixels
    label_bytes: int = 1

    def all_files(self) -> list[str]:
        return [*(file for files in self.files.values() for file in files), self.names]


@dataclass(frozen=True)
class Cifar(OfficialSet):
    """One of the two sets."""

    layouts: tuple[Layout, ...]  # one for each of the folders

    def official_files(self, folder: Path) -> Iterator[Path]:
        return (folder / file for file in self._layout(folder).all_files())

    def read(self, folder: Path, splits: Sequence[str] | None, remedy: str) -> DataSet:
        layout = self._layout(folder)
        classes = self._class_names(layout, folder, remedy)
        return DataSet(
            self.name, classes, {split: self._split(layout, folder, split, remedy) for split in (self.counts if splits is None else splits)}
        )

    def _layout(self, folder: Path) -> Layout:
        return self.layouts[self.folders.index(folder.name)]

    def _class_names(self, layout: Layout, folder: Path, remedy: str) -> tuple[str, ...]:
        path, expected = folder / layout.names, len(self.counts["train"])
        if layout.names_key is None:
            names = read_lines(path, remedy)
        else:
            stored = read_pickle(path, remedy).get(layout.names_key)
            names = [name.decode("latin1") if isinstance(name, bytes) else name for name in stored] if isinstance(stored, list) else []
        if len(names) != expected or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path} holds {len(names)} class names, expected {expected}; {remedy}")
        return tuple(names)

    def _split(self, layout: Layout, folder: Path, split: str, remedy: str) -> MemorySplit:
        files = layout.files[split]
        each = sum(self.counts[split]) // len(files)
        read_file = self._from_binary if layout.label_key is None else self._from_pickle
        parts = [read_file(layout, folder / file, each, remedy) for file in files]
        images = np.concatenate([pixels for pixels, _ in parts]).reshape(-1, *self.shape)
        return MemorySplit(torch.from_numpy(images), torch.cat([labels for _, labels in parts]))

    def _from_pickle(self, layout: Layout, path: Path, count: int, remedy: str) -> tuple[np.ndarray, torch.Tensor]:
        stored = read_pickle(path, remedy)
        pixels, labels = stored.get("data"), stored.get(layout.label_key or "")
        if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
            raise DataError(f"{path} has the keys {sorted(stored)}, expected an array 'data' and a list {layout.label_key!r}; {remedy}")
        if pixels.shape != (count, PIXELS):
            raise DataError(f"{path} holds images of shape {pixels.shape}, expected {(count, PIXELS)}; {remedy}")
        return pixels, checked_labels(labels, len(self.counts["train"]), count, path, remedy)

    def _from_binary(self, layout: Layout, path: Path, count: int, remedy: str) -> tuple[np.ndarray, torch.Tensor]:
        record = layout.label_bytes + PIXELS
        rows = np.frombuffer(read(path, count * record, remedy), dtype=np.uint8).reshape(count, record)
        labels = rows[:, layout.label_bytes - 1].tolist()  # CIFAR-100 writes the coarse label first, then the fine one
        return rows[:, layout.label_bytes :], checked_labels(labels, len(self.counts["train"]), count, path, remedy)


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))

CIFAR10 = Cifar(
    name="cifar10",
    counts={"train": (5000,) * 10, "test": (1000,) * 10},
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    shape=(3, 32, 32),
    layouts=(
        Layout({"train": _BATCHES, "test": ("test_batch",)}, "batches.meta", "label_names", "labels"),
        Layout({"train": tuple(f"{batch}.bin" for batch in _BATCHES), "test": ("test_batch.bin",)}, "batches.meta.txt"),
    ),
)

CIFAR100 = Cifar(
    name="cifar100",
    counts={"train": (500,) * 100, "test": (100,) * 100},
    folders=("cifar-100-python", "cifar-100-binary"),
    shape=(3, 32, 32),
    layouts=(
        Layout({"train": ("train",), "test": ("test",)}, "meta", "fine_label_names", "fine_labels"),
        Layout({"train": ("train.bin",), "test": ("test.bin",)}, "fine_label_names.txt", label_bytes=2),
    ),
)
