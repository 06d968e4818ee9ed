"""The Gaussian derivative basis of the N-jet, in one dimension and as pairs of orders.

With the Gaussian g(x; σ) renormalised to sum 1 on the sampling grid, the scale-normalised derivative of order n is

    G_n(x; σ) = σ^n · (−1/(√2 σ))^n · H_n(x/(√2 σ)) · g(x; σ) = (−1)^n He_n(x/σ) · g(x; σ)

(H_n the physicists', He_n the probabilists' Hermite polynomials, H_n(u/√2) = 2^(n/2) He_n(u)). In two dimensions the basis is separable,
G_ij(y, x) = G_i(y) G_j(x) (DCN eq. 8): i counts derivatives down the rows of an image, j along its columns.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError, ContinuaError

MAX_RADIUS = 4096
"""A kernel wider than this is never wanted: σ has exploded."""


def jet_orders(order: int) -> list[tuple[int, int]]:
    """The pairs (i, j) with i + j ≤ order in the order of α's first axis: (0,2), (0,1), (0,0), (1,1), (1,0), (2,0) for order 2."""
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
