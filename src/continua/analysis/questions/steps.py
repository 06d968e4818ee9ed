"""Steps per image: how many steps the solver takes for each image of a set, and for which it takes most (Carrara et al. 2019, Table 1)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from continua.analysis.measure import SolverOptions, rank_correlation
from continua.analysis.question import Plotted, Question, Subject, no_progress, register_question
from continua.blocks import ODEBlock
from continua.data import Augmentation
from continua.errors import ConfigError
from continua.models import Network
from continua.options import option
from continua.report import Axis, Column, Figure, Maps, Page, Part, PlusMinus, Series, Table
from continua.runs import Batches, Images

BATCH = 64  # images under way together: many enough for the convolutions, few enough for the processor's cache


@dataclass(frozen=True, eq=False, repr=False)
class Steps(Plotted):
    """What each image cost: arrays (images, blocks with time) of accepted and rejected steps and of evaluations of f.

    `margins`: logit of the predicted class minus the next. `field_calls`: how often f was called, for many images at a time. `most` and
    `least`: the places of the images that took most and fewest steps; `pictures` (2, images, height, width, 3) shows them.
    """

    solver: str
    accepted: np.ndarray
    rejected: np.ndarray
    nfe: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    margins: np.ndarray
    field_calls: int
    seconds: float
    most: list[int]
    least: list[int]
    pictures: np.ndarray | None = None

    @property
    def tried(self) -> np.ndarray:
        """Accepted and rejected steps of each image, summed over blocks."""
        return (self.accepted + self.rejected).sum(1)

    @property
    def right(self) -> np.ndarray:
        return self.predictions == self.labels


@torch.no_grad()
def steps(model: Network, batches: Batches, *, shown: int = 5, advance: Callable[[int], None] = no_progress, **solver: Any) -> Steps:
    """Solve every image with steps of its own, many images at a time: the same steps as one image at a time would take.

    `solver`: other solver keywords than the network's, as rtol=1e-4. The field must not mix images (no BatchNorm in training).

    Args:
        model: a network with ODE blocks.
        batches: pairs (images, labels).
        shown: how many images' steps are kept one by one.
        advance: called with the number of images after each batch.
        solver: solver keywords that replace the network's own, such as rtol=1e-4.

    Returns:
        Evaluations and steps of each image in each block.

    Raises:
        ConfigError: there are no images.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import steps
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> found = steps(net, [(torch.rand(2, 1, 16, 16), torch.zeros(2, dtype=torch.long))], rtol=1e-2, atol=1e-2)
    """
    net = per_image(model, **solver)
    blocks = [block for block in net.blocks if isinstance(block, ODEBlock)]
    costs: dict[str, list[np.ndarray]] = {name: [] for name in ("accepted", "rejected", "nfe")}
    labels, predictions, margins, calls, seconds = [], [], [], 0, 0.0
    for images, names in batches:
        start = time.perf_counter()
        logits = net(images)
        best = logits.float().topk(2, dim=1)
        predictions.append(best.indices[:, 0].cpu().numpy())  # waits for a GPU, so the clock is right
        seconds += time.perf_counter() - start
        margins.append((best.values[:, 0] - best.values[:, 1]).cpu().numpy())
        labels.append(names.cpu().numpy())
        for name, counts in costs.items():
            counts.append(np.stack([getattr(block.stats, name).cpu().numpy() for block in blocks], 1))
        calls += int(costs["nfe"][-1].max(0).sum())  # a call of f serves all images still under way
        advance(len(names))
    if not labels:
        raise ConfigError("there are no images to count steps of; the batches are empty or used up")
    totals = {name: np.concatenate(counts) for name, counts in costs.items()}
    tried = (totals["accepted"] + totals["rejected"]).sum(1)
    solver_used = blocks[0].solver
    return Steps(
        f"{solver_used.tableau.name}, rtol {solver_used.rtol:g}, atol {solver_used.atol:g}",
        **totals,
        labels=np.concatenate(labels),
        predictions=np.concatenate(predictions),
        margins=np.concatenate(margins).astype(np.float64),
        field_calls=calls,
        seconds=seconds,
        most=np.argsort(-tried, kind="stable")[:shown].tolist(),  # of equally demanding images, the first ones
        least=np.argsort(tried, kind="stable")[:shown].tolist(),
    )


def per_image(model: Network, **solver: Any) -> Network:
    """The same network, each image with its own adaptive steps."""
    solvers = [block.solver for block in model.blocks if isinstance(block, ODEBlock)]
    if not solvers:
        raise ConfigError(f"{model.name or 'this network'} has no ODE block, so no solver that takes steps")
    changes = {"control": solvers[0].control.replace(per="sample"), "gradient": "checkpoint", **solver}
    if any(given.replace(**changes).steps is not None for given in solvers):
        raise ConfigError("this network takes a fixed number of steps for every image; give method='dopri5', steps=None (--tolerance 1e-3)")
    return model.with_solver(**changes).eval()


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(SolverOptions):
    """Which images, by which solver, how many to show."""

    shown: int = option(5, "how many of the most and least demanding images to show")


def ask(subject: Subject, options: Options) -> Steps:
    images = subject.images(options, batch_size=options.batch_size or min(BATCH, subject.run.batch_size))
    solver = options.solver(subject.model)
    if not solver and any(isinstance(block, ODEBlock) and block.solver.steps is not None for block in subject.model.blocks):
        raise ConfigError(
            "this network takes the same fixed number of steps for every image, so there is nothing to count; "
            "--tolerance 1e-3 lets it choose its steps"
        )
    with subject.progress("steps per image", images.count) as advance:
        result = steps(subject.model, images, shown=options.shown, advance=advance, **solver)
    return replace(result, pictures=_pictures(images, [result.most, result.least]))


def _pictures(images: Images, rows: list[list[int]]) -> np.ndarray:
    """The pixels of some images in [0, 1], (rows, images, height, width, 3)."""
    chosen = images.split.select(torch.tensor([place for row in rows for place in row]))
    pixels, _ = next(iter(Images(chosen, len(chosen), Augmentation(), "cpu", images.classes)))
    pixels = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).reshape(len(rows), -1, *pixels.shape[2:], 3)
    return np.asarray(pixels, dtype=np.float64).round(3)


def present(result: Steps) -> Page:
    tried = result.tried
    calls = int(result.nfe.sum()) / max(1, result.field_calls)
    text = (
        f"{len(tried):,} images, {result.solver}, each with its own steps: {tried.mean():.2f} ± {tried.std():.2f} steps (accepted and "
        f"rejected; from {tried.min()} to {tried.max()}). f was called {result.field_calls:,} times, {calls:.0f} times less often than "
        f"with one image at a time; {result.seconds:.1f} s in all."
    )
    values, counts = np.unique(tried, return_counts=True)
    bars = Series("images", values, 100 * counts / len(tried), style="bars")
    parts: list[Part] = [
        text,
        _relation(result),
        _table(result),
        Figure("histogram", "Steps per image", Axis("steps"), Axis("images", "%"), [bars]),
    ]
    if len(values) == 1:
        return Page("Steps per image", parts)
    enough = values[counts >= min(20, counts.max())]
    parts += _by_steps(result, [tried == value for value in enough], enough)
    if result.pictures is not None:
        rows = [
            f"{name}: {' '.join(str(tried[place]) for place in row)}" for name, row in (("most", result.most), ("fewest", result.least))
        ]
        columns = [str(place + 1) for place in range(result.pictures.shape[1])]
        caption = "The numbers are the steps of each image, from left to right."
        parts.append(Maps("demanding", "The most and the least demanding images", rows, columns, result.pictures, "pixels", caption))
    return Page("Steps per image", parts)


def _by_steps(result: Steps, groups: list[np.ndarray], values: np.ndarray) -> list[Figure]:
    """Accuracy (± its standard error) and margin (± standard deviation) of the images that took as many steps."""
    right = [result.right[group] for group in groups]
    errors = [100 * float(np.sqrt(part.mean() * (1 - part.mean()) / len(part))) for part in right]
    accuracy = Series("accuracy", values, [100 * part.mean() for part in right], error=errors, style="both")
    margins = [result.margins[group] for group in groups]
    margin = Series("margin", values, [part.mean() for part in margins], error=[part.std() for part in margins], style="both")
    return [
        Figure("correctness", "Accuracy by steps", Axis("steps"), Axis("accuracy", "%"), [accuracy]),
        Figure("margin", "Margin of the prediction by steps", Axis("steps"), Axis("logit margin"), [margin]),
    ]


def _table(result: Steps) -> Table:
    columns = ["images", Column("number", digits=0), Column("steps", digits=2), Column("rejected", digits=2), Column("NFE", digits=1)]
    rows = []
    for name, chosen in (("all", np.ones_like(result.right)), ("right", result.right), ("wrong", ~result.right)):
        if chosen.any():
            cells = [part[chosen] for part in (result.tried, result.rejected.sum(1), result.nfe.sum(1))]
            rows.append((name, int(chosen.sum()), *(PlusMinus(float(cell.mean()), float(cell.std())) for cell in cells)))
    return Table("steps", "Steps and evaluations of f per image, mean ± standard deviation", columns, rows)


def _relation(result: Steps) -> str:
    """One sentence on steps, correctness and margin."""
    tried, right = result.tried, result.right
    if np.ptp(tried) == 0:
        return "All images take the same number of steps; a tighter tolerance may tell them apart."
    rho = rank_correlation(tried, result.margins)
    words = f"Rank correlation of steps with the margin of the prediction: {rho:+.2f}"
    if right.all() or not right.any():
        return words + "."
    return f"{words}; with being right: {rank_correlation(tried, right):+.2f} (accuracy {right.mean():.2%})."


register_question(Question("steps", __doc__ or "", Options, ask, present))
