"""Random numbers that are a function of what they are for, not of when they are asked for; and what is drawn with them: subsets, hold-outs.

A draw belongs to (seed, epoch, stream, sample index) and is a hash of these four numbers (the finaliser of
SplitMix64: Steele, Lea & Flood 2014). So no batch size, worker, rank or restart can change it, and as the hash is
written in 64-bit integer operations, every device gives the same bits, with every version of every library.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from continua.data.dataset import Split
from continua.errors import ConfigError

Word = TypeVar("Word", int, Tensor)
S = TypeVar("S", bound=Split)

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2^64 / golden ratio, as a signed word: SplitMix64's increment
_LANE = 0xD1342543DE82EF95 - 2**64  # another odd number, so that no (sample, lane) meets another one
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


class Stream(IntEnum):
    """What a number is drawn for. The values are part of the result of every seed: add new ones at the end."""

    SHUFFLE = 0
    CROP = 1
    FLIP = 2
    COLOUR_ORDER = 3
    BRIGHTNESS = 4
    CONTRAST = 5
    SATURATION = 6
    HUE = 7
    PCA_RADIUS = 8
    PCA_ANGLE = 9
    BOX_AREA = 10
    BOX_ASPECT = 11
    BOX_POSITION = 12


@dataclass(frozen=True)
class Draws:
    """The random numbers of some samples in one epoch, one row per sample, on the device of `indices`."""

    seed: int
    epoch: int
    indices: Int64[Tensor, "n"]

    def bits(self, stream: Stream, lanes: int = 1) -> Int64[Tensor, "n lanes"]:
        """64 random bits per sample and lane."""
        samples = self.indices[:, None] * _GOLDEN + _key(self.seed, self.epoch, stream)
        if lanes > 1:
            samples = samples + torch.arange(lanes, device=samples.device) * _LANE
        return _mix(samples)

    def uniform(self, stream: Stream, lanes: int = 1) -> Float64[Tensor, "n lanes"]:
        """Uniform on [0, 1), with 53 random bits."""
        return _shift_right(self.bits(stream, lanes), 11).double() * 2.0**-53

    def between(self, stream: Stream, low: float, high: float) -> Float64[Tensor, "n"]:
        """Uniform on [low, high), one per sample."""
        return low + (high - low) * self.uniform(stream)[:, 0]

    def integers(self, stream: Stream, high: int, lanes: int = 1) -> Int64[Tensor, "n lanes"]:
        """Uniform on 0 … high − 1."""
        return (_shift_right(self.bits(stream, lanes), 33) * high) >> 31

    def normal(self, radius: Stream, angle: Stream, lanes: int = 1) -> Float64[Tensor, "n lanes"]:
        """Standard normal by Box and Muller; 1 − u keeps the logarithm finite."""
        length = torch.sqrt(-2.0 * torch.log1p(-self.uniform(radius, lanes)))
        return length * torch.cos(2.0 * math.pi * self.uniform(angle, lanes))


def permutation(n: int, seed: int, epoch: int) -> Int64[Tensor, "n"]:
    """The order of `n` samples in an epoch: sorted by their 64 random bits as signed integers, ties by index.

    Args:
        n: number of samples.
        seed: of the training.
        epoch: which epoch.

    Returns:
        Indices of the samples in their order.

    Examples:
        >>> from continua.data import permutation
        >>> sorted(permutation(4, seed=0, epoch=1).tolist())
        [0, 1, 2, 3]
    """
    bits = Draws(seed, epoch, torch.arange(n)).bits(Stream.SHUFFLE)[:, 0]
    return torch.argsort(bits, stable=True)


def _key(*words: int) -> int:
    """One word of several: SplitMix64 of the words so far plus the next."""
    key = 0
    for word in words:
        key = _mix(_signed(key + word + _GOLDEN))
    return key


def _mix(z: Word) -> Word:
    z = _times(z ^ _shift_right(z, 30), _FIRST)
    z = _times(z ^ _shift_right(z, 27), _SECOND)
    return z ^ _shift_right(z, 31)


def _times(z: Word, factor: int) -> Word:
    product = z * factor
    return _signed(product) if isinstance(product, int) else product  # tensors wrap around by themselves


def _shift_right(z: Word, bits: int) -> Word:
    return (z >> bits) & (2 ** (64 - bits) - 1)  # >> of a signed word copies the sign bit; the mask removes the copies


def _signed(z: int) -> int:
    return (z + 2**63) % 2**64 - 2**63


# --- balanced subsets and hold-outs ---------------------------------------------------------------------------------------
#
# Images are put in the order of the unsigned keys SplitMix64(SplitMix64(SplitMix64(seed) + purpose) + index), equal keys by index. A subset
# takes the first `per_class` images of each class in that order, so of one seed the smaller subset is part of the larger.

SUBSET, HOLDOUT = 1, 2  # purposes: a hold-out must not be the images that the subset took first


def take_per_class(split: S, per_class: int, seed: int = 0, classes: tuple[str, ...] = ()) -> S:
    """`per_class` images of every class, without replacement, in the order they have in the split.

    Args:
        split: the images.
        per_class: how many of each class.
        seed: decides which.
        classes: names of the classes, for messages.

    Returns:
        The images chosen.

    Raises:
        ConfigError: a class has fewer.

    Examples:
        >>> from continua.data import load, take_per_class
        >>> len(take_per_class(load("digits")["train"], 2))
        20
    """
    if per_class < 1:
        raise ConfigError(f"per_class is {per_class}, expected at least 1")
    labels = split.labels.numpy()
    counts = np.bincount(labels, minlength=len(classes))
    scarce = int(counts.argmin())
    if counts[scarce] < per_class:
        name = classes[scarce] if classes else scarce
        raise ConfigError(f"per_class={per_class}, but class {name} has {counts[scarce]} images; ask for at most that many")
    rank = _rank_in_class(labels, _keys(len(labels), seed, SUBSET))
    return split.select(torch.from_numpy(np.flatnonzero(rank < per_class)))


def hold_out(split: S, fraction: float, seed: int = 0) -> tuple[S, S]:
    """(kept, held): `fraction` of the images held out, of each class its share; remainders are shared out so that the total is right.

    Args:
        split: the images.
        fraction: the share to hold out, between 0 and 1.
        seed: decides which.

    Returns:
        The images kept and those held out.

    Raises:
        ConfigError: `fraction` is not between 0 and 1.

    Examples:
        >>> from continua.data import hold_out, load
        >>> kept, held = hold_out(load("digits")["train"], 0.2)
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"holdout is {fraction}, expected a fraction between 0 and 1")
    kept, held = stratified(split.labels, fraction, seed)
    return split.select(kept), split.select(held)


