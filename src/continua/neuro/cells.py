"""Whom the instruments are held to: units of a network, as functions from stimuli to responses.

An instrument takes any function from stimuli (batch, channels, height, width) to responses (batch, units). `units` makes one of a network.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.models import Network
from continua.neuro.movie import Movie
from continua.neuro.screen import to_images

Responses = Callable[[Tensor], Tensor]
"""Stimuli (batch, channels, height, width) -> responses (batch, units)."""
FilmResponses = Callable[[Movie], Tensor]
"""A film of a batch of stimuli -> responses at the times of its frames, (time, batch, units)."""
Place = Literal["centre", "mean", "all"] | tuple[int, int]


@dataclass(frozen=True, eq=False)
class Units:
    """Units of one block of a network (None: its stem) as a function of stimuli; `units` makes it."""

    net: Network
    block: int | None
    t: float | None
    place: Place
    channels: tuple[int, ...] | None
    prepare: Callable[[Tensor], Tensor]

    def __call__(self, stimuli: Tensor) -> Tensor:
        """Responses (batch, units), differentiable; units of several places are channel by channel."""
        images = self.prepare(stimuli)
        if self.block is None:
            state = self.net.stem(images)
        else:
            state = self.net.states(images, self.block, None if self.t is None else [self.t])[-1]
        return read_state(state, self.place, self.channels)


def read_state(state: Tensor, place: Place, channels: Sequence[int] | None) -> Tensor:
    """Responses (batch, units) from a block's state: one place of the map for each of the channels."""
    chosen = state if channels is None else state[:, list(channels)]
    if place == "mean":
        return chosen.mean(dim=(-2, -1))
    if place == "all":
        return chosen.flatten(1)
    row, column = (chosen.shape[-2] // 2, chosen.shape[-1] // 2) if place == "centre" else place
    height, width = chosen.shape[-2:]
    if not (-height <= row < height and -width <= column < width):
        raise ConfigError(f"place {(row, column)} is outside the map of {height} × {width}; expected a (row, column) inside it")
    return chosen[:, :, row, column]


def units(
    net: Network,
    block: "int | Literal['stem']" = 0,
    *,
    t: float | None = None,
    place: Place = "centre",
    channels: Sequence[int] | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> Units:
    """Units of a network: of a block's state h(t), at one place of the map for each channel.

    Args:
        net: Any network of the registry; use `net.eval()` first.
        block: Which block, or "stem".
        t: When, on the block's own depth; None: at its end. Blocks without time have their end only.
        place: "centre", a (row, column) of the map, "mean" over the map, or "all" places.
        channels: Which channels; None: all.
        prepare: From contrasts to what the network reads; None: luminances around 0.5, in as many channels as it has. A network trained on
            normalised images needs its own.

    Returns:
        A function from stimuli to responses (batch, units).

    Raises:
        ConfigError: an unknown place or block, or a time of the stem.

    Examples:
        >>> import continua as ct
        >>> from continua.neuro import units
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> cells = units(net, block=0)
    """
    if not (place in ("centre", "mean", "all") or (isinstance(place, tuple) and len(place) == 2)):
        raise ConfigError(f"place={place!r}; expected 'centre', 'mean', 'all' or a (row, column)")
    if block == "stem" and t is not None:
        raise ConfigError("the stem has no time; leave out t")
    if block != "stem" and not -len(net.blocks) <= block < len(net.blocks):
        raise ConfigError(f"there is no block {block}; {net.title} has blocks 0 … {len(net.blocks) - 1}, and the stem")
    index = None if block == "stem" else block % len(net.blocks)
    count = net.in_channels or 1
    return Units(net, index, t, place, None if channels is None else tuple(channels), prepare or (lambda x: to_images(x, count)))


def frame_by_frame(responses: Responses, batch_size: int = 256) -> FilmResponses:
    """Units without a memory, shown a film: each frame is answered by itself.

    Args:
        responses: stimuli -> responses (batch, units).
        batch_size: stimuli at a time.

    Returns:
        A film -> responses (time, batch, units).

    Examples:
        >>> from continua.neuro import frame_by_frame
        >>> watch = frame_by_frame(lambda stimuli: stimuli.flatten(1))
    """

    def answer_film(movie: Movie) -> Tensor:
        frames = movie.frames.flatten(0, 1)
        answers = torch.cat([checked(responses(part), len(part)) for part in batches(frames, batch_size)])
        return answers.unflatten(0, movie.frames.shape[:2])

    return answer_film


@torch.no_grad()
def respond(responses: Responses, stimuli: Tensor, batch_size: int = 256) -> Tensor:
    """Responses (stimuli, units) in batches, on the host, as float64, without gradients.

    Args:
        responses: stimuli -> responses.
        stimuli: all of them.
        batch_size: at a time.

    Returns:
        Responses of all.

    Examples:
        >>> import torch
        >>> from continua.neuro import respond
        >>> respond(lambda x: x.flatten(1), torch.rand(5, 1, 2, 2)).shape
        torch.Size([5, 4])
    """
    return torch.cat([checked(responses(part), len(part)).detach().cpu().double() for part in batches(stimuli, batch_size)])


def batches(stimuli: Tensor, batch_size: int) -> Iterator[Tensor]:
    """Stimuli, so many at a time."""
    if not len(stimuli) or batch_size < 1:
        raise ConfigError(f"{len(stimuli)} stimuli in batches of {batch_size}; expected at least one of each")
    yield from stimuli.split(batch_size)


def checked(answer: Tensor, count: int) -> Tensor:
    """Responses, if they are (batch, units)."""
    if answer.ndim != 2 or len(answer) != count:
        raise ConfigError(
            f"responses to {count} stimuli are {tuple(answer.shape)}; expected ({count}, units): flatten them, or choose a place"
        )
    return answer
