"""The way of a weight through time: θ(t), known on a grid or in closed form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError


@dataclass(frozen=True)
class Grid:
    """`steps` equal steps from `start` to `end`: the times at which an evolution is computed."""

    start: float = 0.0
    end: float = 1.0
    steps: int = 10

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.end > self.start:
            raise ConfigError(
                f"a weight grid has at least one step and ends after it starts; got {self.steps} on [{self.start}, {self.end}]"
            )

    @property
    def step(self) -> float:
        return (self.end - self.start) / self.steps

    @property
    def times(self) -> list[float]:
        return [self.start + self.step * n for n in range(self.steps)] + [self.end]


@dataclass(frozen=True)
class WeightPath:
    """θ(t): `at(t)` is a function of `tensors` only, each differentiable to w(0) and the evolution's parameters."""

    tensors: dict[str, Tensor]
    read: Callable[[Mapping[str, Tensor], Tensor], Tensor]

    def at(self, t: "Tensor | float") -> Tensor:
        """θ at one time, or (batch, ...) at one time per sample."""
        like = next(iter(self.tensors.values()))
        return self.read(self.tensors, torch.as_tensor(t, dtype=like.dtype, device=like.device))


def slopes_between(nodes: Float[Tensor, "time *shape"], step: float) -> Float[Tensor, "time *shape"]:
    """dθ/dt at the nodes from their neighbours, exact for parabolas: what a stepped scheme without a rate of change offers."""
    if len(nodes) == 2:
        return (nodes[1:] - nodes[:1]).expand_as(nodes) / step
    inside = (nodes[2:] - nodes[:-2]) / (2 * step)
    first = (-1.5 * nodes[0] + 2 * nodes[1] - 0.5 * nodes[2]) / step
    last = (1.5 * nodes[-1] - 2 * nodes[-2] + 0.5 * nodes[-3]) / step
    return torch.cat([first[None], inside, last[None]])


def curve(nodes: Tensor, slopes: Tensor) -> dict[str, Tensor]:
    """Nodes and slopes as one tensor: a solver sums gradients of what it is given, and must not find one part behind the other."""
    return {"curve": torch.stack([nodes, slopes])}


def between_nodes(nodes: Float[Tensor, "time *shape"], slopes: Float[Tensor, "time *shape"], grid: Grid, t: Tensor) -> Tensor:
    """The cubic through neighbouring nodes with their slopes (Hermite); outside the grid the nearest node.

    Of order 4 where slopes are exact, and once differentiable in t, which adaptive solvers thank with longer steps.
    """
    place = ((t.reshape(-1).to(nodes.dtype) - grid.start) / grid.step).clamp(0.0, grid.steps)
    index = place.detach().floor().clamp(max=grid.steps - 1)
    u, index = (place - index).reshape(-1, *(1,) * (nodes.ndim - 1)), index.long()
    (left, right), (rise, fall) = ((part.index_select(0, index), part.index_select(0, index + 1)) for part in (nodes, slopes))
    smooth = u * u * (3 - 2 * u)
    value = left + smooth * (right - left) + grid.step * u * (1 - u) * ((1 - u) * rise - u * fall)
    return value if t.ndim else value[0]


def held(tensors: Mapping[str, Tensor], t: Tensor, name: str = "weight") -> Tensor:
    """A weight that does not change, one copy for each of several times."""
    value = tensors[name]
    return value.expand(len(t), *value.shape) if t.ndim else value


def stack_along(path: Callable[[Any], Tensor], grid: Grid) -> Tensor:
    """θ at every node of a grid."""
    return torch.stack([path(t) for t in grid.times])
