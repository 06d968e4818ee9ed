"""Two networks on the same image, side by side."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from continua.explore.changes import Outcome
from continua.explore.trajectory import Trajectory, difference
from continua.report import Axis, Column, Figure, Series, Table


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


def table(sides: list[Side], change: str) -> Table:
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


def probabilities(sides: list[Side], most: int = 10) -> Figure:
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


def differences(sides: list[Side]) -> Figure:
    """D(t) of both, each over its own time as a share of the whole."""
    series = []
    for side in sides:
        share = np.linspace(0, 1, len(side.trajectory.times))
        apart = difference(side.trajectory, side.changed_trajectory)
        series.append(Series(_shown_name(sides, side), share, apart, style=_style(side)))
    return Figure("difference", "D along the block", Axis("share of the block's time"), Axis("D, relative to h"), series)


def _shown_name(sides: list[Side], side: Side) -> str:
    """Its name; its place where both are called the same."""
    same = len({each.name for each in sides}) < len(sides)
    return f"{side.name} ({'left' if side is sides[0] else 'right'})" if same else side.name


def _style(side: Side) -> Literal["line", "both"]:
    return "line" if side.trajectory.continuous else "both"
