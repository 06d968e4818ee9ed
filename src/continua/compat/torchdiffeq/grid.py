"""Steps on a given grid t_0, t_1, …: where it comes from, what happens between its points, and how a solve follows it.

Where the grid is not equally spaced, its ends are perturbed or its points need gradients, the solve runs on a clock s that counts steps,

    dy/ds = (t_{j+1} − t_j) f(t_j + (s − j)(t_{j+1} − t_j), y)    for j ≤ s ≤ j + 1,

by equal steps of length 1. These are the same Runge–Kutta steps, and the grid enters as a tensor like any other: it gets exact gradients.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.inputs import BadInput, Problem
from continua.compat.torchdiffeq.state import Parts
from continua.errors import ConfigError
from continua.ode import ExplicitStepper, Rate, Tableau


def make_grid(problem: Problem) -> Tensor:
    """The grid of a solve: from `grid_constructor`, from `step_size`, or the asked times themselves."""
    constructor: Callable[..., Tensor] | None = problem.options.get("grid_constructor")
    step_size = problem.options.get("step_size")
    if constructor is not None and step_size is not None:
        raise ConfigError("step_size and grid_constructor exclude each other; give one of them")
    if constructor is not None:
        grid = constructor(problem.func, problem.y0, problem.t)
        if grid.ndim != 1 or len(grid) < 2 or grid[0] != problem.t[0] or grid[-1] != problem.t[-1]:
            raise BadInput(f"grid_constructor returned {grid}; expected a 1-D tensor from t[0] to t[-1]")
        return grid.to(problem.t)
    return problem.t if step_size is None else _equal_steps(problem.t, float(step_size))


def _equal_steps(t: Tensor, step_size: float) -> Tensor:
    """Steps of one size from the first time; the last is shorter where they do not fit."""
    if not step_size > 0:
        raise ConfigError(f"step_size={step_size!r}; expected a number above 0 (its sign follows t)")
    span = float(t[-1].detach().double() - t[0].detach().double())
    count = max(1, ceil(abs(span) / step_size - 1e-6))
    steps = torch.arange(count, dtype=t.dtype, device=t.device) * (step_size if span > 0 else -step_size)
    return torch.cat([t[0] + steps, t[-1:]])


class GridClock:
    """A grid as the solver sees it. `equal`: equal steps that need no gradient, solved in the user's own time."""

    def __init__(self, grid: Tensor, perturb: bool) -> None:
        self.grid, self.perturb = grid, perturb
        self.points: list[float] = grid.detach().double().tolist()
        self.steps = len(self.points) - 1
        self.span = self.points[-1] - self.points[0]
        self.equal = not perturb and not grid.requires_grad and self._is_equal(torch.finfo(grid.dtype).eps)

    def _is_equal(self, eps: float) -> bool:
        length = self.span / self.steps
        slack = 4 * eps * max(abs(self.points[0]), abs(self.points[-1]))
        return all(abs(point - (self.points[0] + i * length)) <= slack for i, point in enumerate(self.points))

    @property
    def start(self) -> float:
        return self.points[0] if self.equal else 0.0

    @property
    def end(self) -> float:
        return self.points[-1] if self.equal else float(self.steps)

    def moments(self, t: Tensor, times: Sequence[float]) -> "list[float] | Tensor | None":
        """The times inside on the clock of the solve: those of the grid exactly where its steps end, others with the graph they have."""
        if len(times) <= 2:
            return None
        places = [self._place(time) for time in times[1:-1]]
        moments = [self._moment(index + share) for index, share in places]
        if not t.requires_grad or all(share == 0.0 for _, share in places):
            return moments
        shares = [self._share(time, index) if share else t.new_zeros(()) for time, (index, share) in zip(t[1:-1], places, strict=True)]
        return torch.stack(shares).double() + torch.tensor([index for index, _ in places], dtype=torch.float64, device=t.device)

    def _place(self, time: float) -> tuple[int, float]:
        """Which step holds a time, and how far into it; the end of a step is the start of the next."""
        forward = self.span > 0
        ends = self.points if forward else [-point for point in self.points]
        after = min(bisect_left(ends, time if forward else -time), self.steps)
        if self.points[after] == time:
            return after, 0.0
        before = self.points[after - 1]
        return after - 1, (time - before) / (self.points[after] - before)

    def _share(self, time: Tensor, index: int) -> Tensor:
        return (time - self.grid[index]) / (self.grid[index + 1] - self.grid[index])

    def _moment(self, position: float) -> float:
        if not self.equal:
            return float(position)
        return self.points[-1] if position == self.steps else self.start + position * (self.span / self.steps)

    def time(self, moment: float) -> float:
        """The user's time."""
        if self.equal:
            return float(moment)
        index = min(int(moment), self.steps - 1)
        before, after, share = self.points[index], self.points[index + 1], float(moment) - index
        return before if share == 0.0 else after if share == 1.0 else before + share * (after - before)


