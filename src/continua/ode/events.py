"""Events: where a function of t and y crosses zero, a solve stops, or notes the moment and goes on.

A crossing is a change of sign between the ends of an accepted step; it is located on the step's interpolant, to 1e-10 of the step. A solve
that stops there takes the step again, to that moment (or, if the event says so, reads its state off the interpolant). Its time and state
are differentiated by the implicit function theorem: with g(t, y(t)) = 0 and s = ∂g/∂t + ⟨∂g/∂y, f⟩, the moment moves by
dt = −dg / s at a fixed time, and the state by f dt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.float64 import double, widest
from continua.ode.dense import between
from continua.ode.error import rms
from continua.ode.moving import carried, moves
from continua.ode.rate import Rate, broadcast_time
from continua.ode.solution import EventLog, Solution, State, Time
from continua.ode.stepper import Step
from continua.ode.tableau import Tableau

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig

MOST_TRIALS = 100


@dataclass(frozen=True)
class Event:
    """A solve stops, or takes note, where function(t, y) crosses zero.

    function: given t and y as f is, it returns one number for each sample, (batch,), under per-sample control, and one number for the whole
        batch otherwise. It may depend on tensors that need gradients.
    direction: 1 for crossings from below to above, −1 for those from above to below, 0 for both.
    terminal: whether the solve stops there; else the moment is recorded.
    takes_rate: whether the function is given f(t, y) as a third argument.
    precision: how closely the crossing is located, as a share of the step.
    interpolated: whether a sample that stops where no gradient is taken gets its state from the interpolant: that costs no evaluations of f
        and has the interpolant's accuracy. Only under per-sample control and without save_at or dense, else the step is taken again.
    """

    function: "Callable[..., Tensor]"
    direction: int = 0
    terminal: bool = True
    takes_rate: bool = False
    precision: float = 1e-10
    interpolated: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"Event({self.function!r}): expected a function of t and y whose zero is the event")
        if self.direction not in (-1, 0, 1):
            raise ConfigError(f"Event(direction={self.direction!r}); expected 1 (upwards), -1 (downwards) or 0 (both)")
        if not 0 < self.precision < 1:
            raise ConfigError(f"Event(precision={self.precision!r}); expected a share of a step, above 0 and below 1")

    def past(self, value: Tensor) -> Tensor:
        """Where the function is beyond zero already; nowhere for an event without a direction."""
        return value >= 0 if self.direction > 0 else value <= 0 if self.direction < 0 else torch.zeros_like(value, dtype=torch.bool)


def steady_state(tolerance: float = 1e-3) -> Event:
    """Stop where the state hardly changes: the RMS of f over a sample (the batch, under batch control) falls below `tolerance`.

    Args:
        tolerance: the RMS of f below which the state counts as steady.

    Returns:
        An event for `solve(..., event=...)`.

    Raises:
        ConfigError: `tolerance` is not positive.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.ode import steady_state
        >>> sol = ct.solve(lambda t, y: -y, torch.ones(2, 1), 0.0, 50.0, event=steady_state(1e-2))
    """
    if not tolerance > 0:
        raise ConfigError(f"steady_state({tolerance!r}); expected a rate of change above 0")

    def excess(t: Tensor, y: "Tensor | State", rate: "Tensor | State") -> Tensor:
        parts = (rate,) if isinstance(rate, Tensor) else rate
        return rms(parts, per_sample=t.ndim == 1) - tolerance

    return Event(excess, direction=-1, takes_rate=True)


def as_events(given: "Event | Sequence[Event] | None") -> tuple[Event, ...]:
    """What `solve` was given, as a tuple."""
    events = () if given is None else (given,) if isinstance(given, Event) else given
    if not isinstance(events, tuple | list) or not all(isinstance(event, Event) for event in events):
        raise ConfigError(f"event={given!r}; expected an Event(function), or a list of them")
    return tuple(events)


def check_events(config: "SolverConfig", relative: bool) -> None:
    """Refuse what events cannot be combined with."""
    if config.steps is not None and config.control.per == "sample":
        raise ConfigError(
            f"events under control='sample' need adaptive steps, and steps={config.steps} are fixed: leave steps out (with a method that "
            "chooses its steps, such as dopri5), or use control='batch', where an event stops the whole batch"
        )
    if relative and config.steps is not None:
        raise ConfigError(
            f"events with steps={config.steps} need t0 and t1 that all samples share and that need no gradients: leave steps out (for an "
            "interval per sample with control='sample')"
        )
    if relative:
        raise ConfigError(
            "events under control='batch' need one interval for the whole batch, and t0 or t1 is given per sample: use control='sample'"
        )


@dataclass
class Watch:
    """Looks at every accepted step of a solve. Times are numbers, or (rows,) under per-sample control."""

    events: tuple[Event, ...]
    rate: Rate
    tableau: Tableau
    batch: int
    each: bool
    logs: list[list[tuple[Tensor, Tensor, State]]] = field(default_factory=list)  # of every event: samples, times, states
    values: list[Tensor] = field(default_factory=list)  # of every event at the last accepted state: (batch,) or 0-d
    stopped: Tensor = field(default_factory=lambda: torch.tensor(-1))
    ended: Tensor = field(default_factory=lambda: torch.tensor(torch.nan))
    gradients: bool = field(default_factory=torch.is_grad_enabled)  # may be asked for: a forward pass of its own hides it later

    @property
    def reads_off(self) -> bool:
        """Whether all that may stop a sample are content with a state off the interpolant."""
        return not self.gradients and all(event.interpolated for event in self.events if event.terminal)

    def begin(self, t0: Time, y0: State) -> None:
        shape, device = ((self.batch,) if self.each else ()), self.rate.device
        self.logs = [[] for _ in self.events]
        with torch.no_grad():
            self.values = [self.value(event, t0, y0).clone() for event in self.events]  # may be a view of y0
        self.stopped = torch.full(shape, -1, dtype=torch.int64, device=device)
        self.ended = torch.full(shape, torch.nan, dtype=widest(device), device=device)

    def value(self, event: Event, t: Time, y: State) -> Tensor:
        """function(t, y), looked at."""
        rate, width = self.rate, self.rate.width
        y = y[:width]
        time = t.to(rate.time_dtype) if isinstance(t, Tensor) else torch.tensor(t, dtype=rate.time_dtype, device=rate.device)
        state = y[0] if rate.single else y
        k: State = ()
        if event.takes_rate:
            k = rate(t, y)
            value = event.function(time, state, k[0] if rate.single else k)
        else:
            value = event.function(time, state)
        expected = y[0].shape[:1] if self.each else ()
        if not isinstance(value, Tensor) or (value.shape != expected and not (not self.each and value.numel() == 1)):
            got = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            wanted = (
                "one number per sample, (batch,)" if self.each else "one number for the whole batch (control='sample' has one per sample)"
            )
            raise ConfigError(f"the function of an event returned {got}; expected {wanted}")
        if value.dtype == torch.bool or value.is_complex():
            kind = "bools" if value.dtype == torch.bool else "complex numbers"
            raise ConfigError(
                f"the function of an event returned {kind}; expected a number that crosses zero where the event is, such as y[:, 0] for "
                "y[:, 0] < 0"
            )
        value = value.reshape(expected)
        _refuse_undefined(value.detach(), time, (*y, *k))
        return value

    @torch.no_grad()
    def look(self, step: Step) -> "tuple[Tensor, Tensor] | None":
        """Notes what a step crosses. Which rows of the step (which step: 0-d) are to stop, and when; None if none."""
        rows = slice(None) if step.rows is None else step.rows
        first: Tensor | None = None  # how far into the step it goes before it stops
        crossings = []
        for index, event in enumerate(self.events):
            old = self.values[index] if not self.each else self.values[index][rows]
            new = self.value(event, step.t_next, step.y1)
            crossed = _crossed(old, new, event.direction)
            if self.each:
                self.values[index][rows] = new
            else:
                self.values[index] = new
            if bool(crossed.any()):
                theta = self._where(event, step, old, new, crossed)
                crossings.append((index, crossed, theta))
                if event.terminal:
                    until = torch.where(crossed, theta, torch.inf)
                    first = until if first is None else torch.minimum(first, until)
        stop = None
        for index, crossed, theta in crossings:
            before = crossed if first is None else crossed & (theta <= first)
            if bool(before.any()):
                self._note(index, step, before, theta)
                if self.events[index].terminal and first is not None:
                    stop = self._stop(index, step, before & (theta == first), theta, stop)
        return stop

    def _where(self, event: Event, step: Step, old: Tensor, new: Tensor, crossed: Tensor) -> Tensor:
        """θ of the crossing, 0 for rows that do not cross; only those that do are looked at again."""
        if not self.each or bool(crossed.all()):
            return self._locate(event, step, old, new, crossed)
        chosen = crossed.nonzero().flatten()
        theta = self._locate(event, step.only(chosen), old[chosen], new[chosen], crossed[chosen])
        return torch.zeros_like(crossed, dtype=torch.float64).index_copy(0, chosen, theta)

    def _locate(self, event: Event, step: Step, old: Tensor, new: Tensor, crossed: Tensor) -> Tensor:
        """θ of the crossing, by false position with Illinois' remedy; rows that do not cross are carried along."""
        a, b = torch.zeros_like(old, dtype=widest(old.device)), torch.ones_like(old, dtype=widest(old.device))
        ga, gb = double(old), double(new)
        for trial in range(MOST_TRIALS):
            gap = gb - ga
            theta = torch.where(gap == 0, 0.5 * (a + b), a - ga * (b - a) / torch.where(gap == 0, 1.0, gap))
            if trial % 4 == 3:
                theta = 0.5 * (a + b)  # so that the bracket shrinks whatever the function
            theta = torch.where((theta > a) & (theta < b), theta, 0.5 * (a + b))
            t, y = self._inside(step, theta)
            g = double(self.value(event, t, y))
            left = (g > 0) == (ga > 0)
            left = left & (g != 0)
            gb = torch.where(left, 0.5 * gb if trial else gb, g)
            ga = torch.where(left, g, 0.5 * ga if trial else ga)
            a, b = torch.where(left, theta, a), torch.where(left, b, theta)
            if bool((((b - a) <= event.precision) | (g == 0) | ~crossed).all()):
                break
        return torch.where(crossed & (new == 0), 1.0, b)

    def _inside(self, step: Step, theta: Tensor) -> tuple[Time, State]:
        width = self.rate.width
        if len(step.y0) > width:  # the reversible scheme carries a second copy of the state
            step = replace(step, y0=step.y0[:width], y1=step.y1[:width])
        if not self.each:
            share = float(theta)
            return step.t + share * step.h, step.y1 if share == 1.0 else between(self.tableau, step, share)
        return step.t + theta * step.h, between(self.tableau, step, theta)

    def _note(self, index: int, step: Step, which: Tensor, theta: Tensor) -> None:
        t, y = self._inside(step, theta)
        if not self.each:
            sample = torch.tensor(-1)
            self.logs[index].append((sample.reshape(1), torch.tensor([t], dtype=torch.float64), tuple(part[None] for part in y)))
            return
        chosen = which.nonzero().flatten()
        sample = chosen if step.rows is None else step.rows[chosen]
        self.logs[index].append((sample, torch.as_tensor(t)[chosen], tuple(part[chosen] for part in y)))

    def _stop(self, index: int, step: Step, which: Tensor, theta: Tensor, stop: "tuple[Tensor, Tensor] | None") -> "tuple[Tensor, Tensor]":
        t = torch.as_tensor(step.t, dtype=widest(theta.device), device=theta.device) + theta * step.h
        t = torch.where(theta == 1.0, torch.as_tensor(step.t_next, dtype=widest(theta.device), device=theta.device), t)
        if self.each:
            chosen = which.nonzero().flatten()
            target = chosen if step.rows is None else step.rows[chosen]
            self.stopped[target], self.ended[target] = index, t[chosen]
        elif bool(which):
            self.stopped, self.ended = torch.full_like(self.stopped, index), t.to(self.ended.device)
        old = (torch.zeros_like(which), t) if stop is None else stop
        return old[0] | which, torch.where(which, t, old[1])

    def attach(self, solution: Solution, t1: Time) -> Solution:
        """What happened, in the solution; y1 and the moments as functions of all that they depend on."""
        single, y1 = isinstance(solution.y1, Tensor), (solution.y1,) if isinstance(solution.y1, Tensor) else solution.y1
        end = torch.as_tensor(t1, dtype=widest(self.rate.device), device=self.rate.device).expand(self.stopped.shape)
        if moves(t1):  # as without events, for those that reached it
            still = end.detach()
            reached = zip(y1, self._flow(y1, still, end - still), strict=True)
            y1 = tuple(torch.where(broadcast_time(self.stopped >= 0, part), part, moved) for part, moved in reached)
        t_end = torch.where(self.stopped >= 0, self.ended, end)
        for index, event in enumerate(self.events):
            if event.terminal and torch.is_grad_enabled() and bool((self.stopped == index).any()):
                y1, t_end = self._differentiable(event, y1, t_end, self.stopped == index)
        solution.y1 = y1[0] if single else y1
        solution.t_end, solution.stopped = t_end, self.stopped
        solution.events = tuple(self._log(log, single, y1) for log in self.logs)
        return solution

    def _differentiable(self, event: Event, y: State, t: Tensor, which: Tensor) -> tuple[State, Tensor]:
        """Two steps of a chord iteration, whose value is 0, have the first and second derivatives of the moment."""
        still, calls = t.detach(), self.rate.calls
        with torch.enable_grad():
            moment = still.clone().requires_grad_()
            y_still = tuple(part.detach() for part in y)
            k = tuple(part.detach() for part in self.rate(still, y_still))
            point = carried(y_still, k, moment - still, 1.0)
            g = self.value(event, moment, point)
            (slope,) = torch.autograd.grad(g.sum(), moment, allow_unused=True) if g.requires_grad else (None,)
        if slope is None:
            slope = torch.zeros_like(still)
        slope = torch.where(slope == 0, torch.inf, slope)  # a graze: the moment does not move
        offset = torch.zeros_like(still)
        for _ in range(2):
            g = self.value(event, still + offset, self._flow(y, still, offset))
            offset = offset - torch.where(which, double(g - g.detach()) / slope, 0.0)
        y, self.rate.calls = self._flow(y, still, offset), calls  # what differentiation costs is no part of the solve
        return y, t + offset

    def _flow(self, y: State, t: Tensor, offset: Tensor) -> State:
        if not offset.requires_grad:
            return y
        half = carried(y, self.rate(t, y), 0.5 * offset, 1.0)
        return carried(y, self.rate(t + 0.5 * offset, half), offset, 1.0)

    def _log(self, log: "list[tuple[Tensor, Tensor, State]]", single: bool, like: State) -> EventLog:
        if not log:
            empty = tuple(part.new_zeros((0, *(part.shape[1:] if self.each else part.shape))) for part in like)
            y = empty
            sample, t = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
        else:
            samples, times, states = zip(*log, strict=True)
            sample, t = torch.cat(samples), torch.cat(times)
            y = tuple(torch.cat(parts).detach() for parts in zip(*states, strict=True))
        return EventLog(t, y[0] if single else y, sample if self.each else None)


def _crossed(old: Tensor, new: Tensor, direction: int) -> Tensor:
    up, down = (old < 0) & (new >= 0), (old > 0) & (new <= 0)
    return up if direction > 0 else down if direction < 0 else up | down


def _refuse_undefined(value: Tensor, t: Tensor, states: State) -> None:
    """An event that is NaN would never be seen to cross zero. Where the state or f is undefined too, the solve says so itself."""
    bad = value.isnan()
    if not bool(bad.any()):
        return
    for part in states:
        finite = torch.isfinite(part.detach())
        bad = bad & (finite.flatten(1).all(1) if bad.ndim else finite.all())
    if bool(bad.any()):
        moment = float(t.detach().expand(bad.shape)[bad][0])
        who = f" for {int(bad.sum())} of {len(bad)} samples" if bad.ndim else ""
        raise ConfigError(
            f"the function of an event is not a number (NaN) at t = {moment:.6g}{who}, where the state is finite; expected a number that "
            "crosses zero, defined wherever the solve passes"
        )
