"""A filter whose state evolves: dF/dt = q(F). Works over any filter, for any part of its `state()`.

    evolve(Pixel(16, 16), "rda")                                 by name, for configurations
    Evolved(Pixel(16, 16), RDA(16))                              pixels by a PDE
    Evolved(NJet(16, 16), {"alpha": LinearEvolution((6, 16, 16), axes=(0,)), "s": ScaleDiffusion()})

The way of the weights is computed once per forward pass, when a convolution is realised, and shared by the batch: `state()` holds it (its
nodes on the weight grid, or the few tensors of its closed form), `kernel(state, t)` reads it at t.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from continua.errors import ConfigError, ContinuaError, unknown_name
from continua.filters.basis import Reach, gaussian_derivatives
from continua.filters.evolution import (
    ConvEvolution,
    Evolution,
    Grid,
    HyperNetwork,
    LinearEvolution,
    ScaleDiffusion,
    Static,
    WeightPath,
    as_evolution,
)
from continua.filters.filter import Filter, Pixel
from continua.filters.history import Memory, remembering
from continua.filters.kernel import JetKernel, Kernel, PixelKernel
from continua.filters.njet import NJet
from continua.filters.rda import RDA
from continua.filters.routes import without_autocast


@dataclass(frozen=True)
class _FrozenPath:
    """What is left of a path that is constant: the names of its tensors, and what the host knows of its size."""

    names: list[str]
    host: object


class Evolved(Filter):
    """`inner` with some parts of its state evolving; the others stay as they are.

    Args:
        evolutions: one evolution for the only or main part of the state, or a mapping from its names ("weight"; "alpha", "s")
        grid: the times at which weights are computed
        clock: the weights' time is clock · t, at most the end of the grid: above 1 they arrive before the state does
    """

    def __init__(self, inner: Filter, evolutions: "nn.Module | Mapping[str, nn.Module]", *, grid: Grid | None = None, clock: float = 1.0):
        super().__init__(inner.in_channels, inner.out_channels)
        named = evolutions if isinstance(evolutions, Mapping) else {next(iter(inner.state())): evolutions}
        unknown = sorted(set(named) - set(inner.state()))
        if unknown:
            raise ConfigError(f"{type(inner).__name__} has no {unknown[0]!r} to evolve; its state is {', '.join(inner.state())}")
        if inner.time_dependent:
            raise ConfigError(f"{type(inner).__name__} depends on t by a schedule of its own; let a filter without one evolve")
        if not clock > 0:
            raise ConfigError(f"the weights' clock runs forward; got clock={clock}")
        self.inner, self.grid, self.clock = inner, grid or Grid(), clock
        self.evolutions = nn.ModuleDict({name: as_evolution(module) for name, module in named.items()})
        self.time_dependent = any(evolution.moves for _, evolution in self.evolving())
        self.size, self.jet_order, self.interval = inner.size, inner.jet_order, (self.grid.start, self.grid.end)
        self._frozen: _FrozenPath | None = None
        for name, evolution in self.evolving():
            if evolution.makes_start:
                value = inner.state()[name]
                delattr(inner, name)
                inner.register_buffer(name, torch.zeros_like(value.detach()), persistent=False)

    def paths(self) -> dict[str, WeightPath]:
        """θ(t) of every evolving part, for whoever wants to look at it. Times are the weights' own."""
        state = self.inner.state()
        return {name: evolution.path(_wide(state[name]), self.grid) for name, evolution in self.evolving()}

    def state(self) -> dict[str, Tensor]:
        if self._frozen is not None:
            buffers = dict(self.named_buffers(recurse=False))
            return {name: buffers[name] for name in self._frozen.names}
        prepared: dict[str, Tensor] = {}
        device = next(iter(self.inner.state().values())).device
        with without_autocast(device):
            for name, value in self.inner.state().items():
                if name in self.evolutions:
                    parts = self._evolution(name).prepare(_wide(value), self.grid)
                    prepared |= {f"{name}_{part}": tensor for part, tensor in parts.items()}
                else:
                    prepared[name] = value
        return prepared

    def state_at(self, state: Mapping[str, Tensor], t: "Tensor | float | None") -> dict[str, Tensor]:
        """The inner filter's state at time t, from what `state()` holds; evolving parts get a sample axis where t is (batch,)."""
        time = torch.as_tensor(0.0 if t is None else t)
        time = (time * self.clock).clamp(max=self.grid.end) if self.clock != 1.0 else time
        now: dict[str, Tensor] = {}
        for name in self.inner.state():
            if name in self.evolutions:
                prefix = f"{name}_"
                parts = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
                like = next(iter(parts.values()))
                now[name] = self._evolution(name).read(parts, time.to(like.device), self.grid)
            else:
                now[name] = state[name]
        return now

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> Kernel:
        if t is None and self.time_dependent:
            raise ConfigError(f"{self.label} evolves with t: call it with the time.")
        now = self.state_at(state, t if self.time_dependent else None)
        if not (self.time_dependent and isinstance(t, Tensor) and t.ndim):
            return self.inner.kernel(now, None, host)
        return self._kernel_of_each(now, len(t), host)

    def scale_at(self, t: Tensor | float) -> Tensor | None:
        """σ of an N-jet on its path; its parameters are the inner filter's."""
        if not isinstance(self.inner, NJet):
            return self.inner.scale_at(t)
        return self.inner.sigma_of(self.state_at(self.state(), t)["s"])

    def read_host(self, state: dict[str, Tensor]) -> object:
        """How far the kernel reaches, the farthest of the whole path: its size then does not jump while a solver steps."""
        if self._frozen is not None:
            return self._frozen.host
        self.watch_path(state)
        if self.inner.size is not None and not isinstance(self.inner, NJet):
            return None
        hosts = [self.inner.read_host(self.state_at(state, t / self.clock)) for t in self.grid.times]
        reaches = [host for host in hosts if isinstance(host, Reach)]
        if len(reaches) == len(hosts):
            return Reach.farthest(reaches)
        return hosts[0] if all(host == hosts[0] for host in hosts) else None

    def watch_path(self, state: dict[str, Tensor]) -> None:
        """Warn by name of an evolution that will not end well; refuse one that already has."""
        start = self.inner.state()
        for name, evolution in self.evolving():
            evolution.watch(self.label, start[name], self.grid)
        with torch.no_grad():
            ends = self.state_at(state, self.grid.end / self.clock)
            finite = torch.stack([value.isfinite().all() for name, value in ends.items() if name in self.evolutions])
        if not bool(finite.all()):
            raise ContinuaError(
                f"the weights of {self.label} are infinite or undefined by t = {self.grid.end:g}: their evolution has blown up. Lower the "
                "learning rate, give the evolution weight decay (optimiser.evolution_weight_decay), or bound τ with antidiffusion=0.1."
            )

    def watch_map(self, kernel: Kernel, map_size: tuple[int, int]) -> None:
        self.inner.watch_map(kernel, map_size)

    def bias_bound(self) -> float:
        return self.inner.bias_bound()

    def freeze(self) -> Self:
        """A copy whose path is constant, for export: nothing of the evolution is left to compute."""
        state = self.state()
        host = self.read_host(state)
        frozen = copy.deepcopy(self).requires_grad_(False)
        for name, tensor in state.items():
            frozen.register_buffer(name, tensor.detach().clone(), persistent=False)
        frozen._frozen = _FrozenPath(list(state), host)
        return frozen

    def _kernel_of_each(self, now: dict[str, Tensor], count: int, host: object) -> Kernel:
        """One kernel per sample: directly where the kernel knows samples, else realised one by one and stacked."""
        if isinstance(self.inner, Pixel):
            return PixelKernel(now["weight"])
        if isinstance(self.inner, NJet) and self.inner.sharing == "layer" and isinstance(host, Reach):
            sigma = self.inner.sigma_of(now["s"]).expand(count, 1)[:, 0]
            radius = self.inner.radius if self.inner.radius is not None else host.radii[0]
            taps = gaussian_derivatives(sigma, self.inner.order, radius)
            return JetKernel(now["alpha"], taps, taps, sigma, self.inner.order, "sample", gaussian=True)
        kernels = [
            self.inner.kernel({name: value[k] if name in self.evolutions else value for name, value in now.items()}, None, host)
            for k in range(count)
        ]
        return PixelKernel(torch.stack([kernel.weight() for kernel in kernels]))

    def evolving(self) -> list[tuple[str, Evolution]]:
        """The parts of the state that evolve, each with its evolution."""
        return [(name, self._evolution(name)) for name in self.evolutions]

    def _evolution(self, name: str) -> Evolution:
        return cast("Evolution", self.evolutions[name])

    def extra_repr(self) -> str:
        clock = f", clock={self.clock:g}" if self.clock != 1.0 else ""
        return f"{super().extra_repr()}, {self.grid.steps} steps on [{self.grid.start:g}, {self.grid.end:g}]{clock}"


