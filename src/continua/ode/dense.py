"""States between steps: y(t + θh) = y + h Σ b_i(θ) k_i with the method's polynomials b_i."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.float64 import on_host, widest
from continua.ode.control import StepControl
from continua.ode.moving import moves
from continua.ode.rate import broadcast_time, time_dtype
from continua.ode.solution import State, Time, pick
from continua.ode.stepper import Step
from continua.ode.stops import snapped
from continua.ode.sums import combine
from continua.ode.tableau import Tableau

Fraction = TypeVar("Fraction", float, Tensor)


def stage_weights(tableau: Tableau, theta: Fraction) -> list[Fraction]:
    """b_i(θ) of every stage, by Horner's rule."""
    weights: list[Fraction] = []
    for coefficients in tableau.interpolant:
        value = 0.0 * theta
        for coefficient in reversed(coefficients):
            value = (value + coefficient) * theta
        weights.append(value)
    return weights


def stage_slopes(tableau: Tableau, theta: Fraction) -> list[Fraction]:
    """b_i'(θ) of every stage: how fast a state between steps moves with θ."""
    slopes: list[Fraction] = []
    for coefficients in tableau.interpolant:
        value = 0.0 * theta
        for power in reversed(range(len(coefficients))):
            value = value * theta + (power + 1) * coefficients[power]
        slopes.append(value)
    return slopes


def between(tableau: Tableau, step: Step, theta: Time) -> State:
    """The state within a step, by the method's interpolant.

    Args:
        tableau: the method that took the step.
        step: an accepted step, with its stages.
        theta: the fraction of the step, 0 to 1: one, or one per row of the step.

    Returns:
        One tensor for each part of the state.

    Examples:
        >>> from continua.ode import between, find_method
        >>> between(find_method("dopri5"), step, 0.5)  # halfway  # doctest: +SKIP
    """
    if not isinstance(theta, Tensor):
        return combine(step.y0, step.h, stage_weights(tableau, theta), step.stages)
    scaled = [weight * step.h for weight in stage_weights(tableau, theta)]
    parts = []
    for index, y in enumerate(step.y0):
        total = y
        for weight, stage in zip(scaled, step.stages, strict=True):
            total = torch.addcmul(total, broadcast_time(weight, y).to(y.dtype), stage[index])
        parts.append(torch.where(broadcast_time(theta >= 1.0, y), step.y1[index], total))
    return tuple(parts)


@dataclass
class Save:
    """One asked time inside one step: which, how far into the step, and which rows of the step it concerns (None: all)."""

    slot: int
    theta: Time
    rows: Tensor | None


class Saver:
    """Collects ys at the asked times while steps go by. `saves[i]` lists what lies in step i.

    Times are a list shared by the batch, or a (time, batch) tensor in float64 on the clock of the solve. `moving` are the same times with
    their graph, (time,) or (time, batch), where somebody differentiates them: those at the start then count as 0 of the first step.
    """

    def __init__(self, tableau: Tableau, times: "list[float] | Tensor", y0: State, t0: Time, moving: Tensor | None = None) -> None:
        self.tableau, self.times, self.moving = tableau, times, moving
        self.saves: list[list[Save]] = []
        count = len(times)
        if isinstance(times, Tensor):
            at_start = times == t0
            self.waiting = at_start  # of samples that have not moved yet
            self.ys = [[torch.where(broadcast_time(at_start[j], part), part, torch.nan) for part in y0] for j in range(count)]
        else:
            self.ys = [[part if time == t0 else torch.full_like(part, torch.nan) for part in y0] for time in times]
            self._next = 0 if moving is not None else sum(time == t0 for time in times)

    def take(self, step: Step) -> None:
        """Fill in the times that this step passes."""
        width = len(self.ys[0])
        if len(step.y0) > width:  # the reversible scheme carries a second copy of the state
            step = replace(step, y0=step.y0[:width], y1=step.y1[:width])
        self.saves.append(self._each(step, self.times) if isinstance(self.times, Tensor) else self._shared(step, self.times))

    def stacked(self) -> State:
        """(time, batch, ...), one tensor per component of the state."""
        return tuple(torch.stack([slot[part] for slot in self.ys]) for part in range(len(self.ys[0])))

    def _shared(self, step: Step, times: list[float]) -> list[Save]:
        saves = []
        while self._next < len(times) and _passed(times[self._next], step):
            slot, self._next = self._next, self._next + 1
            theta = 1.0 if times[slot] == step.t_next else float((times[slot] - step.t) / step.h)
            state = step.y1 if theta == 1.0 else step.y0 if theta == 0.0 else between(self.tableau, step, theta)
            self.ys[slot] = list(self._moved(state, step, theta, slot, None))
            saves.append(Save(slot, theta, None))
        return saves

    def _each(self, step: Step, times: Tensor) -> list[Save]:
        times = times if step.rows is None else times[:, step.rows]
        theta = (times - step.t) / step.h
        theta = torch.where(times == step.t_next, 1.0, theta)
        inside = (theta > 0) & (theta <= 1) & (step.t_next != step.t)  # without length: already there at the start
        if self.moving is not None:
            inside = inside | self._leaving(step)
        saves = []
        for slot in inside.any(1).nonzero().flatten().tolist():
            rows = inside[slot].nonzero().flatten()
            part_of = _rows_of(step, rows)
            state = between(self.tableau, part_of, theta[slot, rows])
            target = rows if step.rows is None else step.rows[rows]
            state = self._moved(state, part_of, theta[slot, rows], slot, target)
            self.ys[slot] = [full.index_copy(0, target, part) for full, part in zip(self.ys[slot], state, strict=True)]
            saves.append(Save(slot, theta[slot, rows], rows))
        return saves

    def _leaving(self, step: Step) -> Tensor:
        """Asked times at the start, of samples that this step moves first."""
        if step.rows is None:
            leaving, self.waiting = self.waiting, torch.zeros_like(self.waiting)
        else:
            leaving, self.waiting = self.waiting[:, step.rows], self.waiting.index_fill(1, step.rows, False)
        return leaving

    def _moved(self, state: State, step: Step, theta: Time, slot: int, rows: Tensor | None) -> State:
        """The same state as a function of its time also: the polynomial at θ minus itself, which is 0 and has its derivatives."""
        if self.moving is None or not moves(self.moving):
            return state
        time = self.moving[slot] if rows is None else self.moving[slot, rows]
        weights = stage_weights(self.tableau, theta + (time - time.detach()) / step.h)
        still = stage_weights(self.tableau, torch.as_tensor(theta, dtype=widest(time.device), device=time.device))
        parts = list(state)
        for moved, weight, stage in zip(weights, still, step.stages, strict=True):
            change = (moved - weight) * step.h
            parts = [part + broadcast_time(change, part).to(part.dtype) * k for part, k in zip(parts, stage, strict=True)]
        return tuple(parts)


