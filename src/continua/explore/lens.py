"""One network, one image: everything a panel asks of them, each answer computed once; and two networks on the same image, side by side."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from continua.analysis import LayerPath, black
from continua.blocks import ODEBlock
from continua.explore import kernels
from continua.explore.answers import Answers
from continua.explore.changes import AS_IS, OWN_SOLVER, Change, Outcome, Solver, Trial, changed, outcome, trials
from continua.explore.image import Picture, fitted
from continua.explore.network import Explored, count_parameters
from continua.explore.trajectory import Trajectory, difference, follow, probabilities_on_the_way
from continua.report import Axis, Column, Figure, Maps, Series, Table


@dataclass(frozen=True, eq=False)
class Lens:
    """`answers` may be shared by many lenses: their questions name the network's weights and the image's bytes."""

    network: Explored
    picture: Picture
    inverted: bool
    answers: Answers

    @cached_property
    def image(self) -> Tensor:
        """The bytes the network sees, (1, channels, height, width)."""
        return fitted(self.picture, self.network.shape, inverted=self.inverted)

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        return self.network.key, hashlib.sha256(self.image.numpy().tobytes()).hexdigest()

    @property
    def continuous(self) -> bool:
        """Whether the network has a block with time, and so a solver."""
        return any(isinstance(block, ODEBlock) for block in self.network.model.blocks)

    @property
    def strangeness(self) -> float | None:
        """How unlike the training images the picture is (above 1: unlike nearly all of them); None where those are not known."""
        return None if self.network.usual is None else self.network.usual.distance(self.image)

    def seen(self, change: Change = AS_IS) -> Tensor:
        """The image as the network reads it, after a change."""
        floats, preprocess = self.network.floats(self.image), self.network.preprocess
        unit = 1 / torch.tensor(preprocess.std or (1.0,)).reshape(-1, 1, 1)
        return changed(floats, change, black(preprocess), unit)

    def shown(self, change: Change = AS_IS) -> np.ndarray:
        """The same in pixel values 0 … 1, (height, width) or (height, width, 3)."""
        preprocess = self.network.preprocess
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (preprocess.mean or (0.0,), preprocess.std or (1.0,)))
        pixels = (self.seen(change)[0] * std + mean).clamp(0, 1)
        return pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()

    def trajectory(self, block: int, change: Change = AS_IS) -> Trajectory:
        """The image's way through a block."""
        question = (*self.key, "trajectory", block, change)
        return self.answers(question, lambda: follow(self.network.model, self.seen(change), block))

    def probabilities(self, block: int, change: Change = AS_IS) -> np.ndarray:
        """Class probabilities along that way, (time, class)."""
        way, question = self.trajectory(block, change), (*self.key, "probabilities", block, change)
        return self.answers(question, lambda: probabilities_on_the_way(self.network.model, self.seen(change), way))

    def outcome(self, change: Change = AS_IS, solver: Solver = OWN_SOLVER, scaled: bool = False) -> Outcome:
        """One forward pass; `scaled`: the time of block 1 follows the contrast."""
        factor = change.contrast if scaled else 1.0
        question = (*self.key, "outcome", change, solver, factor)
        return self.answers(question, lambda: outcome(self.network.model, self.seen(change), solver=solver, time_factor=factor))

    def trials(self, change: Change, solver: Solver, scaled: bool) -> list[Trial]:
        """Each part of a change alone, and all together."""
        return [Trial(what, self.outcome(part, by, follows)) for what, part, by, follows in trials(change, solver, scaled)]

    def kernels_over_time(self, name: str, channel: int, count: int) -> LayerPath:
        """A layer's kernels along t."""
        question = (self.network.key, "weights", name, channel, count)
        return self.answers(question, lambda: kernels.layer_path(self.network.model, name, channel, count))

    def evolution(self) -> Maps:
        """ANODEV2's Fig. 3, which no network is needed for."""
        return self.answers("evolution", kernels.synthetic_maps)


# --- side by side -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two: what it says of the image as it is and of the changed one, and the trajectories of both through a block."""

    name: str
    classes: tuple[str, ...]
    parameters: int
    plain: Outcome
    changed: Outcome
    trajectory: Trajectory
    changed_trajectory: Trajectory


def side_of(lens: Lens, change: Change) -> Side:
    """A network under its lens as one of the two; trajectories are those of block 1."""
    plain, other, network = lens.outcome(), lens.outcome(change), lens.network
    ways = lens.trajectory(0), lens.trajectory(0, change)
    return Side(network.name, network.classes, count_parameters(network.model), plain, other, *ways)


def side_table(sides: list[Side], change: str) -> Table:
    """Prediction and cost of both."""
    columns = ["network", "parameters", "prediction", Column("probability", "%", 1), "NFE", Column("time", "ms", 1)]
    columns += [f"prediction, {change}", Column(f"probability, {change}", "%", 1)]
    rows = [
        (
            side.name,
            side.parameters,
            *_prediction(side.plain, side.classes),
            sum(side.plain.nfe) if side.plain.nfe else None,
            1000 * side.plain.seconds,
            *_prediction(side.changed, side.classes),
        )
        for side in sides
    ]
    return Table("compare", "The same image", columns, rows)


def _prediction(outcome: Outcome, classes: tuple[str, ...]) -> tuple[str, float | None]:
    return (f"none: {outcome.problem}", None) if outcome.problem else (classes[outcome.best], 100 * float(outcome.probabilities.max()))


def side_probabilities(sides: list[Side], most: int = 10) -> Figure:
    """Bars of the likeliest classes of both."""
    names: dict[str, float] = {}
    for side in sides:
        if not side.plain.problem:
            for name, value in zip(side.classes, side.plain.probabilities.tolist(), strict=True):
                names[name] = max(value, names.get(name, 0.0))
    likely = set(sorted(names, key=lambda name: -names[name])[:most])
    shown = [name for name in names if name in likely]
    series = [
        Series(_shown_name(sides, side), shown, [100 * _probability(side, name) for name in shown], style="bars")
        for side in sides
        if not side.plain.problem
    ]
    return Figure("probabilities", "Class probabilities", Axis("class"), Axis("probability", "%", limits=(0, 100)), series)


def _probability(side: Side, name: str) -> float:
    return float(side.plain.probabilities[side.classes.index(name)]) if name in side.classes else float("nan")


def side_differences(sides: list[Side]) -> Figure:
    """D(t) of both, each over its own time as a share of the whole."""
    series = []
    for side in sides:
        share = np.linspace(0, 1, len(side.trajectory.times))
        apart = difference(side.trajectory, side.changed_trajectory)
        series.append(Series(_shown_name(sides, side), share, apart, style=side.trajectory.style))
    return Figure("difference", "D along the block", Axis("share of the block's time"), Axis("D, relative to h"), series)


def _shown_name(sides: list[Side], side: Side) -> str:
    """Its name; its place where both are called the same."""
    same = len({each.name for each in sides}) < len(sides)
    return f"{side.name} ({'left' if side is sides[0] else 'right'})" if same else side.name
