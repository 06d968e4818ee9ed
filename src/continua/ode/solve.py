"""`solve`: integrate dy/dt = f(t, y) for a batch of states of any shape, with exact gradients and honest statistics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.adjoint import AdjointSolve, adjoint_config
from continua.ode.checks import check_state, check_times, end_times, warn_of_noise
from continua.ode.config import Controller, SolverConfig
from continua.ode.control import Problem
from continua.ode.dense import DenseOutput, Saver, relative_times
from continua.ode.gradient import CheckpointSolve, Job
from continua.ode.implicit import ImplicitStepper
from continua.ode.loops import BatchSteps, FixedSteps
from continua.ode.rate import Rate, RelativeTime, broadcast_time, parameters_of, probe
from continua.ode.reversible import ReversibleSolve, ReversibleStepper
from continua.ode.sample import SampleSteps
from continua.ode.solution import Solution, State, Stats, Status
from continua.ode.stepper import ExplicitStepper, Time
from continua.ode.tableau import Tableau

Field = Callable[..., Any]


def solve(
    f: Field,
    y0: "Tensor | tuple[Tensor, ...]",
    t0: "float | Tensor",
    t1: "float | Tensor",
    *,
    method: "str | Tableau" = "dopri5",
    rtol: float = 1e-3,
    atol: float = 1e-3,
    steps: int | None = None,
    first_step: float | None = None,
    max_steps: int = 1000,
    control: Literal["batch", "sample"] = "batch",
    controller: "str | Mapping[str, Any] | Controller" = "i",
    save_at: "Sequence[float] | Tensor | None" = None,
    dense: bool = False,
    gradient: Literal["checkpoint", "direct", "reversible", "adjoint"] = "checkpoint",
    segments: "int | Literal['sqrt'] | None" = None,
    adjoint_options: Mapping[str, Any] | None = None,
    implicit_options: Mapping[str, Any] | None = None,
    params: Sequence[Tensor] | None = None,
    on_failure: Literal["raise", "status"] = "raise",
    record_steps: bool = False,
) -> Solution:
    """Integrate dy/dt = f(t, y), y(t0) = y0 to t1.

    Args:
        f: a module or callable f(t, y) -> rate of change, shaped like y. t is a 0-d tensor when all samples share it, else (batch,).
        y0: a tensor, or a tuple of tensors for a coupled system; batch first.
        t0, t1: start and end; t1 < t0 integrates backwards. A (batch,) tensor gives each sample its own interval.
        method: a name (euler, midpoint, heun, ralston, rk4, rk38, bosh3, fehlberg45, dopri5, tsit5, dopri8; implicit: gauss2, gauss4,
            radau3, radau5) or a `Tableau`.
        rtol, atol: a step is accepted when the RMS of error / (atol + rtol max(|y|)) is at most 1.
        steps: this many equal steps instead of adaptive ones.
        first_step: size of the first adaptive step (default: Hairer's rule).
        max_steps: tried steps after which the solve fails.
        control: "batch", one step for all; "sample", every sample its own time and step.
        controller: "i", "pi" or a `Controller` with all its constants.
        save_at: sorted times inside the interval at which the state is wanted; (time,) or, with an interval per sample, (time, batch).
        dense: keep the interpolant, for `Solution.interpolate`.
        gradient: "checkpoint" (recommended), "direct", "reversible" or "adjoint" (not recommended).
        segments: with "checkpoint", keep states at the starts of this many segments only, or "sqrt".
        adjoint_options: solver keywords of the backward solve of "adjoint", and norm="semi" | "full".
        implicit_options: iteration of implicit methods: solver="newton" | "fixed_point", tol, max_iterations, krylov,
            jacobian="exact" | "difference" (see `ImplicitOptions`).
        params: tensors besides y0 that f depends on and that need gradients, where f is not a module that owns them.
        on_failure: "raise" a SolverError, or return the last good states with a "status" per sample.
        record_steps: keep t, h, error and acceptance of every tried step in `stats.steps`.
    """
    config = SolverConfig(
        method=method,
        rtol=rtol,
        atol=atol,
        steps=steps,
        first_step=first_step,
        max_steps=max_steps,
        control=control,
        controller=controller,
        gradient=gradient,
        segments=segments,
        adjoint_options=adjoint_options,
        implicit_options=implicit_options,
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
    """`solve` with its keywords in a `SolverConfig`."""
    single = isinstance(y0, Tensor)
    state = check_state(y0)
    start, end = end_times(t0, t1, state)
    times = check_times(save_at, start, end, state[0].shape[0])
    found = parameters_of(f, params)
    if not torch.compiler.is_compiling():
        warn_of_noise(config, state)
    state = _attach_start(f, state, t0, single)
    if _no_way_to_go(start, end):
        output = DenseOutput(config.tableau, state, start, end, relative=False) if dense else None
        return _nothing_to_do(config, state, _attach_end(f, state, t1, single, config.gradient), times, save_at, single, output)
    solver = _Solver(config, f, state, start, end, times, dense, found, single)
    y1, ys = solver.run()
    y1 = _attach_end(f, y1, t1, single, config.gradient)
    shown = None if times is None else torch.as_tensor(save_at, dtype=solver.rate.time_dtype, device=solver.rate.device)
    status, stats = solver.job.loop.status, solver.job.loop.stats
    if single:
        return Solution(y1[0], None if ys is None else ys[0], shown, stats, status, solver.job.dense)
    return Solution(y1, ys, shown, stats, status, solver.job.dense)


class _Solver:
    """The pieces of one solve, put together from its configuration."""

    def __init__(
        self,
        config: SolverConfig,
        f: Field,
        y0: State,
        t0: Time,
        t1: Time,
        times: "list[float] | Tensor | None",
        dense: bool,
        params: State,
        single: bool,
    ) -> None:
        self.config, self.y0, self.params, self.times = config, y0, params, times
        self.differentiate = torch.is_grad_enabled() and any(p.requires_grad for p in (*y0, *params))
        tableau = config.tableau
        if config.control == "sample" or ((times is not None or dense) and tableau.order > 2):
            tableau = tableau.with_end_stage()
        if config.gradient == "adjoint":
            adjoint_config(config)
        self._refuse_states_without_gradient(dense)
        interval = (t0, t1)
        if config.control == "sample":
            t0, t1, times = (_per_sample(value, y0) for value in (t0, t1, times))
            interval = (t0, t1)
        elif isinstance(t0, Tensor) and isinstance(t1, Tensor):
            f, times = RelativeTime(f, t0, t1), _relative(times, t0, t1)
            t0, t1 = 0.0, 1.0
        self.rate = Rate(f, y0, single)
        pair = config.gradient == "reversible"
        stepper = ReversibleStepper(tableau) if pair else ExplicitStepper(tableau)
        if not tableau.explicit:
            stepper = ImplicitStepper(tableau, config.implicit)
        begin = (*y0, *y0) if pair else y0
        first = self._first_rate(t0)
        problem = Problem(self.rate, stepper, config, begin, t0, t1, len(y0), len(y0), first)
        saver = None if times is None else Saver(tableau, times, y0, t0)
        output = DenseOutput(tableau, y0, *interval, relative=interval[0] is not t0) if dense else None
        self.job = Job(problem, self._loop(problem), tableau, saver, output)

    def _loop(self, problem: Problem) -> "FixedSteps | BatchSteps | SampleSteps":
        if self.config.steps is not None:
            return FixedSteps(problem, self.config.steps)
        return SampleSteps(problem) if self.config.control == "sample" else BatchSteps(problem)

    def _refuse_states_without_gradient(self, dense: bool) -> None:
        if self.config.gradient == "reversible" and (dense or (self.times is not None and self.differentiate)):
            raise ConfigError(
                "gradient='reversible' gives y1 only: it keeps no states inside; use gradient='checkpoint' for save_at or dense"
            )
        if not self.config.tableau.explicit and self.differentiate and (dense or self.times is not None):
            text = f"{self.config.tableau.name} is implicit and gives gradients of y1 only"
            raise ConfigError(f"{text}; for save_at or dense use an explicit method, or ask for the states under torch.no_grad()")

    def _first_rate(self, t0: Time) -> State | None:
        """f(t0, y0), with the questions of `probe` asked where backward will evaluate f again."""
        replayed = self.differentiate and self.config.gradient != "direct"
        if torch.compiler.is_compiling() or (self.config.gradient != "reversible" and not replayed):
            return None
        self.rate.on_step(0, False)
        if replayed:
            return probe(self.rate, t0, self.y0, self.params, self.config.gradient)
        return self.rate(t0, self.y0)

    def run(self) -> tuple[State, State | None]:
        """y1 and ys, connected to y0 and the parameters as the configuration asks."""
        count, gradient = len(self.y0), self.config.gradient
        tensors = (*self.y0, *self.params)
        if not self.differentiate or gradient == "direct":
            outputs = self.job.run()
            if gradient == "reversible":
                return outputs[:count], outputs[2 * count :] or None
        elif gradient == "checkpoint":
            outputs = CheckpointSolve.apply(self.job, count, *tensors)
        elif gradient == "reversible":
            outputs = ReversibleSolve.apply(self.job, count, *tensors)
        else:
            outputs = AdjointSolve.apply(self.job, count, self._adjoint_times(), *tensors)
        return outputs[:count], outputs[count:] or None

    def _adjoint_times(self) -> list[float]:
        if self.times is None:
            return []
        if isinstance(self.times, Tensor):
            raise ConfigError("gradient='adjoint' with save_at needs one interval for the whole batch; use gradient='checkpoint'")
        return self.times


def _per_sample(times: Any, y0: State) -> Any:
    """One number or a list of them as a number per sample: (batch,) or (time, batch), in float64."""
    if times is None:
        return None
    wide = torch.as_tensor(times, dtype=torch.float64, device=y0[0].device)
    wide = wide[:, None] if isinstance(times, list) else wide
    return wide.expand(*wide.shape[:-1], len(y0[0]))


def _relative(times: "list[float] | Tensor | None", t0: Tensor, t1: Tensor) -> Tensor | None:
    """Asked times on the clock s ∈ [0, 1] of each sample."""
    if times is None:
        return None
    wide = times if isinstance(times, Tensor) else torch.tensor(times, dtype=torch.float64, device=t1.device)[:, None]
    return relative_times(wide.expand(-1, len(t1)), t0, t1)


def _attach_start(f: Field, y0: State, t0: "float | Tensor", single: bool) -> State:
    """Makes y1 depend on t0: moving the start by δ is starting at y0 − δ f(t0, y0)."""
    if not (isinstance(t0, Tensor) and t0.requires_grad and torch.is_grad_enabled()):
        return y0
    return _nudge(f, y0, t0, single, sign=-1.0, keep_graph=False)


def _attach_end(f: Field, y1: State, t1: "float | Tensor", single: bool, gradient: str) -> State:
    """Makes y1 depend on t1: dy1/dt1 = f(t1, y1)."""
    if not (isinstance(t1, Tensor) and t1.requires_grad and torch.is_grad_enabled()):
        return y1
    return _nudge(f, y1, t1, single, sign=1.0, keep_graph=gradient == "direct")


def _nudge(f: Field, y: State, t: Tensor, single: bool, sign: float, keep_graph: bool) -> State:
    rate, offset = Rate(f, y, single), t - t.detach()
    with torch.set_grad_enabled(keep_graph):
        k = rate(t.detach(), y)
        if keep_graph:  # the midpoint rule over `offset`, which is 0, also has the right second derivative
            half = tuple(part + 0.5 * broadcast_time(offset, part).to(part.dtype) * slope for part, slope in zip(y, k, strict=True))
            k = rate(t.detach() + 0.5 * offset, half)
    return tuple(part + sign * broadcast_time(offset, part).to(part.dtype) * slope for part, slope in zip(y, k, strict=True))


def _no_way_to_go(t0: Time, t1: Time) -> bool:
    return bool((t0 == t1).all()) if isinstance(t1, Tensor) else t0 == t1


def _nothing_to_do(
    config: SolverConfig, y0: State, y1: State, times: Any, save_at: Any, single: bool, dense: DenseOutput | None
) -> Solution:
    y1 = tuple(part.clone() for part in y1)
    ys = None if times is None else tuple(torch.stack([part] * len(times)) for part in y0)
    stats = Stats()
    if config.control == "sample":
        zero = torch.zeros(len(y0[0]), dtype=torch.int64, device=y0[0].device)
        stats = Stats(zero, zero.clone(), zero.clone(), zero.clone(), zero.double(), zero.double())
    status = (Status.SUCCESS,) * len(y0[0])
    shown = None if save_at is None else torch.as_tensor(save_at)
    return Solution(y1[0] if single else y1, ys[0] if single and ys else ys, shown, stats, status, dense)
