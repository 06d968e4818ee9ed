"""Weights that remember: θ(t) = ∫ K(t − τ) w(τ) dτ over the way w has come (ANODEV2 eq. 5d).

With K a Dirac delta θ = w; that is an evolution without a memory. For any other K the equation as printed gives θ(0) = 0, kernels of
zeros at the first step. Ours is normalised on the history there is, θ(t) = ∫₀ᵗ K(t − τ) w(τ) dτ / ∫₀ᵗ K(s) ds with θ(0) = w(0);
`normalise=False` is eq. 5d as printed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.evolution import Evolution, Grid, as_evolution, curve, slopes_between
from continua.float64 import double, widest

Memory = Callable[[Tensor], Tensor]


def exponential(rate: float = 5.0) -> Memory:
    """K(s) = r e^(−rs): fades with time."""
    if not rate > 0:
        raise ConfigError(f"an exponential memory fades at a rate above 0; got {rate}")
    return lambda s: rate * torch.exp(-rate * s)


def box(width: float = 0.2) -> Memory:
    """K(s) = 1/width for s ≤ width: the last stretch of time, all of it alike. A grid much finer than `width` is wanted."""
    if not width > 0:
        raise ConfigError(f"a box memory has a width above 0; got {width}")
    return lambda s: (s <= width * (1 + 1e-9)) / width


KERNELS: dict[str, Callable[..., Memory]] = {"exponential": exponential, "box": box}


class Remembering(Evolution):
    """An evolution, or any module with `forward(t, w)`, seen through a memory: K as a callable of elapsed times, or one of `KERNELS`."""

    def __init__(self, evolution: nn.Module, kernel: "str | Memory" = "exponential", *, normalise: bool = True, **options: float) -> None:
        super().__init__()
        evolution = as_evolution(evolution)
        if isinstance(kernel, str) and kernel not in KERNELS:
            raise ConfigError(f"a memory is one of {', '.join(KERNELS)} (dirac: none), or a callable; got {kernel!r}")
        try:
            self.kernel = KERNELS[kernel](**options) if isinstance(kernel, str) else kernel
        except TypeError as error:
            raise ConfigError(f"memory {kernel!r}: {error}") from None
        self.evolution, self.normalise = evolution, normalise
        self.makes_start, self.has_rate = evolution.makes_start, evolution.has_rate
        self.moves = evolution.moves or not normalise  # a normalised average of what never changes is that

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return self.evolution(t, w)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        inner = self.evolution.path(w, grid)
        nodes = torch.stack([inner.at(t) for t in grid.times])
        quadrature = self.quadrature(grid, nodes)
        remembered = (quadrature @ nodes.flatten(1)).reshape(nodes.shape)
        return curve(remembered, slopes_between(remembered, grid.step))

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        return Evolution.read(self, tensors, t, grid)

    def watch(self, label: str, w: Tensor, grid: Grid) -> None:
        self.evolution.watch(label, w, grid)

    def quadrature(self, grid: Grid, like: Tensor) -> Float[Tensor, "time time"]:
        """Row i: the trapezoidal weights with which the nodes of w up to t_i make θ(t_i)."""
        times = torch.tensor(grid.times, dtype=widest(like.device), device=like.device)
        elapsed = times[:, None] - times
        table = double(self.kernel(elapsed.clamp(min=0.0))) * torch.where(elapsed >= 0, grid.step, 0.0)
        half = torch.ones_like(table)
        half[:, 0] = 0.5
        half.fill_diagonal_(0.5)
        half[0, 0] = 0.0  # no history yet
        table = table * half
        if self.normalise:
            start = torch.zeros_like(table)
            start[0, 0] = 1.0
            table = table / (table.sum(1, keepdim=True) + start.sum(1, keepdim=True)) + start
        return table.to(like.dtype)

    def extra_repr(self) -> str:
        return f"normalise={self.normalise}"


def remembering(evolution: Evolution, memory: "str | Memory | Mapping[str, Any] | None") -> Evolution:
    """`evolution` with a memory: None or "dirac" for none, a name, a callable, or dict(kind="exponential", rate=5.0, normalise=True)."""
    if memory is None or memory == "dirac":
        return evolution
    if isinstance(memory, Mapping):
        options = dict(memory)
        kind = options.pop("kind", "exponential")
        return evolution if kind == "dirac" and not options else Remembering(evolution, kind, **options)
    return Remembering(evolution, memory)
