"""Gratings, plaids and bars, still and moving. Parameters are numbers, or tensors with one number for each stimulus of a batch.

`orientation` is that of the stripes: 0 horizontal, 90 vertical. A grating drifts at right angles to its stripes, towards
orientation − 90: vertical stripes drift to the right (direction 0), those at 180 + 90 to the left (direction 180).
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError
from continua.neuro.movie import Movie
from continua.neuro.screen import Number, Screen, aperture, inside, within_contrast

Stimuli = Float[Tensor, "batch 1 height width"]


def grating(
    screen: Screen,
    *,
    orientation: Number = 90.0,
    frequency: Number = 1.0,
    phase: Number = 0.0,
    contrast: Number = 1.0,
    size: Number = math.inf,
    x: Number = 0.0,
    y: Number = 0.0,
    edge: Number = 0.0,
) -> Stimuli:
    """Sinusoidal gratings: contrast · cos(2π · frequency · distance − phase), the distance along the direction of drift from (x, y).

    Args:
        screen: Where they are drawn.
        orientation: Of the stripes, degrees.
        frequency: Cycles per degree; along rows and along columns no more than half a cycle per pixel, `screen.finest`.
        phase: Degrees; it grows as the grating drifts.
        contrast: 1: from black to white; at most 1.
        size: Diameter of a round window at (x, y), degrees; infinite: the whole screen.
        x, y: Where phase 0 is white, and the middle of the window.
        edge: Width of the window's soft edge, degrees.

    Returns:
        One stimulus for each value of the parameters, as contrasts.

    Raises:
        ConfigError: a frequency that the pixels cannot show, which would look like a lower one, or a contrast beyond −1 to 1.

    Examples:
        >>> import torch
        >>> from continua.neuro import Screen, grating
        >>> grating(Screen(32, 32, 0.1), orientation=torch.tensor([0.0, 45.0])).shape
        torch.Size([2, 1, 32, 32])
    """
    within_contrast(contrast)
    orientation, frequency, phase, contrast, size, x, y, edge = screen.numbers(orientation, frequency, phase, contrast, size, x, y, edge)
    _within_pixels(screen, orientation, frequency)
    across, up = screen.grid()
    direction = torch.deg2rad(orientation - 90)
    distance = (across - x) * torch.cos(direction) + (up - y) * torch.sin(direction)
    wave = contrast * torch.cos(2 * math.pi * frequency * distance - torch.deg2rad(phase))
    if bool(torch.isinf(size).all()):
        return wave
    window = aperture(screen, size=size.flatten(), x=x.flatten(), y=y.flatten(), edge=edge.flatten())
    return torch.where(torch.isinf(size), wave, wave * window)


def drifting_grating(
    screen: Screen, times: Sequence[float], *, temporal_frequency: Number = 4.0, phase: Number = 0.0, **options: Number
) -> Movie:
    """Gratings that drift at `temporal_frequency` cycles per second; the other options are those of `grating`.

    Args:
        screen: where they are drawn.
        times: of the frames, in ms.
        temporal_frequency: cycles per second; at most half a cycle per frame.
        phase: at time 0, degrees.
        options: those of `grating`.

    Returns:
        A film.

    Raises:
        ConfigError: a frequency that pixels or frames cannot show, which would look like a lower one.

    Examples:
        >>> from continua.neuro import Screen, drifting_grating, frame_times
        >>> movie = drifting_grating(Screen(32, 32, 0.1), frame_times(100.0))
    """
    _within_frames(times, temporal_frequency)
    return moving(times, lambda time: grating(screen, phase=_advance(screen, phase, temporal_frequency, time), **options))


def plaid(screen: Screen, *, orientation: Number = 90.0, angle: Number = 90.0, contrast: Number = 1.0, **options: Number) -> Stimuli:
    """The sum of two gratings of half the contrast, `angle` degrees apart, at orientation ± angle / 2; options as of `grating`.

    Args:
        screen: where they are drawn.
        orientation: between the two gratings, degrees.
        angle: from one to the other, degrees.
        contrast: of both together, at most 1.
        options: those of `grating`.

    Returns:
        Stimuli.

    Examples:
        >>> from continua.neuro import Screen, plaid
        >>> stimuli = plaid(Screen(32, 32, 0.1), angle=60.0)
    """
    within_contrast(contrast)
    first = torch.as_tensor(orientation) - torch.as_tensor(angle) / 2
    second = first + torch.as_tensor(angle)
    half = torch.as_tensor(contrast) / 2
    return grating(screen, orientation=first, contrast=half, **options) + grating(screen, orientation=second, contrast=half, **options)


def drifting_plaid(
    screen: Screen, times: Sequence[float], *, temporal_frequency: Number = 4.0, phase: Number = 0.0, **options: Number
) -> Movie:
    """Plaids whose two gratings drift at `temporal_frequency`; the other options are those of `plaid`.

    Args:
        screen: where they are drawn.
        times: of the frames, in ms.
        temporal_frequency: cycles per second; at most half a cycle per frame.
        phase: at time 0, degrees.
        options: those of `plaid`.

    Returns:
        A film.

    Raises:
        ConfigError: a frequency that pixels or frames cannot show, which would look like a lower one.

    Examples:
        >>> from continua.neuro import Screen, drifting_plaid, frame_times
        >>> movie = drifting_plaid(Screen(32, 32, 0.1), frame_times(100.0))
    """
    _within_frames(times, temporal_frequency)
    return moving(times, lambda time: plaid(screen, phase=_advance(screen, phase, temporal_frequency, time), **options))


def bar(
    screen: Screen,
    *,
    orientation: Number = 90.0,
    width: Number = 0.3,
    length: Number = math.inf,
    contrast: Number = 1.0,
    x: Number = 0.0,
    y: Number = 0.0,
    edge: Number = 0.0,
) -> Stimuli:
    """Bars of `width` × `length` degrees at (x, y), white for a positive contrast.

    Args:
        screen: where they are drawn.
        orientation: of the long side, degrees.
        width: degrees.
        length: degrees.
        contrast: 1: white on grey, −1: black.
        x: middle, degrees to the right.
        y: middle, degrees up.
        edge: width of the soft edge, degrees.

    Returns:
        One stimulus for each value of the parameters.

    Examples:
        >>> import torch
        >>> from continua.neuro import Screen, bar
        >>> bars = bar(Screen(32, 32, 0.1), orientation=torch.tensor([0.0, 90.0]))
    """
    within_contrast(contrast)
    orientation, width, length, contrast, x, y, edge = screen.numbers(orientation, width, length, contrast, x, y, edge)
    across, up = screen.grid()
    turned = torch.deg2rad(orientation - 90)
    beside = (across - x) * torch.cos(turned) + (up - y) * torch.sin(turned)
    along = -(across - x) * torch.sin(turned) + (up - y) * torch.cos(turned)
    return contrast * inside(screen, beside.abs() - width / 2, edge) * inside(screen, along.abs() - length / 2, edge)


def moving_bar(
    screen: Screen, times: Sequence[float], *, speed: Number = 5.0, start: Number = 0.0, orientation: Number = 90.0, **options: Number
) -> Movie:
    """Bars that move at `speed` degrees per second, at right angles to their length, from `start` degrees behind the middle.

    Args:
        screen: where they are drawn.
        times: of the frames, in ms.
        speed: degrees per second.
        start: degrees behind the middle at time 0.
        orientation: of the long side, degrees.
        options: those of `bar`.

    Returns:
        A film.

    Examples:
        >>> from continua.neuro import Screen, frame_times, moving_bar
        >>> movie = moving_bar(Screen(32, 32, 0.1), frame_times(100.0), speed=10.0)
    """
    direction = torch.deg2rad(torch.as_tensor(orientation, device=screen.device, dtype=screen.dtype) - 90)

    def frame(time: float) -> Tensor:
        way = torch.as_tensor(start, device=screen.device) + torch.as_tensor(speed, device=screen.device) * time / 1000
        return bar(screen, orientation=orientation, x=way * torch.cos(direction), y=way * torch.sin(direction), **options)

    return moving(times, frame)


def moving_occluder(
    screen: Screen,
    movie: Movie,
    *,
    width: float = 0.5,
    speed: float = 5.0,
    start: float = 0.0,
    orientation: float = 90.0,
    value: float = 0.0,
) -> Movie:
    """A film behind a bar of contrast `value` and `width` degrees that moves across it; speed and start as of `moving_bar`.

    The film's own frames are its time base: give it frames often enough for the bar.

    Args:
        screen: on which the film is.
        movie: what is behind the bar.
        width: of the bar, degrees.
        speed: degrees per second.
        start: degrees behind the middle at time 0.
        orientation: of the bar's long side, degrees.
        value: contrast of the bar.

    Returns:
        A film.

    Raises:
        ConfigError: film and screen have different sizes.

    Examples:
        >>> from continua.neuro import Screen, drifting_grating, frame_times, moving_occluder
        >>> screen = Screen(32, 32, 0.1)
        >>> movie = moving_occluder(screen, drifting_grating(screen, frame_times(50.0)))
    """
    if movie.frames.shape[-2:] != (screen.height, screen.width):
        raise ConfigError(f"the film is {tuple(movie.frames.shape[-2:])} pixels and the screen {(screen.height, screen.width)}")
    within_contrast(value)
    cover = moving_bar(screen, movie.times, speed=speed, start=start, orientation=orientation, width=width).frames
    return Movie(movie.frames * (1 - cover) + value * cover, movie.times, movie.end, movie.jumps, movie.between)


def moving(times: Sequence[float], frame: Callable[[float], Tensor]) -> Movie:
    """A continuous film: `frame(time in ms)` at each of the times, linear in between; it ends with its last frame.

    Args:
        times: of the frames, in ms.
        frame: time in ms -> stimuli.

    Returns:
        A film.

    Examples:
        >>> import torch
        >>> from continua.neuro import moving
        >>> movie = moving([0.0, 10.0], lambda ms: torch.full((1, 1, 8, 8), ms / 10))
    """
    return Movie(torch.stack([frame(float(time)) for time in times]), tuple(times), float(times[-1]))


def _within_pixels(screen: Screen, orientation: Tensor, frequency: Tensor) -> None:
    """Refuse gratings with more than half a cycle per pixel along rows or columns: pixels would show a lower frequency (aliasing)."""
    angle, waves = torch.deg2rad(orientation.double()).flatten(), frequency.double().flatten().abs()
    highest = screen.finest / torch.maximum(torch.cos(angle).abs(), torch.sin(angle).abs())
    over = waves > highest * (1 + 1e-6)
    if bool(over.any()):
        place = int(over.nonzero()[0])
        raise ConfigError(
            f"a grating of {float(waves[place]):g} cycles/° would look like a coarser one on pixels of {screen.degrees_per_pixel:g}°; "
            f"the highest frequency at this orientation is {float(highest[place]):.4g} cycles/°, half a cycle per pixel"
        )


def _within_frames(times: Sequence[float], temporal_frequency: Number) -> None:
    """Refuse a drift of more than half a cycle from frame to frame: it would look like a slower one, or go the other way."""
    gap = max((float(later) - float(earlier) for earlier, later in pairwise(times)), default=0.0)
    fastest = float(torch.as_tensor(temporal_frequency).abs().max())
    if gap > 0 and fastest * gap / 1000 > 0.5 * (1 + 1e-6):
        raise ConfigError(
            f"a drift of {fastest:g} cycles/s would look like a slower one in frames of {gap:g} ms; "
            f"the highest temporal frequency is {500 / gap:.4g} cycles/s, half a cycle per frame: show frames more often"
        )


def _advance(screen: Screen, phase: Number, temporal_frequency: Number, time: float) -> Tensor:
    """The phase at a time in ms, in degrees."""
    start, speed = (torch.as_tensor(value, device=screen.device, dtype=screen.dtype) for value in (phase, temporal_frequency))
    return start + 360 * speed * time / 1000
