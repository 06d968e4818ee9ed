"""What `odeint` does inside a solve that `continua.solve` has no word for: callbacks, norms of one's own, tolerances for each number.

`solve` hands its parts, an `Integration`, to the gradient in use. `Adapted` is a gradient that changes those parts and passes them on.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.inputs import Callback, Problem, Tolerance
from continua.compat.torchdiffeq.state import Parts, State, StateLayout
from continua.errors import ConfigError
from continua.ode import (
    Gradient,
    Integration,
    ParameterGradients,
    Rate,
    Solution,
    SolverConfig,
    Step,
    Stepper,
    graph_nodes,
    hidden_leaves,
    with_graph_size,
)

Norm = Callable[[Any], "Tensor | float"]


class Adapted(Gradient):
    """Another gradient, for an integration that is changed first."""

    exact_times = True

    def __init__(self, inner: Gradient, prepare: "Callable[[Integration], Integration]") -> None:
        self.inner, self.prepare = inner, prepare

    def integrate(self, integration: Integration) -> Solution:
        return self.inner.integrate(self.prepare(integration))

    def check(self, config: SolverConfig) -> None:
        if config.tableau.explicit:  # implicit steps come with a graph of their own
            self.inner.check(config)


@dataclass
class CompatIntegration(Integration):
    """One solve. `judge` says what the error of a step is; parameters that nobody named are left out, as torchdiffeq leaves them.

    `idle` are parameters that were named and that f does not use.
    """

    judge: "Judge | None" = None
    idle: Parts = ()

    @classmethod
    def of(cls, integration: Integration, judge: "Judge | None" = None) -> "CompatIntegration":
        return cls(**{field.name: getattr(integration, field.name) for field in fields(Integration)}, judge=judge)

    def probe(self, gradient: object, y0: Parts | None = None) -> None:
        """Evaluates f(t0, y0), and looks which parameters it reaches. Nothing is refused here."""
        if self.first is None:
            self.evaluate_first(y0)
        k = self.first or ()
        self.idle = _not_reached(k, self.params)
        if hidden_leaves(k, (*self.params, *self.y0, *(y0 or ()))):
            self.graph_bytes = sys.maxsize  # a graph would give parameters that were not named their gradients: replay
        self.first = k if y0 is not None else tuple(part.detach() for part in k)

    def evaluate_first(self, y0: Parts | None = None) -> Parts:
        """f(t0, y0) with its graph."""
        self.rate.on_step(0, False)
        self.first, self.graph_bytes = with_graph_size(self.rate, self.t0, self.y0 if y0 is None else y0, self.params)
        return self.first

    def ratio(self, attempt: Any, y: Parts, per_sample: bool) -> Tensor:
        if self.judge is None:
            return super().ratio(attempt, y, per_sample)
        return self.judge.ratio(attempt.error, y, attempt.y1)


def _not_reached(k: Parts, params: Parts) -> Parts:
    """Parameters that are not on the graph of k."""
    nodes = set(graph_nodes(k))
    leaves = {id(getattr(node, "variable", None)) for node in nodes}
    return tuple(p for p in params if id(p) not in leaves and (p.grad_fn is None or p.grad_fn not in nodes))


def with_zeros(states: Parts, idle: Parts) -> Parts:
    """The same states, whose gradient to parameters that are not used is 0 rather than none."""
    return _WithZeros.apply(len(states), *states, *idle) if idle and any(part.requires_grad for part in states) else states


class _WithZeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Parts:
        ctx.like = [(part.shape, part.dtype, part.device) for part in tensors[count:]]
        return tuple(part.view_as(part) for part in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *g, *(torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.like)


# --- norms and tolerances ---------------------------------------------------------------------------------------------


def rms_norm(tensor: Tensor) -> Tensor:
    return tensor.abs().square().mean().sqrt()


def mixed_norm(parts: Parts) -> Tensor | float:
    """The largest of the root mean squares of the parts."""
    return max((rms_norm(part) for part in parts if part.numel()), default=0.0)


class Judge:
    """The size of an error relative to the tolerance, in the norm that was asked for. Sees states as the user does."""

    def __init__(self, layout: StateLayout, rtol: Tolerance, atol: Tolerance, norm: Norm | None) -> None:
        self.layout = layout
        self.rtol, self.atol = (_per_part(name, value, layout) for name, value in (("rtol", rtol), ("atol", atol)))
        self.norm: Norm = norm or (rms_norm if layout.single else mixed_norm)

    @torch.no_grad()
    def ratio(self, error: Parts, y0: Parts, y1: Parts) -> Tensor:
        sizes = [torch.maximum(a.abs(), b.abs()) for a, b in zip(self._parts(y0), self._parts(y1), strict=True)]
        return self.size(self._parts(error), self.scales(sizes))

    @torch.no_grad()
    def first_step(self, rate: Rate, t: float, y: Parts, first: Parts, direction: float, order: int) -> float:
        """Hairer, Nørsett & Wanner I, §II.4, in this norm: a step whose Euler increment is small, refined by one probe of f."""
        state, slope = self._parts(y), self._parts(first)
        scales = self.scales([part.abs() for part in state])
        d0, d1 = float(self.size(state, scales)), float(self.size(slope, scales))
        h0 = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
        probe = rate(t + direction * h0, tuple(a + direction * h0 * k for a, k in zip(y, first, strict=True)))
        change = tuple(b - a for a, b in zip(slope, self._parts(probe), strict=True))
        steepest = max(d1, float(self.size(change, scales)) / h0)
        h1 = max(1e-6, 1e-3 * h0) if steepest <= 1e-15 else (0.01 / steepest) ** (1 / order)
        step = min(100 * h0, h1)
        return step if step > 0 else 1e-6  # not a number: any will do, the loop then says what is wrong

    def scales(self, sizes: list[Tensor]) -> list[Tensor]:
        """atol + rtol |y| of every part."""
        return [atol + rtol * size.double() for rtol, atol, size in zip(self.rtol, self.atol, sizes, strict=True)]

    def size(self, parts: Parts, scales: list[Tensor]) -> Tensor:
        scaled = tuple((part / scale).to(part.dtype) for part, scale in zip(parts, scales, strict=True))
        norm = torch.as_tensor(self.norm(scaled[0] if self.layout.single else scaled))
        return norm.detach().abs().double()

    def _parts(self, parts: Parts) -> Parts:
        seen = self.layout.unpack(parts)
        return (seen,) if isinstance(seen, Tensor) else seen


def _per_part(name: str, tolerance: Tolerance, layout: StateLayout) -> list[Any]:
    """A tolerance for every part: numbers, or tensors that broadcast to it."""
    if layout.single or isinstance(tolerance, int | float) or (isinstance(tolerance, Tensor) and tolerance.ndim == 0):
        return [_as_wide(tolerance)] * len(layout.shapes)
    each = list(tolerance)
    if len(each) != len(layout.shapes):
        raise ConfigError(f"{name} has {len(each)} entries for a state of {len(layout.shapes)} tensors; give one number, or one for each")
    return [_as_wide(value) for value in each]


def _as_wide(value: Any) -> Any:
    return value if isinstance(value, int | float) else torch.as_tensor(value).detach().double()


def needs_judge(problem: Problem) -> bool:
    """Whether `solve`'s own error control, RMS with one pair of tolerances above 0, is not what is asked for."""
    simple = all(isinstance(value, int | float) and value > 0 for value in (problem.rtol, problem.atol))
    return problem.layout.complex or "norm" in problem.options or not simple


