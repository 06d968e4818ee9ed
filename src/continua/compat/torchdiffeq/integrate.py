"""One problem solved by `continua.solve`: its options translated, its states put in a row.

`odeint` keeps the graph of every step, so that whatever func holds gets its gradient; with parameters named (`odeint_adjoint`) the
checkpointed gradient gives the same numbers in less memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.adams import MOST_ORDER, AdamsStepper
from continua.compat.torchdiffeq.grid import GridClock, GridRate, GridStepper, carrier, make_grid, with_interpolation
from continua.compat.torchdiffeq.hooks import Adapted, CompatIntegration, Judge, WatchedStepper, needs_judge, with_zeros
from continua.compat.torchdiffeq.implicit import GraphStepper
from continua.compat.torchdiffeq.inputs import Problem, SolveFailed
from continua.compat.torchdiffeq.state import PackedField, State
from continua.compat.torchdiffeq.through_scipy import solve_by_scipy
from continua.errors import ConfigError, SolverError
from continua.ode import Checkpoint, Direct, Gradient, Integration, Solution, SolverConfig, StepControl, Stepper, Tableau, solve_with

Change = Callable[[CompatIntegration], None]
MOST_STEPS = 2**31 - 1
UNASKED = StepControl(max_steps=MOST_STEPS)  # without options


def integrate(problem: Problem) -> State:
    """The states at the asked times, one row each; the first is y0."""
    if len(problem.times) == 1:
        y0 = problem.y0
        return y0[None] if isinstance(y0, Tensor) else tuple(part[None] for part in y0)
    if problem.method.kind == "scipy":
        return solve_by_scipy(problem)
    plan = make_plan(problem)
    solution = plan.solve()
    y1 = (solution.y1,) if isinstance(solution.y1, Tensor) else solution.y1
    pieces = [tuple(part[None] for part in state) for state in (problem.layout.pack(problem.y0), y1)]
    if solution.ys is not None:
        pieces.insert(1, (solution.ys,) if isinstance(solution.ys, Tensor) else solution.ys)
    states = tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))
    return problem.layout.unpack(with_zeros(states, plan.idle), ahead=1)


@dataclass
class Plan:
    """A problem as a call of `solve_with`. `change` adapts the parts of the solve before it begins."""

    problem: Problem
    config: Callable[..., SolverConfig]  # given the gradient
    start: "float | Tensor"
    end: "float | Tensor"
    save_at: "Sequence[float] | Tensor | None"
    inner: Gradient
    change: Change
    time: Callable[[Any], float] = float  # the user's time at a moment where a step begins or ends

    idle: tuple[Tensor, ...] = ()  # parameters that turned out not to be used

    def solve(self, dense: bool = False, also: Change | None = None) -> Solution:
        """Solve it. `also` is one more change; `dense` keeps what a state between steps is made of."""
        problem, watched, changed = self.problem, None, None
        y0 = problem.layout.pack(problem.y0)

        def prepare(integration: Integration) -> Integration:
            nonlocal watched, changed
            changed = CompatIntegration.of(integration)
            self.change(changed)
            if problem.callbacks:
                changed.stepper = watched = WatchedStepper(changed.stepper, problem.layout, problem.callbacks, self.time)
            if also is not None:
                also(changed)
            return changed

        config = self.config(gradient=Adapted(self.inner, prepare))
        field = PackedField(problem.func, problem.layout)
        state = y0[0] if problem.layout.single else y0
        try:
            solution = solve_with(config, field, state, self.start, self.end, save_at=self.save_at, dense=dense, params=problem.params)
        except SolverError as error:
            details = {name: getattr(error, name) for name in ("status", "t", "h", "norm", "samples")}
            raise SolveFailed(str(error), **details) from error
        if watched is not None:
            watched.finish()
        self.idle = () if changed is None else changed.idle
        return solution


def make_plan(problem: Problem) -> Plan:
    """How to solve a problem of any method but SciPy's."""
    return _on_grid(problem) if problem.method.on_grid else _adaptive(problem)


# --- steps that the error chooses -------------------------------------------------------------------------------------


