"""A neural field: populations of neurons on a sheet, each place exciting and inhibiting others by a lateral kernel (Wilson and Cowan 1973,
Amari 1977).

    τ_p ∂u_p/∂t = −u_p + rest_p + input_p(t) + Σ_q w_pq ∗ S(u_q),     S(u) = 1 / (1 + exp(−slope (u − threshold)))

The sheet is a torus: what leaves at one edge enters at the other, so that every wave cos(k·x) is an eigenfunction of the linearisation, and
its growth rate is known in closed form (`dispersion`). A map of one row is a field in one dimension. Times are milliseconds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.blocks.field import Field, Prepared
from continua.errors import ConfigError
from continua.filters import Filter

if TYPE_CHECKING:
    from continua.report import Figure


class NeuralField(Field):
    """A neural field with any filter of as many inputs as outputs as its lateral kernel: `mexican_hat`, `LateralGaussians`, `NJet`, …

    Args:
        lateral: From each population to each; fields of several populations are those of Wilson and Cowan, of one that of Amari.
        tau: Time constant in ms, one for all populations or one each.
        slope, threshold: Of the firing rate; one for all or one each.
        rest: The potential without any input; one for all or one each.
        input: input(t) is added, shaped like the state or broadcast to it: a `continua.ode.Forcing`, or any function.
    """

    tau: Tensor

    def __init__(
        self,
        lateral: Filter,
        *,
        tau: "float | Sequence[float]" = 10.0,
        slope: "float | Sequence[float]" = 5.0,
        threshold: "float | Sequence[float]" = 0.0,
        rest: "float | Sequence[float]" = 0.0,
        input: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if lateral.in_channels != lateral.out_channels or lateral.time_dependent:
            raise ConfigError(
                f"a lateral kernel goes from each population to each and stays the same; got {lateral.in_channels} → {lateral.out_channels}"
            )
        self.lateral, self.input = lateral, input
        self.register_buffer("tau", self._each(tau))
        self.slope, self.threshold, self.rest = (nn.Parameter(self._each(value)) for value in (slope, threshold, rest))
        if not self.tau.is_meta and not bool((self.tau > 0).all()):
            raise ConfigError(f"time constants must be positive; got {tau}")

    @property
    def populations(self) -> int:
        """How many channels the state has."""
        return self.lateral.out_channels

    def rates(self, u: Tensor) -> Tensor:
        """S(u)."""
        return torch.sigmoid(self.slope[:, None, None] * (u - self.threshold[:, None, None]))

    def spectrum(self, height: int, width: int) -> Tensor:
        """ŵ_pq at the waves of a torus, (populations, populations, height, width), complex; in the order of `torch.fft.fft2`."""
        return torch.fft.fft2(self._on_torus(height, width))

    def prepare(self, h: Tensor, t0: "float | Tensor" = 0.0, t1: "float | Tensor" = 1.0) -> Prepared:
        if h.ndim != 4 or h.shape[1] != self.populations:
            raise ConfigError(f"the state is {tuple(h.shape)}; expected (batch, {self.populations}, height, width)")
        height, width = h.shape[-2:]
        # Real numbers, since gradients of a solve are collected for real tensors.
        waves = torch.view_as_real(torch.fft.rfft2(self._on_torus(height, width).to(h.dtype)))
        tau, input = self.tau[:, None, None], self.input

        def rate(t: Tensor, u: Tensor) -> Tensor:
            lateral = _through(torch.view_as_complex(waves), torch.fft.rfft2(self.rates(u)))
            total = torch.fft.irfft2(lateral, s=(height, width)) + self.rest[:, None, None] - u
            return (total if input is None else total + input(t)) / tau

        own = tuple(input.parameters()) if isinstance(input, nn.Module) else ()
        return Prepared(rate, (waves, self.slope, self.threshold, self.rest, *own))

    @torch.no_grad()
    def resting_state(self, start: "float | Sequence[float] | None" = None) -> Float[Tensor, "populations"]:
        """A homogeneous state that stays, u = rest + ŵ(0) S(u), without input: the one that Newton's method reaches from `start`."""
        total = self.lateral.kernel(self.lateral.state()).weight().sum(dim=(-2, -1)).double()
        slope, threshold, rest = self.slope.double(), self.threshold.double(), self.rest.double()
        u = rest.clone() if start is None else self._each(start).double().to(rest.device)
        identity = torch.eye(len(u), dtype=torch.float64, device=u.device)
        for _ in range(200):
            fired = torch.sigmoid(slope * (u - threshold))
            miss = u - rest - total @ fired
            if float(miss.abs().max()) < 1e-12:
                break
            change = torch.linalg.solve(identity - total * (slope * fired * (1 - fired)), miss)
            u = u - change.clamp(-1, 1)
        else:
            raise ConfigError(f"no resting state was reached from {start}; try another start")
        return u.to(self.rest.dtype)

    @torch.no_grad()
    def dispersion(self, height: int, width: int, state: Float[Tensor, "populations"] | None = None) -> "Dispersion":
        """How fast each wave on a torus of this size grows out of a homogeneous state (by default the resting state)."""
        u = (self.resting_state() if state is None else state).double()
        fired = torch.sigmoid(self.slope.double() * (u - self.threshold.double()))
        gain = self.slope.double() * fired * (1 - fired)
        waves = torch.fft.fft2(self._on_torus(height, width).double()).permute(2, 3, 0, 1)
        identity = torch.eye(self.populations, dtype=torch.float64, device=u.device)
        jacobian = (waves * gain - identity) / self.tau.double()[:, None]
        values = torch.linalg.eigvals(jacobian)
        first = values.real.argmax(-1, keepdim=True)
        fastest = values.gather(-1, first)[..., 0].cpu()
        down, along = torch.fft.fftfreq(height, dtype=torch.float64), torch.fft.fftfreq(width, dtype=torch.float64)
        return Dispersion(torch.hypot(down[:, None], along[None]), fastest.real, fastest.imag.abs() * 1000 / (2 * math.pi), jacobian.cpu())

    def _on_torus(self, height: int, width: int) -> Tensor:
        """The kernel as the response to a point at the origin; what is wider than the torus goes round it."""
        weight = self.lateral.kernel(self.lateral.state()).weight()
        rows, columns = (-(torch.arange(size, device=weight.device) - size // 2) for size in weight.shape[-2:])
        places = (rows % height)[:, None] * width + (columns % width)
        flat = weight.new_zeros(*weight.shape[:2], height * width).index_add(2, places.flatten(), weight.flatten(2))
        return flat.unflatten(2, (height, width))

    def _each(self, value: "float | Sequence[float]") -> Tensor:
        given = torch.as_tensor(value, dtype=torch.get_default_dtype())
        if given.ndim > 1 or (given.ndim == 1 and len(given) != self.populations):
            raise ConfigError(f"{value} for {self.populations} populations; expected one number, or one for each")
        return given.expand(self.populations).clone()


def _through(waves: Tensor, rates: Tensor) -> Tensor:
    """ŵ_pq Ŝ_q, wave by wave: (populations, populations, height, half width) and (batch, populations, …) to (batch, populations, …)."""
    if len(waves) == 1:
        return waves[0] * rates
    return torch.matmul(waves.permute(2, 3, 0, 1), rates.permute(2, 3, 1, 0)).permute(3, 2, 0, 1)


@dataclass(frozen=True, eq=False)
class Dispersion:
    """How waves grow out of a homogeneous state, each (height, width) in the order of `torch.fft.fft2`.

    Attributes:
        wave_number: cycles per pixel
        growth: rate of growth, 1/ms; negative: it dies out
        frequency: of its oscillation, cycles per second
        jacobian: (height, width, populations, populations): d/dt of each wave of small deviations, 1/ms
    """

    wave_number: Tensor
    growth: Tensor
    frequency: Tensor
    jacobian: Tensor

    @property
    def fastest(self) -> float:
        """The wave number that grows fastest, cycles per pixel: 1/fastest is the spacing of the pattern that appears."""
        return float(self.wave_number.flatten()[self.growth.flatten().argmax()])

    @property
    def unstable(self) -> bool:
        """Whether anything grows."""
        return bool((self.growth > 0).any())

    def figure(self) -> "Figure":
        """Growth against wave number, as a figure of `continua.report`."""
        from continua.report import Axis, Figure, Series

        order = self.wave_number.flatten().argsort()
        series = [Series("growth", self.wave_number.flatten()[order].numpy(), self.growth.flatten()[order].numpy(), style="points")]
        return Figure("dispersion", "Dispersion relation", Axis("wave number", "cycles/pixel"), Axis("growth", "1/ms"), series)


def dominant_wave(u: Float[Tensor, "height width"]) -> float:
    """The wave number, in cycles per pixel, that carries most of a map's power once its mean is taken away.

    Args:
        u: a map.

    Returns:
        Cycles per pixel.

    Raises:
        ConfigError: the map is not (height, width).

    Examples:
        >>> import torch
        >>> from continua.neuro import dominant_wave
        >>> wave = dominant_wave(torch.rand(32, 32))
    """
    if u.ndim != 2:
        raise ConfigError(f"the map has shape {tuple(u.shape)}; expected (height, width), such as u[0, 0] of a batch of channels")
    power = torch.fft.fft2(u.detach().cpu().double() - u.detach().cpu().double().mean()).abs().square()
    down, along = (torch.fft.fftfreq(size, dtype=torch.float64) for size in u.shape)
    return float(torch.hypot(down[:, None], along[None]).flatten()[power.flatten().argmax()])
