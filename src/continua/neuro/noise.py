"""Noise: white, sparse, with the spectrum of natural images, and dots that move together. Every draw has its seed."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError
from continua.neuro.movie import Movie
from continua.neuro.screen import Screen, inside, within_contrast

Images = Float[Tensor, "count 1 height width"]


def drawing(seed: int) -> torch.Generator:
    """A generator on the host, so that a seed gives the same stimuli on every device."""
    return torch.Generator().manual_seed(seed)


def white_noise(
    screen: Screen, count: int, *, seed: int, kind: Literal["gaussian", "binary"] = "gaussian", contrast: float = 1.0, check: int = 1
) -> Images:
    """Independent checks of `check` pixels: normal with standard deviation `contrast`, or ± `contrast`.

    Args:
        screen: where it is drawn.
        count: how many images.
        seed: decides them.
        kind: "gaussian" or "binary".
        contrast: standard deviation, or size of each check's contrast.
        check: side of a check, pixels.

    Returns:
        Stimuli.

    Raises:
        ConfigError: an unknown kind.

    Examples:
        >>> from continua.neuro import Screen, white_noise
        >>> noise = white_noise(Screen(32, 32, 0.1), 4, seed=0)
    """
    within_contrast(contrast)
    rows, columns = math.ceil(screen.height / check), math.ceil(screen.width / check)
    if kind == "gaussian":
        small = torch.randn(count, 1, rows, columns, generator=drawing(seed))
    elif kind == "binary":
        small = torch.randint(0, 2, (count, 1, rows, columns), generator=drawing(seed)) * 2.0 - 1.0
    else:
        raise ConfigError(f"white noise is 'gaussian' or 'binary'; got kind={kind!r}")
    large = small.repeat_interleave(check, -2).repeat_interleave(check, -1)[..., : screen.height, : screen.width]
    return contrast * large.to(screen.device, screen.dtype)


def sparse_noise(screen: Screen, count: int, *, seed: int, spots: int = 1, check: int = 1, contrast: float = 1.0) -> Images:
    """Grey with `spots` checks of `check` pixels, each white or black, at places drawn without repetition in an image.

    Args:
        screen: where it is drawn.
        count: how many images.
        seed: decides them.
        spots: checks in an image.
        check: side of a check, pixels.
        contrast: of the checks.

    Returns:
        Stimuli.

    Raises:
        ConfigError: more spots than checks, or none.

    Examples:
        >>> from continua.neuro import Screen, sparse_noise
        >>> noise = sparse_noise(Screen(32, 32, 0.1), 4, seed=0)
    """
    within_contrast(contrast)
    rows, columns = math.ceil(screen.height / check), math.ceil(screen.width / check)
    if not 1 <= spots <= rows * columns:
        raise ConfigError(f"{spots} spots on {rows} × {columns} checks; expected from 1 to {rows * columns}")
    random = drawing(seed)
    places = torch.rand(count, rows * columns, generator=random).topk(spots, dim=1).indices
    signs = torch.randint(0, 2, (count, spots), generator=random) * 2.0 - 1.0
    small = torch.zeros(count, rows * columns).scatter_(1, places, signs).view(count, 1, rows, columns)
    large = small.repeat_interleave(check, -2).repeat_interleave(check, -1)[..., : screen.height, : screen.width]
    return contrast * large.to(screen.device, screen.dtype)


def natural_noise(screen: Screen, count: int, *, seed: int, exponent: float = 1.0, contrast: float = 0.3) -> Images:
    """Noise whose amplitude falls as 1/f^exponent, that of natural images for exponent 1; each of mean 0 and deviation `contrast`.

    Args:
        screen: where it is drawn.
        count: how many images.
        seed: decides them.
        exponent: of the fall with frequency.
        contrast: standard deviation.

    Returns:
        Stimuli.

    Examples:
        >>> from continua.neuro import Screen, natural_noise
        >>> noise = natural_noise(Screen(32, 32, 0.1), 4, seed=0)
    """
    within_contrast(contrast)
    noise = torch.randn(count, 1, screen.height, screen.width, generator=drawing(seed), dtype=torch.float64)
    down = torch.fft.fftfreq(screen.height, dtype=torch.float64)[:, None]
    along = torch.fft.rfftfreq(screen.width, dtype=torch.float64)[None]
    radius = torch.hypot(down, along)
    radius[0, 0] = math.inf  # no mean
    shaped = torch.fft.irfft2(torch.fft.rfft2(noise) * radius**-exponent, s=(screen.height, screen.width))
    deviation = shaped.std(dim=(-2, -1), correction=0, keepdim=True)
    return (contrast * shaped / deviation).to(screen.device, screen.dtype)


def random_dots(
    screen: Screen,
    times: Sequence[float],
    *,
    seed: int,
    batch: int = 1,
    coherence: float = 1.0,
    direction: float = 0.0,
    speed: float = 5.0,
    dots: int = 40,
    size: float = 0.2,
    lifetime: float = math.inf,
    contrast: float = 1.0,
) -> Movie:
    """Round dots of `size` degrees and `speed` degrees per second: a share `coherence` moves together, each other dot in its own direction.

    A dot that leaves the screen enters on the other side. After `lifetime` ms it is put elsewhere; with a finite lifetime the film jumps at
    each frame at which a dot is put elsewhere.

    Args:
        screen: where they are drawn.
        times: of the frames, in ms.
        seed: decides places and directions.
        batch: how many films.
        coherence: share of dots that move together.
        direction: in which those move, degrees.
        speed: degrees per second.
        dots: how many.
        size: diameter, degrees.
        lifetime: ms until a dot is put elsewhere.
        contrast: of the dots.

    Returns:
        A film.

    Raises:
        ConfigError: coherence, number of dots or lifetime out of range.

    Examples:
        >>> from continua.neuro import Screen, frame_times, random_dots
        >>> movie = random_dots(Screen(32, 32, 0.1), frame_times(100.0), seed=0, coherence=0.5)
    """
    within_contrast(contrast)
    if not 0 <= coherence <= 1 or lifetime <= 0 or dots < 1:
        raise ConfigError(f"coherence {coherence}, {dots} dots, lifetime {lifetime} ms; expected 0 to 1, at least 1, and a positive number")
    random, (height, width) = drawing(seed), screen.degrees
    area = torch.tensor([width, height], dtype=torch.float64)
    own = torch.rand(batch, dots, generator=random, dtype=torch.float64) * 360
    angle = torch.deg2rad(torch.where(torch.arange(dots) < round(coherence * dots), torch.tensor(direction, dtype=torch.float64), own))
    velocity = speed / 1000 * torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)
    place = torch.rand(batch, dots, 2, generator=random, dtype=torch.float64) * area
    age = torch.rand(batch, dots, generator=random, dtype=torch.float64) * (lifetime if math.isfinite(lifetime) else 0.0)
    frames, jumps, before = [], [], float(times[0])
    for time in map(float, times):
        place, age = place + velocity * (time - before), age + (time - before)
        old = age >= lifetime
        if bool(old.any()):
            place = torch.where(old[..., None], torch.rand(batch, dots, 2, generator=random, dtype=torch.float64) * area, place)
            age = torch.where(old, torch.zeros_like(age), age)
            jumps.append(time)
        place, before = place % area, time
        frames.append(contrast * _dots(screen, place - area / 2, size))
    return Movie(torch.stack(frames), tuple(times), float(times[-1]), tuple(time for time in jumps if time > times[0]))


def _dots(screen: Screen, place: Tensor, size: float) -> Tensor:
    """Dots at places (batch, dots, 2) in degrees from the middle, on the other side too where they reach over an edge."""
    across, up = screen.grid()
    height, width = screen.degrees
    at = place.to(screen.device, screen.dtype)[..., None, None]
    dx, dy = (across - at[:, :, 0]).abs(), (up - at[:, :, 1]).abs()
    radius = torch.hypot(torch.minimum(dx, width - dx), torch.minimum(dy, height - dy))
    return inside(screen, radius - size / 2).amax(dim=1, keepdim=True)
