"""Accuracy and cost of a network on images that were changed on the way: what masks, contrasts and tolerances are measured with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from continua.blocks import ODEBlock
from continua.data import Augmentation
from continua.errors import ConfigError
from continua.runs import Batches, evaluate


@dataclass(frozen=True)
class Measured:
    """Accuracy as a fraction of all `images`, evaluations of f per block (mean over images, 0 for blocks without a solver).

    `failed`: images of batches whose solve did not reach its end; they count as wrong, and not in `nfe`.
    """

    images: int
    accuracy: float
    nfe: list[float]
    failed: int


def measured(
    model: Any,
    batches: Batches,
    change: Callable[[Tensor], Tensor] = lambda images: images,
    forward: Callable[[Tensor], Tensor] | None = None,
) -> Measured:
    """Every batch once, as `change` makes it; `forward` runs the network where plain `model(images)` is not what is wanted."""
    result = evaluate(model, batches, forward=lambda images: (forward or model)(change(images)))
    if not result.images:
        raise ConfigError(
            "there are no images to look at; the batches are empty, or an iterator that was used up (give a list or a loader)"
        )
    return Measured(result.images, result.accuracy or 0.0, result.nfe_per_image or [0.0] * len(model.blocks), result.failed)


def has_time(block: object) -> bool:
    """Whether a block carries its state through an interval of time."""
    return isinstance(block, ODEBlock)


def black(preprocess: Augmentation) -> Tensor:
    """What a pixel of value 0 is after preprocessing, per channel, (channels or 1, 1, 1)."""
    mean = torch.tensor(preprocess.mean or (0.0,), dtype=torch.float32)
    std = torch.tensor(preprocess.std or (1.0,), dtype=torch.float32)
    return (-mean / std).reshape(-1, 1, 1)
