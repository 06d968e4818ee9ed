"""Lateral kernels of neural fields: sums of Gaussians, by which each place of a sheet excites and inhibits others."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.filter import Filter
from continua.filters.kernel import PixelKernel


class LateralGaussians(Filter):
    """w_pq(x) = Σ_k amplitude_k,pq · G(x; σ_k,pq), each Gaussian of sum 1: from population q to p. σ in pixels.

    amplitude, sigma: (terms, populations, populations); for one population a list of numbers, one for each term.
    """

    def __init__(self, amplitude: "Sequence[float] | Tensor", sigma: "Sequence[float] | Tensor") -> None:
        strength, scale = (torch.as_tensor(value, dtype=torch.get_default_dtype()) for value in (amplitude, sigma))
        strength, scale = (value[:, None, None] if value.ndim == 1 else value for value in (strength, scale))
        if strength.shape != scale.shape or strength.ndim != 3 or strength.shape[1] != strength.shape[2]:
            raise ConfigError(
                f"amplitudes {tuple(strength.shape)} and σ {tuple(scale.shape)}; expected both (terms, populations, populations), or lists"
            )
        if not scale.is_meta and not bool((scale > 0).all()):
            raise ConfigError("σ of a lateral kernel must be positive")
        super().__init__(strength.shape[1], strength.shape[1])
        self.amplitude, self.s = nn.Parameter(strength.clone()), nn.Parameter(torch.log2(scale))

    def state(self) -> dict[str, Tensor]:
        return {"amplitude": self.amplitude, "s": self.s}

    def read_host(self, state: dict[str, Tensor]) -> int:
        return math.ceil(4.5 * float(torch.exp2(state["s"].detach().max())) + 0.5)

    def kernel(self, state: dict[str, Tensor], t: "Tensor | float | None" = None, host: object = None) -> PixelKernel:
        radius = host if isinstance(host, int) else self.read_host(state)
        x = torch.arange(-radius, radius + 1, device=state["s"].device, dtype=state["s"].dtype)
        g = torch.exp(-0.5 * (x / torch.exp2(state["s"])[..., None]) ** 2)
        g = g / g.sum(-1, keepdim=True)
        return PixelKernel((state["amplitude"][..., None, None] * g[..., :, None] * g[..., None, :]).sum(0))


def mexican_hat(excitation: float, sigma_e: float, inhibition: float, sigma_i: float) -> LateralGaussians:
    """A difference of Gaussians for one population: excitation near, inhibition farther off.

    Args:
        excitation: its strength.
        sigma_e: its width, pixels.
        inhibition: its strength.
        sigma_i: its width, pixels.

    Returns:
        Connections for a `NeuralField`.

    Examples:
        >>> from continua.neuro import mexican_hat
        >>> connections = mexican_hat(6.0, 1.5, 6.0, 3.0)
    """
    return LateralGaussians([excitation, -inhibition], [sigma_e, sigma_i])
