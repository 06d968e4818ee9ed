"""Tiny-ImageNet-200 (Stanford CS231n): 64×64 JPEGs of 200 ImageNet classes, 500 per class to train and 50 to validate.

Official layout: train/<wnid>/images/*.JPEG, and val/images/*.JPEG with val/val_annotations.txt (file, wnid, box).
Classes are numbered in the order of their WordNet ids, as a class-per-folder reader would. The official test images
have no labels and are left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from continua.data.dataset import DataSet, MemorySplit, OfficialSet
from continua.data.files import progress_bar, read_lines
from continua.data.pictures import open_image, read_image_bytes
from continua.errors import DataError
from continua.machine import usable_cores


@dataclass(frozen=True)
class TinyImageNet(OfficialSet):
    """The set; a copy may lack one of its splits."""

    def missing(self, folder: Path) -> list[str]:
        return [name for name in ("wnids.txt", "words.txt", "train", "val") if not (folder / name).exists()]

    def official_files(self, folder: Path) -> Iterator[Path]:
        return (path for path in (folder / "wnids.txt", folder / "words.txt", folder / "val" / "val_annotations.txt") if path.exists())

    def read(self, folder: Path, splits: Sequence[str] | None, remedy: str) -> DataSet:
        absent = {
            split: f"{folder} has no {split}/ folder: this copy of {self.name} lacks its {split} split; {remedy}"
            for split in self.counts
            if not (folder / split).is_dir()
        }
        wanted = list(self.counts) if splits is None else splits
        reasons = [absent[split] for split in wanted if split in absent]
        if reasons and (splits is not None or len(reasons) == len(wanted)):
            raise DataError(reasons[0])
        wnids, names = self._classes(folder, remedy)
        find = {"train": self._train_files, "val": self._val_files}
        loaded = {}
        for split in wanted:
            if split not in absent:
                paths, labels = find[split](folder, wnids, remedy)
                pixels = decoded(paths, self.shape[1:], f"{self.name} {split}", remedy)
                loaded[split] = MemorySplit(pixels, torch.tensor(labels, dtype=torch.int64))
        return DataSet(self.name, names, loaded, absent)

    def _classes(self, folder: Path, remedy: str) -> tuple[dict[str, int], tuple[str, ...]]:
        """Label of each WordNet id, and the first English name of each class (with its id where two share a name)."""
        wnids = sorted(read_lines(folder / "wnids.txt", remedy))
        expected = len(self.counts["val"])
        if len(set(wnids)) != expected:
            raise DataError(f"{folder / 'wnids.txt'} names {len(set(wnids))} classes, expected {expected}; {remedy}")
        words = dict(line.split("\t", 1) for line in read_lines(folder / "words.txt", remedy) if "\t" in line)
        names = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
        unique = tuple(name if names.count(name) == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True))
        return {wnid: label for label, wnid in enumerate(wnids)}, unique

    def _train_files(self, folder: Path, wnids: Mapping[str, int], remedy: str) -> tuple[list[Path], list[int]]:
        paths: list[Path] = []
        labels: list[int] = []
        for wnid, label in wnids.items():
            images = folder / "train" / wnid / "images"
            files = sorted(images.glob("*.JPEG"))
            if len(files) != self.counts["train"][label]:
                raise DataError(f"{images} holds {len(files)} images, expected {self.counts['train'][label]}; {remedy}")
            paths += files
            labels += [label] * len(files)
        return paths, labels

    def _val_files(self, folder: Path, wnids: Mapping[str, int], remedy: str) -> tuple[list[Path], list[int]]:
        annotations = folder / "val" / "val_annotations.txt"
        paths: list[Path] = []
        labels: list[int] = []
        for number, line in enumerate(read_lines(annotations, remedy), start=1):
            name, wnid, *_ = [*line.split("\t"), ""]
            if wnid not in wnids or Path(name).name != name:
                raise DataError(f"{annotations}, line {number}: {line[:60]!r} is not a file name and one of the WordNet ids; {remedy}")
            paths.append(folder / "val" / "images" / name)
            labels.append(wnids[wnid])
        if len(paths) != sum(self.counts["val"]):
            raise DataError(f"{annotations} lists {len(paths):,} images, expected {sum(self.counts['val']):,}; {remedy}")
        return paths, labels


def decoded(paths: Sequence[Path], size: tuple[int, int], what: str, remedy: str) -> torch.Tensor:
    """All images as (n, 3, height, width) bytes. Threads suffice: Pillow lets go of Python's lock while it decodes."""
    pixels = np.empty((len(paths), *size, 3), dtype=np.uint8)
    chunks = [range(start, min(start + 100, len(paths))) for start in range(0, len(paths), 100)]

    def decode_chunk(chunk: range) -> int:
        for index in chunk:
            pixels[index] = _decode(paths[index], size, remedy)
        return len(chunk)

    with progress_bar(f"decoding {what}", len(paths)) as advance, ThreadPoolExecutor(usable_cores()) as pool:
        try:
            for done in pool.map(decode_chunk, chunks):
                advance(done)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # one bad image should not wait for the other hundred thousand
            raise
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def _decode(path: Path, size: tuple[int, int], remedy: str) -> np.ndarray:
    """One JPEG as (height, width, 3); grey ones, of which the official set has some, become RGB."""
    try:
        with open_image(read_image_bytes(path), path, formats=("JPEG",)) as image:
            if image.size != size[::-1]:
                raise DataError(f"{path} is {image.width}×{image.height}, expected {size[1]}×{size[0]}; {remedy}")
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {remedy}") from None
    except DataError:
        raise
    except Exception as error:  # Pillow raises whatever its decoders raise
        raise DataError(f"{path} cannot be decoded ({type(error).__name__}: {error}); {remedy}") from None


TINY_IMAGENET_200 = TinyImageNet(
    name="tiny_imagenet_200",
    counts={"train": (500,) * 200, "val": (50,) * 200},
    folders=("tiny-imagenet-200",),
    shape=(3, 64, 64),
)
