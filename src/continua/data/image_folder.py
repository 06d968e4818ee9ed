"""Trees of image files with one folder per class, such as ImageNet's, decoded only when an image is asked for."""

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from continua.data.crop import ResizedCrop
from continua.data.dataset import DataSet, Split
from continua.data.draws import Draws, hold_out
from continua.data.pictures import TooManyPixels, check_pixels, open_image, read_image_bytes, to_rgb
from continua.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
SPLITS = ("train", "val", "test")

OnBadImage = Literal["raise", "skip"]


class UndecodableImage(DataError):
    """A file that could be read but holds no image that can be decoded."""


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """A split whose images are files; `decode` gives one of them as a uint8 RGB tensor of size × size.

    Without a random crop the shorter side is resized to `resize` (by default size / 0.875, ImageNet's 256 for 224) and
    the centre is cut out; smaller images are enlarged.
    """

    root: Path
    files: np.ndarray = field(repr=False)  # encoded names under root; an array, as worker processes would each copy a list of objects
    labels: Int64[Tensor, "n"] = field(repr=False)
    size: int = 224
    resize: int | None = None
    on_bad_image: OnBadImage = "raise"

    def __post_init__(self) -> None:
        if self.size < 1 or (self.resize is not None and self.resize < self.size):
            raise ConfigError(f"image folder: size {self.size}, resize {self.resize}; expected 1 <= size <= resize")
        if self.on_bad_image not in get_args(OnBadImage):
            raise ConfigError(f"image folder: on_bad_image is {self.on_bad_image!r}; expected one of {get_args(OnBadImage)}")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int64[Tensor, "m"]) -> "ImageFolder":
        return replace(self, files=self.files[indices.numpy()], labels=self.labels[indices])

    def path(self, index: int) -> Path:
        return self.root / os.fsdecode(self.files[index])

    def decode(self, index: int, crop: ResizedCrop | None = None, seed: int = 0, epoch: int = 0) -> UInt8[Tensor, "3 size size"]:
        """Image `index`: its centre, or the rectangle that `crop` draws for it in this (seed, epoch)."""
        from PIL.Image import Resampling

        image = read_rgb(self.path(index))
        if crop is None:
            image = _resized_centre(image, self.size, self.resize or round(self.size / 0.875), self.path(index))
        else:
            draws = Draws(seed, epoch, torch.tensor([index]))
            top, left, tall, wide = crop.boxes(draws, image.height, image.width)[0].tolist()
            image = image.crop((left, top, left + wide, top + tall)).resize((self.size, self.size), Resampling.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def load_image_folder(
    root: Path | str,
    *,
    size: int = 224,
    resize: int | None = None,
    on_bad_image: OnBadImage = "raise",
    name: str = "image_folder",
    holdout: float | None = None,
    seed: int = 0,
) -> DataSet:
    """A data set from `root/train/<class>/…` and `root/val|test/<class>/…`, or from `root/<class>/…` (all "train").

    Classes are the folders' names in the order of their code points, and every split must have the same ones.

    Args:
        root: the tree of class folders.
        size: height and width that images get.
        resize: the shorter side before the centre is cut out; None: a little more than `size`.
        on_bad_image: what to do with a file that is no image.
        name: of the data set.
        holdout: move this share of the training images of each class to a split "holdout".
        seed: decides which images those are.

    Returns:
        The data set.

    Raises:
        DataError: no classes, other classes in one split than in another, or an image that cannot be read.

    Examples:
        >>> from continua.data import load_image_folder
        >>> load_image_folder("photos", size=64)  # doctest: +SKIP
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; expected one that holds train/<class>/ or <class>/ folders of images")
    folders = {split: root / split for split in SPLITS if (root / split).is_dir()} or {"train": root}
    splits: dict[str, Split] = {}
    first: tuple[str, ...] = ()
    for split, folder in folders.items():
        classes, files, labels = _scan(folder)
        first = first or classes
        if classes != first:
            differing = sorted(set(classes) ^ set(first))
            raise DataError(
                f"{folder} has {len(classes)} classes, {folders[next(iter(folders))]} has {len(first)}; expected the same class folders, "
                f"but these are in only one of them: {', '.join(differing[:5])}{' …' if len(differing) > 5 else ''}"
            )
        splits[split] = ImageFolder(folder, files, labels, size, resize, on_bad_image)
    if holdout is not None:
        splits["train"], splits["holdout"] = hold_out(splits["train"], holdout, seed)
    return DataSet(name, first, splits)


def read_rgb(path: Path) -> "Image":
    """Decode a file to upright RGB: EXIF rotation applied, transparency laid on white, 16-bit grey scaled to 8 bits."""
    from PIL import ImageOps

    try:
        content = read_image_bytes(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check that the file is still there and its permissions") from error
    try:
        with open_image(content, path) as opened:
            return to_rgb(ImageOps.exif_transpose(opened))
    except TooManyPixels as error:
        raise UndecodableImage(f"{error}; or replace or remove the file, or set on_bad_image='skip'") from None
    except MemoryError:
        raise
    except Exception as error:  # decoders raise whatever they like on damaged bytes
        raise UndecodableImage(
            f"cannot decode {path}: found {len(content)} bytes that give '{error}', expected an image; "
            "replace or remove the file, or set on_bad_image='skip'"
        ) from error


def _resized_centre(image: "Image", size: int, shorter: int, path: Path) -> "Image":
    from PIL.Image import Resampling

    scale = shorter / min(image.size)
    width, height = (max(shorter, round(side * scale)) for side in image.size)
    try:  # of an image of one long line of pixels, the shorter side enlarged makes the longer one enormous
        check_pixels((width, height), path, f"is {image.width:,}×{image.height:,} and, {shorter} on its shorter side, would have")
    except TooManyPixels as error:
        raise UndecodableImage(f"{error}; or replace or remove the file, or set on_bad_image='skip'") from None
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))


def _scan(folder: Path) -> tuple[tuple[str, ...], np.ndarray, Int64[Tensor, "n"]]:
    """Class names, image files (names relative to the folder) and labels, in an order that is the same everywhere."""
    classes = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")))
    if not classes:
        raise DataError(f"{folder} holds no class folders; expected one folder of images per class")
    files: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = _image_files(folder, folder / name)
        files += images
        labels += [label] * len(images)
    return classes, np.array(files), torch.tensor(labels)


def _image_files(root: Path, folder: Path) -> list[bytes]:
    images: list[str] = []
    others: Counter[str] = Counter()
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if name.startswith("."):
                continue
            extension = os.path.splitext(name)[1].lower()
            if extension in EXTENSIONS:
                images.append(os.path.relpath(os.path.join(parent, name), root))
            else:
                others[extension or "no extension"] += 1
    if not images:
        instead = ", ".join(f"{count} file(s) with {extension}" for extension, count in sorted(others.items())) or "nothing"
        raise DataError(
            f"class folder {folder} holds no images: found {instead}, expected files ending in {' '.join(EXTENSIONS)}; "
            "add images or remove the folder"
        )
    return sorted(os.fsencode(image) for image in images)