def stratified(labels: Int64[Tensor, "n"], fraction: float, seed: int) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "held"]]:
    """The indices kept and held out, each in increasing order."""
    array = labels.numpy()
    counts = np.bincount(array)
    total = int(np.floor(fraction * len(array) + 0.5))
    quota = np.floor(fraction * counts).astype(np.int64)
    remainder = fraction * counts - quota
    order = np.lexsort((_keys(len(counts), seed, HOLDOUT), -remainder.round(9)))  # round: 0.1 · 30 is not quite 3
    quota[order[: max(0, total - int(quota.sum()))]] += 1
    if total == 0:
        raise ConfigError(f"holdout={fraction} of {len(array)} images is none; ask for a larger fraction or more images")
    if ((quota >= counts) & (counts > 0)).any():
        raise ConfigError(f"holdout={fraction} leaves a class without training images ({len(array)} images in all); ask for less")
    held = _rank_in_class(array, _keys(len(array), seed, HOLDOUT)) < quota[array]
    return torch.from_numpy(np.flatnonzero(~held)), torch.from_numpy(np.flatnonzero(held))


def _rank_in_class(labels: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """For each image, how many images of its class come before it in the order of the keys."""
    order = np.lexsort((np.arange(len(labels)), keys, labels))
    first_of_class = np.searchsorted(labels[order], labels[order])
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - first_of_class
    return rank


def _keys(count: int, seed: int, purpose: int) -> np.ndarray:
    return _mix(torch.arange(count) + _signed(_key(seed, purpose) + _GOLDEN)).numpy().view(np.uint64)
