"""The embedded set: the 1,797 handwritten digits that scikit-learn carries (Alpaydin and Kaynak, UCI 1998), no download needed.

The originals are 8×8 with grey values 0 … 16, here 0 … 255. `digits16` and `digits32` are the same images at 16×16 and 32×32, for
networks that need room: bilinear interpolation by a factor of two or four, pixel centres aligned as areas are, which float32 computes
exactly, so every machine gets the same bytes. One fifth of each digit, drawn by seed 0, is the test split; scikit-learn fixes no split of
its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from continua.data.dataset import DataSet, MemorySplit, OfficialSet
from continua.data.draws import stratified


@dataclass(frozen=True)
class Digits(OfficialSet):
    """The digits at one size."""

    def locate(self, root: Path) -> Path | None:
        """Where scikit-learn is installed, whatever `root` is."""
        from importlib.util import find_spec

        spec = find_spec("sklearn")
        return Path(spec.origin).parent / "datasets" / "data" if spec and spec.origin else None

    def official_files(self, folder: Path) -> Iterator[Path]:
        yield folder / "digits.csv.gz"

    def read(self, folder: Path, splits: Sequence[str] | None, remedy: str) -> DataSet:
        from sklearn.datasets import load_digits

        bunch: Any = load_digits()
        labels = torch.from_numpy(bunch.target).to(torch.int64)
        whole = MemorySplit(resized(torch.from_numpy(bunch.images), self.shape[-1]), labels)
        train, test = stratified(labels, 0.2, seed=0)
        indices = {"train": train, "test": test}
        return DataSet(
            self.name, tuple("0123456789"), {split: whole.select(indices[split]) for split in (self.counts if splits is None else splits)}
        )


def resized(grey: Tensor, size: int) -> UInt8[Tensor, "n 1 size size"]:
    """Grey values 0 … 16 as bytes at size × size. Weights are eighths and values small whole numbers, so float32 is exact."""
    values = grey.to(torch.float32)[:, None]
    if size != values.shape[-1]:
        values = torch.nn.functional.interpolate(values, size=(size, size), mode="bilinear", align_corners=False)
    return (values * 255 / 16).round().to(torch.uint8)


_COUNTS = {
    "train": (142, 146, 142, 146, 145, 146, 145, 143, 139, 144),
    "test": (36, 36, 35, 37, 36, 36, 36, 36, 35, 36),
}
DIGITS = Digits("digits", _COUNTS, (), (1, 8, 8))
DIGITS16 = Digits("digits16", _COUNTS, (), (1, 16, 16))
DIGITS32 = Digits("digits32", _COUNTS, (), (1, 32, 32))
