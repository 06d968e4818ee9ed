"""Random numbers that are a function of what they are for, not of when they are asked for.

A draw belongs to (seed, epoch, stream, sample index) and is a hash of these four numbers (the finaliser of
SplitMix64: Steele, Lea & Flood 2014). So no batch size, worker, rank or restart can change it, and as the hash is
written in 64-bit integer operations, every device gives the same bits.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

Word = TypeVar("Word", int, Tensor)

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
        key = 0
        for word in (self.seed, self.epoch, int(stream)):
            key = _mix(_signed(key + word + _GOLDEN))
        samples = self.indices[:, None] * _GOLDEN + key
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
    """The order of `n` samples in an epoch: sorted by their 64 random bits as signed integers, ties by index."""
    bits = Draws(seed, epoch, torch.arange(n)).bits(Stream.SHUFFLE)[:, 0]
    return torch.argsort(bits, stable=True)


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
