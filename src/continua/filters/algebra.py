"""Algebra of N-jets: what can be done to a filter exactly because it is a function of space.

With σ-normalised derivatives an N-jet is F(y, x) = Σ α_ij σ^(i+j) ∂_y^i ∂_x^j G(y, x; σ). Coordinates are those of an image: x along
columns, y down rows; angles turn from x towards y. Every method that changes a filter returns a new one.
"""

import copy
import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.basis import SigmaBounds, hermite, jet_orders
from continua.filters.filter import Filter


def steering_matrix(order: int, angle: float) -> Float[Tensor, "basis basis"]:
    """The matrix that turns α by `angle`: ∂_y' = cos ∂_y − sin ∂_x and ∂_x' = cos ∂_x + sin ∂_y, expanded (DCN eq. 7, every order)."""
    cos, sin = math.cos(angle), math.sin(angle)
    orders = jet_orders(order)
    matrix = torch.zeros(len(orders), len(orders), dtype=torch.float64)
    for column, (i, j) in enumerate(orders):
        for a in range(i + 1):  # ∂_y'^i gives ∂_y^a ∂_x^(i−a), ∂_x'^j gives ∂_y^b ∂_x^(j−b)
            for b in range(j + 1):
                term = math.comb(i, a) * cos**a * (-sin) ** (i - a) * math.comb(j, b) * sin**b * cos ** (j - b)
                matrix[orders.index((a + b, i + j - a - b)), column] += term
    return matrix


class JetAlgebra(Filter):
    """The half of an `NJet` that needs no pixels, only its α (basis, in, out), its s = log2 σ and its order."""

    alpha: nn.Parameter
    s: nn.Parameter
    order: int
    limit: SigmaBounds | None

    @property
    def sigma(self) -> Tensor:
        """The scale in pixels, after bounds."""
        raise TypeError(f"{type(self).__name__} must define sigma.")

    def with_values(self, alpha: Tensor, sigma: Tensor) -> Self:
        """A copy with these coefficients and this scale."""
        changed = copy.deepcopy(self)
        s = torch.log2(sigma)
        with torch.no_grad():
            changed.alpha.copy_(alpha)
            changed.s.copy_(s if self.limit is None else self.limit.inverse(s))
        return changed

    def rotate(self, angle: float) -> Self:
        """F turned by `angle` (radians) about its centre."""
        matrix = steering_matrix(self.order, angle).to(self.alpha)
        return self.with_values(torch.einsum("fg,gco->fco", matrix, self.alpha), self.sigma)

    def rescale(self, factor: float) -> Self:
        """F enlarged: F(x/factor)/factor². The normalisation of the derivatives makes that σ · factor at the same α."""
        if factor <= 0:
            raise ConfigError(f"A filter is rescaled by a positive factor; got {factor}.")
        return self.with_values(self.alpha, factor * self.sigma)

    def blur(self, sigma: float) -> Self:
        """F ⋆ G(·; sigma) by the semigroup of Gaussians (DCN eq. 6): variances add, and α_ij shrinks by (σ/σ_new)^(i+j)."""
        wider = torch.sqrt(self.sigma**2 + sigma**2)
        ratio = self.sigma / wider
        degrees = torch.tensor([i + j for i, j in jet_orders(self.order)], device=ratio.device)
        return self.with_values(self.alpha * ratio ** degrees[:, None, None], wider)

    def sample(self, y: Float[Tensor, "rows"], x: Float[Tensor, "cols"]) -> Float[Tensor, "out in rows cols"]:
        """F at any coordinates, in pixels from the centre: the continuous function, neither truncated nor renormalised."""
        sigma = self._sigma_per_pair()
        rows, cols = self._derivatives(y.to(sigma), sigma), self._derivatives(x.to(sigma), sigma)
        total = torch.zeros((), dtype=sigma.dtype, device=sigma.device)
        for f, (i, j) in enumerate(jet_orders(self.order)):
            total = total + self.alpha[f, :, :, None, None] * rows[i][..., :, None] * cols[j][..., None, :]
        return total.transpose(0, 1)

    def frequency_response(self, fy: Float[Tensor, "*grid"], fx: Float[Tensor, "*grid"]) -> Complex[Tensor, "out in *grid"]:
        """The Fourier transform ∫∫ F e^(−2πi(fy y + fx x)) in closed form; frequencies in cycles per pixel.

        Σ α_ij (iσω_y)^i (iσω_x)^j exp(−σ²|ω|²/2), ω = 2πf. A convolution layer correlates, so its own response is the conjugate.
        """
        sigma = self._sigma_per_pair().reshape(*self.alpha.shape[1:], *(1,) * fy.ndim)
        v, u = 2 * math.pi * fy.to(sigma) * sigma, 2 * math.pi * fx.to(sigma) * sigma
        total = torch.zeros((), dtype=torch.complex(sigma, sigma).dtype, device=sigma.device)
        for f, (i, j) in enumerate(jet_orders(self.order)):
            total = total + self.alpha[f].reshape(sigma.shape) * (1j) ** (i + j) * v**i * u**j
        return (total * torch.exp(-0.5 * (u * u + v * v))).transpose(0, 1)

    def tuning(self) -> "Tuning":
        """Peak frequency (cycles per pixel) and orientation of every kernel, each (out, in)."""
        return tuning_of(self.alpha.detach(), self._sigma_per_pair().detach(), self.order)

    def _sigma_per_pair(self) -> Float[Tensor, "in out"]:
        return self.sigma.expand(self.alpha.shape[1:])

    def _derivatives(self, x: Tensor, sigma: Tensor) -> list[Tensor]:
        u = x / sigma[..., None]
        g = torch.exp(-0.5 * u * u) / (math.sqrt(2 * math.pi) * sigma[..., None])
        return [(-1) ** n * p * g for n, p in enumerate(hermite(self.order, u))]


@dataclass(frozen=True)
class Tuning:
    """Which grating a filter answers most strongly to: the maximum of |F̂|, as a physiologist would measure it.

    `frequency` in cycles per pixel. `orientation` in [0, π): the direction of the grating's wave vector from x towards y, at right angles
    to its stripes; NaN for a low-pass filter (peak at zero frequency).
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