def _wide(value: Tensor) -> Tensor:
    """Evolutions are computed in float32 or better, whatever the model's dtype."""
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


EVOLUTIONS = ("static", "rda", "linear", "conv", "hyper", "diffusion")
"""Evolutions by name, for configurations."""


def make_evolution(name: str, shape: Sequence[int], **options: Any) -> Evolution:
    """An evolution for a weight of this shape: kernels (out, in, rows, cols), or coefficients (basis, in, out), or scales.

    Args:
        name: of the evolution.
        shape: of the weight that evolves.
        options: of the evolution.

    Returns:
        The evolution, with its parameters.

    Raises:
        ConfigError: there is none of this name, or it does not suit the shape.

    Examples:
        >>> from continua.filters import make_evolution
        >>> evolution = make_evolution("rda", (8, 3, 3, 3))
    """
    is_kernel = len(shape) == 4
    if name not in EVOLUTIONS:
        raise unknown_name("evolution", name, EVOLUTIONS)
    if name in ("rda", "conv") and not is_kernel:
        raise ConfigError(
            f"evolution {name!r} acts on the pixels of kernels (out, in, rows, cols); this weight has the shape {tuple(shape)}"
        )
    if name == "diffusion" and len(shape) == 4:
        raise ConfigError("evolution 'diffusion' widens the σ of N-jets; for pixels use 'rda', which contains diffusion")
    try:
        if name == "rda":
            return RDA(shape[0], **options)
        if name == "linear":
            return LinearEvolution(shape, **{"axes": (-2, -1) if is_kernel else (0,), **options})
        if name == "hyper":
            return HyperNetwork(shape, **options)
        return {"static": Static, "conv": ConvEvolution, "diffusion": ScaleDiffusion}[name](**options)
    except TypeError as error:
        raise ConfigError(f"evolution {name!r}: {error}") from None


