"""A network as a physiologist's preparation: a film drives it in milliseconds, and units are tuned, as trained and with filters changed.

What the panel "Stimulus" shows is computed here, without streamlit.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from continua.errors import ConfigError
from continua.explore.network import Explored
from continua.filters import NJet
from continua.models import Network
from continua.neuro import (
    DrivenNetwork,
    Movie,
    Screen,
    TuningCurve,
    bar,
    drifting_grating,
    frame_times,
    moving_bar,
    still,
    to_images,
    tuning,
    units,
)
from continua.report import Axis, Figure, Maps, Series

BEFORE = 20.0  # ms of grey before the stimulus
FRAME = 10.0  # ms of a frame
STEP = 2.0  # ms between two recorded moments
MOMENTS = 31  # of them that the film on the page has
SOLVER = dict(method="bosh3", rtol=1e-2, atol=1e-2)  # frames are short: few stages count for more than a high order
FINEST = 0.47  # cycles per pixel: just below what pixels can show
PHASES = 4


@dataclass(frozen=True)
class Stimulus:
    """What is shown after the grey, in degrees, cycles per degree and cycles (or degrees) per second; x to the right, y upwards."""

    kind: Literal["grating", "bar"] = "grating"
    orientation: float = 90.0
    contrast: float = 1.0
    frequency: float = 1.0
    speed: float = 4.0
    size: float = math.inf
    x: float = 0.0
    y: float = 0.0
    width: float = 0.3
    length: float = math.inf


@dataclass(frozen=True)
class Preparation:
    """How it is shown and where one records: ms per unit of depth, strength of the drive, ms of the stimulus, the block."""

    block: int = 0
    tau: float = 10.0
    gain: float = 1.0
    duration: float = 100.0
    degrees_per_pixel: float = 0.1


@dataclass(frozen=True)
class FilterChange:
    """Every N-jet of a block, made larger by a factor and turned counter-clockwise by degrees."""

    factor: float = 1.0
    degrees: float = 0.0

    @property
    def nothing(self) -> bool:
        return self == FilterChange()


@dataclass(frozen=True, eq=False)
class Recorded:
    """What was shown (time, height, width) and the block's state (time, channel, height, width) at `times` in ms; NaN while it sleeps."""

    times: np.ndarray
    shown: np.ndarray
    states: np.ndarray

    def unit(self, channel: int, row: float, column: float) -> np.ndarray:
        """The course of one unit, at a place given as shares of the map from its top left."""
        height, width = self.states.shape[-2:]
        return self.states[:, channel, min(height - 1, int(row * height)), min(width - 1, int(column * width))]

    def liveliest(self, count: int) -> list[int]:
        """The channels that the stimulus moves most, in their own order."""
        evoked = self.states[self.times >= BEFORE]
        change = np.nanvar(evoked, axis=0).mean((1, 2))
        return sorted(np.argsort(-change, kind="stable")[:count].tolist())


def screen_of(network: Explored, setting: Preparation) -> Screen:
    """The network's images as a screen."""
    return Screen(network.shape[1], network.shape[2], setting.degrees_per_pixel)


def preparing(network: Explored) -> Callable[[Tensor], Tensor]:
    """From contrasts to what the network reads: luminances around 0.5, normalised as its images were."""
    preprocess, channels = network.preprocess, network.shape[0]
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (preprocess.mean or (0.0,), preprocess.std or (1.0,)))
    return lambda contrasts: (to_images(contrasts, channels) - mean) / std


def film_of(screen: Screen, stimulus: Stimulus, duration: float) -> Movie:
    """Grey, then the stimulus."""
    look = dict(orientation=stimulus.orientation, contrast=stimulus.contrast)
    times = frame_times(duration, FRAME)
    if stimulus.kind == "grating":
        where = dict(size=stimulus.size, x=stimulus.x, y=stimulus.y)
        shown = drifting_grating(screen, times, temporal_frequency=stimulus.speed, frequency=stimulus.frequency, **look, **where)
    elif stimulus.speed:
        options = dict(width=stimulus.width, length=stimulus.length)
        way = -stimulus.speed * duration / 2000  # it passes the middle half-way
        shown = moving_bar(screen, times, speed=stimulus.speed, start=way, **look, **options)
    else:
        at = dict(width=stimulus.width, length=stimulus.length, x=stimulus.x, y=stimulus.y)
        shown = still(bar(screen, **look, **at), duration)
    return still(screen.grey(), BEFORE).then(shown)


def with_filters(net: Network, block: int, change: FilterChange) -> Network:
    """A copy in which every N-jet of one block is larger and turned; the network itself where nothing changes."""
    if change.nothing:
        return net
    changed = copy.deepcopy(net)
    for jet in changed.blocks[block].modules():
        if isinstance(jet, NJet):
            # Maps have y downwards: what is counter-clockwise on the screen is clockwise there.
            jet.load_state_dict(jet.rescale(change.factor).rotate(-math.radians(change.degrees)).state_dict())
    return changed


