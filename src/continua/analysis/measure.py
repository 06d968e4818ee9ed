"""What analyses measure with: accuracy and cost of a network on images that were changed on the way, and statistics of many numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continua.analysis.question import DataOptions, Keep
from continua.blocks import ODEBlock
from continua.data import Augmentation
from continua.errors import ConfigError
from continua.models import Network
from continua.options import option
from continua.runs import Batches, Evaluation, evaluate


@dataclass(frozen=True)
class SolverOptions(DataOptions):
    """Which images, and by which solver: `--tolerance` and `--method` mean the same for every analysis that has them."""

    tolerance: float | None = option(None, "solve adaptively at rtol = atol = this (else as the network was trained)")
    method: str | None = option(None, "solve adaptively by this method (else the network's own, or dopri5 if it takes fixed steps)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance is not None and not self.tolerance > 0:
            raise ConfigError(f"tolerance is {self.tolerance}; expected a number above 0, such as 1e-3")

    def solver(self, model: Network) -> dict[str, Any]:
        """What is changed about the solver, for `model.with_solver`; nothing where neither option is given."""
        if self.tolerance is None and self.method is None:
            return {}
        own = next((block.solver for block in model.blocks if isinstance(block, ODEBlock)), None)
        if own is None:
            raise ConfigError(f"{model.title} has no ODE block, so there is no solver for --tolerance or --method to change")
        changes: dict[str, Any] = dict(method=self.method or (own.method if own.steps is None else "dopri5"), steps=None)
        return changes if self.tolerance is None else changes | dict(rtol=self.tolerance, atol=self.tolerance)


@dataclass(frozen=True)
class Measured:
    """Accuracy as a fraction of all `images`, evaluations of f per block (mean over images, 0 for blocks without a solver).

    `failed`: images of batches whose solve did not reach its end; they count as wrong, and not in `nfe`. `halves`: the accuracy of the
    images at even and at odd places alone, so that what is chosen on some images can be judged on others.
    """

    images: int
    accuracy: float
    nfe: list[float]
    failed: int
    halves: list[float] = field(default_factory=list)


def evaluated(model: Network, batches: Batches, forward: Callable[[Tensor], Tensor] | None = None) -> tuple[Evaluation, Measured]:
    """Every batch once, in full and in short; `forward` runs the network where plain `model(images)` is not what is wanted."""
    labels: list[int] = []

    def noted() -> Batches:
        for images, right in batches:
            labels.extend(right.tolist())
            yield images, right

    result = evaluate(model, noted(), forward=forward or model)
    if not result.images:
        raise ConfigError(
            "there are no images to look at; the batches are empty, or an iterator that was used up (give a list or a loader)"
        )
    right = [predicted == label for predicted, label in zip(result.predictions, labels, strict=True)]
    halves = [sum(half) / max(1, len(half)) for half in (right[::2], right[1::2])]
    nfe = result.nfe_per_image or [0.0] * len(model.blocks)
    return result, Measured(result.images, result.accuracy or 0.0, nfe, result.failed, halves)


def measured(
    model: Network,
    batches: Batches,
    change: Callable[[Tensor], Tensor] = lambda images: images,
    forward: Callable[[Tensor], Tensor] | None = None,
) -> Measured:
    """Accuracy and cost on images as `change` makes them."""
    return evaluated(model, batches, lambda images: (forward or model)(change(images)))[1]


def kept(keep: Keep, name: str, make: Callable[[], Measured]) -> Measured:
    """A measurement that an interrupted analysis already made, or `make` makes."""
    return Measured(**keep(name, lambda: vars(make())))


def black(preprocess: Augmentation) -> Tensor:
    """What a pixel of value 0 is after preprocessing, per channel, (channels or 1, 1, 1).

    Args:
        preprocess: how a run prepares its images.

    Returns:
        A tensor that broadcasts against images, (channels or 1, 1, 1).

    Examples:
        >>> from continua.analysis import black
        >>> from continua.data import Augmentation
        >>> black(Augmentation(mean=(0.5,), std=(0.25,))).flatten().tolist()
        [-2.0]
    """
    mean = torch.tensor(preprocess.mean or (0.0,), dtype=torch.float32)
    std = torch.tensor(preprocess.std or (1.0,), dtype=torch.float32)
    return (-mean / std).reshape(-1, 1, 1)


def skewness(values: np.ndarray) -> float:
    """The third standardised moment; NaN where all values are equal."""
    centred = values - values.mean()
    spread = float(np.mean(centred**2))
    return float(np.mean(centred**3)) / spread**1.5 if spread > 0 else math.nan


def ks_distance(values: np.ndarray, mean: float, std: float) -> float:
    """Kolmogorov and Smirnov's: the largest difference between the empirical distribution of sorted values and the normal one."""
    if std == 0:
        return math.nan
    normal = np.array([0.5 * (1 + math.erf((value - mean) / (std * math.sqrt(2)))) for value in values])
    below, above = np.arange(len(values)) / len(values), np.arange(1, len(values) + 1) / len(values)
    return float(max((normal - below).max(), (above - normal).max()))


def rank_correlation(x: "Sequence[float] | np.ndarray", y: "Sequence[float] | np.ndarray") -> float:
    """Spearman's: Pearson's of the ranks, equal values sharing their mean rank; NaN where one side is constant, or of fewer than three."""
    first, second = _ranks(np.asarray(x)), _ranks(np.asarray(y))
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
