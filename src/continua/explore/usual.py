"""How far a picture is from the images that a network was trained on: a remark for pictures that are nothing of the kind.

A network for digits calls a cat a digit too, often with confidence. The training images, reduced to 8×8, span a few directions (their
principal components) and hardly leave them. Two lengths say whether a picture is one of them: how far it lies along these directions, in
standard deviations, and how much of it lies outside of them. Each is measured in units of what one training image in a thousand reaches.
"""

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional

SIDE = 8  # pixels: coarse enough to be quick, fine enough to tell a digit from a cat
SHARE = 0.95  # of the variance, spanned by the directions that are kept
RARE = 0.999  # the quantile of training images that counts as 1
MOST = 2_000  # training images that are looked at


@dataclass(frozen=True, eq=False)
class Usual:
    """What training images look like: their mean, their directions with the deviation along each, and the two lengths that count as 1."""

    mean: Tensor
    directions: Tensor
    deviations: Tensor
    along: float
    outside: float

    def distance(self, image: UInt8[Tensor, "1 channels height width"]) -> float:
        """Above 1 for what hardly any training image is; far above 1 for another kind of picture."""
        along, outside = _lengths(_reduced(image), self.mean, self.directions, self.deviations)
        return float(torch.maximum(along / self.along, outside / self.outside))


def usual(images: UInt8[Tensor, "count channels height width"]) -> Usual | None:
    """The statistics of training images; None where there are too few to say anything."""
    if len(images) < 50:
        return None
    few = _reduced(images[torch.linspace(0, len(images) - 1, min(MOST, len(images))).long()])
    mean = few.mean(0)
    _, sizes, directions = torch.linalg.svd(few - mean, full_matrices=False)
    kept = int((sizes.square().cumsum(0) < SHARE * sizes.square().sum()).sum()) + 1
    deviations = (sizes[:kept] / (len(few) - 1) ** 0.5).clamp_min(1e-6)
    along, outside = _lengths(few, mean, directions[:kept], deviations)
    limits = [max(float(torch.quantile(lengths, RARE)), 1e-3) for lengths in (along, outside)]
    return Usual(mean, directions[:kept], deviations, *limits)


def _reduced(images: Tensor) -> Tensor:
    """(count, numbers) of images at 8×8 or their own size, in 0 … 1."""
    side = min(SIDE, *images.shape[-2:])
    return functional.adaptive_avg_pool2d(images.float() / 255, side).flatten(1)


def _lengths(few: Tensor, mean: Tensor, directions: Tensor, deviations: Tensor) -> tuple[Tensor, Tensor]:
    apart = few - mean
    places = apart @ directions.T
    outside = (apart - places @ directions).square().mean(1).sqrt()
    return (places / deviations).square().mean(1).sqrt(), outside