def _adaptive(problem: Problem) -> Plan:
    judge = Judge(problem.layout, problem.rtol, problem.atol, problem.options.get("norm")) if needs_judge(problem) else None
    rtol, atol = (1.0, 1.0) if judge is not None else (strictest(problem.rtol), strictest(problem.atol))  # a judge has its own

    def change(integration: CompatIntegration) -> None:
        integration.judge = judge
        if judge is not None and "first_step" not in problem.options:
            _choose_first_step(integration, judge, problem.direction)

    config = partial(SolverConfig, _tableau(problem), rtol, atol, control=_control(problem))
    times: Sequence[float] | Tensor = problem.t if problem.t.requires_grad else problem.times
    inside = times[1:-1] if len(times) > 2 else None
    return Plan(problem, config, times[0], times[-1], inside, _gradient(problem), change)


def _control(problem: Problem) -> StepControl:
    options = problem.options
    if not options:
        return UNASKED
    chosen: dict[str, Any] = {"max_steps": int(options.get("max_num_steps", MOST_STEPS))}
    names = {"first_step": "first_step", "safety": "safety", "ifactor": "factor_max", "dfactor": "factor_min"}
    names |= {"min_step": "min_step", "max_step": "max_step"}
    given = {ours: float(options[theirs]) for theirs, ours in names.items() if options.get(theirs) is not None}
    bounds = {"min_step": 0.0, "max_step": inf}  # no bounds
    chosen |= {name: value for name, value in given.items() if value != bounds.get(name)}
    stops = {
        ours: _times(options[theirs]) for theirs, ours in (("step_t", "step_at"), ("jump_t", "jump_at")) if options.get(theirs) is not None
    }
    if len(stops) == 2 and set(stops["step_at"]) & set(stops["jump_at"]):
        raise ConfigError("step_t and jump_t have times in common; a time where f jumps belongs in jump_t alone")
    chosen |= stops
    return StepControl(**chosen)


def _times(given: Any) -> list[float]:
    return torch.as_tensor(given).detach().double().reshape(-1).tolist()


def _choose_first_step(integration: CompatIntegration, judge: Judge, direction: float) -> None:
    t0, y0, rate = float(integration.t0), integration.y0, integration.rate
    first = integration.evaluate_first()
    size = judge.first_step(rate, t0, y0, first, direction, integration.stepper.order)
    control = integration.config.control.replace(first_step=size)
    integration.config = integration.config.replace(control=control)


# --- steps on a grid --------------------------------------------------------------------------------------------------


def _on_grid(problem: Problem) -> Plan:
    clock = GridClock(make_grid(problem), bool(problem.options.get("perturb", False)))
    stepper, interpolant = _grid_stepper(problem, alone=not clock.equal)

    def change(integration: CompatIntegration) -> None:
        integration.stepper = stepper
        for output in (integration.saver, integration.dense):
            if output is not None:
                output.tableau = interpolant
        if not clock.equal:
            integration.rate = GridRate(integration.rate, clock)
            if clock.grid.requires_grad:
                integration.params = (clock.grid, *integration.params)  # asked times come last

    config = partial(SolverConfig, _tableau(problem), steps=clock.steps)
    inside = clock.moments(problem.t, problem.times)
    gradient = _gradient(problem) if problem.method.kind == "fixed" else Direct()
    return Plan(problem, config, clock.start, clock.end, inside, gradient, change, clock.time)


def _grid_stepper(problem: Problem, alone: bool) -> tuple[Stepper, Tableau]:
    """What takes the steps, and the tableau of what lies between."""
    options, kind, tableau = problem.options, problem.method.kind, _tableau(problem)
    interp = options.get("interp", "linear")
    if kind == "fixed":
        tableau = with_interpolation(tableau, interp)
        return GridStepper(tableau, alone), tableau
    if kind == "implicit":
        return GraphStepper(tableau, interp, int(options.get("max_iters", 100))), carrier(interp)
    corrected, limits = problem.method.name != "explicit_adams", [strictest(problem.rtol), strictest(problem.atol)]
    stepper = AdamsStepper(corrected, interp, int(options.get("max_order", MOST_ORDER)), int(options.get("max_iters", 4)), *limits)
    return stepper, stepper.tableau


def _tableau(problem: Problem) -> Tableau:
    if problem.method.tableau is None:
        raise ConfigError(f"{problem.method.name} has no steps of its own to take; use another method here")
    return problem.method.tableau


def _gradient(problem: Problem) -> Gradient:
    return Direct() if problem.params is None else Checkpoint()


def strictest(tolerance: Any) -> float:
    """A tolerance for an iteration: the strictest of those given."""
    if isinstance(tolerance, int | float):
        return float(tolerance)
    return min(float(torch.as_tensor(value).min()) for value in (tolerance if isinstance(tolerance, tuple | list) else [tolerance]))
