"""Inside a block: the state h(t) as it moves, what the network would say at each t, and the steps the solver took."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from continua.analysis import states
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.explore.changes import OWN_SOLVER, solved_by
from continua.filters import Filter
from continua.models import Network
from continua.report import Axis, Figure, Maps, Series

MOMENTS = 21


@dataclass(frozen=True)
class StepList:
    """Every step the solver tried: where it began, how long it was, its error relative to the tolerance, and whether it was accepted."""

    t: tuple[float, ...]
    size: tuple[float, ...]
    error: tuple[float, ...]
    accepted: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One image's way through a block: `states` (time, channel, height, width) at `times`.

    `steps` and `nfe` are None for a block without a solver, whose `times` are the places 0, 1, … of its states.
    """

    block: int
    times: tuple[float, ...]
    states: np.ndarray
    nfe: int | None
    steps: StepList | None

    @property
    def continuous(self) -> bool:
        return self.steps is not None

    @property
    def style(self) -> Literal["line", "both"]:
        """How curves along it are drawn."""
        return "line" if self.continuous else "both"

    def liveliest(self, count: int) -> list[int]:
        """The channels that change most on the way, in their own order."""
        change = np.square(self.states[-1] - self.states[0]).mean((1, 2))
        return sorted(np.argsort(-change, kind="stable")[:count].tolist())


@torch.no_grad()
def follow(model: Network, image: Tensor, block: int, moments: int = MOMENTS) -> Trajectory:
    """Follow one image through a block."""
    if len(image) != 1:
        raise ConfigError(f"one image is followed at a time; got {len(image)}")
    net = recording(model)
    h, times = states(net, image, block, moments)
    stats = net.stats[block]
    steps = None
    if stats is not None and stats.steps is not None:
        log = (stats.steps.t, stats.steps.h, stats.steps.error, stats.steps.accepted)
        steps = StepList(*(tuple(torch.as_tensor(part).cpu().tolist()) for part in log))
    nfe = None if stats is None else int(torch.as_tensor(stats.nfe).sum())
    return Trajectory(block, tuple(times), h[:, 0].float().numpy(), nfe, steps)


@torch.no_grad()
def probabilities_on_the_way(model: Network, image: Tensor, trajectory: Trajectory) -> np.ndarray:
    """Class probabilities (time, class) if the block ended at each of the trajectory's times: h(t) goes on as its output."""
    logits = continued(recording(model), image, torch.from_numpy(trajectory.states).to(image), trajectory.block)
    return functional.softmax(logits.double(), 1).numpy()


def recording(model: Network) -> Network:
    """The same network with statistics of its own that keep every step. Where that is cheap, images of a batch do not share their steps."""
    solvers = [block.solver for block in model.blocks if isinstance(block, ODEBlock)]
    adaptive = [solver for solver in solvers if solver.steps is None and solver.tableau.explicit]
    # A filter that moves would be realised for each image at each of its own times.
    still = not any(isinstance(module, Filter) and module.time_dependent for module in model.modules())
    alone = dict(control=adaptive[0].control.replace(per="sample"), gradient="checkpoint") if adaptive and still else {}
    return solved_by(model, OWN_SOLVER, record_steps=True, **alone)


@torch.no_grad()
def continued(model: Network, image: Tensor, h: Tensor, block: int) -> Tensor:
    """Logits when the outputs of `block` are the states h (batch, …) of this one image."""
    reached = [state.expand(len(h), *state.shape[1:]) for state in model.forward_scales(image)[:block]] if model.multiscale else []
    reached.append(h)
    for index in range(block + 1, len(model.blocks)):
        h = model.blocks[index](model.transitions[index - 1](h))
        reached.append(h)
    return model.forward_head(reached if model.multiscale else h)


def difference(intact: Trajectory, other: Trajectory) -> np.ndarray:
    """D(t) = Σ|h_intact − h_other| / Σ|h_intact| over all features of the block (DCN §3.2)."""
    apart = np.abs(intact.states - other.states).sum((1, 2, 3), dtype=np.float64)
    return apart / np.abs(intact.states).sum((1, 2, 3), dtype=np.float64)


# --- what is shown ----------------------------------------------------------------------------------------------------


def maps(trajectory: Trajectory, channels: list[int], values: np.ndarray | None = None, title: str = "h(t)") -> Maps:
    """Maps of the chosen channels at every moment; `values` in place of the states where something else is shown, such as a difference."""
    shown = (trajectory.states if values is None else values)[:, channels].transpose(1, 0, 2, 3)
    rows, columns = [f"channel {channel}" for channel in channels], [_moment(trajectory, t) for t in trajectory.times]
    return Maps(f"states-block{trajectory.block + 1}", f"{title} in block {trajectory.block + 1}", rows, columns, shown, "h (no unit)")


def probability_curves(trajectory: Trajectory, chances: np.ndarray, classes: tuple[str, ...], most: int = 5) -> Figure:
    """p(t) of the classes that are ever likeliest, with the solver's steps on the axis."""
    top = sorted(np.argsort(-chances.max(0), kind="stable")[:most].tolist())
    series = [Series(classes[place], trajectory.times, 100 * chances[:, place], style=trajectory.style) for place in top]
    title, y = "Class probabilities if the block ended at t", Axis("probability", "%", limits=(-4.0, 104.0))
    return Figure("probabilities", title, _time(trajectory), y, [*series, *_ticks(trajectory, -4.0)])


def difference_curve(trajectory: Trajectory, apart: dict[str, np.ndarray]) -> Figure:
    """D(t) for one or several changed images, with the solver's steps on the axis."""
    series = [Series(name, trajectory.times, values, style=trajectory.style) for name, values in apart.items()]
    title = f"D(t) in block {trajectory.block + 1}"
    return Figure("difference", title, _time(trajectory), Axis("D, relative to h"), [*series, *_ticks(trajectory, 0.0)])


def step_sizes(trajectory: Trajectory) -> Figure:
    """Every step: where it began and how long it was; rejected ones apart."""
    steps = trajectory.steps
    if steps is None:
        raise ConfigError(f"block {trajectory.block + 1} has no solver, so no steps")
    series = []
    for place, (name, wanted) in enumerate((("accepted", True), ("rejected", False))):
        chosen = [k for k, accepted in enumerate(steps.accepted) if accepted is wanted]
        if chosen or wanted:
            points = [steps.t[k] for k in chosen], [steps.size[k] for k in chosen]
            series.append(Series(f"{name}: {len(chosen)}", *points, style="both" if wanted else "points", colour=place))
    title = f"Steps of the solver: {trajectory.nfe} evaluations of f"
    limits = (trajectory.times[0], trajectory.times[-1])
    return Figure("steps", title, Axis("t at which a step begins", limits=limits), Axis("size of the step"), series)


def _ticks(trajectory: Trajectory, level: float) -> list[Series]:
    if trajectory.steps is None:
        return []
    tried = list(zip(trajectory.steps.t, trajectory.steps.accepted, strict=True))
    begun, refused = ([t for t, accepted in tried if accepted is wanted] for wanted in (True, False))
    made = [Series("solver steps", begun, [level] * len(begun), style="points", colour=6)]
    return made + ([Series("rejected steps", refused, [level] * len(refused), style="points", colour=1)] if refused else [])


def _time(trajectory: Trajectory) -> Axis:
    return Axis("t") if trajectory.continuous else Axis("state of the block, from its input", whole=True)


def _moment(trajectory: Trajectory, t: float) -> str:
    if trajectory.continuous:
        return f"t = {t:.2f}"
    return "input" if t == 0 else f"after step {t:.0f}" if len(trajectory.times) > 2 else "output"
