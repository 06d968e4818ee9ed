"""The Gaussian derivative basis of the N-jet, in one dimension and as pairs of orders, and its scale σ = 2^s.

With the Gaussian g(x; σ) renormalised to sum 1 on the sampling grid, the scale-normalised derivative of order n is

    G_n(x; σ) = σ^n · (−1/(√2 σ))^n · H_n(x/(√2 σ)) · g(x; σ) = (−1)^n He_n(x/σ) · g(x; σ)

(H_n the physicists', He_n the probabilists' Hermite polynomials, H_n(u/√2) = 2^(n/2) He_n(u)). In two dimensions the basis is separable,
G_ij(y, x) = G_i(y) G_j(x) (DCN eq. 8): i counts derivatives down the rows of an image, j along its columns.

The half-width at which a Gaussian is cut is known on the host (`Reach`); σ may be limited (`SigmaBounds`) and is watched (`ScaleWatch`).
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError, ContinuaError, ContinuaWarning

MAX_RADIUS = 4096
"""A kernel wider than this is never wanted: σ has exploded."""

SENSIBLE = (0.2, 8.0)
"""Below, a kernel is a single pixel; above, it is wider than the maps these networks have."""

TensorOrNumber = TypeVar("TensorOrNumber", Tensor, float)


def jet_orders(order: int) -> list[tuple[int, int]]:
    """The pairs (i, j) with i + j ≤ order in the order of α's first axis: (0,2), (0,1), (0,0), (1,1), (1,0), (2,0) for order 2.

    Args:
        order: highest order of derivatives.

    Returns:
        The pairs.

    Raises:
        ConfigError: `order` is negative.

    Examples:
        >>> from continua.filters import jet_orders
        >>> len(jet_orders(2))
        6
    """
    if order < 0:
        raise ConfigError(f"The order of an N-jet counts derivatives and is at least 0; got {order}.")
    return [(i, j) for i in range(order + 1) for j in range(order - i, -1, -1)]


def hermite(order: int, u: Tensor) -> list[Tensor]:
    """Probabilists' Hermite polynomials He_0(u) … He_order(u), by He_{n+1} = u He_n − n He_{n−1}."""
    polynomials = [torch.ones_like(u), u][: order + 1]
    for n in range(1, order):
        polynomials.append(u * polynomials[n] - n * polynomials[n - 1])
    return polynomials


def truncation_radius(sigma: float, factor: float) -> int:
    """Half-width of the sampled kernel, ceil(factor · σ + 0.5), from a σ that is known on the host."""
    reach = factor * sigma + 0.5
    if not math.isfinite(reach) or reach > MAX_RADIUS:
        raise ContinuaError(
            f"An N-jet at σ = {sigma:g} would need a kernel of half-width {reach:g} (the largest allowed is {MAX_RADIUS}). "
            "σ has probably exploded in training: lower the learning rate, or bound it with sigma_bounds=(0.2, 8)."
        )
    return math.ceil(reach)


def gaussian_derivatives(
    sigma: Float[Tensor, "*shape"], order: int, radius: int | Sequence[int]
) -> Float[Tensor, "*shape derivatives taps"]:
    """Sampled G_0 … G_order at the pixels −R … R, R the largest radius.

    With several radii (one for each σ) every Gaussian is cut at its own radius and renormalised there, so that each holds the numbers it
    would have alone.
    """
    if isinstance(radius, int):
        widest, own = radius, None
    else:
        widest = max(radius)
        own = torch.tensor(radius, device=sigma.device).reshape(sigma.shape)
    x = torch.arange(-widest, widest + 1, device=sigma.device, dtype=sigma.dtype)
    u = x / sigma[..., None]
    g = torch.exp(-0.5 * u * u)
    if own is not None:
        g = g * (x.abs() <= own[..., None])
    g = g / g.sum(-1, keepdim=True)
    return torch.stack([(-1) ** n * p * g for n, p in enumerate(hermite(order, u))], dim=-2)


def scale_direction(
    taps: Float[Tensor, "*shape derivatives taps"], sigma: Float[Tensor, "*shape"], kept: int
) -> Float[Tensor, "*shape derivatives taps2"]:
    """The direction, of length 1, in which the taps within `kept` of the centre move with σ; `taps` are `gaussian_derivatives` of σ, whole.

    σ ∂g/∂σ = (u² − ⟨u²⟩) g with ⟨·⟩ the mean under g, and He_n' = n He_{n−1}, so σ ∂G_n/∂σ = (−1)^n [(u² − ⟨u²⟩) He_n − n u He_{n−1}] g.
    """
    with torch.no_grad():
        order, widest = taps.shape[-2] - 1, taps.shape[-1] // 2
        u = torch.arange(-widest, widest + 1, device=taps.device, dtype=taps.dtype) / sigma[..., None]
        g, he = taps[..., 0, :], hermite(order, u)
        spread = u * u - (g * u * u).sum(-1, keepdim=True)
        moved = [(-1) ** n * (spread * he[n] - (n * u * he[n - 1] if n else 0)) * g for n in range(order + 1)]
        slopes = torch.stack(moved, dim=-2)[..., max(0, widest - kept) : widest + kept + 1]
        return slopes / slopes.norm(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(taps.dtype).tiny)


@dataclass(frozen=True)
class Reach:
    """Half-widths of sampled kernels, known on the host: one for each σ."""

    radii: tuple[int, ...]

    @classmethod
    def of(cls, sigmas: Iterable[float], factor: float) -> "Reach":
        return cls(tuple(truncation_radius(sigma, factor) for sigma in sigmas))

    @classmethod
    def farthest(cls, reaches: Sequence["Reach"]) -> "Reach":
        """The largest half-width of each σ."""
        return cls(tuple(map(max, zip(*(reach.radii for reach in reaches), strict=True))))


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

    def __call__(self, s: TensorOrNumber) -> TensorOrNumber:
        """Limit a tensor, or a number on the host."""
        if isinstance(s, Tensor):
            return self.middle + self.half_width * torch.tanh((s - self.middle) / self.half_width)
        return self.middle + self.half_width * math.tanh((s - self.middle) / self.half_width)

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
