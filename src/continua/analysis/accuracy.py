"""Accuracy and cost of a network on images that were changed on the way: what masks, contrasts and tolerances are measured with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from continua.data import Augmentation
from continua.errors import ConfigError, SolverError

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Measured:
    """Accuracy as a fraction of all `images`, evaluations of f per block (mean over images, 0 for blocks without a solver).

    `failed`: images of batches whose solve did not reach its end; they count as wrong, and not in `nfe`.
    """

    images: int
    accuracy: float
    nfe: list[float]
    failed: int


@torch.no_grad()
def measured(
    model: Any,
    batches: Batches,
    change: Callable[[Tensor], Tensor] = lambda images: images,
    forward: Callable[[Tensor], Tensor] | None = None,
) -> Measured:
    """Every batch once, as `change` makes it; `forward` runs the network where plain `model(images)` is not what is wanted."""
    right, images, failed, solved = 0, 0, 0, 0
    nfe = torch.zeros(len(model.blocks), dtype=torch.float64)
    for given, labels in batches:
        images += len(labels)
        try:
            found = (forward or model)(change(given))
        except SolverError:
            failed += len(labels)
            continue
        right += int((found.argmax(1) == labels.to(found.device)).sum())
        solved += len(labels)
        nfe += len(labels) * torch.tensor(evaluations(model), dtype=torch.float64)
    if not images:
        raise ConfigError(
            "there are no images to look at; the batches are empty, or an iterator that was used up (give a list or a loader)"
        )
    return Measured(images, right / images, (nfe / max(1, solved)).tolist(), failed)


def evaluations(model: Any) -> list[float]:
    """Evaluations of f in each block's last solve, mean over samples; 0 for blocks without a solver."""
    return [0.0 if stats is None else float(torch.as_tensor(stats.nfe).double().mean()) for stats in model.stats]


def has_time(block: Any) -> bool:
    """Whether a block carries its state through an interval of time."""
    return hasattr(block, "trajectory") and hasattr(block, "t1")


def black(preprocess: Augmentation) -> Tensor:
    """What a pixel of value 0 is after preprocessing, per channel, (channels or 1, 1, 1)."""
    mean = torch.tensor(preprocess.mean or (0.0,), dtype=torch.float32)
    std = torch.tensor(preprocess.std or (1.0,), dtype=torch.float32)
    return (-mean / std).reshape(-1, 1, 1)
