"""Implicit steps that autograd differentiates like any other operation.

The stage equations K = F(K; y, t, p) are solved without a graph. Then F is evaluated once more at the solution, with a graph to y, to the
times and to whatever f holds; by the implicit function theorem a cotangent g of K becomes (I − ∂F/∂K)⁻ᵀ g there.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continua.compat.torchdiffeq.state import Parts, moved, weighted
from continua.errors import ContinuaWarning, SolverError
from continua.ode import Attempt, Implicit, ImplicitStepper, Rate, Status, Tableau


class GraphStepper(ImplicitStepper):
    """An implicit tableau for a state that is one sample, (1, ...). Its stages are those of `carrier`, for what lies between.

    An iteration that does not converge is warned of, as torchdiffeq warns.
    """

    def __init__(self, tableau: Tableau, interp: str, max_iterations: int) -> None:
        super().__init__(tableau, Implicit(tableau, max_iterations=max_iterations))
        self._cubic = interp == "cubic"

    def step(self, rate: Rate, t: Any, t_next: Any, y: Parts, first: Parts | None) -> Attempt:
        attempt = super().step(rate, t, t_next, y, first)
        if attempt.failed is not None:
            if attempt.failed.status is not Status.NOT_CONVERGED:
                return attempt
            warnings.warn("the iteration of an implicit step did not converge; take smaller steps", ContinuaWarning, stacklevel=2)
        stages = self._connected(rate, t, t_next, y, attempt.stages) if torch.is_grad_enabled() else attempt.stages
        mean = weighted(self.tableau.b, stages)
        y1 = moved(y, t_next - t, mean)
        slopes = [rate(t, y), mean, rate(t_next, y1)] if self._cubic else [mean] * 3
        return replace(attempt, y1=y1, stages=slopes, failed=None)

    def guess(self, rate: Rate, t: Any, y: Parts) -> Parts:
        """f at the start of the step, as torchdiffeq guesses."""
        return rate(t, y)

    def _connected(self, rate: Rate, t: Any, t_next: Any, y: Parts, solved: list[Parts]) -> list[Parts]:
        """The solved stages, as functions of all that F depends on."""
        h, points, rates = t_next - t, [], []
        for row, c in zip(self.tableau.a, self.tableau.c, strict=True):
            point = moved(y, h, weighted(row, solved))
            points.append(tuple(part if part.requires_grad else part.detach().requires_grad_() for part in point))
            rates.append(rate(t_next if c == 1.0 else t + c * h, points[-1]))
        values = [part for k in rates for part in k]
        if not any(value.requires_grad for value in values):
            return solved
        transposed = _Transposed(self, rate, h, points, rates)
        parts = _Solved.apply(transposed, len(values), *values, *(part for k in solved for part in k))
        width = len(y)
        return [tuple(parts[i : i + width]) for i in range(0, len(parts), width)]

    def solve_transposed(self, operator: Callable[[Tensor], Tensor], b: Tensor, rate: Rate) -> Tensor:
        x, failed = self._linear_solve(operator, b, self._tolerance(rate))
        if failed:
            text = "the linear system for the gradient of an implicit step was not solved"
            raise SolverError(f"{text}. What to do: take smaller steps, or compute in float64", status=Status.NOT_CONVERGED)
        return x


class _Transposed:
    """l of l_j − h Σ_i a_ij (∂f/∂Y_i)ᵀ l_i = g_j."""

    def __init__(self, stepper: GraphStepper, rate: Rate, h: float, points: list[Parts], rates: list[Parts]) -> None:
        self.stepper, self.rate, self.h, self.points, self.rates = stepper, rate, h, points, rates

    def __call__(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        sizes, shapes = [part.numel() for part in cotangents], [part.shape for part in cotangents]

        def unpack(row: Tensor) -> list[Tensor]:
            return [part.reshape(shape) for part, shape in zip(row[0].split(sizes), shapes, strict=True)]

        def operator(row: Tensor) -> Tensor:
            seeds = unpack(row)
            pulled = self._pull(seeds)
            return _flat([seed - self.h * part for seed, part in zip(seeds, pulled, strict=True)])

        return unpack(self.stepper.solve_transposed(operator, _flat(cotangents), self.rate))

    def _pull(self, seeds: list[Tensor]) -> list[Tensor]:
        """Σ_i a_ij (∂f/∂Y_i)ᵀ l_i of every stage j."""
        width = len(self.points[0])
        pulled: list[Parts] = []
        for i, (point, k) in enumerate(zip(self.points, self.rates, strict=True)):
            pairs = [(part, seed) for part, seed in zip(k, seeds[i * width : (i + 1) * width], strict=True) if part.requires_grad]
            outputs, given = [part for part, _ in pairs], [seed for _, seed in pairs]
            grads = torch.autograd.grad(outputs, point, given, retain_graph=True, allow_unused=True) if pairs else (None,) * width
            pulled.append(tuple(torch.zeros_like(p) if g is None else g for p, g in zip(point, grads, strict=True)))
        columns = zip(*self.stepper.tableau.a, strict=True)
        return [part for column in columns for part in weighted(column, pulled)]


class _Solved(torch.autograd.Function):
    """The solved stages as functions of f at them."""

    @staticmethod
    def forward(ctx: Any, transposed: _Transposed, count: int, *tensors: Tensor) -> Parts:
        ctx.transposed = transposed
        return tuple(part.detach().clone() for part in tensors[count:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, *ctx.transposed(cotangents), *(None,) * len(cotangents)


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])[None]
