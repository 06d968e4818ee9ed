"""The scale σ = 2^s of a filter: its smooth bounds, its truncation radius, and warnings when it leaves the sensible range."""

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from continua.errors import ConfigError, ContinuaError, ContinuaWarning
from continua.filters.basis import truncation_radius

SENSIBLE = (0.2, 8.0)
"""Below, a kernel is a single pixel; above, it is wider than the maps these networks have."""


BLUR_FACTOR = 4.0
"""The hybrid discretisation cuts its Gaussian at this many σ."""


@dataclass(frozen=True)
class Reach:
    """Half-widths known on the host, one for each σ: of the sampled `kernel`, and of the `blur` of the hybrid discretisation."""

    kernel: tuple[int, ...]
    blur: tuple[int, ...]

    @classmethod
    def of(cls, sigmas: Iterable[float], factor: float) -> "Reach":
        sigmas = list(sigmas)
        kernel = tuple(truncation_radius(sigma, factor) for sigma in sigmas)
        return cls(kernel, tuple(truncation_radius(sigma, BLUR_FACTOR) for sigma in sigmas))


class SigmaBounds:
    """A smooth limit of s = log2 σ to [log2 lo, log2 hi]: s ↦ m + w·tanh((s − m)/w), with m the middle and w the half-width.

    Of slope 1 at the middle and never flat, so σ can always come back.
    """

    def __init__(self, bounds: tuple[float, float]) -> None:
        low, high = bounds
        if not 0 < low < high < math.inf:
            raise ConfigError(f"sigma_bounds are two positive numbers, the smaller first, e.g. (0.2, 8); got {bounds}.")
        self.bounds = (float(low), float(high))
        self.middle = (math.log2(low) + math.log2(high)) / 2
        self.half_width = (math.log2(high) - math.log2(low)) / 2

    def __call__(self, s: Any) -> Any:
        """Limit a tensor, or a number on the host."""
        u = (s - self.middle) / self.half_width
        return self.middle + self.half_width * (torch.tanh(u) if isinstance(u, Tensor) else math.tanh(u))

    def inverse(self, s: Tensor) -> Tensor:
        """The unlimited parameter that gives this s."""
        u = (s - self.middle) / self.half_width
        if bool((u.abs() >= 1).any()):
            raise ConfigError(f"σ = {torch.exp2(s).flatten().tolist()} is outside sigma_bounds={self.bounds}; choose wider bounds.")
        return self.middle + self.half_width * torch.atanh(u)


class ScaleWatch:
    """Warns once per layer and kind, naming the layer."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def check_sigma(self, label: str, sigmas: Iterable[float]) -> None:
        """Refuse what is not a number; warn when a σ leaves [0.2, 8]."""
        for sigma in sigmas:
            if not math.isfinite(sigma):
                raise ContinuaError(
                    f"σ of {label} is {sigma}: the training has diverged. Lower the learning rate, or bound it with sigma_bounds=(0.2, 8)."
                )
            if not SENSIBLE[0] <= sigma <= SENSIBLE[1]:
                self._warn(
                    "sigma",
                    f"σ of {label} is {sigma:.3g}, outside {list(SENSIBLE)}. Consider sigma_bounds={SENSIBLE} or a lower learning rate.",
                )

    def check_size(self, label: str, size: tuple[int, int], map_size: tuple[int, int]) -> None:
        """Warn when the kernel reaches farther than the map is wide: some of its taps can never touch the image."""
        if size[0] > 2 * map_size[0] - 1 or size[1] > 2 * map_size[1] - 1:
            self._warn(
                "size", f"The kernel of {label} is {size[0]}×{size[1]} on a map of {map_size[0]}×{map_size[1]}: it has outgrown its map."
            )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(message, ContinuaWarning, stacklevel=4)
