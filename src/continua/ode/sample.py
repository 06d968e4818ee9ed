"""The adaptive step loop in which every sample has its own time and step; those that have arrived leave the computation.

A sample never sees its neighbours: errors are norms over one sample, and f acts on samples independently.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from continua.ode.control import NextStep, Problem, first_step
from continua.ode.loops import SMALLEST_STEP, Step, not_finite
from continua.ode.solution import State, Stats, Status, StepLog, failure
from continua.ode.stepper import Attempt, rms


@dataclass
class _Travellers:
    """The samples still under way: their index in the batch, time, end time, next step, state and first stage."""

    rows: Tensor
    t: Tensor
    t1: Tensor
    h: Tensor
    y: State
    first: State

    def keep(self, which: Tensor) -> "_Travellers":
        some = which.nonzero().flatten()
        return _Travellers(self.rows[some], self.t[some], self.t1[some], self.h[some], _pick(self.y, some), _pick(self.first, some))


class SampleSteps:
    """Adaptive, each sample for itself. Times are (batch,) in float64. Needs a FSAL stepper."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.y = problem.y0
        self.status: tuple[Status, ...] = (Status.SUCCESS,) * problem.batch
        zero = torch.zeros(problem.batch, dtype=torch.int64, device=problem.rate.device)
        size = torch.zeros(problem.batch, dtype=torch.float64, device=problem.rate.device)
        self.stats = Stats(zero, zero.clone(), zero.clone(), zero.clone(), size, size.clone())
        self._log: list[Tensor] = []

    def __iter__(self) -> Iterator[Step]:
        p, config = self.problem, self.problem.config
        choose = NextStep(config.step_controller, p.stepper.order)
        p.rate.on_step(0, False)
        active = self._depart()
        for index in range(config.max_steps):
            if not len(active.rows):
                break
            p.rate.on_step(index, False)
            smallest = SMALLEST_STEP * _ulp(active.t)
            active.h = torch.copysign(active.h.abs().maximum(smallest), active.h)
            last = active.h.abs() >= (active.t1 - active.t).abs() * (1 - 1e-12)
            t_next = torch.where(last, active.t1, active.t + active.h)
            attempt = p.stepper.step(p.rate, active.t, t_next, active.y, active.first)
            ratio = p.ratio(attempt, active.y, per_sample=True)
            accept = ratio <= 1.0
            self._note(active, t_next, ratio, accept)
            h = choose(t_next - active.t, ratio, accept)
            undefined = ~torch.isfinite(ratio)
            # A shorter step may save an undefined trial, but only within reason.
            smallest = torch.where(undefined, SMALLEST_STEP * _ulp(active.t.abs().maximum(active.t1.abs())), smallest)
            arrived, stuck = accept & (t_next == active.t1), ~accept & (h.abs() < smallest)
            # One exchange with the device per step.
            flags = [accept.any(), accept.all(), (arrived | stuck).any(), stuck.any(), undefined.any()]
            some, every, leaving, failing, lost = torch.stack(flags).tolist()
            if lost and (hopeless := not_finite(active.first)):  # an undefined rate of change stays undefined
                stuck = stuck.index_fill(0, torch.tensor(hopeless, device=stuck.device), True)
                leaving = failing = True
            if some:
                step = self._accepted(index, active, t_next, attempt, None if every else accept.nonzero().flatten())
                yield step
                active = _advance(active, step, None if every else accept.nonzero().flatten())
            active.h = h
            if failing:
                self._give_up(Status.STEP_UNDERFLOW, active.keep(stuck), torch.isfinite(ratio[stuck]))
            if leaving:
                self._deliver(active.keep(arrived | stuck))
                choose.keep(~(arrived | stuck))
                active = active.keep(~(arrived | stuck))
        if len(active.rows):
            self._deliver(active)
            self._give_up(Status.MAX_STEPS, active, torch.ones_like(active.rows, dtype=torch.bool))
        if config.record_steps and self._log:
            sample, t, h, error, accepted = torch.cat(self._log, dim=1).cpu()
            self.stats.steps = StepLog(t, h, error, accepted.bool(), sample.long())

    def _depart(self) -> _Travellers:
        p, config = self.problem, self.problem.config
        rows = torch.arange(p.batch, device=p.rate.device)
        t, t1 = (torch.as_tensor(x, dtype=torch.float64, device=p.rate.device).expand(p.batch) for x in (p.t0, p.t1))
        first = p.rate(t, p.y0) if p.first is None else p.first
        self.stats.nfe += 1
        if config.first_step is None:
            h = first_step(p, first, per_sample=True)
            self.stats.nfe += 1
        else:
            h = torch.full_like(t, config.first_step)
        active = _Travellers(rows, t, t1, torch.copysign(h, t1 - t), p.y0, first)
        return active if bool((t != t1).all()) else active.keep(t != t1)

    def _accepted(self, index: int, active: _Travellers, t_next: Tensor, attempt: Attempt, some: Tensor | None) -> Step:
        """The step of the samples that may move. Under autograd it is taken again for them alone: rejected rows leave no graph."""
        p = self.problem
        if some is None:
            return Step(index, active.t, t_next, active.y, attempt.y1, attempt.stages, active.rows)
        y, t, t_next = _pick(active.y, some), active.t[some], t_next[some]
        if torch.is_grad_enabled() and any(part.requires_grad for part in attempt.y1):
            attempt = p.stepper.step(p.rate, t, t_next, y, _pick(active.first, some))
            self.stats.nfe[active.rows[some]] += len(attempt.stages) - 1
            return Step(index, t, t_next, y, attempt.y1, attempt.stages, active.rows[some])
        stages = [_pick(stage, some) for stage in attempt.stages]
        return Step(index, t, t_next, y, _pick(attempt.y1, some), stages, active.rows[some])

    def _note(self, active: _Travellers, t_next: Tensor, ratio: Tensor, accept: Tensor) -> None:
        stats, rows = self.stats, active.rows
        h = t_next - active.t
        new = (stats.accepted + stats.rejected)[rows] == 0
        stats.first_step[rows] = torch.where(new, h, stats.first_step[rows])
        stats.last_step[rows] = h
        stats.accepted[rows] += accept
        stats.rejected[rows] += ~accept
        stats.nfe[rows] += self.problem.stepper.evaluations
        if self.problem.config.record_steps:
            self._log.append(torch.stack([part.double() for part in (rows, active.t, h, ratio, accept)]))

    def _deliver(self, leaving: _Travellers) -> None:
        self.y = tuple(full.index_copy(0, leaving.rows, part) for full, part in zip(self.y, leaving.y, strict=True))

    def _give_up(self, status: Status, failed: _Travellers, finite: Tensor) -> None:
        """`finite` tells whose last trial had a finite error; the reason is also sought in f at the last good state."""
        with torch.no_grad():
            bad = {*not_finite(self.problem.rate(failed.t, failed.y)), *(~finite).nonzero().flatten().tolist()}
        rows = failed.rows.tolist()
        reasons = {row: Status.NON_FINITE if i in bad else status for i, row in enumerate(rows)}
        if self.problem.config.on_failure == "raise":
            worst = Status.NON_FINITE if bad else status
            samples = [row for row in rows if reasons[row] is worst]
            first = rows.index(samples[0])
            norm = float(rms(_pick(failed.y, torch.tensor([first], device=failed.rows.device)), False))
            raise failure(worst, float(failed.t[first]), float(failed.h[first]), norm, samples)
        self.status = tuple(reasons.get(row, old) for row, old in enumerate(self.status))


def _ulp(t: Tensor) -> Tensor:
    return torch.nextafter(t.abs(), torch.full_like(t, torch.inf)) - t.abs()


def _pick(state: State, rows: Tensor) -> State:
    return tuple(part.index_select(0, rows) for part in state)


def _advance(active: _Travellers, step: Step, some: Tensor | None) -> _Travellers:
    last = step.stages[-1]
    if some is None:
        return _Travellers(active.rows, step.t_next, active.t1, active.h, step.y1, last)
    y = tuple(old.index_copy(0, some, new) for old, new in zip(active.y, step.y1, strict=True))
    first = tuple(old.index_copy(0, some, new) for old, new in zip(active.first, last, strict=True))
    return _Travellers(active.rows, active.t.index_copy(0, some, step.t_next), active.t1, active.h, y, first)
