"""How weights change with depth: dw/dt = q(t, w; p), the "evolution ODE" (ANODEV2 eq. 5c), and the path θ(t) that comes of it.

Any `nn.Module` with `forward(t, w)` is an evolution. It is integrated on the weight grid; those with a closed form use it instead:

    Static()                         q = 0: the Neural ODE
    LinearEvolution(shape, axes)     q = A w over some axes: w(t) = e^(tA) w(0)
    ConvEvolution()                  q = a small convolution on the kernel
    HyperNetwork(shape)              one step, in which a network makes the weights from an embedding (Ha et al. 2016)
    ScaleDiffusion()                 of log2 σ: σ²(t) = σ0² + 2 τ t, what diffusion does to a Gaussian
    RDA(channels)                    reaction, diffusion, advection (rda.py)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.ode import SolverConfig, solve_with


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


def stack_along(path: Callable[[float], Tensor], grid: Grid) -> Tensor:
    """θ at every node of a grid."""
    return torch.stack([path(t) for t in grid.times])


RK4 = dict(method="rk4", gradient="direct")
"""How the weights' own equation is solved: one step of RK4 per step of the grid. The weights are few, so their graph is simply kept."""


class Evolution(nn.Module):
    """dw/dt = q(t, w). A subclass defines `forward(t, w)`; or, where it knows w(t) without integrating, `prepare` and `read`."""

    makes_start = False
    """True when w(0) is not trained: the evolution makes the weights from parameters of its own."""

    moves = True
    """False when θ(t) is the same at all t."""

    has_rate = True
    """False for a stepped scheme that is no differential equation."""

    def __init__(self, solver: "SolverConfig | Mapping[str, object] | None" = None) -> None:
        super().__init__()
        self.solver = SolverConfig.of({**RK4, "steps": 1} if solver is None else solver)
        self.one_step_per_node = solver is None

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """The rate of change q(t, w)."""
        raise TypeError(f"{type(self).__name__} must define forward(t, w).")

    def nodes(self, w: Tensor, grid: Grid) -> Tensor:
        """w at the times of the grid, (time, ...), integrated by the solver."""
        config = self.solver.replace(steps=grid.steps) if self.one_step_per_node else self.solver
        solution = solve_with(config, self, w, grid.start, grid.end, save_at=grid.times)
        return torch.as_tensor(solution.ys)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        """Everything `read` needs, once per forward pass: differentiable to w and the parameters, no tensor made from another."""
        nodes = self.nodes(w, grid)
        times = nodes.new_tensor(grid.times)
        return curve(nodes, torch.stack([self(t, node) for t, node in zip(times, nodes, strict=True)]))

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        """θ(t), one for each t where t is (batch,). A pure function of `tensors`."""
        nodes, slopes = tensors["curve"]
        return between_nodes(nodes, slopes, grid, t)

    def path(self, w: Tensor, grid: Grid) -> WeightPath:
        """θ(t) from w(0)."""
        return WeightPath(self.prepare(w, grid), partial(self.read, grid=grid))

    def watch(self, label: str, w: Tensor, grid: Grid) -> None:
        """Called once per forward pass: a place to warn, by the layer's name, of an evolution that will not end well."""


class Integrated(Evolution):
    """Any module with `forward(t, w)`, as an evolution."""

    def __init__(self, rate: nn.Module, solver: "SolverConfig | Mapping[str, object] | None" = None) -> None:
        super().__init__(solver)
        self.rate = rate

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return self.rate(t, w)


def as_evolution(module: nn.Module) -> Evolution:
    """An evolution as it is, any other module as the rate of change of one."""
    if isinstance(module, Evolution):
        return module
    if isinstance(module, nn.Module):
        return Integrated(module)
    raise ConfigError(f"an evolution is an nn.Module with forward(t, w); got {type(module).__name__}")


class Static(Evolution):
    """q = 0: weights that do not change."""

    moves = False

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return torch.zeros_like(w)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        return {"weight": w}

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        return held(tensors, t)


