"""N-jets that change with depth: σ(t) and α(t) (DCN table 3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.basis import Reach, ScaleWatch, SigmaBounds, TensorOrNumber, gaussian_derivatives, jet_orders
from continua.filters.filter import Filter
from continua.filters.host import host_numbers
from continua.filters.kernel import JetKernel, Kernel

SCALES = {"linear": (2 / 3, 0.1), "quadratic": (2 / 3, 2 / 3, 0.1), "diffusion": (2 / 3, 0.1)}
"""Schedules of σ, each with the standard deviations its parameters a, b, … are drawn with."""


def log2_sigma(scale: str, p: Sequence[TensorOrNumber], t: TensorOrNumber) -> TensorOrNumber:
    """s(t) = log2 σ(t), for tensors and, to know the kernel's size on the host, for plain numbers.

    linear      a t' + b                with t' = ½ clip(t, −½, 2½), as the DCN authors have it
    quadratic   a t'² + b t' + c
    diffusion   ½ log2(4^b + 2^(a+1) max(t, 0)): σ² = σ0² + 2 τ t with σ0 = 2^b, diffusivity τ = 2^a
    """
    if scale == "diffusion":
        variance = 4 ** p[1] + 2 ** (p[0] + 1) * _clip(t, 0.0, math.inf)
        return 0.5 * _log2(variance)
    u = 0.5 * _clip(t, -0.5, 2.5)
    return p[0] * u + p[1] if scale == "linear" else p[0] * u * u + p[1] * u + p[2]


@dataclass(frozen=True)
class HostSchedule:
    """What the host knows of a schedule during one solve: its numbers a, b, … and, with radius="max", the reach at its largest σ."""

    numbers: list[float]
    longest: Reach | None = None


class ScheduledNJet(Filter):
    """An N-jet with σ(t) by one of `SCALES` and α constant or α(t) = a_α t' + b_α.

    Args:
        radius: None: ceil(radius_factor · σ(t) + 0.5) at each evaluation, as the authors do; under per-sample time each sample has the
            radius of its own σ. "max": that of the largest σ within `interval`, for export and compilation
    """

    time_dependent = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        scale: str = "linear",
        alpha: str = "constant",
        order: int = 2,
        radius_factor: float = 2.0,
        radius: str | None = None,
        interval: tuple[float, float] = (0.0, 2.0),
        sigma_bounds: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels)
        if scale not in SCALES or alpha not in ("constant", "linear"):
            raise ConfigError(f"scale is one of {', '.join(SCALES)} and alpha is constant or linear; got {scale!r} and {alpha!r}.")
        if radius not in (None, "max") or radius_factor <= 0:
            raise ConfigError(f'radius is None or "max" and radius_factor positive; got {radius!r} and {radius_factor}.')
        self.scale, self.order, self.jet_order = scale, order, order
        self.radius, self.radius_factor, self.interval = radius, radius_factor, interval
        self.limit = SigmaBounds(sigma_bounds) if sigma_bounds is not None else None
        self.watch = ScaleWatch()
        self.frozen_host: HostSchedule | None = None
        shape = (len(jet_orders(order)), in_channels, out_channels)
        if alpha == "linear":
            self.alpha_slope = nn.Parameter(0.1 * torch.randn(shape))
            self.alpha_offset = nn.Parameter(0.05 * torch.randn(shape))
        else:
            self.alpha = nn.Parameter(0.1 * torch.randn(shape))
        self.scale_names = "abc"[: len(SCALES[scale])]
        for name, std in zip(self.scale_names, SCALES[scale], strict=True):
            setattr(self, name, nn.Parameter(std * torch.randn(1)))

    def state(self) -> dict[str, Tensor]:
        return dict(self.named_parameters(recurse=False)) | dict(self.named_buffers(recurse=False))

    def sigma_at(self, t: Tensor | float) -> Tensor:
        """σ(t) in pixels; one value for each t."""
        state = self.state()
        return self._sigma(state, torch.as_tensor(t, dtype=state["a"].dtype, device=state["a"].device))

    def scale_parameters(self) -> tuple[nn.Parameter, ...]:
        own = dict(self.named_parameters(recurse=False))
        return tuple(own[name] for name in self.scale_names if name in own)  # a frozen filter has none

    def scale_at(self, t: Tensor | float) -> Tensor:
        return self.sigma_at(t)

    def read_host(self, state: dict[str, Tensor]) -> HostSchedule:
        if self.frozen_host is not None:
            return self.frozen_host
        numbers = host_numbers(torch.cat([state[name].detach() for name in self.scale_names]))
        if self.radius is None:
            return HostSchedule(numbers)
        start, end = self.interval
        largest = max(self._sigmas_on_host(numbers, [start + (end - start) * k / 256 for k in range(257)]))
        return HostSchedule(numbers, Reach.of([largest], self.radius_factor))

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> JetKernel:
        if t is None:
            raise ConfigError(f"{self.label} depends on t: call it with the time.")
        schedule = host if isinstance(host, HostSchedule) else self.read_host(state)
        first = state["a"]
        t = t.to(first) if isinstance(t, Tensor) else torch.tensor(t, dtype=first.dtype, device=first.device)
        sigma = self._sigma(state, t)
        radii = self._radii(schedule, t)
        taps = gaussian_derivatives(sigma, self.order, radii if t.ndim else radii[0])
        return JetKernel(self._alpha(state, t), taps, taps, sigma, self.order, "sample" if t.ndim else "layer", gaussian=True)

    def watch_map(self, kernel: Kernel, map_size: tuple[int, int]) -> None:
        self.watch.check_size(self.label, kernel.size, map_size)

    def _sigma(self, state: dict[str, Tensor], t: Tensor) -> Tensor:
        s = log2_sigma(self.scale, [state[name][0] for name in self.scale_names], t)
        return torch.exp2(s if self.limit is None else self.limit(s))

    def _alpha(self, state: dict[str, Tensor], t: Tensor) -> Tensor:
        if "alpha" in state:
            return state["alpha"]
        u = 0.5 * _clip(t, -0.5, 2.5)
        return (u[:, None, None, None] if t.ndim else u) * state["alpha_slope"] + state["alpha_offset"]

    def _radii(self, host: HostSchedule, t: Tensor) -> tuple[int, ...]:
        if host.longest is not None:
            return host.longest.radii * t.numel()
        return Reach.of(self._sigmas_on_host(host.numbers, host_numbers(t.detach().reshape(-1))), self.radius_factor).radii

    def _sigmas_on_host(self, numbers: list[float], times: list[float]) -> list[float]:
        """σ at each time, without asking the device."""
        scales = [log2_sigma(self.scale, numbers, time) for time in times]
        # An exploded s would overflow here; as a finite number it reaches the error that says what to do.
        sigmas = [2 ** min(s if self.limit is None else self.limit(s), 1000.0) for s in scales]
        self.watch.check_sigma(self.label, sigmas)
        return sigmas

    def freeze(self) -> Self:
        if self.radius != "max":
            raise ConfigError(f'{self.label} changes its size with t and cannot be frozen for export; build it with radius="max".')
        frozen = super().freeze()
        frozen.frozen_host = self.read_host(self.state())
        return frozen

    def extra_repr(self) -> str:
        alpha = "constant" if "alpha" in self._parameters else "linear"
        return f"{super().extra_repr()}, order={self.order}, scale={self.scale}, alpha={alpha}"


def _log2(value: TensorOrNumber) -> TensorOrNumber:
    if isinstance(value, Tensor):
        return torch.log2(value)
    return math.log2(value)


def _clip(t: TensorOrNumber, low: float, high: float) -> TensorOrNumber:
    return t.clamp(low, high) if isinstance(t, Tensor) else min(max(t, low), high)