# --- callbacks --------------------------------------------------------------------------------------------------------


class WatchedStepper(Stepper):
    """Another stepper that tells the user's callbacks of every step it tries, and what became of it.

    Whether a step was accepted shows when the next one begins: from where it ended, or once more from its start.
    """

    def __init__(self, inner: Stepper, layout: StateLayout, callbacks: dict[str, Callback], clock: "Callable[[Any], Any]") -> None:
        self.inner, self.layout, self.callbacks, self.clock = inner, layout, callbacks, clock
        self.tableau, self.order, self.evaluations = inner.tableau, inner.order, inner.evaluations
        self.starts_with_rate = inner.starts_with_rate
        self._tried: tuple[Any, State, Tensor, Tensor] | None = None

    def step(self, rate: Rate, t: Any, t_next: Any, y: Parts, first: Parts | None) -> Any:
        self._report(accepted=self._tried is not None and self._tried[0] != t)
        state = self.layout.unpack(y[: len(self.layout.shapes)])
        start, end = (torch.as_tensor(self.clock(time), dtype=torch.float64).detach() for time in (t, t_next))
        self._tried = (t, state, start, (end - start).abs())
        self._call("callback_step")
        return self.inner.step(rate, t, t_next, y, first)

    def shortened(self, rate: Rate, step: Step, t_next: Any) -> Any:
        return self.inner.shortened(rate, step, t_next)  # the same step to the user

    def finish(self) -> None:
        """The last step that was tried has been accepted."""
        self._report(accepted=True)
        self._tried = None

    def _report(self, accepted: bool) -> None:
        self._call("callback_accept_step" if accepted else "callback_reject_step")

    def _call(self, name: str) -> None:
        if self._tried is not None and name in self.callbacks:
            _, state, start, length = self._tried
            self.callbacks[name](start, state, length)

    def next_first(self, attempt: Any) -> Parts | None:
        return self.inner.next_first(attempt)

    def stages(self, rate: Rate, t: Any, t_next: Any, y: Parts) -> list[Parts]:
        return self.inner.stages(rate, t, t_next, y)

    def vjp(self, rate: Rate, t: Any, t_next: Any, y: Parts, g: Parts, gradients: ParameterGradients, inner: Any = ()) -> Any:
        return self.inner.vjp(rate, t, t_next, y, g, gradients, inner)