class LinearEvolution(Evolution):
    """q = A w with a matrix over some axes of w (the taps of a kernel, the basis of an N-jet); closed form w(t) = e^(tA) w(0).

    A starts at zero, or with entries of standard deviation `std`.
    """

    def __init__(self, shape: Sequence[int], axes: Sequence[int] = (-2, -1), std: float = 0.0) -> None:
        super().__init__()
        self.axes = tuple(axis % len(shape) for axis in axes)
        size = prod(shape[axis] for axis in self.axes)
        self.matrix = nn.Parameter(std * torch.randn(size, size))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return self._apply_matrix(self.matrix.to(w.dtype), w)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        return {"weight": w, "matrix": self.matrix.to(w.dtype)}

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        elapsed = (t - grid.start).to(tensors["matrix"].dtype)
        flow = torch.linalg.matrix_exp(elapsed[..., None, None] * tensors["matrix"])
        if not t.ndim:
            return self._apply_matrix(flow, tensors["weight"])
        return torch.stack([self._apply_matrix(matrix, tensors["weight"]) for matrix in flow])

    def _apply_matrix(self, matrix: Tensor, w: Tensor) -> Tensor:
        last = w.movedim(self.axes, tuple(range(-len(self.axes), 0)))
        turned = (last.flatten(-len(self.axes)) @ matrix.T).reshape(last.shape)
        return turned.movedim(tuple(range(-len(self.axes), 0)), self.axes)


class ConvEvolution(Evolution):
    """q = c2 * tanh(c1 * w): two small convolutions over the taps, the same for every pair of channels ("resembling a recurrent network").

    c2 starts at zero, so that training begins with weights that do not change.
    """

    def __init__(self, hidden: int = 4, size: int = 3, solver: "SolverConfig | Mapping[str, object] | None" = None) -> None:
        super().__init__(solver)
        self.first = nn.Conv2d(1, hidden, size, padding=size // 2)
        self.second = nn.Conv2d(hidden, 1, size, padding=size // 2, bias=False)
        nn.init.zeros_(self.second.weight)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        reach = self.first.weight.shape[-1] // 2
        images = w.reshape(-1, 1, *w.shape[-2:])
        bias = None if self.first.bias is None else self.first.bias.to(w.dtype)
        inside = torch.tanh(nn.functional.conv2d(images, self.first.weight.to(w.dtype), bias, padding=reach))
        return nn.functional.conv2d(inside, self.second.weight.to(w.dtype), padding=reach).reshape(w.shape)


class HyperNetwork(Evolution):
    """One Euler step of eq. 2 in which a network makes all weights: θ = w(0) + g(e), w(0) = 0, from a learned embedding e.

    g is the two-layer generator of Ha, Dai & Le (2016, eq. 2) for a weight of shape (first, second, ...): a_i = W_i e + b_i for each i of
    the second axis, then θ_i = W a_i + b. As many parameters as `embedding` and `hidden` ask for, not as the weight has elements.
    """

    makes_start = True
    moves = False
    has_rate = False

    def __init__(self, shape: Sequence[int], embedding: int = 8, hidden: int = 8) -> None:
        super().__init__()
        if len(shape) < 2:
            raise ConfigError(f"a hypernetwork makes weights with at least two axes; got a shape of {tuple(shape)}")
        self.shape = tuple(shape)
        rest = prod(shape) // shape[1]
        self.embedding = nn.Parameter(torch.randn(embedding))
        self.inputs = nn.Linear(embedding, shape[1] * hidden)
        self.output = nn.Linear(hidden, rest)
        nn.init.normal_(self.output.weight, std=prod(shape[1:]) ** -0.5)  # θ then has about the size a layer's weights start with

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        hidden = self.inputs(self.embedding).unflatten(0, (self.shape[1], -1))
        made = self.output(hidden).reshape(self.shape[1], self.shape[0], *self.shape[2:])
        return made.transpose(0, 1).to(w.dtype)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        return {"weight": w + self(w.new_zeros(()), w)}

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        return held(tensors, t)


class ScaleDiffusion(Evolution):
    """Of s = log2 σ: σ²(t) = σ0² + 2 τ t, the width of a Gaussian that diffuses; τ = 2^a > 0. One τ for all scales of the filter."""

    def __init__(self, log2_tau: float = -2.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([float(log2_tau)]))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return torch.exp2(self.a.to(w.dtype) - 2 * w) / log(2)

    def prepare(self, w: Tensor, grid: Grid) -> dict[str, Tensor]:
        return {"s": w, "a": self.a.to(w.dtype)}

    def read(self, tensors: Mapping[str, Tensor], t: Tensor, grid: Grid) -> Tensor:
        s, elapsed = tensors["s"], (t - grid.start).to(tensors["s"].dtype).clamp(min=0.0)
        elapsed = elapsed.reshape(-1, *(1,) * s.ndim) if t.ndim else elapsed
        return 0.5 * torch.log2(4**s + torch.exp2(tensors["a"] + 1) * elapsed)
