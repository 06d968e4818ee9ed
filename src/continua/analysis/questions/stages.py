"""What a Runge–Kutta network learned as a method: increments through depth, effective step sizes, who reads whom, stages left out (RKNet).

Only the products h·b_i·z_i exist in the network, so h and b are found from them. A step's size is ‖y_{n+1} − y_n‖ / ‖y_n‖. The weight of
stage i is the share of the step that it makes, ⟨h b_i z_i, y_{n+1} − y_n⟩ / ‖y_{n+1} − y_n‖²; these add up to 1, as the b_i of a consistent
method do.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from continua.analysis.question import DataOptions, Plotted, Question, Subject, no_progress, register_question
from continua.blocks import IRKStep, Period, RKStep
from continua.errors import ConfigError
from continua.models import Network, familiar_method
from continua.options import option
from continua.report import Axis, Column, Figure, Maps, Page, Part, Series, Table
from continua.runs import Batches
from continua.showing import Shown


@dataclass(frozen=True, repr=False)
class TimeStep(Shown):
    """One time-step, means over images; norms are root mean squares over channels and pixels. Lists have one entry per stage.

    `dependence` is how strongly stage i (row) reads y_n (column 0) and stage j (column j), as the norm of γ·W. `accuracy_without` is the
    network's accuracy with h·b_i·z_i left out of the sum (b_i = 0), the other stages still reading it; empty if that was not asked.
    """

    period: int
    step: int
    implicit: bool
    state: float
    change: float
    step_size: float
    increments: list[float]
    weights: list[float]
    agreement: float  # ‖Σ h b_i z_i‖ / Σ ‖h b_i z_i‖: 1 if all stages pull the same way
    dependence: np.ndarray
    accuracy_without: list[float]

    @property
    def label(self) -> str:
        return f"period {self.period + 1}, step {self.step + 1}"


@dataclass(frozen=True, repr=False)
class Stages(Plotted):
    """The answer of `stages`."""

    name: str
    images: int
    accuracy: float
    steps: list[TimeStep]


class _Sums:
    """Sums over images of one time-step."""

    def __init__(self, stages: int) -> None:
        self.state = self.change = self.size = self.agreement = 0.0
        self.increments, self.weights = np.zeros(stages), np.zeros(stages)
        self.right = [0] * stages

    def add(self, y: Tensor, increments: list[Tensor]) -> None:
        flat = torch.stack(increments).flatten(2).double()  # stage, image, value
        change, root = flat.sum(0), flat.shape[-1] ** 0.5
        length, parts, before = change.norm(dim=1), flat.norm(dim=2), y.flatten(1).double().norm(dim=1)
        tiny = torch.finfo(torch.float64).tiny
        self.state += float(before.sum()) / root
        self.change += float(length.sum()) / root
        self.size += float((length / before.clamp_min(tiny)).sum())
        self.agreement += float((length / parts.sum(0).clamp_min(tiny)).sum())
        self.increments += (parts.sum(1) / root).cpu().numpy()
        self.weights += ((flat * change).sum(2) / length.square().clamp_min(tiny)).sum(1).cpu().numpy()


def _periods(model: Network) -> list[Period]:
    periods = [block for block in model.blocks if isinstance(block, Period)]
    if not periods or len(periods) < len(model.blocks):
        raise ConfigError(f"{model.name or 'this network'} has no Runge–Kutta periods; `stages` asks ERKNets and IRKNets")
    return periods


@torch.no_grad()
def stages(model: Network, batches: Batches, *, drop: bool = True, advance: Callable[[int], None] = no_progress) -> Stages:
    """Norms, step sizes and weights of every time-step on these (images, labels); with `drop`, the accuracy without each stage.

    Args:
        model: a Runge–Kutta network.
        batches: pairs (images, labels).
        drop: also measure accuracy without each stage.
        advance: called with the number of images after each batch.

    Returns:
        Norms, step sizes and weights by time-step and stage.

    Raises:
        ConfigError: there are no images.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import stages
        >>> net = ct.create_model("erknet", stages="2x1_2x1_2x1", growth=8).eval()
        >>> found = stages(net, [(torch.rand(2, 3, 32, 32), torch.zeros(2, dtype=torch.long))], drop=False)
    """
    periods = _periods(model)
    sums = [[_Sums(step.stages) for step, _ in period.taken] for period in periods]
    seen = right = 0
    for images, labels in batches:
        logits = _add_batch(model, images, labels, sums, drop)
        right += int((logits.argmax(1) == labels.to(logits.device)).sum())
        seen += len(labels)
        advance(1)
    if not seen:
        raise ConfigError("there are no images to look at; the batches are empty")
    steps = [
        _time_step(period, number, step, sums[period][number], seen, drop)
        for period, block in enumerate(periods)
        for number, (step, _) in enumerate(block.taken)
    ]
    return Stages(getattr(model, "spelling", model.name), seen, right / seen, steps)


def _add_batch(model: Network, images: Tensor, labels: Tensor, sums: list[list[_Sums]], drop: bool) -> Tensor:
    """Add a batch to the sums; its logits."""
    y, scales = model.stem(images), []
    for period, block in enumerate(_periods(model)):
        y = model.transitions[period - 1](y) if period else y
        for number, (step, use) in enumerate(block.taken):
            increments = step.increments(y, use)
            here = sums[period][number]
            here.add(y, increments)
            after = y + sum(increments)
            for stage, increment in enumerate(increments if drop else []):
                logits = _finish(model, scales, period, number, after - increment)
                here.right[stage] += int((logits.argmax(1) == labels.to(logits.device)).sum())
            y = after
        scales.append(y)
    return model.forward_head(scales if model.multiscale else y)


def _finish(model: Network, scales: list[Tensor], period: int, number: int, y: Tensor) -> Tensor:
    """Logits from y after a time-step; `scales` are the final states of earlier periods."""
    scales, periods = list(scales), _periods(model)
    for index in range(period, len(periods)):
        y = model.transitions[index - 1](y) if index > period else y
        for step, use in periods[index].taken[number + 1 if index == period else 0 :]:
            y = step(y, use)
        scales.append(y)
    return model.forward_head(scales if model.multiscale else y)


def _time_step(period: int, number: int, step: RKStep, sums: _Sums, images: int, drop: bool) -> TimeStep:
    return TimeStep(
        period=period,
        step=number,
        implicit=isinstance(step, IRKStep),
        state=sums.state / images,
        change=sums.change / images,
        step_size=sums.size / images,
        increments=(sums.increments / images).tolist(),
        weights=(sums.weights / images).tolist(),
        agreement=sums.agreement / images,
        dependence=step.dependence().double().numpy(),
        accuracy_without=[right / images for right in sums.right] if drop else [],
    )


@dataclass(frozen=True)
class Options(DataOptions):
    """Which images, and whether to leave stages out."""

    drop: bool = option(True, "measure the accuracy without each stage (one more forward pass per stage)")


def ask(subject: Subject, options: Options) -> Stages:
    _periods(subject.model)  # before a progress bar appears
    images = subject.images(options)
    with subject.progress("stages", len(images)) as advance:
        return stages(subject.model, images, drop=options.drop, advance=advance)


def present(result: Stages) -> Page:
    sizes = [step.step_size for step in result.steps]
    first = (
        f"{result.name}: {len(sizes)} time-steps of relative size {min(sizes):.2f} to {max(sizes):.2f}; accuracy {result.accuracy:.2%} on "
        f"{result.images:,} images."
    )
    parts: list[Part] = [first, _norms(result), _sizes(result), _table(result)]
    if any(step.accuracy_without for step in result.steps):
        parts.append(_dropped(result))
    return Page("Stages", [*parts, *_matrices(result)])


def _places(result: Stages) -> list[tuple[str, TimeStep, int]]:
    """Every stage in the order of depth, with a short name: 1.1 z2."""
    return [(f"{s.period + 1}.{s.step + 1} z{i + 1}", s, i) for s in result.steps for i in range(len(s.increments))]


def _norms(result: Stages) -> Figure:
    places = _places(result)
    names = [name for name, _, _ in places]
    series = [
        Series("state y_n", names, [step.state for _, step, _ in places], style="steps"),
        Series("increment h·b_i·z_i", names, [step.increments[i] for _, step, i in places], style="both"),
    ]
    caption = "period.step and stage; root mean squares over channels and pixels, mean over images"
    return Figure("norms", "Norms through depth", Axis("stage"), Axis("norm"), series, caption)


def _sizes(result: Stages) -> Figure:
    names = [f"{step.period + 1}.{step.step + 1}" for step in result.steps]
    bars = [Series("‖y_{n+1} − y_n‖ / ‖y_n‖", names, [step.step_size for step in result.steps], style="bars")]
    return Figure("step_sizes", "Effective step sizes", Axis("period.step"), Axis("relative step size"), bars)


def _table(result: Stages) -> Table:
    columns = ["stage", Column("norm of h·b_i·z_i", digits=4), Column("weight b_i", digits=3), Column("reads y_n", digits=3)]
    columns += [Column("reads other stages", digits=3), Column("accuracy without it", "%", 2)]
    rows = []
    for name, step, i in _places(result):
        without = 100 * step.accuracy_without[i] if step.accuracy_without else None
        others = float(np.linalg.norm(step.dependence[i, 1:]))
        rows.append((name, step.increments[i], step.weights[i], float(step.dependence[i, 0]), others, without))
    caption = (
        "Weights: each stage's share of its step, adding up to 1. Reads: norm of γ·W over the channels of y_n, and of the other stages."
    )
    return Table("stages", "Stages", columns, rows, caption)


def _dropped(result: Stages) -> Figure:
    places = [(name, step.accuracy_without[i]) for name, step, i in _places(result) if step.accuracy_without]
    names = [name for name, _ in places]
    series = [
        Series("without this stage", names, [100 * value for _, value in places], style="points"),
        Series("whole network", names, [100 * result.accuracy] * len(names), dashed=True),
    ]
    return Figure("dropped", "Accuracy with one stage left out of the sum", Axis("stage"), Axis("accuracy", "%"), series)


def _matrices(result: Stages) -> list[Maps]:
    """Who reads whom, beside a textbook tableau; one grid for each number of stages."""
    grids = []
    for count in sorted({len(step.increments) for step in result.steps}):
        steps = [step for step in result.steps if len(step.increments) == count]
        name, known = familiar_method(count, steps[0].implicit)
        tableau = _relative(np.abs(np.array(known)))
        values = np.stack([np.stack([_relative(step.dependence[:, 1:]), tableau]) for step in steps])
        grids.append(
            Maps(
                f"dependence_{count}",
                f"Who reads whom: {count} stage{'s' if count > 1 else ''}",
                [step.label for step in steps],
                ["learned", name],
                values,
                "share of the largest",
                "Row i: stage i, column j: the stage it reads. Learned: norms of γ·W_ji. Beside it |a_ij| of a textbook method with as "
                "many stages; an explicit one uses only what is below the diagonal.",
                one_scale=True,
            )
        )
    return grids


def _relative(matrix: np.ndarray) -> np.ndarray:
    largest = float(matrix.max(initial=0.0))
    return matrix / largest if largest > 0 else matrix


register_question(Question("stages", __doc__ or "", Options, ask, present))
