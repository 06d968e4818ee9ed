"""Solves that end where a function of time and state crosses zero, by the events of `continua.solve`.

`linked` then gives the time t* and the state the gradient of the implicit function theorem,

    dt* = −(∂c/∂y dy + ∂c/∂p dp) / (∂c/∂t + ∂c/∂y f).

It stands apart since `odeint_event` may be handed the result of any `odeint_interface`, also of one that is not ours.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.hooks import CompatIntegration
from continua.compat.torchdiffeq.inputs import BadInput, Problem
from continua.compat.torchdiffeq.integrate import make_plan
from continua.compat.torchdiffeq.state import Function, Parts, State, StateLayout, moved
from continua.errors import SolverError
from continua.ode import Event, Watch

EventFunction = Callable[[Tensor, State], Tensor]
MOST_GRID_STEPS = 20_000
FAR = 1e8  # how long an adaptive solve looks, in units of time


class NoEvent(SolverError, RuntimeError):
    """The event function kept its sign for as long as a solve looks."""


def combined(event_fn: EventFunction, t0: Tensor, y0: State) -> EventFunction:
    """Several events as one, above 0 at the start: the first of them to cross zero takes it below."""
    with torch.no_grad():
        signs = torch.sign(event_fn(t0, y0))
    return lambda t, y: torch.min(event_fn(t, y) * signs)


def integrate_until(problem: Problem, event_fn: EventFunction) -> tuple[Tensor, State]:
    """The time of the event, without a graph, and the states at the start and there."""
    if len(problem.times) != 2:
        raise BadInput(f"t has {len(problem.times)} times; an event needs two, of which the second says only which way to go")
    event_fn = combined(event_fn, problem.t[0].detach(), problem.y0)
    if problem.method.on_grid and problem.t.requires_grad:
        problem = _with_fixed_start(problem)
    time, state = _search(problem, event_fn)
    event_t = torch.tensor(time, dtype=torch.float64, device=problem.device)
    y0, y1 = (value if isinstance(value, tuple) else (value,) for value in (problem.y0, state))
    rows = tuple(torch.stack(pair) for pair in zip(y0, y1, strict=True))
    return event_t, rows[0] if problem.layout.single else rows


def _with_fixed_start(problem: Problem) -> Problem:
    """The same problem on a grid that stays where it is: moving the start by δ is starting at y0 − δ f(t0, y0)."""
    t0, layout = problem.t[0], problem.layout
    y0 = layout.pack(problem.y0)
    still = t0.detach()
    rates = layout.pack_rate(problem.func(still.to(y0[0].dtype), problem.y0))
    return replace(problem, t=problem.t.detach(), y0=layout.unpack(moved(y0, still - t0, rates)))


def _search(problem: Problem, event_fn: EventFunction) -> tuple[float, State]:
    with torch.no_grad():
        if float(event_fn(problem.t[0].detach(), problem.y0)) == 0.0:
            return problem.times[0], problem.y0
    far = FAR
    if problem.method.on_grid:
        if problem.options.get("step_size") is None:
            raise BadInput(f"method {problem.method.name!r} needs options=dict(step_size=...) to look for an event")
        far = MOST_GRID_STEPS * float(problem.options["step_size"])
    start = problem.t[:1].double()
    plan = make_plan(replace(problem, t=torch.cat([start, start.detach() + problem.direction * far])))
    watch: _ClockWatch | None = None

    def change(integration: CompatIntegration) -> None:
        nonlocal watch
        tableau = integration.stepper.tableau if integration.dense is None else integration.dense.tableau
        events, batch = (Event(event_fn, direction=-1),), integration.batch
        integration.watch = watch = _ClockWatch(events, integration.rate, tableau, batch, False, layout=problem.layout, clock=plan.time)
        integration.dense = None  # it was asked for to have what lies between steps, and would keep all of them

    solution = plan.solve(dense=True, also=change)
    if watch is None or int(watch.stopped) < 0:
        raise NoEvent(f"no event between t = {problem.times[0]:.6g} and {problem.times[0] + problem.direction * far:.6g}")
    parts = (solution.y1,) if isinstance(solution.y1, Tensor) else solution.y1
    return plan.time(float(watch.ended)), problem.layout.unpack(parts)


@dataclass
class _ClockWatch(Watch):
    """Shows the event function the user's time, in float64, and the user's state."""

    layout: StateLayout | None = None
    clock: Callable[[Any], float] = float

    def value(self, event: Event, t: Any, y: Parts) -> Tensor:
        time = torch.tensor(self.clock(t), dtype=torch.float64, device=self.rate.device)
        return event.function(time, y if self.layout is None else self.layout.unpack(y)).reshape(())

    def refuse_undefined(self, event: Event, bad: Tensor, t: Any, y: Parts) -> None:
        """torchdiffeq does not: NaN is no crossing."""


def linked(func: Function, event_fn: EventFunction, t0: Tensor, y0: State, event_t: Tensor, y: State) -> tuple[Tensor, State]:
    """The time and the state of an event as functions of all that they depend on."""
    event_fn = combined(event_fn, t0.detach(), y0)
    parts = y if isinstance(y, tuple) else (y,)
    single = not isinstance(y, tuple)
    time = event_t.detach()

    def state(of: Parts) -> State:
        return of[0] if single else of

    still = tuple(part.detach() for part in parts)
    with torch.no_grad():
        rate = func(time.to(parts[0].real.dtype), state(still))
        slopes = (rate,) if isinstance(rate, Tensor) else rate
    with torch.enable_grad():
        leaves = (time.clone().requires_grad_(), *(part.clone().requires_grad_() for part in still))
        value = event_fn(leaves[0], state(leaves[1:]))
        of_t, *of_y = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else (None,) * len(leaves)
        change = 0.0 if of_t is None else of_t
        for gradient, slope in zip(of_y, slopes, strict=True):
            if gradient is not None:
                change = change + (gradient.conj() * slope).real.sum()
        moving = event_fn(time, state(parts))
        offset = -(moving - moving.detach()) / (change + 1e-12)
    moved = tuple(part + slope * offset.to(part.real.dtype) for part, slope in zip(parts, slopes, strict=True))
    return time + offset.to(time.dtype), state(moved)
