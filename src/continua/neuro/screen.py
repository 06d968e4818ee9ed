"""A screen in degrees of visual angle, and windows on it: where stimuli are drawn.

Stimuli are contrasts: 0 is the grey of the background, 1 white, −1 black, as PsychoPy has it; `to_images` makes luminances of them.
x grows to the right and y upwards, both from the middle of the screen; angles are degrees, counter-clockwise from the x-axis.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError

Number = float | Tensor
"""A parameter of a stimulus: one number, or a tensor with one for each stimulus of a batch."""


@dataclass(frozen=True)
class Screen:
    """So many pixels, so many degrees per pixel; stimuli are made on its `device`, in its `dtype`."""

    height: int = 32
    width: int = 32
    degrees_per_pixel: float = 0.1
    device: "torch.device | str" = "cpu"
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1 or not 0 < self.degrees_per_pixel < math.inf:
            raise ConfigError(
                f"a screen of {self.height} × {self.width} pixels of {self.degrees_per_pixel} degrees cannot be; "
                "give Screen(height, width, degrees_per_pixel), all of them positive"
            )

    @property
    def degrees(self) -> tuple[float, float]:
        """Height and width in degrees."""
        return self.height * self.degrees_per_pixel, self.width * self.degrees_per_pixel

    @property
    def finest(self) -> float:
        """The highest spatial frequency that its pixels can show along their rows, in cycles per degree (Nyquist)."""
        return 0.5 / self.degrees_per_pixel

    def grid(self) -> tuple[Float[Tensor, "height width"], Float[Tensor, "height width"]]:
        """x and y of the middle of each pixel, in degrees."""
        rows = (torch.arange(self.height, device=self.device, dtype=self.dtype) - (self.height - 1) / 2) * -self.degrees_per_pixel
        columns = (torch.arange(self.width, device=self.device, dtype=self.dtype) - (self.width - 1) / 2) * self.degrees_per_pixel
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        return x, y

    def grey(self, count: int = 1) -> Float[Tensor, "batch 1 height width"]:
        """The background alone: a contrast of 0 everywhere."""
        return torch.zeros(count, 1, self.height, self.width, device=self.device, dtype=self.dtype)

    def numbers(self, *values: Number) -> tuple[Tensor, ...]:
        """Parameters of a batch of stimuli as tensors (batch, 1, 1, 1) that go with the grid."""
        given = [torch.as_tensor(value, device=self.device, dtype=self.dtype) for value in values]
        if any(value.ndim > 1 for value in given):
            shapes = [tuple(value.shape) for value in given]
            raise ConfigError(f"a parameter of a stimulus is a number or a tensor (batch,); got tensors of shape {shapes}")
        lengths = {len(value) for value in given if value.ndim} - {1}
        if len(lengths) > 1:
            raise ConfigError(
                f"the parameters of a batch of stimuli have lengths {sorted(lengths)}; expected one length, or single numbers"
            )
        count = max(lengths, default=1)
        return tuple(value.expand(count)[:, None, None, None] for value in given)


def within_contrast(*values: Number) -> None:
    """Refuse contrasts beyond black and white, such as those in per cent."""
    largest = [float(torch.as_tensor(value).abs().max()) for value in values]
    if not all(size <= 1 + 1e-6 for size in largest):
        raise ConfigError(f"a contrast of {max(largest):g} is beyond black and white; expected from −1 to 1, as in contrast=0.5 for 50 %")


def inside(screen: Screen, distance: Tensor, edge: Number = 0.0) -> Tensor:
    """1 where a distance in degrees to an outline is negative, 0 where it is positive, smooth over `edge` degrees (at least a pixel).

    The one-pixel ramp is what a pixel shows of an outline that crosses it, so that shapes move by less than a pixel.
    """
    ramp = torch.as_tensor(edge, device=screen.device, dtype=screen.dtype).clamp_min(screen.degrees_per_pixel)
    return (0.5 - distance / ramp).clamp(0, 1)


def aperture(
    screen: Screen, *, size: Number, inner: Number = 0.0, x: Number = 0.0, y: Number = 0.0, edge: Number = 0.0
) -> Float[Tensor, "batch 1 height width"]:
    """A round window: 1 inside a disc of diameter `size` degrees at (x, y), 0 outside. `inner`: the diameter of a hole, for a ring.

    Args:
        screen: where it is drawn.
        size: diameter, degrees.
        inner: diameter of a hole, degrees.
        x: middle, degrees to the right.
        y: middle, degrees up.
        edge: width of the soft edge, degrees.

    Returns:
        Values between 0 and 1 to multiply a stimulus by.

    Examples:
        >>> from continua.neuro import Screen, aperture
        >>> window = aperture(Screen(32, 32, 0.1), size=2.0)
    """
    size, inner, x, y, edge = screen.numbers(size, inner, x, y, edge)
    across, up = screen.grid()
    radius = torch.hypot(across - x, up - y)
    hole = torch.where(inner > 0, inside(screen, radius - inner / 2, edge), torch.zeros_like(radius))
    return inside(screen, radius - size / 2, edge) * (1 - hole)


def gaussian_window(screen: Screen, *, sigma: Number, x: Number = 0.0, y: Number = 0.0) -> Float[Tensor, "batch 1 height width"]:
    """A Gaussian window of standard deviation `sigma` degrees, 1 at its middle: a grating times it is a Gabor.

    Args:
        screen: where it is drawn.
        sigma: degrees.
        x: middle, degrees to the right.
        y: middle, degrees up.

    Returns:
        Values between 0 and 1 to multiply a stimulus by.

    Examples:
        >>> from continua.neuro import Screen, gaussian_window
        >>> window = gaussian_window(Screen(32, 32, 0.1), sigma=0.5)
    """
    sigma, x, y = screen.numbers(sigma, x, y)
    across, up = screen.grid()
    return torch.exp(-((across - x) ** 2 + (up - y) ** 2) / (2 * sigma**2))


def masked_square(
    screen: Screen, stimulus: Float[Tensor, "*batch height width"], *, size: float, x: float = 0.0, y: float = 0.0, value: float = 0.0
) -> Float[Tensor, "*batch height width"]:
    """Stimuli with a square of `size` degrees at (x, y) covered by the contrast `value`.

    Args:
        screen: on which the stimuli are.
        stimulus: contrasts.
        size: side of the square, degrees.
        x: middle, degrees to the right.
        y: middle, degrees up.
        value: contrast of the square.

    Returns:
        Covered stimuli.

    Raises:
        ConfigError: a contrast beyond −1 to 1.

    Examples:
        >>> from continua.neuro import Screen, grating, masked_square
        >>> screen = Screen(32, 32, 0.1)
        >>> covered = masked_square(screen, grating(screen), size=1.0)
    """
    within_contrast(value)
    across, up = screen.grid()
    cover = inside(screen, (across - x).abs() - size / 2) * inside(screen, (up - y).abs() - size / 2)
    return stimulus * (1 - cover) + value * cover


def to_images(
    contrast: Float[Tensor, "*batch channels height width"], channels: int = 1, mean: float = 0.5
) -> Float[Tensor, "*batch channels2 height width"]:
    """Luminances mean · (1 + contrast) of grey stimuli, the same in each of `channels`; contrasts from −1 to 1 come into [0, 1].

    Args:
        contrast: stimuli.
        channels: of the images.
        mean: luminance of grey.

    Returns:
        Images.

    Raises:
        ConfigError: the stimuli are not grey and have another number of channels.

    Examples:
        >>> from continua.neuro import Screen, grating, to_images
        >>> images = to_images(grating(Screen(32, 32, 0.1)), channels=3)
    """
    images = mean * (1 + contrast)
    if images.shape[-3] == channels:
        return images
    if images.shape[-3] != 1:
        raise ConfigError(f"stimuli have {images.shape[-3]} channels and the images {channels}; expected grey stimuli, or as many channels")
    return images.expand(*images.shape[:-3], channels, *images.shape[-2:])
