"""Random crops of whole batches: shifted with zero padding (CIFAR), or resized to the input's size (Inception)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad

from continua.data.draws import Draws, Stream
from continua.errors import ConfigError

Images = UInt8[Tensor, "n channels height width"]

_TRIES = 10
_WEIGHT_BITS = 22  # Pillow's fixed-point weights for 8-bit images


def shift_and_flip(
    images: Images, rows: Int64[Tensor, "n"], columns: Int64[Tensor, "n"], mirrored: Bool[Tensor, "n"], padding: int
) -> Images:
    """The window at (row, column) of each zero-padded image, of the input's size, mirrored where asked: one gather."""
    n, channels, height, width = images.shape
    device = images.device
    padded = pad(images, (padding,) * 4).flatten(2)
    x = torch.arange(width, device=device)
    x = torch.where(mirrored[:, None], width - 1 - x, x) + columns[:, None]
    y = torch.arange(height, device=device) + rows[:, None]
    position = (y[:, :, None] * (width + 2 * padding) + x[:, None, :]).view(n, 1, -1)
    return padded.gather(2, position.expand(-1, channels, -1)).view_as(images)


@dataclass(frozen=True)
class ResizedCrop:
    """Scale and aspect-ratio augmentation (Szegedy et al. 2015).

    A rectangle with a share of the area uniform in `area` and an aspect ratio (width / height) log-uniform in `aspect`
    is cut out anywhere and resized. After ten rectangles that do not fit, the largest centred one with an allowed
    aspect ratio is taken.
    """

    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", tuple(self.area))
        object.__setattr__(self, "aspect", tuple(self.aspect))
        if len(self.area) != 2 or not 0 < self.area[0] <= self.area[1] <= 1:
            raise ConfigError(f"resized crop: area is {self.area}; expected (low, high) with 0 < low <= high <= 1")
        if len(self.aspect) != 2 or not 0 < self.aspect[0] <= self.aspect[1]:
            raise ConfigError(f"resized crop: aspect is {self.aspect}; expected (low, high) with 0 < low <= high")

    def boxes(self, draws: Draws, height: int, width: int) -> Int64[Tensor, "n 4"]:
        """(top, left, height, width) of each sample's rectangle in an image of this height and width."""
        area = height * width * (self.area[0] + (self.area[1] - self.area[0]) * draws.uniform(Stream.BOX_AREA, _TRIES))
        low, high = math.log(self.aspect[0]), math.log(self.aspect[1])
        aspect = torch.exp(low + (high - low) * draws.uniform(Stream.BOX_ASPECT, _TRIES))
        tall = torch.sqrt(area / aspect).round().long()
        wide = torch.sqrt(area * aspect).round().long()
        fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)

        first = fits.long().argmax(1, keepdim=True)
        tall, wide = tall.gather(1, first)[:, 0], wide.gather(1, first)[:, 0]
        down, across = draws.uniform(Stream.BOX_POSITION, 2).unbind(1)
        top, left = (down * (height - tall + 1)).long(), (across * (width - wide + 1)).long()
        drawn = torch.stack([top, left, tall, wide], 1)
        centred = torch.tensor(self._largest_centred(height, width), device=drawn.device)
        return torch.where(fits.any(1, keepdim=True), drawn, centred)

    def _largest_centred(self, height: int, width: int) -> tuple[int, int, int, int]:
        tall = min(height, max(1, round(width / self.aspect[0])))
        wide = min(width, max(1, round(height * self.aspect[1])))
        return (height - tall) // 2, (width - wide) // 2, tall, wide


def crop_and_resize(images: Images, boxes: Int64[Tensor, "n 4"]) -> Images:
    """Cut out each image's box and resize it to the image's size, bilinear with anti-aliasing.

    Pixel for pixel what Pillow's `crop` and `resize` give, so that a batch in memory and a file decoded by Pillow are
    augmented alike: each row, then each column, is multiplied by a matrix of whole numbers (the weights times 2^22) and
    rounded. All products and sums are exact in float64, so they do not depend on the order of summation.
    """
    height, width = images.shape[-2:]
    top, left, tall, wide = boxes.to(images.device).unbind(1)
    across = _resampling(left, wide, width)
    down = _resampling(top, tall, height)
    narrowed = _rounded(images.double() @ across[:, None].mT)
    return _rounded(down[:, None] @ narrowed).to(torch.uint8)


def _rounded(values: Tensor) -> Tensor:
    return torch.floor(values * 2.0**-_WEIGHT_BITS + 0.5).clamp(0, 255)


def _resampling(start: Int64[Tensor, "n"], length: Int64[Tensor, "n"], size: int) -> Float64[Tensor, "n size size"]:
    """Rows of triangle-filter weights that resize pixels start … start + length − 1 to `size` pixels."""
    pixel = torch.arange(size, device=start.device)
    scale = length.double()[:, None, None] / size
    support = scale.clamp(min=1.0)
    centre = start[:, None, None] + (pixel[:, None] + 0.5) * scale
    weight = (1.0 - ((pixel + 0.5 - centre) / support).abs()).clamp(min=0.0)
    inside = (pixel >= start[:, None]) & (pixel < (start + length)[:, None])
    weight = weight * inside[:, None, :]
    total = weight.sum(-1, keepdim=True)
    return torch.floor(weight / total * 2.0**_WEIGHT_BITS + 0.5)
