"""An algebraically reversible scheme over any explicit method: the exact gradient of its steps, with no stored trajectory.

McCallum & Foster (2024), "Efficient, accurate and stable gradients for neural ODEs". With Ψ_h(t, y) the increment of the base method,
a step carries two copies (y, z) of the state, z0 = y0,

    y' = λ y + (1 − λ) z + Ψ_h(t, z),        z' = z − Ψ_{−h}(t + h, y'),

and is undone by z = z' + Ψ_{−h}(t + h, y'), y = (y' − (1 − λ) z − Ψ_h(t, z)) / λ. Backward rebuilds each state from the next, so
memory does not grow with the number of steps. λ < 1 couples the copies and gives the scheme a region of stability.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.dense import Saver
from continua.ode.gradients.base import Cotangents, ForwardPass, Gradient, Gradients, solve_pair
from continua.ode.gradients.saves import AskedTimes
from continua.ode.integration import AcceptedSteps, Integration
from continua.ode.rate import Rate
from continua.ode.solution import Solution, State, Stats, Time, detached, pick, put, zeros_where_none
from continua.ode.stepper import Attempt, ExplicitStepper, ParameterGradients, Stepper
from continua.ode.sums import combine
from continua.ode.tableau import Tableau

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig

COUPLING = 0.999  # λ


@dataclass(frozen=True)
class Reversible(Gradient):
    """The exact gradient of the steps of a scheme of its own, which keeps its last state only, and those that were asked for."""

    kind: ClassVar[str] = "reversible"
    same_points: ClassVar[bool] = False
    exact_times: ClassVar[bool] = True

    def check(self, config: "SolverConfig") -> None:
        self.refuse_implicit(config)

    def why_not_one_graph(self) -> str | None:
        return "gradient='reversible' steps by a scheme of its own, which is not traced"

    def integrate(self, integration: Integration) -> Solution:
        count, y0 = len(integration.y0), integration.y0
        if integration.dense is not None:
            raise ConfigError("gradient='reversible' keeps no steps for dense; ask for states by save_at, or use gradient='checkpoint'")
        if integration.differentiable:
            integration.probe(self)
        pair = replace(integration, stepper=ReversibleStepper(integration.stepper.tableau), y0=(*y0, *y0))
        return solve_pair(integration, pair, lambda steps: _take(pair, steps, count))


def _take(pair: Integration, steps: AcceptedSteps, count: int) -> ForwardPass:
    taken = [(step.index, step.t, step.t_next, step.rows) for step in steps]
    ends, ys = detached(steps.y), detached(steps.ys)
    tape = _Tape(pair.rate, ExplicitStepper(pair.stepper.tableau), steps.stats, taken, pair.saver, pair.t0)
    return ForwardPass((*ends[:count], *ys), ends, tape.backward)


class ReversibleStepper(Stepper):
    """A step of the pair; its state is (*y, *z). The error estimate is the base method's at z."""

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        self.base = ExplicitStepper(tableau)
        self.order = tableau.estimate_order
        self.evaluations = tableau.stages - 1 + tableau.needed

    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        half = len(y) // 2
        now, z = y[:half], y[half:]
        forth = self.base.step(rate, t, t_next, z, first)
        increment = combine(None, t_next - t, self.tableau.b, forth.stages)
        new = _mix(now, z, increment)
        back = self.base.stages(rate, t_next, t, new)
        z_new = combine(z, t_next - t, self.tableau.b, back)  # z − Ψ_{−h}: the step of Ψ_{−h} is t − t_next
        return Attempt((*new, *z_new), forth.stages, forth.error)


def _mix(y: State, z: State, increment: State) -> State:
    pairs = zip(y, z, increment, strict=True)
    return tuple(torch.lerp(b, a, COUPLING).add_(c) for a, b, c in pairs)


@dataclass
class _Tape:
    """The times of the steps, and the rows that each moved, from which backward undoes them."""

    rate: Rate
    stepper: ExplicitStepper
    stats: Stats
    steps: "list[tuple[int, Time, Time, Tensor | None]]"
    saver: Saver | None
    t0: Time

    def backward(self, params: State, saved: State, cotangents: Cotangents) -> Gradients:
        count = len(saved) // 2
        y, z = saved[:count], saved[count:]
        gradients, asked = ParameterGradients(params), AskedTimes(self.saver, self.t0, cotangents[count:])
        gy = zeros_where_none(cotangents[:count], y)
        gz: State = tuple(torch.zeros_like(part) for part in gy)
        for position in reversed(range(len(self.steps))):
            rows, calls, whole = self.steps[position][-1], self.rate.calls, (y, z, gy, gz)
            moved = whole if rows is None else tuple(pick(part, rows) for part in whole)
            before = self._undo(position, *moved, gradients, asked)
            y, z, gy, gz = before if rows is None else (put(old, rows, new) for old, new in zip(whole, before, strict=True))
            self.stats.add_backward(self.rate.calls - calls, rows)
        asked.finish(gradients)
        return asked.at_start(tuple(a + b for a, b in zip(gy, gz, strict=True))), gradients.sums

    def _undo(
        self, position: int, y: State, z: State, gy: State, gz: State, gradients: ParameterGradients, asked: AskedTimes
    ) -> tuple[State, State, State, State]:
        """One step backwards: the states before it, and the gradients to them."""
        index, t, t_next, rows = self.steps[position]
        rate, stepper, weights = self.rate, self.stepper, self.stepper.tableau.b
        rate.on_step(index, True)
        saves = asked.of_step(position, rows, gy)
        # z' = z − Ψ_{−h}(y'): undo it, and carry gz to y'.
        mu, stages = stepper.vjp(rate, t_next, t, y, tuple(-g for g in gz), gradients)
        z = combine(z, t - t_next, weights, stages)
        gy = combine(saves.g, 1.0, [1.0] * len(mu), mu)
        # y' = λ y + (1 − λ) z + Ψ_h(z): undo it, and carry gy to y and z. States inside are y + h Σ b_i(θ) k_i, with the stages at z.
        mu, stages = stepper.vjp(rate, t, t_next, z, gy, gradients, saves.inner)
        saves.to_times(stages)
        increment = combine(None, t_next - t, weights, stages)
        y = tuple(torch.lerp(b, a - c, 1 / COUPLING) for a, b, c in zip(y, z, increment, strict=True))
        gz = combine(gz, 1.0, [1 - COUPLING, *(1.0 for _ in mu)], [gy, *mu])
        return y, z, saves.to_start(tuple(COUPLING * part for part in gy)), gz
