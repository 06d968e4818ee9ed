"""The asynchronous leapfrog: steps of second order, one evaluation each, with an exact gradient and no stored trajectory.

Zhuang et al. (2021), "MALI: a memory efficient and reverse accurate integrator for neural ODEs". A step carries the state and a rate of
change, v0 = f(t0, y0),

    z = y + h/2 v,        v' = 2 f(t + h/2, z) − v,        y' = z + h/2 v',

and is undone by z = y' − h/2 v', v = 2 f(t + h/2, z) − v', y = z − h/2 v. Backward rebuilds each state from the next, by one evaluation and
one vector–Jacobian product, so memory does not grow with the number of steps. Nothing damps v: a field that decays fast within a step makes
it swing.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from continua.errors import ConfigError
from continua.ode.gradients.base import Cotangents, ForwardPass, Gradient, Gradients, solve_pair
from continua.ode.integration import AcceptedSteps, Integration
from continua.ode.rate import Rate
from continua.ode.solution import Solution, State, Stats, Time, detached, zeros_where_none
from continua.ode.stepper import Attempt, ParameterGradients, Stepper, evaluate_with_graph, rate_vjp, stage_time
from continua.ode.sums import combine
from continua.ode.tableau import Tableau

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig


@dataclass(frozen=True)
class Leapfrog(Gradient):
    """The exact gradient of equal leapfrog steps, which keeps the last state only."""

    kind: ClassVar[str] = "leapfrog"
    same_points: ClassVar[bool] = False
    exact_times: ClassVar[bool] = True

    def check(self, config: "SolverConfig") -> None:
        self.refuse_sample(config)
        if not isinstance(config.steps, int) or config.tableau.name != "midpoint":
            raise ConfigError(
                "gradient='leapfrog' takes equal steps of a scheme of its own, in the place of midpoint steps; give method='midpoint' and "
                "steps=N, or use gradient='reversible', which has any explicit method"
            )

    def why_not_one_graph(self) -> str | None:
        return "gradient='leapfrog' steps by a scheme of its own, which is not traced"

    def integrate(self, integration: Integration) -> Solution:
        if integration.saver is not None or integration.dense is not None or integration.watch is not None:
            raise ConfigError(
                "gradient='leapfrog' has no states between steps for save_at, dense or event; use gradient='checkpoint', or for save_at "
                "and events 'reversible'"
            )
        count, y0 = len(integration.y0), integration.y0
        if integration.differentiable:
            integration.probe(self)
        first = integration.first
        if first is None:
            integration.rate.on_step(0, False)
            first = integration.rate(integration.t0, y0)
        pair = replace(integration, stepper=LeapfrogStepper(integration.stepper.tableau), y0=(*y0, *first), first=first)
        return solve_pair(integration, pair, lambda steps: _take(pair, steps, count))


def _take(pair: Integration, steps: AcceptedSteps, count: int) -> ForwardPass:
    taken = [(step.index, step.t, step.t_next) for step in steps]
    ends, tape = detached(steps.y), _Tape(pair.rate, steps.stats, taken, pair.t0)  # the statistics are known when the steps are taken
    return ForwardPass(ends[:count], ends, tape.backward)


class LeapfrogStepper(Stepper):
    """A step of the pair; its state is (*y, *v)."""

    starts_with_rate = False

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        self.order, self.evaluations = 2, 1

    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        half, h = len(y) // 2, t_next - t
        v = y[half:]
        z = combine(y[:half], h, [0.5], [v])
        k = rate(stage_time(t, t_next, h, 0.5), z)
        v = _mirrored(k, v)
        return Attempt((*combine(z, h, [0.5], [v]), *v), [k], None)


def _mirrored(k: State, v: State) -> State:
    """2 f − v."""
    return tuple(torch.sub(a + a, b) for a, b in zip(k, v, strict=True))


@dataclass
class _Tape:
    """The times of the steps, from which backward undoes them."""

    rate: Rate
    stats: Stats
    steps: "list[tuple[int, Time, Time]]"
    t0: Time

    def backward(self, params: State, saved: State, cotangents: Cotangents) -> Gradients:
        half = len(saved) // 2
        y, v = saved[:half], saved[half:]
        gradients, rate, calls = ParameterGradients(params), self.rate, self.rate.calls
        gy = zeros_where_none(cotangents[:half], y)
        gv: State = tuple(torch.zeros_like(part) for part in gy)
        for index, t, t_next in reversed(self.steps):
            h = t_next - t
            rate.on_step(index, True)
            z = combine(y, -h, [0.5], [v])
            gv = combine(gv, h, [0.5], [gy])
            point, k = evaluate_with_graph(rate, stage_time(t, t_next, h, 0.5), z)
            gy = combine(gy, 1.0, [1.0], [rate_vjp(point, k, tuple(2 * part for part in gv), gradients)])
            v = _mirrored(detached(k), v)
            y = combine(z, -h, [0.5], [v])
            gv = combine(tuple(-part for part in gv), h, [0.5], [gy])
        rate.on_step(0, True)
        point, k = evaluate_with_graph(rate, self.t0, y)
        gy = combine(gy, 1.0, [1.0], [rate_vjp(point, k, gv, gradients)])
        self.stats.add_backward(rate.calls - calls, None)
        return gy, gradients.sums