def has_jets(net: Network, block: int) -> bool:
    """Whether a block has filters with a scale."""
    return any(isinstance(part, NJet) for part in net.blocks[block].modules())


@torch.no_grad()
def record(network: Explored, stimulus: Stimulus, setting: Preparation, change: FilterChange) -> Recorded:
    """Show the film and read the state of a block every 2 ms. A network without a time is refused in the words of `DrivenNetwork`."""
    net = with_filters(network.model, setting.block, change)
    driven = DrivenNetwork(net, gain=setting.gain, tau=setting.tau, solver=SOLVER, prepare=preparing(network))
    movie = film_of(screen_of(network, setting), stimulus, setting.duration)
    if driven.wakes()[setting.block] >= movie.end:
        raise ConfigError(
            f"block {setting.block + 1} wakes {driven.wakes()[setting.block]:g} ms after the film begins, which has {movie.end:g} ms; "
            "show it for longer, or give a unit of depth fewer ms"
        )
    times = np.arange(movie.start, movie.end + STEP / 2, STEP).clip(max=movie.end)
    found = [
        states[setting.block][0] if len(states) > setting.block else None
        for _, states in driven.walk(movie, times.tolist(), blocks=setting.block + 1)
    ]
    there = next(state for state in found if state is not None)
    states = torch.stack([torch.full_like(there, torch.nan) if state is None else state for state in found])
    return Recorded(times, _shown(movie, times), states.float().numpy())


def _shown(movie: Movie, times: np.ndarray) -> np.ndarray:
    return torch.stack([movie.at(float(time))[0, 0] for time in times]).numpy()


def tuned(network: Explored, stimulus: Stimulus, setting: Preparation, change: FilterChange) -> tuple[TuningCurve, TuningCurve]:
    """Tuning of all units of a block, in the middle of the map at its end, to orientation and to frequency."""
    net, screen = with_filters(network.model, setting.block, change), screen_of(network, setting)
    cells = units(net, setting.block, prepare=preparing(network))
    low, high = 1 / max(screen.degrees), FINEST / setting.degrees_per_pixel
    frequency = min(stimulus.frequency, high) if stimulus.kind == "grating" else math.sqrt(low * high)
    strength = abs(stimulus.contrast) or 1.0
    angles = tuning(cells, screen, "orientation", torch.arange(0.0, 180.0, 15.0), phases=PHASES, frequency=frequency, contrast=strength)
    steps = torch.from_numpy(np.geomspace(low, high, 9))
    return angles, tuning(cells, screen, "frequency", steps, phases=PHASES, orientation=stimulus.orientation, contrast=strength)


# --- what is shown ------------------------------------------------------------------------------------------------------


def film_maps(recorded: Recorded, channels: list[int], block: int) -> Maps:
    """The stimulus and the maps of some channels as they move, at about thirty moments; maps are enlarged to the stimulus."""
    chosen = np.unique(np.rint(np.linspace(0, len(recorded.times) - 1, MOMENTS)).astype(int))
    states = functional.interpolate(torch.from_numpy(recorded.states[chosen][:, channels]), recorded.shown.shape[1:]).numpy()
    rest = np.nanmin(states) if np.isfinite(states).any() else 0.0
    states = np.where(np.isfinite(states), states, rest)
    values = np.concatenate([recorded.shown[chosen][None], states.swapaxes(0, 1)])
    rows = ["stimulus", *(f"channel {channel}" for channel in channels)]
    columns = [f"{recorded.times[place]:.0f} ms" for place in chosen]
    return Maps("driven", f"The film and h of block {block + 1}", rows, columns, values, "contrast, h (no unit)")


def course_figure(recorded: Recorded, channels: list[int], row: float, column: float) -> Figure:
    """Responses of single units over time, with the moment at which the stimulus appears."""
    series = [
        Series(f"channel {channel}", recorded.times, recorded.unit(channel, row, column), colour=place)
        for place, channel in enumerate(channels)
    ]
    values = np.concatenate([np.asarray(each.y, float) for each in series])
    good = values[np.isfinite(values)]
    if len(good):
        series.append(Series("stimulus on", [BEFORE, BEFORE], [float(good.min()), float(good.max())], dashed=True, colour=6))
    return Figure("units", "Single units", Axis("time", "ms"), Axis("response h (no unit)"), series)


def tuning_figure(trained: TuningCurve, changed: TuningCurve, channel: int, same: bool) -> Figure:
    """One unit's curve: as trained, and with the filters changed."""
    words = trained.parameter
    series = [Series("as trained", trained.values, trained.response[:, channel], style="both", colour=0)]
    if not same:
        series.append(Series("with your filters", changed.values, changed.response[:, channel], style="both", colour=1))
    unit = "°" if words == "orientation" else "cycles/°"
    x = Axis(words, unit, log=words == "frequency")
    return Figure(f"tuning-{words}", f"Tuning of channel {channel} to {words}", x, Axis("response (no unit)"), series)
