"""Kernels that react, diffuse and drift: dw/dt = σ(τ Δw + v·∇w + ρ w) (ANODEV2 eq. 8), the paper's example of an evolution.

A kernel is a small periodic image, and is treated mode by mode (ANODEV2 eq. 11 and 12). In Fourier space the operator τ Δ + v·∇ + ρ is
diagonal: mode k grows by λ(k) = −(τ_y k_y² + τ_x k_x²) + i (v_y k_y + v_x k_x) + ρ, so w(t) = F⁻¹(e^(tλ) F(w(0))) at any t. The border is
periodic. e^(+ikv) gives w(x + vt): positive v moves a pattern to lower indices.

An image of even size has a Nyquist mode, its own mirror image: a shift by part of a pixel would make it complex. Advection leaves it
alone, so that results are real and steps compose for every size; a shift by one whole pixel is an exact roll for odd sizes only.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.errors import ConfigError, ContinuaError, ContinuaWarning
from continua.filters.evolution import Evolution, Grid, curve, slopes_between, stack_along
from continua.ode import SolverConfig

WAVE_NUMBERS = ("integer", "radian")

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "softsign": nn.functional.softsign,
    "sin": torch.sin,
}
AMPLIFICATION = 10.0
"""Warn when negative diffusion makes the finest mode of a kernel this much stronger by the end of the block."""


class RDA(Evolution):
    """Reaction ρ, diffusion τ = (τ_y, τ_x) and advection v = (v_y, v_x) for every output channel: five numbers each, starting at zero.

    Args:
        nonlinearity: σ by name, or any callable; "identity": linear, in closed form at any t (eq. 12)
        around: "weights": σ of the weights after each step of the grid (eq. 13, what the paper runs; no differential equation: its result
            depends on the number of steps, and between them it is interpolated); "rate": σ of the rate (eq. 8), integrated
        wave_numbers: "integer" or "radian" (per pixel: v = 1 moves one pixel in unit time)
        antidiffusion: None, or how far below zero τ may go: τ < 0 sharpens, and amplifies the finest modes exponentially. A negative τ is
            then replaced by b tanh(τ/b), b = antidiffusion: of slope 1 at zero, never below −b
        isotropic: one τ for both directions, as eq. 8 is written: four numbers for every output channel, and diffusion τ k²
        start: spread of τ, v, ρ at the start, drawn from a normal distribution; 0: all zero
    """

    def __init__(
        self,
        channels: int,
        *,
        nonlinearity: "str | Callable[[Tensor], Tensor]" = "tanh",
        around: str = "weights",
        wave_numbers: str = "integer",
        antidiffusion: float | None = None,
        isotropic: bool = False,
        start: float = 0.0,
        solver: "SolverConfig | Mapping[str, object] | None" = None,
    ) -> None:
        super().__init__(solver)
        if isinstance(nonlinearity, str) and nonlinearity not in NONLINEARITIES:
            raise ConfigError(f"nonlinearity is one of {', '.join(NONLINEARITIES)} or a callable; got {nonlinearity!r}")
        if around not in ("weights", "rate"):
            raise ConfigError(f"the nonlinearity is around the 'weights' (eq. 13) or the 'rate' (eq. 8); got around={around!r}")
        if wave_numbers not in WAVE_NUMBERS:
            raise ConfigError(f"wave_numbers is {' or '.join(map(repr, WAVE_NUMBERS))}; got {wave_numbers!r}")
        if antidiffusion is not None and not antidiffusion > 0:
            raise ConfigError(f"antidiffusion is None (τ is free) or a bound above 0 on −τ; got {antidiffusion}")
        if not 0 <= start < math.inf:
            raise ConfigError(f"start is the spread of τ, v, ρ before training, 0 or more; got {start}")
        self.sigma_name = nonlinearity if isinstance(nonlinearity, str) else getattr(nonlinearity, "__name__", "custom")
        self.nonlinear = NONLINEARITIES[nonlinearity] if isinstance(nonlinearity, str) else nonlinearity
        self.linear = nonlinearity == "identity"
        self.around, self.wave_numbers, self.antidiffusion = around, wave_numbers, antidiffusion
        self.has_rate = self.linear or around == "rate"
        self.tau = nn.Parameter(_started(start, channels, 1 if isotropic else 2))
        self.v = nn.Parameter(_started(start, channels, 2))
        self.rho = nn.Parameter(_started(start, channels))
        self._warned = False

    @property
    def diffusivity(self) -> Tensor:
        """(τ_y, τ_x) as they act, after the bound."""
        tau = self.tau.expand(-1, 2)
        if self.antidiffusion is None:
            return tau
        bound = self.antidiffusion
        return torch.where(tau < 0, bound * torch.tanh(tau / bound), tau)

    def rates(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """λ of every mode of kernels like w: growth and turn."""
        if w.ndim < 4 or w.shape[-4] != len(self.rho):
            shape = f"({len(self.rho)}, in, rows, cols)"
            raise ConfigError(f"this reaction–diffusion–advection is for kernels of shape {shape}; got {tuple(w.shape)}")
        k = wave_numbers(w.shape[-2], w.shape[-1], self.wave_numbers, w)
        return mode_rates(k, self.diffusivity.to(w), self.v.to(w), self.rho.to(w))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        if not self.has_rate:
            raise ConfigError(
                "eq. 13 applies its nonlinearity to the weights after each step and has no rate of change: the more steps, the smaller the "
                "weights. Use nonlinearity='identity' (eq. 12) or around='rate' (eq. 8)"
            )
        return self.nonlinear(operate(w, *self.rates(w)))

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        if self.linear:
            growth, turn = self.rates(w)
            return {"weight": w, "growth": growth, "turn": turn}
        if self.around == "rate":
            return super().prepare(w, grid)
        nodes = self.nodes(w, grid)
        return curve(nodes, slopes_between(nodes, grid.step))

    def nodes(self, w: Tensor, grid: Grid) -> Tensor:
        growth, turn = self.rates(w)
        if self.linear:
            return stack_along(lambda t: propagate(w, growth, turn, t - grid.start), grid)
        if self.around == "rate":
            return super().nodes(w, grid)
        nodes = [w]
        for _ in range(grid.steps):  # eq. 13: the linear step, exactly, then σ
            nodes.append(self.nonlinear(propagate(nodes[-1], growth, turn, grid.step)))
        return torch.stack(nodes)

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        if self.linear:
            return propagate(tensors["weight"], tensors["growth"], tensors["turn"], t - grid.start)
        return super().read(tensors, t, grid)

    @torch.no_grad()
    def watch(self, label: str, w: Tensor, grid: Grid) -> None:
        """Refuse numbers that are not finite; warn once of a τ that amplifies fine modes."""
        finest = [float(abs(k).max()) ** 2 for k in self._modes(w)]
        strength = (-self.diffusivity).clamp(min=0) @ self.tau.new_tensor(finest) * (grid.end - grid.start)
        strongest, lowest, *others = torch.stack(
            [strength.max(), self.diffusivity.min(), self.tau.sum(), self.v.sum(), self.rho.sum()]
        ).tolist()
        if not all(math.isfinite(value) for value in (lowest, *others)):
            raise ContinuaError(
                f"τ, v or ρ of {label} is no longer a finite number: the training has diverged. Lower the learning rate, give the "
                "evolution its own (optimiser.evolution_lr_factor), or bound τ with antidiffusion=0.1."
            )
        if strongest > math.log(AMPLIFICATION) and not self._warned:
            self._warned = True
            warnings.warn(
                f"τ of {label} is {lowest:.3g}: negative diffusion amplifies the finest modes of its kernels up to "
                f"{math.exp(min(strongest, 700.0)):.3g} times. Bound it with antidiffusion=0.1, or give the evolution weight decay or a "
                "lower learning rate.",
                ContinuaWarning,
                stacklevel=4,
            )

    def _modes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        k = wave_numbers(w.shape[-2], w.shape[-1], self.wave_numbers, torch.zeros((), dtype=torch.float64))
        return k.y, k.x

    def extra_repr(self) -> str:
        how = "linear" if self.linear else f"{self.sigma_name} around the {self.around}"
        return f"{len(self.rho)}, {how}, {self.wave_numbers} wave numbers" + ", isotropic" * (self.tau.shape[1] == 1)


def _started(spread: float, *shape: int) -> Tensor:
    """Zeros, for which no random number is drawn, or normal numbers of this spread."""
    return spread * torch.randn(*shape) if spread else torch.zeros(*shape)


@dataclass(frozen=True)
class WaveNumbers:
    """k of the modes of a real image: (rows, 1) and (1, cols // 2 + 1). `*_shift` are those that advection sees, 0 at Nyquist."""

    y: Tensor
    x: Tensor
    y_shift: Tensor
    x_shift: Tensor


def wave_numbers(rows: int, cols: int, convention: str, like: Tensor) -> WaveNumbers:
    """ "integer": 0, 1, −1, … (the image has period 2π); "radian": times 2π / size, radians per pixel, so that v = 1 is one pixel."""
    if convention not in WAVE_NUMBERS:
        raise ConfigError(f"wave numbers are {' or '.join(map(repr, WAVE_NUMBERS))}; got {convention!r}")
    per_axis: list[Tensor] = []
    for size, modes in ((rows, torch.fft.fftfreq), (cols, torch.fft.rfftfreq)):
        k = (modes(size, dtype=torch.float64) * size).round()
        shift = torch.where(2 * k.abs() == size, 0.0, k)
        unit = 2 * math.pi / size if convention == "radian" else 1.0
        per_axis += [(unit * k).to(like), (unit * shift).to(like)]
    y, y_shift, x, x_shift = per_axis
    return WaveNumbers(y[:, None], x[None], y_shift[:, None], x_shift[None])


def mode_rates(
    k: WaveNumbers, tau: Float[Tensor, "channels 2"], v: Float[Tensor, "channels 2"], rho: Float[Tensor, " channels"]
) -> tuple[Float[Tensor, "channels 1 rows modes"], Float[Tensor, "channels 1 rows modes"]]:
    """Real and imaginary part of λ for every mode of every output channel; τ and v are (y, x)."""
    wide = (slice(None), None, None, None)
    growth = rho[wide] - tau[:, 0][wide] * k.y**2 - tau[:, 1][wide] * k.x**2
    turn = v[:, 0][wide] * k.y_shift + v[:, 1][wide] * k.x_shift
    return growth, turn


def operate(w: Float[Tensor, "*batch out in rows cols"], growth: Tensor, turn: Tensor) -> Tensor:
    """(τ Δ + v·∇ + ρ) w."""
    return torch.fft.irfft2(torch.fft.rfft2(w) * torch.complex(growth, turn), s=w.shape[-2:])


def propagate(w: Float[Tensor, "out in rows cols"], growth: Tensor, turn: Tensor, t: Tensor | float) -> Tensor:
    """w after a time t, exactly (eq. 12); one w for each t where t is (batch,)."""
    t = torch.as_tensor(t, dtype=w.dtype, device=w.device)
    t = t.reshape(-1, 1, 1, 1, 1) if t.ndim else t
    factor = torch.polar(torch.exp(t * growth), t * turn)
    return torch.fft.irfft2(torch.fft.rfft2(w) * factor, s=w.shape[-2:])
