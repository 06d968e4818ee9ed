"""Looking for events: after every accepted step, and inside those that cross one.

A crossing is a change of sign between the ends of an accepted step; it is located on the step's interpolant, to 1e-10 of the step. A solve
that stops there takes the step again, to that moment (or, if the event says so, reads its state off the interpolant). Its time and state
are differentiated by the implicit function theorem: with g(t, y(t)) = 0 and s = ∂g/∂t + ⟨∂g/∂y, f⟩, the moment moves by
dt = −dg / s at a fixed time, and the state by f dt.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.float64 import double, widest
from continua.native import is_transforming
from continua.ode.crossing import Numbers, changes_sign, is_any, locate
from continua.ode.dense import between
from continua.ode.events import Event
from continua.ode.moving import carried, moves
from continua.ode.rate import Rate, broadcast_time
from continua.ode.solution import EventLog, Solution, State, Time
from continua.ode.stepper import Step
from continua.ode.tableau import Tableau


@dataclass
class Watch:
    """Looks at every accepted step of a solve. Times are numbers, or (rows,) under per-sample control."""

    events: tuple[Event, ...]
    rate: Rate
    tableau: Tableau
    batch: int
    each: bool
    logs: list[list[tuple[Tensor, Tensor, State]]] = field(default_factory=list)  # of every event: samples, times, states
    values: list[Numbers] = field(default_factory=list)  # of every event at the last accepted state: (batch,), or one for the whole batch
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
            self.values = [self._numbers(event, t0, y0) for event in self.events]
        self.stopped = torch.full(shape, -1, dtype=torch.int64, device=device)
        self.ended = torch.full(shape, torch.nan, dtype=widest(device), device=device)

    def value(self, event: Event, t: Time, y: State) -> Tensor:
        """function(t, y), looked at."""
        rate, width = self.rate, self.rate.width
        y = y[:width]
        time = t.to(rate.time_dtype) if isinstance(t, Tensor) else torch.scalar_tensor(t, dtype=rate.time_dtype, device=rate.device)
        state = y[0] if rate.single else y
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
        return value if value.shape == expected else value.reshape(expected)

    def refuse_undefined(self, event: Event, bad: Tensor, t: Time, y: State) -> None:
        """An event that is NaN would never be seen to cross zero. Where the state or f is undefined too, the solve says so itself."""
        y = y[: self.rate.width]
        for part in (*y, *(self.rate.evaluate(t, y) if event.takes_rate else ())):
            finite = torch.isfinite(part)
            bad = bad & (finite.flatten(1).all(1) if bad.ndim else finite.all())
        if bool(bad.any()):
            moment = float(torch.as_tensor(t).expand(bad.shape)[bad][0])
            who = f" for {int(bad.sum())} of {len(bad)} samples" if bad.ndim else ""
            raise ConfigError(
                f"the function of an event is not a number (NaN) at t = {moment:.6g}{who}, where the state is finite; expected a number "
                "that crosses zero, defined wherever the solve passes"
            )

    def _numbers(self, event: Event, t: Time, y: State) -> Numbers:
        """function(t, y) as numbers on the host."""
        found: Any = self.value(event, t, y).detach().tolist()
        numbers: Numbers = np.array(found, dtype=np.float64) if self.each else float(found)
        undefined = numbers != numbers  # NumPy's isnan takes longer, on a number
        if is_any(undefined):
            self.refuse_undefined(event, torch.tensor(undefined, device=self.rate.device), t, y)
        return numbers

    @torch.no_grad()
    def look(self, step: Step) -> "tuple[Tensor, Tensor] | None":
        """Notes what a step crosses. Which rows of the step (which step: 0-d) are to stop, and when; None if none."""
        first: Numbers = np.inf  # how far into the step it goes before it stops
        crossings: list[tuple[int, np.ndarray, np.ndarray]] = []
        for index, event in enumerate(self.events):
            old, new = self._replace(index, self._numbers(event, step.t_next, step.y1), step.rows)
            crossed = changes_sign(old, new, event.direction)
            if is_any(crossed):
                crossed = np.atleast_1d(crossed)
                theta = self._where(event, step, np.atleast_1d(old), np.atleast_1d(new), crossed)
                crossings.append((index, crossed, theta))
                if event.terminal:
                    first = np.minimum(first, np.where(crossed, theta, np.inf))
        stop = None
        for index, crossed, theta in crossings:
            before = crossed & (theta <= first)
            if before.any():
                self._note(index, step, before, theta)
                if self.events[index].terminal:
                    stop = self._stop(index, step, before & (theta == first), theta, stop)
        return stop

    def _replace(self, index: int, new: Numbers, rows: Tensor | None) -> tuple[Numbers, Numbers]:
        """The values of an event at the start and at the end of the step, which are kept for the next."""
        kept = self.values[index]
        if not isinstance(kept, np.ndarray) or rows is None:
            self.values[index] = new
            return kept, new
        moved = np.array(rows.tolist())
        old = kept[moved]
        kept[moved] = new
        return old, new

    def _where(self, event: Event, step: Step, old: np.ndarray, new: np.ndarray, crossed: np.ndarray) -> np.ndarray:
        """θ of the crossing, 0 for rows that do not cross; only those that do are looked at again."""
        # Convergence is fast: much closer than asked costs a look more. Nearer than a few rounding errors signs mean nothing.
        precision = max(1e-3 * event.precision, 8 * torch.finfo(self.rate.dtypes[0]).eps)
        part = step if crossed.all() else step.only(self._tensor(crossed).nonzero().flatten())
        theta = np.zeros_like(new)
        theta[crossed] = locate(lambda x: self._numbers(event, *self._inside(part, x)), old[crossed], new[crossed], precision)
        return theta

    def _inside(self, step: Step, theta: np.ndarray) -> tuple[Time, State]:
        """The moment θ of a step, and the state there."""
        width = self.rate.width
        if len(step.y0) > width:  # the reversible scheme carries a second copy of the state
            step = replace(step, y0=step.y0[:width], y1=step.y1[:width])
        if self.each:
            share = self._tensor(theta)
            return torch.where(share == 1.0, step.t_next, step.t + share * step.h), between(self.tableau, step, share)
        share = float(theta[0])
        return (step.t_next, step.y1) if share == 1.0 else (step.t + share * step.h, between(self.tableau, step, share))

    def _tensor(self, numbers: np.ndarray) -> Tensor:
        """Of every row, or 0-d where there is one number for the batch."""
        kind = None if numbers.dtype == bool else widest(self.rate.device)
        return torch.tensor(numbers if self.each else numbers[0], dtype=kind, device=self.rate.device)

    def _note(self, index: int, step: Step, which: np.ndarray, theta: np.ndarray) -> None:
        t, y = self._inside(step, theta)
        if not self.each:
            self.logs[index].append((torch.tensor([-1]), torch.tensor([t], dtype=torch.float64), tuple(part[None] for part in y)))
            return
        chosen = self._tensor(which).nonzero().flatten()
        sample = chosen if step.rows is None else step.rows[chosen]
        self.logs[index].append((sample, torch.as_tensor(t)[chosen], tuple(part[chosen] for part in y)))

    def _stop(
        self, index: int, step: Step, which: np.ndarray, theta: np.ndarray, stop: "tuple[Tensor, Tensor] | None"
    ) -> "tuple[Tensor, Tensor]":
        share, these = self._tensor(theta), self._tensor(which)
        until = torch.as_tensor(step.t_next, dtype=share.dtype, device=share.device)
        t = torch.where(share == 1.0, until, step.t + share * step.h)
        if self.each:
            chosen = these.nonzero().flatten()
            target = chosen if step.rows is None else step.rows[chosen]
            self.stopped[target], self.ended[target] = index, t[chosen]
        elif which[0]:
            self.stopped, self.ended = torch.full_like(self.stopped, index), t
        old = (torch.zeros_like(these), t) if stop is None else stop
        return old[0] | these, torch.where(these, t, old[1])

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
        slope = self._slope(event, tuple(part.detach() for part in y), still)
        slope = torch.where(slope == 0, torch.inf, slope)  # a graze: the moment does not move
        offset = torch.zeros_like(still)
        for _ in range(2):
            g = self.value(event, still + offset, self._flow(y, still, offset))
            offset = offset - torch.where(which, double(g - g.detach()) / slope, 0.0)
        y, self.rate.calls = self._flow(y, still, offset), calls  # what differentiation costs is no part of the solve
        return y, t + offset

    def _slope(self, event: Event, y: State, t: Tensor) -> Tensor:
        """dg/dt along the solution."""
        k = tuple(part.detach() for part in self.rate(t, y))

        def value(moment: Tensor) -> Tensor:
            return self.value(event, moment, carried(y, k, moment - t, 1.0)).sum()

        if is_transforming():
            return torch.func.grad(value)(t)
        with torch.enable_grad():
            moment = t.clone().requires_grad_()
            g = value(moment)
            (slope,) = torch.autograd.grad(g, moment, allow_unused=True) if g.requires_grad else (None,)
        return torch.zeros_like(t) if slope is None else slope

    def _flow(self, y: State, t: Tensor, offset: Tensor) -> State:
        if not moves(offset):
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
