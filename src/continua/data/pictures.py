"""The one place where an image file is opened: formats of pixels only, and no more pixels than a limit, known before one is decoded."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from continua.errors import DataError
from continua.files import PLAINLY
from continua.limits import PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")  # decoders of pixels only: none of them starts a program
"""The formats of images that are read: pixels only, nothing that can run a program."""
BYTES_PER_PIXEL = 8  # of the largest uncompressed format that is read: four channels of 16 bits


class TooManyPixels(DataError):
    """An image that would need more memory than it may."""


@contextmanager
def open_image(content: bytes, name: object, *, formats: tuple[str, ...] = IMAGE_FORMATS, most: int | None = None) -> "Iterator[Image]":
    """The image in some bytes, its pixels not yet decoded: the first one where there are several.

    Pillow chooses the decoder by the contents, and some of its decoders start programs (Ghostscript, for a PostScript file called
    x.png): only the `formats` named here are tried. More than `most` pixels (default: the limit of all images) are refused from the
    file's head. Errors of a decoder come through as they are: whoever reads knows what to advise.

    Args:
        content: the bytes of the file.
        name: what errors call it.
        formats: decoders that may be tried.
        most: largest number of pixels.

    Returns:
        The opened image, in a `with` statement.

    Raises:
        TooManyPixels: the image would not fit into memory.

    Examples:
        >>> from pathlib import Path
        >>> from continua.data import open_image
        >>> with open_image(Path("cat.png").read_bytes(), "cat.png") as image: ...  # doctest: +SKIP
    """
    from PIL import Image

    if Image.MAX_IMAGE_PIXELS is not None and PIXELS.value > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = PIXELS.value  # somebody raised our limit: Pillow's own, which is as high, must not stand in the way
    try:
        opened = Image.open(BytesIO(content), formats=formats)
    except Image.DecompressionBombError:
        raise TooManyPixels(f"{name} has far more pixels than can be held in memory; {PIXELS.advice()}") from None
    with opened:
        check_pixels(opened.size, name, most=most)
        yield opened


def read_image_bytes(path: Path) -> bytes:
    """The contents of an image file: a regular one, and no larger than its pixels could make it. Raises OSError, `TooManyPixels`."""
    most = PIXELS.value * BYTES_PER_PIXEL
    handle = os.open(path, os.O_RDONLY | PLAINLY)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "it is no regular file")
        if about.st_size > most:
            raise TooManyPixels(f"{path} has {about.st_size:,} bytes, more than any image within the limit; {PIXELS.advice()}")
        return file.read(most)


def check_pixels(size: tuple[int, int], name: object, doing: str = "has", *, most: int | None = None) -> None:
    """Refuse an image of more pixels than there may be, before memory is asked for them."""
    wide, high = size
    if wide * high > (PIXELS.value if most is None else most):
        raise TooManyPixels(f"{name} {doing} {wide:,}×{high:,} pixels, which is too many to hold in memory; {PIXELS.advice()}")


def to_rgb(image: "Image") -> "Image":
    """An image of any mode as 8-bit RGB: grey repeated, 16 bits rounded down, transparency on white.

    Args:
        image: as Pillow opened it.

    Returns:
        The image in RGB.

    Raises:
        ValueError: the pixels are floating-point numbers, whose range is not known.

    Examples:
        >>> from PIL import Image
        >>> from continua.data import to_rgb
        >>> to_rgb(Image.new("L", (2, 2))).mode
        'RGB'
    """
    from PIL import Image

    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is not known")
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.int64) >> 8
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        with_alpha = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), with_alpha).convert("RGB")
    return image.convert("RGB")