class GridRate(Rate):
    """f on the clock that counts steps."""

    def __init__(self, forward: Rate, clock: GridClock) -> None:
        self.__dict__.update(forward.__dict__)
        self._clock, self._index = clock, 0
        grid = clock.grid
        self._starts: Sequence[Any] = grid.unbind() if grid.requires_grad else clock.points
        direction = 1.0 if clock.span > 0 else -1.0
        narrow = torch.tensor(clock.points, dtype=self.time_dtype)
        outwards = torch.full_like(narrow, direction * torch.inf)
        self._shifts = [(torch.nextafter(narrow, sign * outwards).double() - narrow.double()).tolist() for sign in (1, -1)]

    def __call__(self, t: Any, y: Parts) -> Parts:
        index, theta = self._index, t - self._index
        start, end = self._starts[index], self._starts[index + 1]
        moment = end if theta == 1.0 else start if theta == 0.0 else start + theta * (end - start)
        if self._clock.perturb and theta in (0.0, 1.0):
            moment = moment + (self._shifts[0][index] if theta == 0.0 else self._shifts[1][index + 1])
        rates, length = super().__call__(moment, y), end - start
        return tuple(part * (length.to(part.dtype) if isinstance(length, Tensor) else length) for part in rates)

    def on_step(self, index: int, recomputing: bool) -> None:
        self._index = index

    def length(self, index: int) -> Any:
        """How long a step is."""
        return self._starts[index + 1] - self._starts[index]


class GridStepper(ExplicitStepper):
    """An explicit tableau, every step for itself: the end of one is not the start of the next on a clock that counts steps."""

    def __init__(self, tableau: Tableau, alone: bool) -> None:
        super().__init__(tableau)
        self._alone = alone

    def next_first(self, attempt: Any) -> Parts | None:
        return None if self._alone else super().next_first(attempt)


def with_interpolation(tableau: Tableau, interp: str) -> Tableau:
    """The tableau with what torchdiffeq has between grid points: a straight line, or Hermite's cubic with f at both ends."""
    if interp == "linear":
        return replace(tableau, dense=[[weight] for weight in tableau.b])
    if interp != "cubic":
        raise ConfigError(f"interp={interp!r}; expected 'linear' or 'cubic'")
    tableau = tableau.with_end_stage()
    return replace(tableau, dense=cubic_weights(tableau.b, first=0, last=tableau.stages - 1))


def cubic_weights(b: Sequence[float], first: int, last: int) -> list[list[float]]:
    """b_i(θ) of the cubic through y and y1 with the slopes k_first and k_last: coefficients of θ, θ², θ³."""
    rows = [[0.0, 3 * weight, -2 * weight] for weight in b]
    rows[first] = [value + slope for value, slope in zip(rows[first], (1.0, -2.0, 1.0), strict=True)]
    rows[last] = [value + slope for value, slope in zip(rows[last], (0.0, -1.0, 1.0), strict=True)]
    return rows


# y1 = y + h k_1 with the mean slope k_1 of a step: what lies between needs no other stages, or f at both ends.
_MEAN_SLOPE = Tableau(a=[[], [1 / 2], [0, 1]], b=[0, 1, 0], c=[0, 1 / 2, 1], order=1, name="mean slope")
_CARRIERS = {"linear": [[0.0], [1.0], [0.0]], "cubic": cubic_weights(_MEAN_SLOPE.b, first=0, last=2)}


def carrier(interp: str) -> Tableau:
    """The interpolant of steps that are no explicit Runge–Kutta steps: of the stages f(t, y), the mean slope, f(t_next, y1)."""
    if interp not in _CARRIERS:
        raise ConfigError(f"interp={interp!r}; expected 'linear' or 'cubic'")
    return replace(_MEAN_SLOPE, dense=_CARRIERS[interp])
