"""Which grating a filter answers most strongly to: the maximum of |F̂|, as a physiologist would measure it."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from continua.filters.basis import jet_orders


@dataclass(frozen=True)
class Tuning:
    """`frequency` in cycles per pixel.

    `orientation` in [0, π): the direction of the grating's wave vector from x towards y, at right angles to its stripes; NaN for a low-pass
    filter (peak at zero frequency).
    """

    frequency: Float[Tensor, "out in"]
    orientation: Float[Tensor, "out in"]


def tuning_of(alpha: Float[Tensor, "basis in out"], sigma: Float[Tensor, "in out"], order: int) -> Tuning:
    """Search ρ = σ|ω| and the direction: first on a grid for all filters at once, then by zooming in on each filter's best point.

    |F̂| is a polynomial of degree N times exp(−ρ²/2): beyond ρ = √(2N + 2) it only falls.
    """
    weights = alpha.double().flatten(1).t()  # (filters, basis)
    reach = math.sqrt(2 * order + 2)
    rho = torch.linspace(0, reach, 25, dtype=torch.float64, device=alpha.device)
    phi = torch.arange(36, dtype=torch.float64, device=alpha.device) * math.pi / 36
    grid_rho, grid_phi = (axis.flatten() for axis in torch.meshgrid(rho, phi, indexing="ij"))
    best = (weights.to(torch.complex128) @ _basis(grid_rho, grid_phi, order).t()).abs().argmax(1)
    rho, phi = grid_rho[best], grid_phi[best]
    d_rho, d_phi = reach / 24, math.pi / 36
    offsets = torch.linspace(-1, 1, 7, dtype=torch.float64, device=alpha.device)
    off_rho, off_phi = (axis.flatten() for axis in torch.meshgrid(offsets, offsets, indexing="ij"))
    for _ in range(14):
        try_rho, try_phi = (rho[:, None] + d_rho * off_rho).clamp(min=0), phi[:, None] + d_phi * off_phi
        response = torch.einsum("kgf,kf->kg", _basis(try_rho, try_phi, order), weights.to(torch.complex128)).abs()
        best = response.argmax(1, keepdim=True)
        rho, phi = try_rho.gather(1, best)[:, 0], try_phi.gather(1, best)[:, 0]
        d_rho, d_phi = d_rho / 2.5, d_phi / 2.5
    orientation = torch.where(rho > 1e-4, phi.remainder(math.pi), torch.nan)
    frequency = torch.where(rho > 1e-4, rho, 0.0) / (2 * math.pi * sigma.flatten().double())
    shape = alpha.shape[1:]
    return Tuning(frequency.view(shape).t().to(alpha), orientation.view(shape).t().to(alpha))


def _basis(rho: Tensor, phi: Tensor, order: int) -> Tensor:
    """Responses of the basis functions to a grating, basis last."""
    v, u = rho * torch.sin(phi), rho * torch.cos(phi)
    envelope = torch.exp(-0.5 * rho * rho)
    return torch.stack([(1j) ** (i + j) * v**i * u**j * envelope for i, j in jet_orders(order)], dim=-1)
