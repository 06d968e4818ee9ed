"""A stimulus that moves: frames on a time base in milliseconds, and the moments at which it jumps."""

import math
import warnings
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError, ContinuaWarning
from continua.neuro.screen import within_contrast

SHORTEST = 2.0  # ms; who asks for a shorter film has probably thought of seconds


@dataclass(frozen=True, eq=False)
class Movie:
    """A film u(t) of a batch of stimuli.

    Attributes:
        frames: (time, batch, channels, height, width)
        times: when each frame is on, in ms, ascending
        end: when the film ends, in ms: at the last frame, or after it
        jumps: the moments, in ms, at which the film is discontinuous: the frame before is held until then. All of them are times of frames
        between: what is shown between two frames: "linear", from one to the next, or "hold", the one before, so that it jumps at each frame
    """

    frames: Tensor
    times: tuple[float, ...]
    end: float
    jumps: tuple[float, ...] = ()
    between: Literal["linear", "hold"] = "linear"

    def __post_init__(self) -> None:
        times = tuple(float(time) for time in self.times)
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "jumps", times[1:] if self.between == "hold" else tuple(sorted({float(time) for time in self.jumps})))
        if self.frames.ndim != 5 or len(self.frames) != len(times) or not times:
            raise ConfigError(
                f"a film has frames (time, batch, channels, height, width), one per time; got {tuple(self.frames.shape)} for {len(times)}"
            )
        if any(later <= earlier for earlier, later in pairwise(times)) or self.end < times[-1]:
            raise ConfigError(f"the times of frames ascend and end at {self.end} ms or before; got {times[:5]} … {times[-1]}")
        stray = sorted(set(self.jumps) - set(times[1:]))
        if stray:
            raise ConfigError(f"a film jumps at {stray[:3]} ms, where no frame begins; make a frame for each jump")

    def __len__(self) -> int:
        return len(self.times)

    @property
    def start(self) -> float:
        """When the first frame is on, in ms."""
        return self.times[0]

    @property
    def batch(self) -> int:
        """How many films there are, side by side."""
        return self.frames.shape[1]

    def at(self, t: float) -> Float[Tensor, "batch channels height width"]:
        """u(t); before the start the first frame, after the last frame the last."""
        place = int(torch.searchsorted(torch.tensor(self.times, dtype=torch.float64), float(t), right=True)) - 1
        if place < 0 or place == len(self) - 1:
            return self.frames[max(place, 0)]
        begin, until = self.times[place], self.times[place + 1]
        if until in self._jumps:
            return self.frames[place]
        return torch.lerp(self.frames[place], self.frames[place + 1], (float(t) - begin) / (until - begin))

    @property
    def _jumps(self) -> frozenset[float]:
        return frozenset(self.jumps)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Movie":
        """The film with `change` applied to all frames, as one batch (time × batch, channels, height, width): `movie.map(to_images)`."""
        return replace(self, frames=change(self.frames.flatten(0, 1)).unflatten(0, self.frames.shape[:2]))

    def to(self, target: "torch.device | torch.dtype | str") -> "Movie":
        """The film on another device, or in another number type."""
        return replace(self, frames=self.frames.to(target))

    def then(self, other: "Movie") -> "Movie":
        """This film and, from its end, another; it jumps where they meet. Both have the same way between frames."""
        if self.between != other.between or self.frames.shape[1:] != other.frames.shape[1:]:
            raise ConfigError(
                f"films of {tuple(self.frames.shape[1:])} ({self.between}) and {tuple(other.frames.shape[1:])} ({other.between}) do not "
                "follow each other; expected the same shape and the same way between frames"
            )
        shift = self.end - other.start
        frames, times = self.frames, self.times
        if self.end == times[-1]:  # its last frame has no time of its own
            frames, times = frames[:-1], times[:-1]
        later = [time + shift for time in other.times]
        jumps = (*(time for time in self.jumps if time < self.end), later[0], *(time + shift for time in other.jumps))
        return Movie(torch.cat([frames, other.frames]), (*times, *later), other.end + shift, jumps if times else jumps[1:], self.between)


class StreamedMovie:
    """A film whose frames are made when they are seen; the last few are kept. `streamed` makes it, and `DrivenNetwork` takes it.

    Args:
        times: When each frame is on, in ms, ascending.
        frame: Time in ms -> stimuli (batch, channels, height, width).
        end: When the film ends, in ms.
        jumps: The moments at which it is discontinuous, all of them times of frames.
        kept: How many frames are in memory at once.
    """

    def __init__(
        self, times: Sequence[float], frame: Callable[[float], Tensor], end: float, jumps: Sequence[float] = (), kept: int = 4
    ) -> None:
        self.times, self.end = tuple(float(time) for time in times), float(end)
        self.jumps = tuple(sorted({float(time) for time in jumps}))
        if not self.times or any(later <= earlier for earlier, later in pairwise(self.times)) or self.end < self.times[-1]:
            raise ConfigError(f"the times of frames ascend and end at {end} ms or before; got {self.times[:5]} …")
        if set(self.jumps) - set(self.times[1:]):
            raise ConfigError(f"a film jumps at {self.jumps[:3]} ms, where no frame begins; make a frame for each jump")
        self._frame, self._kept, self._seen = frame, max(2, kept), OrderedDict[int, Tensor]()
        self._jumping = frozenset(self.jumps)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def start(self) -> float:
        """When the first frame is on, in ms."""
        return self.times[0]

    def at(self, t: float) -> Float[Tensor, "batch channels height width"]:
        """u(t): linear between two frames, the one before held where the next is a jump."""
        place = max(0, bisect_right(self.times, float(t)) - 1)
        if place == len(self) - 1 or float(t) <= self.times[place] or self.times[place + 1] in self._jumping:
            return self._made(place)
        begin, until = self.times[place], self.times[place + 1]
        return torch.lerp(self._made(place), self._made(place + 1), (float(t) - begin) / (until - begin))

    def _made(self, place: int) -> Tensor:
        if place not in self._seen:
            self._seen[place] = self._frame(self.times[place])
            while len(self._seen) > self._kept:
                self._seen.popitem(last=False)
        return self._seen[place]


