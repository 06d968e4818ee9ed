"""`solve`: integrate dy/dt = f(t, y) for a batch of states of any shape, with exact gradients and honest statistics."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Never

import torch
from torch import Tensor

from continua.ode.checks import check_state, check_times, end_times, warn_of_noise
from continua.ode.config import SolverConfig
from continua.ode.control import StepControl
from continua.ode.dense import DenseOutput, Saver, relative_times
from continua.ode.gradients import Gradient
from continua.ode.implicit import Implicit, ImplicitStepper
from continua.ode.integration import BatchSteps, Integration
from continua.ode.plain import refuse_unknown
from continua.ode.rate import Field, Rate, RelativeTime, broadcast_time, parameters_of
from continua.ode.sample import SampleSteps
from continua.ode.solution import Solution, State, Stats, Status, Time
from continua.ode.stepper import ExplicitStepper
from continua.ode.tableau import Tableau


def solve(
    f: Field,
    y0: "Tensor | tuple[Tensor, ...]",
    t0: "float | Tensor",
    t1: "float | Tensor",
    *,
    method: "str | Tableau | Implicit | Mapping[str, Any]" = "dopri5",
    rtol: float = 1e-3,
    atol: float = 1e-3,
    steps: int | None = None,
    control: "Literal['batch', 'sample'] | StepControl | Mapping[str, Any]" = "batch",
    gradient: "str | Gradient | Mapping[str, Any]" = "checkpoint",
    save_at: "Sequence[float] | Tensor | None" = None,
    dense: bool = False,
    params: Sequence[Tensor] | None = None,
    on_failure: Literal["raise", "status"] = "raise",
    record_steps: bool = False,
    **unknown: Never,
) -> Solution:
    """Integrate dy/dt = f(t, y), y(t0) = y0 to t1.

    Args:
        f: a module or callable f(t, y) -> rate of change, shaped like y. t is a 0-d tensor when all samples share it, else (batch,).
        y0: a tensor, or a tuple of tensors for a coupled system; batch first.
        t0, t1: start and end; t1 < t0 integrates backwards. A (batch,) tensor gives each sample its own interval.
        method: a name (euler, midpoint, heun, ralston, rk4, rk38, bosh3, fehlberg45, dopri5, tsit5, dopri8; implicit: gauss2, gauss4,
            radau3, radau5), a `Tableau`, or an `Implicit` method with the options of its iteration.
        rtol, atol: a step is accepted when the RMS of error / (atol + rtol max(|y|)) is at most 1.
        steps: this many equal steps instead of adaptive ones.
        control: "batch", one step for all; "sample", every sample its own time and step; or a `StepControl` with all its constants.
        gradient: "checkpoint" (recommended), "direct", "reversible" or "adjoint" (not recommended); one of these with its options, such as
            `Checkpoint(segments="sqrt")`; or a `Gradient` of your own.
        save_at: sorted times inside the interval at which the state is wanted; (time,) or, with an interval per sample, (time, batch).
        dense: keep the interpolant, for `Solution.interpolate`.
        params: tensors besides y0 that f depends on and that need gradients, where f is not a module that owns them.
        on_failure: "raise" a SolverError, or return the last good states with a "status" per sample.
        record_steps: keep t, h, error and acceptance of every tried step in `stats.steps`.
        unknown: there are no others; one of an earlier version is told its new place.
    """
    refuse_unknown(SolverConfig, "solver option", unknown, more=("save_at", "dense", "params"))
    config = SolverConfig(
        method=method,
        rtol=rtol,
        atol=atol,
        steps=steps,
        control=control,
        gradient=gradient,
        on_failure=on_failure,
        record_steps=record_steps,
    )
    return solve_with(config, f, y0, t0, t1, save_at=save_at, dense=dense, params=params)


def solve_with(
    config: SolverConfig,
    f: Field,
    y0: "Tensor | tuple[Tensor, ...]",
    t0: "float | Tensor",
    t1: "float | Tensor",
    *,
    save_at: "Sequence[float] | Tensor | None" = None,
    dense: bool = False,
    params: Sequence[Tensor] | None = None,
) -> Solution:
    """`solve` with its keywords in a `SolverConfig`.

    Under `torch.compile` and `torch.export`, fixed explicit steps become one graph: checks that look at numbers are left out, and
    `status` is empty.
    """
    single = isinstance(y0, Tensor)
    state = check_state(y0)
    start, end = end_times(t0, t1, state)
    times = check_times(save_at, start, end, state[0].shape[0])
    tensors = parameters_of(f, params)
    if not torch.compiler.is_compiling():
        warn_of_noise(config, state)
    state = _attach_start(f, state, t0, single)
    if _no_way_to_go(start, end):
        solution = _nothing_to_do(config, state, times, single, DenseOutput(config.tableau, state, start, end, False) if dense else None)
        shown = None if save_at is None else torch.as_tensor(save_at)
    else:
        integration = _integration(config, f, state, start, end, times, dense, tensors, single)
        solution = config.gradient.integrate(integration)
        rate = integration.rate
        shown = None if save_at is None else torch.as_tensor(save_at, dtype=rate.time_dtype, device=rate.device)
    solution.ts = shown
    return _attach_end(f, solution, t1, keep_graph=config.gradient.keeps_graph)


def _integration(
    config: SolverConfig,
    f: Field,
    y0: State,
    t0: Time,
    t1: Time,
    times: "list[float] | Tensor | None",
    dense: bool,
    params: State,
    single: bool,
) -> Integration:
    """The pieces of one solve, put together from its configuration."""
    tableau, per_sample = config.tableau, config.control.per == "sample"
    if per_sample or ((times is not None or dense) and tableau.order > 2):
        tableau = tableau.with_end_stage()
    interval, relative = (t0, t1), False
    if per_sample:
        t0, t1 = interval = (_per_sample(t0, y0), _per_sample(t1, y0))
        times = None if times is None else _times_per_sample(times, y0)
    elif isinstance(t0, Tensor) and isinstance(t1, Tensor):
        f, relative = RelativeTime(f, t0, t1), True
        times = None if times is None else relative_times(_times_per_sample(times, y0), t0, t1)
        t0, t1 = 0.0, 1.0
    return Integration(
        rate=Rate(f, y0, single),
        stepper=ExplicitStepper(tableau) if tableau.explicit else ImplicitStepper(tableau, config.implicit),
        config=config,
        y0=y0,
        t0=t0,
        t1=t1,
        loop=None if config.steps is not None else SampleSteps if per_sample else BatchSteps,
        params=params,
        saver=None if times is None else Saver(tableau, times, y0, t0),
        dense=DenseOutput(tableau, y0, *interval, relative=relative) if dense else None,
    )


def _per_sample(time: Time, y0: State) -> Tensor:
    """A number for the batch as one per sample."""
    return torch.as_tensor(time, dtype=torch.float64, device=y0[0].device).expand(len(y0[0]))


def _times_per_sample(times: "list[float] | Tensor", y0: State) -> Tensor:
    """Asked times as (time, batch) in float64."""
    wide = times if isinstance(times, Tensor) else torch.tensor(times, dtype=torch.float64, device=y0[0].device)[:, None]
    return wide.expand(-1, len(y0[0]))


def _attach_start(f: Field, y0: State, t0: "float | Tensor", single: bool) -> State:
    """Makes y1 depend on t0: moving the start by δ is starting at y0 − δ f(t0, y0)."""
    if not (isinstance(t0, Tensor) and t0.requires_grad and torch.is_grad_enabled()):
        return y0
    return _nudge(f, y0, t0, single, sign=-1.0, keep_graph=False)


def _attach_end(f: Field, solution: Solution, t1: "float | Tensor", keep_graph: bool) -> Solution:
    """Makes y1 depend on t1: dy1/dt1 = f(t1, y1)."""
    if isinstance(t1, Tensor) and t1.requires_grad and torch.is_grad_enabled():
        if isinstance(solution.y1, Tensor):
            (solution.y1,) = _nudge(f, (solution.y1,), t1, True, sign=1.0, keep_graph=keep_graph)
        else:
            solution.y1 = _nudge(f, solution.y1, t1, False, sign=1.0, keep_graph=keep_graph)
    return solution


def _nudge(f: Field, y: State, t: Tensor, single: bool, sign: float, keep_graph: bool) -> State:
    rate, offset = Rate(f, y, single), t - t.detach()
    with torch.set_grad_enabled(keep_graph):
        k = rate(t.detach(), y)
        if keep_graph:  # the midpoint rule over `offset`, which is 0, also has the right second derivative
            half = tuple(part + 0.5 * broadcast_time(offset, part).to(part.dtype) * slope for part, slope in zip(y, k, strict=True))
            k = rate(t.detach() + 0.5 * offset, half)
    return tuple(part + sign * broadcast_time(offset, part).to(part.dtype) * slope for part, slope in zip(y, k, strict=True))


def _no_way_to_go(t0: Time, t1: Time) -> bool:
    if isinstance(t0, Tensor) or isinstance(t1, Tensor):
        return not torch.compiler.is_compiling() and bool((torch.as_tensor(t0) == t1).all())
    return t0 == t1


def _nothing_to_do(
    config: SolverConfig, y0: State, times: "list[float] | Tensor | None", single: bool, dense: DenseOutput | None
) -> Solution:
    """t1 = t0: y1 is y0, in no steps."""
    y1 = tuple(part.clone() for part in y0)
    ys = None if times is None else tuple(torch.stack([part] * len(times)) for part in y0)
    stats = Stats.per_sample(len(y0[0]), y0[0].device) if config.control.per == "sample" else Stats()
    return Solution(y1[0] if single else y1, ys[0] if single and ys else ys, None, stats, (Status.SUCCESS,) * len(y0[0]), dense)
