"""The adaptive step loop in which every sample has its own time and step; those that have arrived leave the computation.

A sample never sees its neighbours: errors are norms over one sample, and f acts on samples independently.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from continua.float64 import double, widest
from continua.ode.control import NextStep
from continua.ode.dense import between
from continua.ode.error import first_step, rms
from continua.ode.integration import SMALLEST_STEP, AcceptedSteps, Integration, not_finite
from continua.ode.solution import State, Stats, Status, StepLog, failure, pick, put
from continua.ode.stepper import Attempt, Step
from continua.ode.stops import SampleStops
from continua.ode.watch import Watch


@dataclass
class _ActiveSamples:
    """The samples still under way: their index in the batch, time, end time, next step, state and first stage."""

    rows: Tensor
    t: Tensor
    t1: Tensor
    h: Tensor
    y: State
    first: State | None  # None: not known yet, to be evaluated by the step

    def keep(self, which: Tensor) -> "_ActiveSamples":
        kept = which.nonzero().flatten()
        first = None if self.first is None else pick(self.first, kept)
        return _ActiveSamples(self.rows[kept], self.t[kept], self.t1[kept], self.h[kept], pick(self.y, kept), first)


class SampleCounts:
    """The numbers of `Stats`, (batch,) each, filled in while samples move."""

    def __init__(self, batch: int, device: torch.device) -> None:
        self.nfe, self.accepted, self.rejected = (torch.zeros(batch, dtype=torch.int64, device=device) for _ in range(3))
        self.first_step, self.last_step = (torch.zeros(batch, dtype=widest(device), device=device) for _ in range(2))

    @property
    def stats(self) -> Stats:
        return Stats(self.nfe, torch.zeros_like(self.nfe), self.accepted, self.rejected, self.first_step, self.last_step)


class SampleSteps(AcceptedSteps):
    """Adaptive, each sample for itself. Times are (batch,) in float64, or float32 where the device has no float64."""

    def __init__(self, integration: Integration) -> None:
        self.counts = SampleCounts(integration.batch, integration.rate.device)
        super().__init__(integration, self.counts.stats)
        self._log: list[Tensor] = []

    def accepted(self) -> Iterator[Step]:
        p, config, control = self.integration, self.integration.config, self.integration.config.control
        choose = NextStep(control, p.stepper.order)
        stops = SampleStops(control, p.rate.time_dtype, p.rate.device) if control.stops else None
        p.rate.on_step(0, False)
        active, watch = self._depart(choose), p.watch
        if watch is not None:
            watch.begin(torch.as_tensor(p.t0), p.y0)
        for index in range(config.control.max_steps):
            if not len(active.rows):
                break
            p.rate.on_step(index, False)
            smallest = SMALLEST_STEP * _ulp(active.t)
            active.h = torch.copysign(active.h.abs().maximum(smallest), active.h)
            end, resume, jump = (active.t1, None, None) if stops is None else stops.next(active.t, active.t1)
            last = active.h.abs() >= (end - active.t).abs() * (1 - 1e-12)
            t_next = torch.where(last, end, active.t + active.h)
            calls = p.rate.calls
            attempt = p.stepper.step(p.rate, active.t, t_next, active.y, active.first)
            self.counts.nfe[active.rows] += p.rate.calls - calls
            ratio = p.ratio(attempt, active.y, per_sample=True)
            accept = choose.accepts(t_next - active.t, ratio)
            self._note(active, t_next, ratio, accept)
            h = choose(t_next - active.t, ratio, accept)
            undefined = ~torch.isfinite(ratio)
            # A shorter step may save an undefined trial, but only within reason.
            within_reason = (SMALLEST_STEP * _ulp(active.t.abs().maximum(active.t1.abs()))).clamp(min=(choose.least or 0.0) * (1 + 1e-12))
            smallest = torch.where(undefined, within_reason, smallest)
            landed = accept & (t_next == end)
            arrived, stuck = landed if resume is None else landed & (resume == active.t1), ~accept & (h.abs() < smallest)
            # One exchange with the device per step.
            flags = [accept.any(), accept.all(), (arrived | stuck).any(), stuck.any(), undefined.any()]
            moved, all_moved, leaving, failing, lost = torch.stack(flags).tolist()
            if lost and (hopeless := not_finite(attempt.stages[0])):  # an undefined rate of change stays undefined
                stuck = stuck.index_fill(0, torch.tensor(hopeless, device=stuck.device), True)
                leaving = failing = True
            if moved:
                moving = None if all_moved else accept.nonzero().flatten()
                step = self._step(index, active, t_next, attempt, moving)
                if watch is not None and (stop := watch.look(step)) is not None:
                    step = self._shortened(step, *stop)
                    stopped = _spread(stop[0], moving, accept)
                    arrived, leaving, landed = arrived | stopped, True, landed & ~stopped
                    self._mark(active.rows[stopped])
                yield step
                active = _advance(active, step, moving, p.stepper.next_first(Attempt(step.y1, step.stages, None)))
            if resume is not None and jump is not None:  # cut short by a stop: that says nothing about the next step
                h = torch.where(landed & (active.h.abs() > h.abs()), active.h, h)
                active = self._go_on(active, landed & ~arrived, resume, jump)
            active.h = h
            if failing:
                self._give_up(Status.STEP_UNDERFLOW, active.keep(stuck), torch.isfinite(ratio[stuck]))
            if leaving:
                self._scatter(active.keep(arrived | stuck))
                choose.keep(~(arrived | stuck))
                active = active.keep(~(arrived | stuck))
        if len(active.rows):
            self._scatter(active)
            self._give_up(Status.MAX_STEPS, active, torch.ones_like(active.rows, dtype=torch.bool))
        if config.record_steps and self._log:
            sample, t, h, error, accepted = torch.cat(self._log, dim=1).cpu()
            self.stats.steps = StepLog(t, h, error, accepted.bool(), sample.long())

    def _go_on(self, active: _ActiveSamples, landed: Tensor, resume: Tensor, jump: Tensor) -> _ActiveSamples:
        """Samples that have landed on a stop start again behind it; where f jumps, with a new first stage."""
        t, first = torch.where(landed, resume, active.t), active.first
        rows = (landed & jump).nonzero().flatten()
        if len(rows) and first is not None:
            first = put(first, rows, self.integration.rate(t[rows], pick(active.y, rows)))
            self.counts.nfe[active.rows[rows]] += 1
        return _ActiveSamples(active.rows, t, active.t1, active.h, active.y, first)

    def _depart(self, choose: NextStep) -> _ActiveSamples:
        p, config = self.integration, self.integration.config
        rows = torch.arange(p.batch, device=p.rate.device)
        t, t1 = (torch.as_tensor(x, dtype=widest(p.rate.device), device=p.rate.device).expand(p.batch) for x in (p.t0, p.t1))
        if not bool((t != t1).all()):  # some have nowhere to go, and cost nothing
            rows = (t != t1).nonzero().flatten()
            p = replace(p, y0=pick(p.y0, rows), t0=t[rows], t1=t1[rows], first=None if p.first is None else pick(p.first, rows))
            t, t1 = t[rows], t1[rows]
        first = p.rate(t, p.y0[: p.rate.width]) if p.first is None else p.first
        self.counts.nfe[rows] += 1
        if config.control.first_step is None:
            h = first_step(p, first, per_sample=True)
            self.counts.nfe[rows] += 1
        else:
            h = torch.full_like(t, config.control.first_step)
        return _ActiveSamples(rows, t, t1, torch.copysign(choose.bounded(h), t1 - t), p.y0, first)

    def _step(self, index: int, active: _ActiveSamples, t_next: Tensor, attempt: Attempt, moving: Tensor | None) -> Step:
        """The step of the samples that may move. Under autograd it is taken again for them alone: rejected rows leave no graph."""
        p = self.integration
        if moving is None:
            return Step(index, active.t, t_next, active.y, attempt.y1, attempt.stages, active.rows)
        y, t, t_next = pick(active.y, moving), active.t[moving], t_next[moving]
        if torch.is_grad_enabled() and any(part.requires_grad for part in attempt.y1):
            calls = p.rate.calls
            attempt = p.stepper.step(p.rate, t, t_next, y, pick(attempt.stages[0], moving))
            self.counts.nfe[active.rows[moving]] += p.rate.calls - calls
            return Step(index, t, t_next, y, attempt.y1, attempt.stages, active.rows[moving])
        stages = [pick(stage, moving) for stage in attempt.stages]
        return Step(index, t, t_next, y, pick(attempt.y1, moving), stages, active.rows[moving])

    def _shortened(self, step: Step, which: Tensor, until: Tensor) -> Step:
        """The step with some of its rows only until an event: taken again by them, or read off the interpolant where that will do."""
        p, chosen = self.integration, which.nonzero().flatten()
        part, until = step.only(chosen), until[chosen]
        if self._read_off():
            y1, stages = between(p.stepper.tableau, part, (until - part.t) / part.h), step.stages
        else:
            calls = p.rate.calls
            attempt = p.stepper.shortened(p.rate, part, until)
            self.counts.nfe[part.rows] += p.rate.calls - calls
            y1, stages = attempt.y1, [put(old, chosen, new) for old, new in zip(step.stages, attempt.stages, strict=True)]
        t_next = torch.as_tensor(step.t_next).index_copy(0, chosen, until)
        return Step(step.index, step.t, t_next, step.y0, put(step.y1, chosen, y1), stages, step.rows)

    def _read_off(self) -> bool:
        """Whether the interpolant will do: nobody looks at the step later."""
        p = self.integration
        alone = p.saver is None and p.dense is None and p.each_step is None and len(p.y0) == p.rate.width
        return alone and p.watch is not None and p.watch.reads_off

    def _mark(self, rows: Tensor) -> None:
        stopped = set(rows.tolist())
        self.status = tuple(Status.STOPPED if row in stopped else old for row, old in enumerate(self.status))

    def _until_an_event(self, watch: Watch) -> Iterator[Step]:
        return self.accepted()  # which looks for itself: samples stop one by one

    def _note(self, active: _ActiveSamples, t_next: Tensor, ratio: Tensor, accept: Tensor) -> None:
        counts, rows = self.counts, active.rows
        h = t_next - active.t
        new = (counts.accepted + counts.rejected)[rows] == 0
        counts.first_step[rows] = torch.where(new, h, counts.first_step[rows])
        counts.last_step[rows] = h
        counts.accepted[rows] += accept
        counts.rejected[rows] += ~accept
        if self.integration.config.record_steps:
            self._log.append(torch.stack([double(part) for part in (rows, active.t, h, ratio, accept)]))

    def _scatter(self, leaving: _ActiveSamples) -> None:
        self.y = put(self.y, leaving.rows, leaving.y)

    def _give_up(self, status: Status, failed: _ActiveSamples, finite: Tensor) -> None:
        """`finite` tells whose last trial had a finite error; the reason is also sought in f at the last good state."""
        with torch.no_grad():
            bad = {
                *not_finite(self.integration.rate(failed.t, failed.y[: self.integration.rate.width])),
                *(~finite).nonzero().flatten().tolist(),
            }
        rows = failed.rows.tolist()
        reasons = {row: Status.NON_FINITE if i in bad else status for i, row in enumerate(rows)}
        if self.integration.config.on_failure == "raise":
            worst = Status.NON_FINITE if bad else status
            samples = [row for row in rows if reasons[row] is worst]
            first = rows.index(samples[0])
            norm = float(rms(pick(failed.y, torch.tensor([first], device=failed.rows.device)), False))
            raise failure(worst, float(failed.t[first]), float(failed.h[first]), norm, samples)
        self.status = tuple(reasons.get(row, old) for row, old in enumerate(self.status))


def _ulp(t: Tensor) -> Tensor:
    return torch.nextafter(t.abs(), torch.full_like(t, torch.inf)) - t.abs()


def _spread(which: Tensor, moving: Tensor | None, like: Tensor) -> Tensor:
    """Flags of the rows of a step as flags of all active samples."""
    return which if moving is None else torch.zeros_like(like).index_copy(0, moving, which)


def _advance(active: _ActiveSamples, step: Step, moving: Tensor | None, first: State | None) -> _ActiveSamples:
    """`first` is the first stage of the step that follows this one, where it is known."""
    t_next = torch.as_tensor(step.t_next)
    if moving is None:
        return _ActiveSamples(active.rows, t_next, active.t1, active.h, step.y1, first)
    y, t = put(active.y, moving, step.y1), active.t.index_copy(0, moving, t_next)
    first = None if first is None or active.first is None else put(active.first, moving, first)
    return _ActiveSamples(active.rows, t, active.t1, active.h, y, first)