Film = Movie | StreamedMovie
"""What a driven network watches."""


def streamed(
    times: Sequence[float], frame: Callable[[float], Tensor], *, end: float | None = None, jumps: Sequence[float] = ()
) -> StreamedMovie:
    """A film of any length in the memory of a few frames: each is made when it is seen.

    Args:
        times: When each frame is on, in ms.
        frame: Time in ms -> stimuli.
        end: When the film ends; None: at the last frame.
        jumps: The moments at which it is discontinuous.

    Returns:
        A film for `DrivenNetwork`.

    Examples:
        >>> from continua.neuro import Screen, frame_times, grating, streamed
        >>> screen = Screen(16, 16, 0.1)
        >>> movie = streamed(frame_times(60_000.0), lambda ms: grating(screen, phase=0.36 * ms))
        >>> movie.at(12.5).shape
        torch.Size([1, 1, 16, 16])
    """
    return StreamedMovie(times, frame, float(times[-1] if end is None else end), jumps)


def frame_times(duration: float, frame: float = 10.0, start: float = 0.0) -> list[float]:
    """Times of frames, in ms: every `frame` ms from `start`, and the end itself, after a shorter frame where the duration has a remainder.

    Args:
        duration: in ms.
        frame: in ms.
        start: in ms.

    Returns:
        Times in ms.

    Raises:
        ConfigError: a duration or frame that is not positive.

    Examples:
        >>> from continua.neuro import frame_times
        >>> frame_times(20.0, frame=10.0)
        [0.0, 10.0, 20.0]
        >>> frame_times(25.0, frame=10.0)
        [0.0, 10.0, 20.0, 25.0]
    """
    if duration <= 0 or frame <= 0:
        raise ConfigError(f"a film of {duration} ms with a frame every {frame} ms cannot be; expected positive numbers")
    if duration < SHORTEST:
        warnings.warn(f"a film of {duration:g} ms; times are in milliseconds, so that a second is 1000.0", ContinuaWarning, stacklevel=2)
    whole = round(duration / frame)
    if whole and math.isclose(whole * frame, duration, rel_tol=1e-9):
        return [start + duration * k / whole for k in range(whole + 1)]
    return [start + frame * k for k in range(math.floor(duration / frame) + 1)] + [start + duration]


def film(images: Float[Tensor, "time ..."], frame: float, start: float = 0.0) -> Movie:
    """A film that shows each image for `frame` ms: (time, channels, height, width), or with a batch behind the time.

    Args:
        images: (time, channels, height, width), or (time, batch, channels, height, width).
        frame: duration of each, in ms.
        start: of the first, in ms.

    Returns:
        A film.

    Examples:
        >>> import torch
        >>> from continua.neuro import film
        >>> movie = film(torch.rand(10, 1, 32, 32), 20.0)
    """
    frames = images[:, None] if images.ndim == 4 else images
    times = [start + frame * k for k in range(len(frames))]
    return Movie(frames, tuple(times), start + frame * len(frames), between="hold")


def still(image: Float[Tensor, "batch channels height width"], duration: float, start: float = 0.0) -> Movie:
    """A film in which nothing moves.

    Args:
        image: what is shown.
        duration: in ms.
        start: in ms.

    Returns:
        A film.

    Examples:
        >>> from continua.neuro import Screen, still
        >>> movie = still(Screen(8, 8, 0.1).grey(), 100.0)
    """
    return Movie(image[None], (start,), start + duration)


def contrast_steps(
    image: Float[Tensor, "batch channels height width"], contrasts: Sequence[float], durations: "float | Sequence[float]"
) -> Movie:
    """A film that shows `image` at one contrast after another, each for its duration in ms, and jumps between them.

    Args:
        image: what is shown, as contrasts.
        contrasts: it is multiplied by, one after another; above 1 only where the product stays within −1 to 1.
        durations: of each, in ms.

    Returns:
        A film.

    Raises:
        ConfigError: not as many durations as contrasts.

    Examples:
        >>> from continua.neuro import Screen, contrast_steps, grating
        >>> movie = contrast_steps(grating(Screen(32, 32, 0.1)), [0.1, 1.0], 50.0)
    """
    lengths = [float(durations)] * len(contrasts) if isinstance(durations, int | float) else [float(value) for value in durations]
    if len(lengths) != len(contrasts) or not lengths:
        raise ConfigError(f"{len(contrasts)} contrasts and {len(lengths)} durations; expected one duration for each contrast")
    if not all(abs(float(contrast)) <= 1 for contrast in contrasts):
        within_contrast(*(image * contrast for contrast in contrasts))
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    frames = torch.stack([image * contrast for contrast in contrasts])
    return Movie(frames, tuple(starts), sum(lengths), tuple(starts[1:]))
