"""The structured receptive field: a filter that is a sum of Gaussian derivatives, F(x, y) = Σ α_ij G_ij(x, y; σ), σ = 2^s (DCN eq. 1)."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.algebra import JetAlgebra
from continua.filters.basis import gaussian_derivatives, jet_orders
from continua.filters.filter import Filter
from continua.filters.kernel import JetKernel, Kernel
from continua.filters.scale import Reach, ScaleWatch, SigmaBounds

SHARINGS = ("layer", "channel", "pair")


class NJet(JetAlgebra, Filter):
    """N-jet filter with trainable coefficients α (basis, in, out) and scale s = log2 σ.

    sharing   one σ for the "layer" (the paper's default), for each output "channel", or for each "pair" of input and output channel (σ_ji)
    radius    half-width of the kernel; None: ceil(radius_factor · σ + 0.5) of the present σ, "pair": always fixed, by default 3 (7×7)
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
        return torch.exp2(s if self.limit is None else self.limit(s))

    def state(self) -> dict[str, Tensor]:
        return {"alpha": self.alpha, "s": self.s}

    def read_host(self, state: dict[str, Tensor]) -> Reach:
        """How far the kernel reaches at the present σ (detached: the size of a kernel has no gradient)."""
        if self.frozen_reach is not None:
            return self.frozen_reach
        sigma = self.sigma_of(state["s"].detach())
        if self.sharing == "pair":
            # Thousands of σ share one fixed size: only the extremes are worth a look.
            self.watch.check_sigma(self.label, torch.stack(sigma.aminmax()).tolist())
            return Reach((), ())
        sigmas = sigma.tolist()
        self.watch.check_sigma(self.label, sigmas)
        return Reach.of(sigmas, self.radius_factor)

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> JetKernel:
        reach: Reach = host if host is not None else self.read_host(state)
        sigma = self.sigma_of(state["s"])
        if self.sharing == "layer":
            sigma = sigma[0]
        if self.radius is not None:
            radius: int | tuple[int, ...] = self.radius
        else:
            radius = reach.kernel[0] if self.sharing == "layer" else reach.kernel
        taps = gaussian_derivatives(sigma, self.order, radius)
        return JetKernel(state["alpha"], taps, taps, sigma, self.order, self.sharing, reach.blur)

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
