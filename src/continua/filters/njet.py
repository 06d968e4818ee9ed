"""The structured receptive field: a filter that is a sum of Gaussian derivatives, F(x, y) = Σ α_ij G_ij(x, y; σ), σ = 2^s (DCN eq. 1).

`fit_pixel_kernel` goes from pixels to it: the N-jet nearest to a k×k kernel in least squares.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.algebra import JetAlgebra
from continua.filters.basis import Reach, ScaleWatch, SigmaBounds, gaussian_derivatives, jet_orders
from continua.filters.host import host_numbers
from continua.filters.kernel import JetKernel, Kernel

SHARINGS = ("layer", "channel", "pair")


class NJet(JetAlgebra):
    """N-jet filter with trainable coefficients α (basis, in, out) and scale s = log2 σ.

    Args:
        sharing: one σ for the "layer" (the paper's default), for each output "channel", or for each "pair" of input and output channel
            (σ_ji)
        radius: half-width of the kernel; None: ceil(radius_factor · σ + 0.5) of the present σ, "pair": always fixed, by default 3 (7×7)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        order: int = 2,
        sharing: str = "layer",
        radius_factor: float = 2.0,
        radius: int | None = None,
        sigma_bounds: tuple[float, float] | None = None,
        alpha_std: float = 0.1,
        s_std: float = 2 / 3,
    ) -> None:
        super().__init__(in_channels, out_channels)
        if sharing not in SHARINGS:
            raise ConfigError(f"σ is shared per {', '.join(SHARINGS)}; got sharing={sharing!r}.")
        if radius_factor <= 0 or (radius is not None and radius < 0):
            raise ConfigError(f"radius_factor must be positive and radius at least 0; got {radius_factor} and {radius}.")
        self.order = order
        self.sharing = sharing
        self.radius_factor = radius_factor
        self.radius = 3 if radius is None and sharing == "pair" else radius
        self.size = None if self.radius is None else 2 * self.radius + 1
        self.jet_order = order if sharing == "layer" else None
        self.channel_order = order if sharing == "channel" else None
        self.limit = SigmaBounds(sigma_bounds) if sigma_bounds is not None else None
        self.watch = ScaleWatch()
        self.frozen_reach: Reach | None = None
        s_shape = {"layer": (1,), "channel": (out_channels,), "pair": (in_channels, out_channels)}[sharing]
        self.alpha = nn.Parameter(alpha_std * torch.randn(len(jet_orders(order)), in_channels, out_channels))
        self.s = nn.Parameter(s_std * torch.randn(s_shape))

    @property
    def sigma(self) -> Tensor:
        """The scale in pixels, after bounds."""
        return self.sigma_of(self.s)

    def sigma_of(self, s: Tensor) -> Tensor:
        """σ of an s of this filter, after bounds."""
        return torch.exp2(s if self.limit is None else self.limit(s))

    def state(self) -> dict[str, Tensor]:
        return {"alpha": self.alpha, "s": self.s}

    def scale_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(value for value in (self.s,) if isinstance(value, nn.Parameter))  # a frozen filter has none

    def scale_at(self, t: Tensor | float) -> Tensor:
        return self.sigma

    def read_host(self, state: dict[str, Tensor]) -> Reach:
        """How far the kernel reaches at the present σ (detached: the size of a kernel has no gradient)."""
        if self.frozen_reach is not None:
            return self.frozen_reach
        sigma = self.sigma_of(state["s"].detach())
        if self.sharing == "pair":
            # Thousands of σ share one fixed size: only the extremes are worth a look.
            self.watch.check_sigma(self.label, host_numbers(torch.stack(sigma.aminmax())))
            return Reach(())
        sigmas = host_numbers(sigma)
        self.watch.check_sigma(self.label, sigmas)
        return Reach.of(sigmas, self.radius_factor)

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> JetKernel:
        reach = host if isinstance(host, Reach) else self.read_host(state)
        sigma = self.sigma_of(state["s"])
        if self.sharing == "layer":
            sigma = sigma[0]
        if self.radius is not None:
            radius: int | tuple[int, ...] = self.radius
        else:
            radius = reach.radii[0] if self.sharing == "layer" else reach.radii
        taps = gaussian_derivatives(sigma, self.order, radius)
        return JetKernel(state["alpha"], taps, taps, sigma, self.order, self.sharing, gaussian=True)

    def freeze(self) -> Self:
        frozen = super().freeze()
        frozen.frozen_reach = self.read_host(self.state())
        return frozen

    def watch_map(self, kernel: Kernel, map_size: tuple[int, int]) -> None:
        self.watch.check_size(self.label, kernel.size, map_size)

    def extra_repr(self) -> str:
        values = self.sigma.detach().flatten()
        scale = f"{values[0]:.3g}" if values.numel() == 1 else f"{values.min():.3g}…{values.max():.3g}"
        return f"{super().extra_repr()}, order={self.order}, sigma={scale} per {self.sharing}"


@dataclass(frozen=True)
class JetFit:
    """`filter` sampled on the same k×k pixels is nearest to the kernel; `residual` is the norm of the rest over the kernel's norm."""

    filter: NJet
    residual: float
    residual_per_kernel: Float[Tensor, "out in"]


def fit_pixel_kernel(
    weight: Float[Tensor, "out in k k"], *, order: int = 2, sigma: float | None = None, sigma_range: tuple[float, float] = (0.3, 4.0)
) -> JetFit:
    """The N-jet of this order, with one σ for all kernels, that is nearest to `weight` in least squares; σ is searched where not given.

    Args:
        weight: kernels of pixels.
        order: highest derivative of the N-jet.
        sigma: its σ; None: the one that fits best.
        sigma_range: where σ is searched.

    Returns:
        Coefficients, σ and the error that is left.

    Raises:
        ConfigError: the weights are not (out, in, k, k) with an odd k.

    Examples:
        >>> import torch
        >>> from continua.filters import fit_pixel_kernel
        >>> found = fit_pixel_kernel(torch.rand(4, 3, 5, 5))
    """
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
