"""`solve`: integrate dy/dt = f(t, y) for a batch of states of any shape, with exact gradients and honest statistics."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Never

import torch
from torch import Tensor

from continua.errors import ConfigError, ContinuaWarning
from continua.native import is_transforming
from continua.ode.checking import check_state, check_times, end_times, per_sample, times_per_sample
from continua.ode.config import SolverConfig
from continua.ode.control import Per, StepControl
from continua.ode.dense import DenseOutput, Saver, relative_times
from continua.ode.error import Tolerance, check_tolerances, largest_tolerance
from continua.ode.events import Event, as_events, check_events
from continua.ode.gradients import Gradient
from continua.ode.implicit import DiagonalStepper, Implicit, ImplicitStepper
from continua.ode.integration import BatchSteps, Integration
from continua.ode.moving import attach_end, attach_saved, attach_start, moves, with_graph
from continua.ode.plain import Options, no_end_time, refuse_unknown
from continua.ode.rate import Field, Rate, RelativeTime, parameters_of, time_dtype, why_not_called
from continua.ode.sample import SampleCounts, SampleSteps
from continua.ode.solution import Solution, State, Stats, Status, Time
from continua.ode.stepper import ExplicitStepper, Step, Stepper
from continua.ode.stops import snapped
from continua.ode.surroundings import for_transforms, transformed, why_not_compiled
from continua.ode.tableau import Tableau
from continua.ode.watch import Watch


def solve(
    f: Field,
    y0: "Tensor | tuple[Tensor, ...]",
    t0: "float | Tensor",
    t1: "float | Tensor | None" = None,
    *,
    method: "str | Tableau | Implicit | Options" = "dopri5",
    rtol: "Tolerance | Sequence[float]" = 1e-3,
    atol: "Tolerance | Sequence[float]" = 1e-3,
    steps: int | None = None,
    control: "Per | StepControl | Options" = "batch",
    gradient: "str | Gradient | Options" = "checkpoint",
    save_at: "Sequence[float] | Tensor | None" = None,
    dense: bool = False,
    params: Sequence[Tensor] | None = None,
    event: "Event | Sequence[Event] | None" = None,
    on_failure: Literal["raise", "status"] = "raise",
    record_steps: bool = False,
    **unknown: Never,
) -> Solution:
    """Integrate dy/dt = f(t, y), y(t0) = y0 to t1.

    Args:
        f: a module or callable f(t, y) -> rate of change, shaped like y. t is a 0-d tensor when all samples share it, else (batch,).
        y0: a tensor, or a tuple of tensors for a coupled system; batch first.
        t0, t1: start and end, both needed; t1 < t0 integrates backwards. A (batch,) tensor gives each sample its own interval.
        method: a name (euler, midpoint, heun, ralston, rk4, rk38, bosh3, fehlberg45, dopri5, rk45, tsit5, dopri8; for stiff equations
            kvaerno3, kvaerno5; implicit with fixed steps gauss2, gauss4, radau3, radau5), a `Tableau`, or an `Implicit` method with
            the options of its iteration.
        rtol, atol: a step is accepted when the RMS of error / (atol + rtol max(|y|)) is at most 1. Numbers; or tensors that broadcast
            against y0, or tuples with one of these for each part of y0.
        steps: this many equal steps instead of adaptive ones.
        control: "batch", one step for all; "sample", every sample its own time and step; or a `StepControl` with all its constants.
        gradient: "checkpoint" (recommended), "direct", "reversible", "leapfrog" or "adjoint" (not recommended); one of these with its
            options, such as `Checkpoint(segments="sqrt")`; or a `Gradient` of your own.
        save_at: sorted times inside the interval at which the state is wanted; (time,) or, with an interval per sample, (time, batch).
        dense: keep the interpolant, for `Solution.interpolate`.
        params: tensors besides y0 that f depends on and that need gradients, where f is not a module that owns them.
        event: an `Event`, or several, at which the solve stops or that it records.
        on_failure: "raise" a SolverError, or return the last good states with a "status" per sample.
        record_steps: keep t, h, error and acceptance of every tried step in `stats.steps`.
        unknown: there are no others; one of an earlier version is told its new place.

    Returns:
        The solution: `y1` (the state at t1), `ys` and `ts` (at `save_at`), `stats` (evaluations and steps) and `status`.

    Raises:
        ConfigError: `t1` or another argument is missing or does not fit.
        SolverError: the solve failed; `on_failure="status"` returns instead.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> sol = ct.solve(lambda t, y: -y, torch.ones(3, 1), 0.0, 1.0, rtol=1e-6, atol=1e-6)
        >>> round(float(sol.y1[0]), 4)
        0.3679
    """
    if unknown:
        refuse_unknown(SolverConfig, "solver option", unknown, more=("save_at", "dense", "params", "event"))
    if t1 is None:
        raise no_end_time(t0)
    config = SolverConfig(method, rtol, atol, steps, control, gradient, on_failure, record_steps)
    return solve_with(config, f, y0, t0, t1, save_at=save_at, dense=dense, params=params, event=event)


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
    event: "Event | Sequence[Event] | None" = None,
    each_step: "Callable[[Step], None] | None" = None,
) -> Solution:
    """`solve` with its keywords in a `SolverConfig`.

    Under `torch.compile` and `torch.export`, fixed explicit steps become one graph: checks that look at numbers are left out, and
    `status` is empty. Other solves run outside the graph. Inside `torch.func` and forward mode, a checkpointed gradient is direct.

    Args:
        config: method, tolerances, steps, gradient.
        f, y0, t0, t1, save_at, dense, params, event: as for `solve`.
        each_step: called with every accepted step; under `Direct`, with its graph.

    Returns:
        The solution.

    Raises:
        ConfigError: f cannot be called as f(t, y), or the arguments do not fit.
        SolverError: the solve failed.

    Examples:
        >>> import torch
        >>> from continua.ode import SolverConfig, solve_with
        >>> config = SolverConfig(method="rk4", steps=10)
        >>> round(solve_with(config, lambda t, y: -y, torch.ones(1, 1), 0.0, 1.0).y1.item(), 4)
        0.3679
    """
    options: dict[str, Any] = dict(save_at=save_at, dense=dense, params=params, events=as_events(event), each_step=each_step)
    if torch.compiler.is_compiling():
        return _compiled(config, f, y0, t0, t1, options)
    try:
        if is_transforming():
            config = for_transforms(config)
            return transformed(lambda: solve_eagerly(config, f, y0, t0, t1, **options))
        return solve_eagerly(config, f, y0, t0, t1, **options)
    except TypeError as error:
        if (problem := why_not_called(f)) is not None:
            raise ConfigError(problem) from error
        raise


def _compiled(
    config: SolverConfig, f: Field, y0: "Tensor | State", t0: "float | Tensor", t1: "float | Tensor", options: Options
) -> Solution:
    if config.control.one_graph and config.steps is None:
        from continua.ode.whole import solve_whole  # imports the compiler, which is slow

        return solve_whole(config, f, y0, t0, t1, options)
    problem = why_not_compiled(config, (*check_state(y0), *parameters_of(f, options["params"])), bool(options["events"]))
    if problem is None:
        return solve_eagerly(config, f, y0, t0, t1, **options)
    if torch.compiler.is_exporting():
        raise ConfigError(problem)
    from continua.ode.outside import solve_outside  # imports the compiler, which is slow

    return solve_outside(config, f, y0, t0, t1, **options)


def solve_eagerly(
    config: SolverConfig,
    f: Field,
    y0: "Tensor | State",
    t0: "float | Tensor",
    t1: "float | Tensor",
    save_at: "Sequence[float] | Tensor | None",
    dense: bool,
    params: Sequence[Tensor] | None,
    events: tuple[Event, ...] = (),
    each_step: "Callable[[Step], None] | None" = None,
) -> Solution:
    """The solve itself, wherever it may run."""
    single = isinstance(y0, Tensor)
    state = check_state(y0)
    start, end = end_times(t0, t1, state)
    times = check_times(save_at, start, end, state[0].shape[0])
    tensors = parameters_of(f, params)
    if not torch.compiler.is_compiling():
        _warn_of_noise(config, state)
    for name, value in (("rtol", config.rtol), ("atol", config.atol)):
        check_tolerances(name, value, state, config.control.per == "sample")
    if _no_way_to_go(start, end):
        state = attach_start(f, state, t0, single)
        solution = _nothing_to_do(config, state, times, single, DenseOutput(config.tableau, state, start, end, False) if dense else None)
        solution.ts = None if save_at is None else torch.as_tensor(save_at)
        return attach_saved(f, attach_end(f, solution, t1), save_at)
    asked = _Asked(start, end, times, dense, events, each_step)
    if moves(save_at) and config.gradient.exact_times:
        asked.moving = with_graph(times if times is not None else [], save_at, state[0].device)
    if config.steps is not None and config.gradient.exact_times and (moves(t0) or moves(t1)):
        asked.ends = (with_graph(start, t0, state[0].device), with_graph(end, t1, state[0].device))
        solution = config.gradient.integrate(_integration(config, f, state, asked, tensors, single))
        _in_units_of_t(solution.stats, asked, config.control.per == "sample", state[0].shape[0])
    else:
        integration = _integration(config, f, attach_start(f, state, t0, single), asked, tensors, single)
        solution = config.gradient.integrate(integration)
        if integration.watch is None:
            solution = attach_end(f, solution, t1)
        else:
            solution = integration.watch.attach(solution, with_graph(end, t1, state[0].device) if moves(t1) else end)
    solution.ts = None if save_at is None else torch.as_tensor(save_at, dtype=time_dtype(state[0]), device=state[0].device)
    return solution if config.gradient.exact_times else attach_saved(f, solution, save_at)


@dataclass
class _Asked:
    """What is asked of a solve: its interval, the times to save, each with its graph where somebody differentiates it."""

    t0: Time
    t1: Time
    times: "list[float] | Tensor | None"
    dense: bool
    events: tuple[Event, ...] = ()
    each_step: "Callable[[Step], None] | None" = None
    moving: Tensor | None = None  # the times to save
    ends: tuple[Tensor, Tensor] | None = None  # t0 and t1, where the steps are to be functions of them


def _integration(config: SolverConfig, f: Field, y0: State, asked: _Asked, params: State, single: bool) -> Integration:
    """The pieces of one solve, put together from its configuration."""
    t0, t1, times, moving = asked.t0, asked.t1, asked.times, asked.moving
    tableau, each = config.tableau, config.control.per == "sample"
    if (each and config.steps is None) or ((times is not None or asked.dense or asked.events) and tableau.order > 2):
        tableau = tableau.with_end_stage()
    interval, relative, unit = (t0, t1), False, 1.0
    if asked.ends is not None or (not each and isinstance(t0, Tensor) and isinstance(t1, Tensor)):
        if config.control.stops:
            raise ConfigError(
                "step_at and jump_at need one interval for the whole batch, or control='sample'; t0 or t1 is given per sample"
            )
        start, end = asked.ends or (t0, t1)
        f, relative = RelativeTime(f, torch.as_tensor(start), torch.as_tensor(end)), True
        params = (*params, *(time for time in (start, end) if moves(time)))
        if times is not None and (moving is not None or asked.ends is not None):
            moving = relative_times(with_graph(times, None, y0[0].device) if moving is None else moving, start, end)
        times = None if times is None else _on_common_clock(times, t0, t1)
        if config.steps is None:
            unit = float(torch.as_tensor(t1 - t0).abs().max())  # of the longest interval
        t0, t1 = 0.0, 1.0
    elif each:
        t0, t1 = interval = (per_sample(t0, y0), per_sample(t1, y0))
        times = None if times is None else times_per_sample(times, y0)
        moving = None if moving is None else times_per_sample(moving if moving.ndim == 2 else moving[:, None], y0)
    if times is not None and config.control.jump_at:
        times = snapped(times, config.control, t0, t1, time_dtype(y0[0]))
    rate = Rate(f, y0, single)
    if asked.events:
        check_events(config, relative)
    return Integration(
        rate=rate,
        stepper=_stepper(config, tableau),
        config=config,
        y0=y0,
        t0=t0,
        t1=t1,
        unit=unit,
        loop=None if config.steps is not None else SampleSteps if each else BatchSteps,
        params=params if moving is None else (*params, moving),
        saver=None if times is None else Saver(tableau, times, y0, t0, moving),
        dense=DenseOutput(tableau, y0, *interval, relative, config.control) if asked.dense else None,
        watch=Watch(asked.events, rate, tableau, y0[0].shape[0], each) if asked.events else None,
        each_step=asked.each_step,
    )


def _stepper(config: SolverConfig, tableau: Tableau) -> Stepper:
    if tableau.explicit:
        return ExplicitStepper(tableau)
    if tableau.diagonal and config.implicit.solver == "newton":
        return DiagonalStepper(tableau, config.implicit, None if config.steps is not None else (config.rtol, config.atol))
    return ImplicitStepper(tableau, config.implicit)


def _on_common_clock(times: "list[float] | Tensor", t0: Time, t1: Time) -> "list[float] | Tensor":
    if isinstance(times, Tensor):
        return relative_times(times, t0, t1)
    return relative_times(torch.tensor(times, dtype=torch.float64), t0, t1).tolist()


def _in_units_of_t(stats: Stats, asked: _Asked, each: bool, batch: int) -> None:
    """Statistics of fixed steps on the common clock as they are elsewhere."""
    length = asked.t1 - asked.t0
    if isinstance(length, Tensor) and not each:
        return
    stats.first_step, stats.last_step = stats.first_step * length, stats.last_step * length
    log = stats.steps
    if each:
        ones = torch.ones(batch, dtype=torch.int64, device=length.device if isinstance(length, Tensor) else None)
        stats.nfe, stats.accepted, stats.rejected, stats.nfe_backward = (n * ones for n in (stats.nfe, stats.accepted, 0, 0))
        stats.first_step, stats.last_step = stats.first_step * ones, stats.last_step * ones
    if log is not None:
        rows = batch if each else 1
        t0, size = (torch.as_tensor(t, dtype=torch.float64).cpu().expand(rows) for t in (asked.t0, length))
        log.t, log.h = ((base + part[:, None] * size).flatten() for base, part in ((t0, log.t), (0.0, log.h)))
        log.error, log.accepted = (part[:, None].expand(-1, rows).flatten() for part in (log.error, log.accepted))
        log.sample = torch.arange(rows).repeat(len(log.t) // rows) if each else None


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
    stats = SampleCounts(len(y0[0]), y0[0].device).stats if config.control.per == "sample" else Stats()
    return Solution(y1[0] if single else y1, ys[0] if single and ys else ys, None, stats, (Status.SUCCESS,) * len(y0[0]), dense)


_warned: set[str] = set()


def _warn_of_noise(config: SolverConfig, y0: State) -> None:
    """Once per case: tolerances that the arithmetic cannot resolve make the solver chase rounding errors."""
    if config.steps is not None:
        return
    device, dtype = y0[0].device.type, y0[0].dtype
    limit = 4 * torch.finfo(dtype).eps
    name = str(dtype).removeprefix("torch.")
    if torch.is_autocast_enabled(device):
        compute = torch.get_autocast_dtype(device)
        if torch.finfo(compute).eps / 20 > limit:
            limit, name = torch.finfo(compute).eps / 20, str(compute).removeprefix("torch.")
    if largest_tolerance(config.rtol, config.atol) >= limit:
        return
    key = f"{name} {config.tolerances}"
    if key not in _warned:
        _warned.add(key)
        text = f"{config.tolerances} are below what {name} arithmetic resolves (about {limit:.1g})"
        warnings.warn(
            f"{text}; steps will follow rounding noise. Loosen the tolerances, or compute in a wider dtype.", ContinuaWarning, stacklevel=4
        )
