"""From pixels to a continuous filter: the N-jet nearest to a k×k kernel in least squares."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError
from continua.filters.basis import gaussian_derivatives, jet_orders
from continua.filters.njet import NJet


@dataclass(frozen=True)
class JetFit:
    """`filter` sampled on the same k×k pixels is nearest to the kernel; `residual` is the norm of the rest over the kernel's norm."""

    filter: NJet
    residual: float
    residual_per_kernel: Float[Tensor, "out in"]


def fit_pixel_kernel(
    weight: Float[Tensor, "out in k k"], *, order: int = 2, sigma: float | None = None, sigma_range: tuple[float, float] = (0.3, 4.0)
) -> JetFit:
    """The N-jet of this order, with one σ for all kernels, that is nearest to `weight` in least squares; σ is searched where not given."""
    size = weight.shape[-1]
    if weight.ndim != 4 or weight.shape[-2] != size or size % 2 == 0:
        raise ConfigError(f"fit_pixel_kernel takes weights (out, in, k, k) with odd k; got shape {tuple(weight.shape)}.")
    target = weight.detach().double().flatten(0, 1).flatten(1).t()  # (taps, out·in)
    if sigma is None:
        sigma = _best_sigma(target, order, size // 2, sigma_range)
    alpha, rest = _least_squares(target, order, size // 2, sigma)
    jet = NJet(weight.shape[1], weight.shape[0], order=order, radius=size // 2)
    values = alpha.view(-1, weight.shape[0], weight.shape[1]).transpose(1, 2)
    jet = jet.to(weight).with_values(values.to(weight), torch.tensor([sigma], dtype=weight.dtype, device=weight.device))
    norms, scale = rest.norm(dim=0), target.norm(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    residual = float(rest.norm() / target.norm().clamp(min=torch.finfo(torch.float64).tiny))
    return JetFit(jet, residual, (norms / scale).view(weight.shape[:2]).to(weight))


def _least_squares(target: Tensor, order: int, radius: int, sigma: float) -> tuple[Tensor, Tensor]:
    taps = gaussian_derivatives(torch.tensor(sigma, dtype=torch.float64, device=target.device), order, radius)
    basis = torch.stack([torch.outer(taps[i], taps[j]).flatten() for i, j in jet_orders(order)], dim=1)
    # The pseudo-inverse, not a triangular solve: at a small σ or on few pixels the basis functions are not independent.
    alpha = torch.linalg.pinv(basis, rtol=1e-10) @ target
    return alpha, target - basis @ alpha


def _best_sigma(target: Tensor, order: int, radius: int, within: tuple[float, float]) -> float:
    """The best of a logarithmic grid, refined by golden section between its neighbours."""

    def misfit(log_sigma: float) -> float:
        return float(_least_squares(target, order, radius, math.exp(log_sigma))[1].norm())

    low, high = math.log(within[0]), math.log(within[1])
    grid = [low + (high - low) * k / 32 for k in range(33)]
    best = min(range(33), key=lambda k: misfit(grid[k]))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, 32)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = right - golden * (right - left), left + golden * (right - left)
        left, right = (left, b) if misfit(a) < misfit(b) else (a, right)
    return math.exp((left + right) / 2)