def _passed(time: float, step: Step) -> bool:
    return bool(time <= step.t_next) if step.h > 0 else bool(time >= step.t_next)


def _rows_of(step: Step, rows: Tensor) -> Step:
    def at(time: Time) -> Time:
        return time[rows] if isinstance(time, Tensor) else time

    y0, y1, *stages = (pick(state, rows) for state in (step.y0, step.y1, *step.stages))
    return Step(step.index, at(step.t), at(step.t_next), y0, y1, stages, rows)


class DenseOutput:
    """Every accepted step with its stages, so that any time can be asked for later.

    t0 and t1 are those of the user. The steps are on the same clock, or on the common clock s ∈ [0, 1] if `relative`.
    """

    def __init__(self, tableau: Tableau, y0: State, t0: Time, t1: Time, relative: bool, control: StepControl | None = None) -> None:
        self.tableau, self.y0, self.t0, self.t1, self.relative = tableau, y0, t0, t1, relative
        self.control = StepControl() if control is None else control
        self.steps: list[Step] = []

    def take(self, step: Step) -> None:
        self.steps.append(step)

    def __call__(self, time: float) -> State:
        ends = torch.stack([on_host(t).expand(len(self.y0[0])) for t in (self.t0, self.t1)])
        if bool((time < ends.amin(0)).any() or (time > ends.amax(0)).any()):
            raise ConfigError(f"t = {time:.6g} lies outside the solved interval [{float(ends[0, 0]):.6g}, {float(ends[1, 0]):.6g}]")
        if self.steps and not isinstance(self.steps[0].t, Tensor) and not self.relative:
            (near,) = snapped([time], self.control, self.t0, self.t1, time_dtype(self.y0[0]))
            return self._shared(float(near))
        times = torch.full((1, len(self.y0[0])), time, dtype=widest(self.y0[0].device), device=self.y0[0].device)
        if self.relative:
            saver = Saver(self.tableau, relative_times(times, self.t0, self.t1), self.y0, 0.0)
        else:
            saver = Saver(self.tableau, snapped(times, self.control, self.t0, self.t1, time_dtype(self.y0[0])), self.y0, self.t0)
        for step in self.steps:
            saver.take(step)
        return tuple(saver.ys[0])

    def _shared(self, time: float) -> State:
        forward = self.steps[0].h > 0
        ends = [step.t_next if forward else -step.t_next for step in self.steps]
        step = self.steps[min(bisect_left(ends, time if forward else -time), len(ends) - 1)]
        theta = max(float((time - step.t) / step.h), 0.0)  # below 0 on a jump
        if theta > 1.0:  # a failed solve did not get there
            return tuple(torch.full_like(part, torch.nan) for part in step.y1)
        return step.y1 if time == step.t_next else between(self.tableau, step, theta)


def relative_times(times: Tensor, t0: Time, t1: Time) -> Tensor:
    """(time, batch) on the clock s ∈ [0, 1] of each sample; 0 for samples that do not move."""
    length = torch.as_tensor(t1 - t0, dtype=times.dtype)
    return (times - t0) / torch.where(length == 0, 1.0, length)
