"""Balanced subsets and hold-outs that are the same on every machine, with every version of every library.

No library's random generator is promised to stay the same for ever, so images are put in an order that is written down
here: by the 64-bit key SplitMix64(SplitMix64(SplitMix64(seed) + purpose) + index) of the image's index, equal keys by index.
A subset takes the first `per_class` images of each class in that order, so of one seed the smaller subset is part of the larger.
"""

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from continua.data.dataset import Split
from continua.errors import ConfigError

S = TypeVar("S", bound=Split)

SUBSET, HOLDOUT = 1, 2  # purposes: a hold-out must not be the images that the subset took first


def take_per_class(split: S, per_class: int, seed: int = 0, classes: tuple[str, ...] = ()) -> S:
    """`per_class` images of every class, without replacement, in the order they have in the split."""
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
    """(kept, held): `fraction` of the images held out, as many of each class as its share, every class still in kept.

    Where a class's share is not whole, the classes with the largest remainders hold one image more, so that the
    total is the fraction asked for.
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
    stream = _splitmix64(_splitmix64(np.array([seed % 2**64], dtype=np.uint64)) + np.uint64(purpose))
    return _splitmix64(stream + np.arange(count, dtype=np.uint64))


def _splitmix64(x: np.ndarray) -> np.ndarray:
    """One output of the SplitMix64 generator (Steele, Lea and Flood 2014) whose state is x; arithmetic modulo 2⁶⁴."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