def evolve(
    inner: Filter,
    evolution: "str | Mapping[str, str]",
    *,
    options: Mapping[str, Any] | None = None,
    memory: "str | Memory | Mapping[str, Any] | None" = None,
    grid: Grid | None = None,
    clock: float = 1.0,
) -> Filter:
    """`inner` evolving by name: evolution="rda", or for several parts {"alpha": "linear", "s": "diffusion"}. "static" is `inner` itself.

    One name alone means the part it is made for: "diffusion" the scale s of an N-jet, any other the kernel's pixels or the N-jet's α.
    `options` go to the evolution; with several, by part: {"alpha": {...}}.

    Args:
        inner: the filter that evolves.
        evolution: name of the evolution, or names by part.
        options: options of the evolution; with several, by part.
        memory: how the field sees the evolving weights: at t itself, or averaged over the past.
        grid: times at which the evolution is computed.
        clock: how fast its time runs against that of the block.

    Returns:
        A filter that depends on t.

    Raises:
        ConfigError: the filter has no such part, or there is no such evolution.

    Examples:
        >>> from continua.filters import Pixel, evolve
        >>> moving = evolve(Pixel(3, 8), "rda")
    """
    state = inner.state()
    alone = isinstance(evolution, str)
    named = {"s" if evolution == "diffusion" and "s" in state else next(iter(state)): evolution} if alone else dict(evolution)
    if set(named.values()) == {"static"} and memory is None:
        return inner
    given = {next(iter(named)): dict(options or {})} if alone else {name: dict((options or {}).get(name, {})) for name in named}
    evolutions: dict[str, Evolution] = {}
    for name, kind in named.items():
        if name not in state:
            raise ConfigError(f"{type(inner).__name__} has no {name!r} to evolve; its state is {', '.join(state)}")
        evolutions[name] = remembering(make_evolution(kind, tuple(state[name].shape), **given[name]), memory)
    return Evolved(inner, evolutions, grid=grid, clock=clock)
