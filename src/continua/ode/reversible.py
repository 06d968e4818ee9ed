"""An algebraically reversible scheme over any explicit method: the exact gradient of its steps, with no stored trajectory.

McCallum & Foster (2024), "Efficient, accurate and stable gradients for neural ODEs". With Ψ_h(t, y) the increment of the base method,
a step carries two copies (y, z) of the state, z0 = y0,

    y' = λ y + (1 − λ) z + Ψ_h(t, z),        z' = z − Ψ_{−h}(t + h, y'),

and is undone by z = z' + Ψ_{−h}(t + h, y'), y = (y' − (1 − λ) z − Ψ_h(t, z)) / λ. Backward rebuilds each state from the next, so
memory does not grow with the number of steps. λ < 1 couples the copies and gives the scheme a region of stability.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continua.ode.discrete import ParameterGradients, step_vjp
from continua.ode.gradient import Job
from continua.ode.loops import Step
from continua.ode.rate import Rate
from continua.ode.solution import State
from continua.ode.stepper import Attempt, ExplicitStepper, Time, combine
from continua.ode.tableau import Tableau

COUPLING = 0.999  # λ


class ReversibleStepper:
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

    def next_first(self, attempt: Attempt) -> State | None:
        return None


def _mix(y: State, z: State, increment: State) -> State:
    pairs = zip(y, z, increment, strict=True)
    return tuple(torch.lerp(b, a, COUPLING).add_(c) for a, b, c in pairs)


class ReversibleSolve(torch.autograd.Function):
    """y1 as a function of y0 and the parameters; keeps the final pair and the step times only."""

    @staticmethod
    def forward(ctx: Any, job: Job, count: int, *tensors: Tensor) -> State:
        times: list[tuple[int, Time, Time]] = []

        def each(step: Step) -> None:
            times.append((step.index, step.t, step.t_next))

        pair = tuple(part.detach() for part in job.run(each))
        ctx.count, ctx.times, ctx.tableau, ctx.rate, ctx.stats = count, times, job.tableau, job.problem.rate, job.loop.stats
        ctx.save_for_backward(*tensors[count:], *pair)
        return pair[:count]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        count, rate, tableau, saved = ctx.count, ctx.rate, ctx.tableau, ctx.saved_tensors
        calls = rate.calls
        y, z = saved[-2 * count : -count], saved[-count:]
        gradients = ParameterGradients(saved[: -2 * count])
        gy: State = cotangents[:count]
        gz: State = tuple(torch.zeros_like(part) for part in gy)
        for index, t, t_next in reversed(ctx.times):
            rate.on_step(index, True)
            # z' = z − Ψ_{−h}(y'): undo it, and carry gz to y'.
            mu, stages = step_vjp(rate, tableau, t_next, t, y, tuple(-g for g in gz), gradients)
            z = combine(z, t - t_next, tableau.b, stages)
            gy = combine(gy, 1.0, [1.0] * len(mu), mu)
            # y' = λ y + (1 − λ) z + Ψ_h(z): undo it, and carry gy to y and z.
            mu, stages = step_vjp(rate, tableau, t, t_next, z, gy, gradients)
            increment = combine(None, t_next - t, tableau.b, stages)
            y = tuple(torch.lerp(b, a - c, 1 / COUPLING) for a, b, c in zip(y, z, increment, strict=True))
            gz = combine(gz, 1.0, [1 - COUPLING, *(1.0 for _ in mu)], [gy, *mu])
            gy = tuple(COUPLING * part for part in gy)
        ctx.stats.nfe_backward += rate.calls - calls
        return None, None, *(a + b for a, b in zip(gy, gz, strict=True)), *gradients.sums
