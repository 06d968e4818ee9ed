"""The image under the lens: one of a data set, or somebody's own file, read with care and made to fit a network."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from continua.data import IMAGE_FORMATS, TooManyPixels, open_image, to_rgb
from continua.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_MEGABYTES = 10
MAX_PIXELS = 40_000_000  # more than most cameras take; what is decoded is at most 120 MB
SMALLEST = 8  # pixels a side: the networks' own images are no smaller
LARGEST = 1024  # what is kept of larger images, a side


class UploadError(DataError):
    """A file that cannot be looked at, and why."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels (height, width, 3) as they came, upright and opaque; `notes` say what was done to them, `label` is the class where known."""

    name: str
    pixels: UInt8[np.ndarray, "height width 3"]
    notes: tuple[str, ...] = ()
    label: str | None = None


def read_upload(content: bytes, name: str) -> Picture:
    """An uploaded file as a picture; an `UploadError` with one sentence for people where it is none."""
    from PIL import UnidentifiedImageError

    if len(content) > MAX_MEGABYTES * 1_000_000:
        raise UploadError(f"{name} has {len(content) / 1e6:.0f} MB; expected at most {MAX_MEGABYTES} MB. Save it smaller, and try again.")
    if not content:
        raise UploadError(f"{name} is empty: no image in 0 bytes. Choose another file.")
    try:
        with open_image(content, name) as opened:
            _check_size(opened.size, name)
            return _upright(opened, name)
    except (UploadError, MemoryError):
        raise
    except TooManyPixels:
        raise UploadError(f"{name} has more than {MAX_PIXELS // 1_000_000} million pixels. Save it smaller, and try again.") from None
    except UnidentifiedImageError:
        raise UploadError(f"{name} is not an image that can be read here; expected {', '.join(IMAGE_FORMATS)}.") from None
    except Exception as error:  # decoders raise whatever they like on damaged bytes
        raise UploadError(
            f"{name} begins like an image but is damaged ({error}). Open and save it again, or choose another file."
        ) from None


def fitted(picture: Picture, shape: tuple[int, int, int], *, inverted: bool = False) -> UInt8[Tensor, "1 channels height width"]:
    """The picture as a network of (channels, height, width) sees it: its largest centred part of that form, resized; grey for 1 channel."""
    from PIL import Image

    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"this network reads images of {channels} channels; pictures have 1 (grey) or 3 (RGB)")
    image = Image.fromarray(np.ascontiguousarray(picture.pixels))
    if image.size != (width, height):
        image = _centre(image, width / height).resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
    # Grey is taken last: of three equal channels it is exactly their value.
    pixels = np.asarray(image.convert("L") if channels == 1 else image)
    fitting = torch.from_numpy(np.array(pixels)).reshape(height, width, channels).permute(2, 0, 1)[None].contiguous()
    return 255 - fitting if inverted else fitting


def from_data(image: UInt8[Tensor, "channels height width"], name: str, label: str | None) -> Picture:
    """An image of a data set."""
    pixels = image.expand(3, -1, -1) if len(image) == 1 else image
    return Picture(name, pixels.permute(1, 2, 0).contiguous().numpy(), label=label)


def _check_size(size: tuple[int, int], name: str) -> None:
    wide, high = size
    if wide * high > MAX_PIXELS:
        raise UploadError(
            f"{name} has {wide:,}×{high:,} pixels, which is more than {MAX_PIXELS // 1_000_000} million. Save it smaller, and try again."
        )
    if min(size) < SMALLEST:
        raise UploadError(f"{name} has {wide}×{high} pixels; there is nothing to see below {SMALLEST}×{SMALLEST}. Choose a larger image.")


def _upright(opened: "Image", name: str) -> Picture:
    from PIL import ImageOps

    notes = []
    if opened.format == "JPEG":
        opened.draft(None, (LARGEST, LARGEST))  # decodes a large photograph at a fraction of its size
    mode, frames = opened.mode, getattr(opened, "n_frames", 1)
    if frames > 1:
        notes.append(f"The first of its {frames} pictures is shown.")
    turned = opened.getexif().get(0x0112, 1) != 1  # EXIF: orientation
    image = ImageOps.exif_transpose(opened)
    if turned:
        notes.append("It was turned upright, as its EXIF tag says.")
    if image.has_transparency_data:
        notes.append("Its transparent parts were laid on white.")
    elif mode == "CMYK":
        notes.append("Its colours were turned from CMYK (print) to RGB.")
    elif mode.startswith("I"):
        notes.append("Its 16-bit grey values were reduced to 8 bits.")
    image = to_rgb(image)
    image.thumbnail((LARGEST, LARGEST))
    return Picture(name, np.asarray(image).copy(), tuple(notes))


def _centre(image: "Image", form: float) -> "Image":
    """The largest centred part whose width is `form` times its height."""
    width, height = min(image.width, round(image.height * form)), min(image.height, round(image.width / form))
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
