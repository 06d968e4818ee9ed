"""`solve`: integrate dy/dt = f(t, y) for a batch of states of any shape, with exact gradients and honest statistics."""

import warnings
from collections.abc import Sequence
from typing import Literal, Never

import torch
from torch import Tensor

from continua.errors import ConfigError, ContinuaWarning
from continua.ode.config import SolverConfig
from continua.ode.control import Per, StepControl
from continua.ode.dense import DenseOutput, Saver, relative_times
from continua.ode.gradients import Gradient
from continua.ode.implicit import Implicit, ImplicitStepper
from continua.ode.integration import BatchSteps, Integration
from continua.ode.plain import Options, no_end_time, refuse_unknown
from continua.ode.rate import Field, Rate, RelativeTime, are_tensors, broadcast_time, parameters_of
from continua.ode.sample import SampleCounts, SampleSteps
from continua.ode.solution import Solution, State, Stats, Status, Time
from continua.ode.stepper import ExplicitStepper
from continua.ode.tableau import Tableau


def solve(
    f: Field,
    y0: "Tensor | tuple[Tensor, ...]",
    t0: "float | Tensor",
    t1: "float | Tensor | None" = None,
    *,
    method: "str | Tableau | Implicit | Options" = "dopri5",
    rtol: float = 1e-3,
    atol: float = 1e-3,
    steps: int | None = None,
    control: "Per | StepControl | Options" = "batch",
    gradient: "str | Gradient | Options" = "checkpoint",
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
        t0, t1: start and end, both needed; t1 < t0 integrates backwards. A (batch,) tensor gives each sample its own interval.
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
    if unknown:
        refuse_unknown(SolverConfig, "solver option", unknown, more=("save_at", "dense", "params"))
    if t1 is None:
        raise no_end_time(t0)
    config = SolverConfig(method, rtol, atol, steps, control, gradient, on_failure, record_steps)
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
    state = _check_state(y0)
    start, end = _end_times(t0, t1, state)
    times = _check_times(save_at, start, end, state[0].shape[0])
    tensors = parameters_of(f, params)
    if not torch.compiler.is_compiling():
        _warn_of_noise(config, state)
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
    stats = SampleCounts(len(y0[0]), y0[0].device).stats if config.control.per == "sample" else Stats()
    return Solution(y1[0] if single else y1, ys[0] if single and ys else ys, None, stats, (Status.SUCCESS,) * len(y0[0]), dense)


# --- questions asked of the input before any work: states, times, tolerances ------------------------------------------


def _check_state(y0: object) -> State:
    """y0 as a tuple of floating tensors with the same, non-empty batch."""
    parts = (y0,) if isinstance(y0, Tensor) else y0
    if not are_tensors(parts) or not parts:
        raise ConfigError(f"y0 is a {type(y0).__name__}; expected a tensor or a tuple of tensors, batch first")
    for part in parts:
        if not part.is_floating_point():
            raise ConfigError(f"y0 has dtype {part.dtype}; expected a floating point state (y0.float())")
        if part.ndim == 0 or part.shape[0] == 0:
            raise ConfigError(f"y0 has shape {tuple(part.shape)}; expected a batch of at least one sample in the first dimension")
    if any(part.shape[0] != parts[0].shape[0] or part.device != parts[0].device for part in parts):
        shapes = ", ".join(f"{tuple(part.shape)} on {part.device}" for part in parts)
        raise ConfigError(f"the parts of y0 are {shapes}; they must have the same batch size and device")
    return tuple(parts)


def _end_times(t0: "float | Tensor", t1: "float | Tensor", y0: State) -> tuple[Time, Time]:
    """Start and end as two numbers, or as two (batch,) float64 tensors when either is given per sample.

    A graph cannot look at a number in a tensor: under `torch.compile` it stays there, unchecked.
    """
    start, end = (_end_time(name, value, y0) for name, value in (("t0", t0), ("t1", t1)))
    if not torch.compiler.is_compiling() and not all(bool(torch.isfinite(torch.as_tensor(value)).all()) for value in (start, end)):
        raise ConfigError(f"t0 = {t0}, t1 = {t1}; times must be finite")
    if any(isinstance(value, Tensor) and value.ndim for value in (start, end)):
        return _per_sample(start, y0), _per_sample(end, y0)
    return start, end


def _end_time(name: str, value: "float | Tensor", y0: State) -> Time:
    if not isinstance(value, Tensor):
        return float(value)
    if value.ndim == 0:
        return value.detach() if torch.compiler.is_compiling() else float(value.detach())
    if value.shape != y0[0].shape[:1]:
        raise ConfigError(f"{name} has shape {tuple(value.shape)}; expected one number, or ({len(y0[0])},): one per sample")
    return value.detach().to(y0[0].device, torch.float64)


def _check_times(save_at: "Sequence[float] | Tensor | None", t0: Time, t1: Time, batch: int) -> "list[float] | Tensor | None":
    """Asked times: a list for the batch, or (time, batch) in float64; inside the interval and in its order."""
    if save_at is None:
        return None
    times = torch.as_tensor(save_at, dtype=torch.float64).detach()
    if times.ndim not in (1, 2) or len(times) == 0 or (times.ndim == 2 and times.shape[1] != batch):
        raise ConfigError(f"save_at has shape {tuple(times.shape)}; expected (time,) or (time, {batch}), with at least one time")
    if times.ndim == 2 and not isinstance(t1, Tensor):
        raise ConfigError("save_at is given per sample, (time, batch), but t0 and t1 are not; give t1 as a (batch,) tensor too")
    start, end = (torch.as_tensor(t, dtype=torch.float64).cpu() for t in (t0, t1))
    wide = times.cpu() if times.ndim == 2 else times.cpu()[:, None]
    if isinstance(save_at, Tensor) and save_at.is_floating_point():
        for limit in (start, end):  # torch.linspace(0, 0.1, 5) ends a rounding error of float32 past 0.1: it means 0.1
            wide = torch.where(wide == limit.to(save_at.dtype).double(), limit, wide)
    low, high = torch.minimum(start, end), torch.maximum(start, end)
    outside = (wide < low) | (wide > high)
    if bool(outside.any()) or not bool(torch.isfinite(wide).all()):
        value = wide.expand(-1, outside.shape[1])[outside][0] if bool(outside.any()) else torch.nan
        raise ConfigError(f"save_at asks for t = {float(value):.6g}, outside the interval of the solve; it must lie between t0 and t1")
    order = wide.diff(dim=0) * torch.sign(end - start)
    if bool((order < 0).any()):
        raise ConfigError("save_at must be sorted in the direction of the solve, from t0 to t1")
    if isinstance(t1, Tensor):
        return wide.expand(-1, batch).to(t1.device)
    return wide.flatten().tolist()


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
    key = f"{name} rtol={config.rtol:g} atol={config.atol:g}"
    if max(config.rtol, config.atol) < limit and key not in _warned:
        _warned.add(key)
        text = f"rtol={config.rtol:g}, atol={config.atol:g} are below what {name} arithmetic resolves (about {limit:.1g})"
        warnings.warn(
            f"{text}; steps will follow rounding noise. Loosen the tolerances, or compute in a wider dtype.", ContinuaWarning, stacklevel=4
        )
