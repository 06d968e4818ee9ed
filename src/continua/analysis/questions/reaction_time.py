"""Reaction times: an image stops in the last block when the network's own head is sure; accuracy, cost and time over the threshold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continua.analysis.measure import SolverOptions
from continua.analysis.question import Keep, Question, Subject, ask_anew, no_progress, register_question
from continua.analysis.questions.steps import BATCH, per_image
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import Confident, Network
from continua.ode import Stats
from continua.options import option
from continua.report import Axis, Column, Figure, Page, Part, Series, Table
from continua.runs import Batches
from continua.showing import Shown

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LOSS = 0.005  # of accuracy, that a saving may cost
TO_THE_END = "T"


@dataclass(frozen=True, repr=False)
class Saving(Shown):
    """The cheapest threshold at no more than half a point lost, chosen on one half of the images and asked of the other, twice.

    `saved`: share of the evaluations of all blocks; `saved_last`: of those of the last block; `lost`: accuracy that it cost.
    """

    thresholds: list[str]
    saved: float
    saved_last: float
    lost: float


@dataclass(frozen=True, eq=False, repr=False)
class ReactionTime(Shown):
    """What each image cost, its class and its time of stopping: the first row of every array goes to T, the others stop at `thresholds`.

    predictions, times: (1 + thresholds, images); nfe: (1 + thresholds, images, blocks with time), evaluations of f.
    """

    solver: str
    end: float
    classes: list[str]
    thresholds: list[float]
    labels: np.ndarray
    predictions: np.ndarray
    nfe: np.ndarray
    times: np.ndarray

    @property
    def right(self) -> np.ndarray:
        return self.predictions == self.labels

    @property
    def accuracy(self) -> np.ndarray:
        """Of every row, as a fraction."""
        return self.right.mean(1)

    @property
    def cost(self) -> np.ndarray:
        """Evaluations of f per image, all blocks, of every row."""
        return self.nfe.sum(2).mean(1)

    @property
    def names(self) -> list[str]:
        """Of every row."""
        return [TO_THE_END, *(f"{threshold:g}" for threshold in self.thresholds)]

    def saving(self) -> Saving:
        """The evaluations that stopping saves at no more than half a point lost. Which images make a half is drawn once for all."""
        order = np.random.default_rng(0).permutation(len(self.labels))
        halves = [order[::2], order[1::2]]
        chosen, saved, saved_last, lost = [], [], [], []
        for first, second in (halves, halves[::-1]):
            accuracy, cost = self.right[:, first].mean(1), self.nfe[:, first].sum(2).mean(1)
            row = int(np.where(accuracy >= accuracy[0] - LOSS, cost, np.inf).argmin())
            there = self.nfe[:, second].mean(1)
            chosen.append(self.names[row])
            saved.append(1 - there[row].sum() / there[0].sum())
            saved_last.append(1 - there[row, -1] / there[0, -1])
            lost.append(self.right[0, second].mean() - self.right[row, second].mean())
        return Saving(chosen, *(float(np.mean(values)) for values in (saved, saved_last, lost)))


@torch.no_grad()
def reaction_time(
    model: Network,
    batches: Batches,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    classes: Sequence[str] | None = None,
    keep: Keep = ask_anew,
    advance: Callable[[int], None] = no_progress,
    **solver: Any,
) -> ReactionTime:
    """Every image to T, then until the largest probability of the network's own head reaches each threshold (`Confident`).

    Args:
        model: A network whose last block is an ODE.
        batches: Images with their labels.
        thresholds: Probabilities at which an image stops.
        classes: Their names; numbers if they are not given.
        keep: Where the pieces of an interrupted analysis lie.
        advance: Is told how many images are done.
        solver: Other solver keywords than the network's, as rtol=1e-4; one with fixed steps is replaced by dopri5 at 1e-3.

    Returns:
        Predictions, costs and times of every image, and what stopping saves.

    Raises:
        ConfigError: The network has no time in its last block, or there are no images.

    Example:
        >>> import torch
        >>> from continua import create_model
        >>> from continua.analysis import reaction_time
        >>> net = create_model("ode_only_net", width=8).eval()
        >>> reaction_time(net, [(torch.rand(2, 3, 16, 16), torch.tensor([0, 1]))], thresholds=(0.5,)).times.shape
        (2, 2)
    """
    net, values = per_image(model, **_adaptive(model, solver)), sorted(float(value) for value in thresholds)
    stops = [Confident(value) for value in values]
    for stop in stops:
        net.with_stop(stop)  # refuses what has no meaning
    last: ODEBlock = net.blocks[-1]  # pyright: ignore[reportAssignmentType]  # it would have been refused
    pieces = []
    for place, (images, labels) in enumerate(batches):
        pieces.append(keep(f"batch {place}", lambda images=images, labels=labels: _batch(net, last, images, labels, stops)))
        advance(len(labels))
    if not pieces:
        raise ConfigError("there are no images to look at; the batches are empty or used up")
    arrays = {name: np.concatenate([np.array(piece[name]) for piece in pieces], -1) for name in pieces[0]}
    known = [str(label) for label in range(int(arrays["labels"].max()) + 1)] if classes is None else list(classes)
    arrays["nfe"] = np.moveaxis(arrays["nfe"], 1, 2)
    return ReactionTime(f"{last.solver.tableau.name}, {last.solver.tolerances}", float(last.t1), known, values, **arrays)


def _adaptive(model: Network, solver: dict[str, Any]) -> dict[str, Any]:
    own = next((block.solver for block in model.blocks if isinstance(block, ODEBlock)), None)
    if own is not None and own.steps is not None and "method" not in solver:
        return dict(method="dopri5", steps=None, rtol=1e-3, atol=1e-3) | solver
    return solver


def _batch(net: Network, last: ODEBlock, images: Tensor, labels: Tensor, stops: Sequence[Confident]) -> dict[str, Any]:
    """Predicted classes and times, (rows, images), and evaluations of f, (rows, blocks, images); the way to the last block is gone once."""
    start, end = net.states(images, len(net.blocks) - 1, [last.t0, last.t1])
    stats = [stat for stat in net.stats if stat is not None]
    before = [torch.as_tensor(stat.nfe) for stat in stats[:-1]]
    states, nfe, times = [end], [torch.stack([*before, torch.as_tensor(stats[-1].nfe)])], [torch.full((len(labels),), last.t1)]
    for stop in stops:
        states.append(last(start, stop=stop.event(net)))
        cost = last.stats or Stats()
        nfe.append(torch.stack([*before, torch.as_tensor(cost.nfe)]))
        times.append(torch.as_tensor(cost.t_end))
    predictions = [net.forward_head(state).argmax(1).tolist() for state in states]
    counts, moments = (torch.stack([row.cpu().double() for row in rows]).tolist() for rows in (nfe, times))
    return dict(labels=labels.tolist(), predictions=predictions, nfe=counts, times=moments)


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(SolverOptions):
    """Which images, when to stop, by which solver."""

    thresholds: tuple[float, ...] = option(THRESHOLDS, "stop an image when the largest probability reaches this")


def ask(subject: Subject, options: Options) -> ReactionTime:
    images = subject.images(options, batch_size=options.batch_size or min(BATCH, subject.run.batch_size))
    solver = options.solver(subject.model)
    with subject.progress("reaction times", images.count) as advance:
        chosen: dict[str, Any] = dict(thresholds=options.thresholds, classes=images.classes, keep=subject.keep, advance=advance)
        return reaction_time(subject.model, images, **chosen, **solver)


def present(result: ReactionTime) -> Page:
    saving = result.saving()
    text = (
        f"{len(result.labels):,} images by {result.solver}, each with its own steps. To T = {result.end:g}: {result.accuracy[0]:.2%} "
        f"right for {result.cost[0]:.1f} evaluations of f per image, {result.nfe[0, :, -1].mean():.1f} of them in the last block, where "
        "images stop."
    )
    told = (
        f"With the cheapest threshold that costs at most {100 * LOSS:g} points on one half of the images "
        f"({' and '.join(saving.thresholds)} on the two halves), the other half takes {saving.saved:.1%} fewer evaluations "
        f"({saving.saved_last:.1%} of the last block's) and {'loses' if saving.lost >= 0 else 'gains'} {100 * abs(saving.lost):.2f} points."
    )
    cost = Series("stopped when sure, last to T", np.roll(result.cost, -1), np.roll(100 * result.accuracy, -1), style="both")
    x = result.thresholds
    accuracy = [Series("accuracy", x, 100 * result.accuracy[1:], style="both")]
    accuracy.append(Series("to T", [x[0], x[-1]], [100 * result.accuracy[0]] * 2, style="line", dashed=True))
    parts: list[Part] = [
        text,
        told,
        Figure("cost", "Accuracy for the evaluations paid", Axis("evaluations of f per image"), Axis("accuracy", "%"), [cost]),
        Figure("accuracy", "Accuracy against the threshold", Axis("probability at which an image stops"), Axis("accuracy", "%"), accuracy),
        _times(result),
        _table(result),
        _by_class(result),
    ]
    return Page("Reaction times", parts)


def _times(result: ReactionTime) -> Figure:
    """When images stop, those that are named right and those that are not."""
    series = []
    for name, chosen in (("right answers", result.right[1:]), ("wrong answers", ~result.right[1:])):
        means = [float(row[mask].mean()) if mask.any() else np.nan for row, mask in zip(result.times[1:], chosen, strict=True)]
        series.append(Series(name, result.thresholds, means, style="both"))
    axis = Axis("probability at which an image stops")
    return Figure("times", "Time of stopping, mean", axis, Axis("t", limits=(0.0, result.end)), series)


def _table(result: ReactionTime) -> Table:
    columns = ["until", Column("accuracy", "%", 2), Column("NFE", digits=1), Column("NFE, last block", digits=1), Column("saved", "%", 1)]
    columns += [Column("stopped before T", "%", 1), Column("t, right", digits=2), Column("t, wrong", digits=2)]
    rows = []
    for row, name in enumerate(result.names):
        right, times = result.right[row], result.times[row]
        by_answer = [float(times[mask].mean()) if mask.any() else None for mask in (right, ~right)]
        cells = [100 * right.mean(), result.cost[row], result.nfe[row, :, -1].mean(), 100 * (1 - result.cost[row] / result.cost[0])]
        rows.append((name, *cells, 100 * (times < result.end).mean(), *by_answer))
    return Table("thresholds", "Every threshold", columns, rows)


def _by_class(result: ReactionTime) -> Table:
    """Classes at the middle threshold."""
    row = 1 + len(result.thresholds) // 2
    columns = ["class", Column("images", digits=0), Column("accuracy to T", "%", 1), Column("accuracy", "%", 1), Column("t", digits=2)]
    rows = []
    for label, name in enumerate(result.classes):
        mine = result.labels == label
        if mine.any():
            right = [100 * result.right[place, mine].mean() for place in (0, row)]
            rows.append((name, int(mine.sum()), *right, float(result.times[row, mine].mean())))
    return Table("classes", f"By class, until {result.names[row]}", columns, rows)


register_question(Question("reaction_time", __doc__ or "", Options, ask, present))
