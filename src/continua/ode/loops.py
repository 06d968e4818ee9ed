"""The step loops for a whole batch: a fixed grid, and adaptive with one step for all.

A loop is iterated over and yields the accepted steps. Afterwards `y` is the end state, `stats` what it cost and `status` how each
sample fared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import copysign, inf, ulp
from typing import Protocol

import torch
from torch import Tensor

from continua.ode.control import NextStep, Problem, first_step
from continua.ode.solution import State, Stats, Status, StepLog, failure
from continua.ode.stepper import Attempt, Failed, Time, rms

SMALLEST_STEP = 10  # rounding errors of t: a step that is rejected below this size has failed


@dataclass
class Step:
    """One accepted step. `rows` names the samples it moved, when not the whole batch."""

    index: int
    t: Time
    t_next: Time
    y0: State
    y1: State
    stages: list[State]
    rows: Tensor | None = None

    @property
    def h(self) -> Time:
        return self.t_next - self.t


class Loop(Protocol):
    """The accepted steps of one solve, and what is known when they are through."""

    y: State
    stats: Stats
    status: tuple[Status, ...]

    def __iter__(self) -> Iterator[Step]: ...


class FixedSteps:
    """N equal steps. Times are numbers, or (batch,) where each sample has its own interval."""

    def __init__(self, problem: Problem, steps: int) -> None:
        self.problem, self.steps = problem, steps
        self.y, self.stats = problem.y0, Stats()
        self._last_good: dict[int, State] = {}
        self._log: list[Tensor] = []
        # A compiled solve looks at no numbers, so it claims nothing; and its batch may be of any size.
        self.status: tuple[Status, ...] = () if torch.compiler.is_compiling() else (Status.SUCCESS,) * problem.batch

    def __iter__(self) -> Iterator[Step]:
        p, calls = self.problem, self.problem.rate.calls
        h = (p.t1 - p.t0) / self.steps
        t, first = p.t0, p.first
        for index in range(self.steps):
            t_next = p.t1 if index == self.steps - 1 else p.t0 + (index + 1) * h
            p.rate.on_step(index, False)
            attempt = p.stepper.step(p.rate, t, t_next, self.y, first)
            if attempt.failed is not None:
                self._stop(attempt.failed, t, h)
                self.steps = index
                break
            if not torch.compiler.is_compiling():
                self._note(t, t_next, attempt)
            step = Step(index, t, t_next, self.y, attempt.y1, attempt.stages)
            self.y, t, first = attempt.y1, t_next, p.stepper.next_first(attempt)
            yield step
        self._count(p.rate.calls - calls + (p.first is not None), h)
        if not torch.compiler.is_compiling():
            self._check(h)

    def _stop(self, failed: Failed, t: Time, h: Time) -> None:
        """An implicit step of some samples could not be taken: the batch, which shares its steps, stays at its last good state."""
        if self.problem.config.on_failure == "raise":
            raise failure(failed.status, _one(t), _one(h), float(rms(self.y, False)), failed.samples)
        self.status = (failed.status,) * self.problem.batch

    def _count(self, nfe: int, h: Time) -> None:
        if isinstance(h, Tensor):
            one = torch.ones_like(h, dtype=torch.int64)
            self.stats = Stats(nfe * one, 0 * one, self.steps * one, 0 * one, h, h)
        else:
            self.stats = Stats(nfe, 0, self.steps, 0, h, h)
        if self._log:
            sample, t, size, error = torch.cat(self._log, dim=1)
            accepted = torch.ones_like(t, dtype=torch.bool)
            self.stats.steps = StepLog(t, size, error, accepted, sample.long() if isinstance(h, Tensor) else None)

    @torch.no_grad()
    def _note(self, t: Time, t_next: Time, attempt: Attempt) -> None:
        """What options ask for: the last good state of a sample, and the step with its error where the method estimates one."""
        config = self.problem.config
        if config.on_failure == "status":
            for row in not_finite(attempt.y1):
                self._last_good.setdefault(row, tuple(part[row] for part in self.y))
        if config.record_steps:
            each = isinstance(t, Tensor)
            rows = torch.arange(self.problem.batch if each else 1, dtype=torch.float64)
            error = torch.nan if attempt.error is None else self.problem.ratio(attempt, self.y, per_sample=each)
            columns = (rows, t, t_next - t, error)
            self._log.append(torch.stack([torch.as_tensor(c, dtype=torch.float64).cpu().expand(len(rows)) for c in columns]))

    def _check(self, h: Time) -> None:
        bad = not_finite(self.y)
        if not bad:
            return
        if self.problem.config.on_failure == "raise":
            raise failure(Status.NON_FINITE, _one(self.problem.t1), _one(h), float(rms(self.y, False)), bad)
        self.status = tuple(Status.NON_FINITE if i in bad else Status.SUCCESS for i in range(self.problem.batch))
        rows = torch.tensor(bad, device=self.y[0].device)
        good = (torch.stack(parts) for parts in zip(*(self._last_good[row] for row in bad), strict=True))
        self.y = tuple(part.index_copy(0, rows, kept) for part, kept in zip(self.y, good, strict=True))


class BatchSteps:
    """Adaptive, one step for the whole batch, chosen by the RMS error over all of it. Times are numbers."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.y, self.stats = problem.y0, Stats()
        self.status: tuple[Status, ...] = (Status.SUCCESS,) * problem.batch
        self._log: list[tuple[float, float, float, bool]] = []
        self._suspects: list[int] = []  # samples that became infinite or undefined in the last rejected trial

    def __iter__(self) -> Iterator[Step]:
        p, config, calls = self.problem, self.problem.config, self.problem.rate.calls
        t, t1 = float(p.t0), float(p.t1)
        p.rate.on_step(0, False)
        first = p.rate(t, self.y[: p.width]) if p.first is None else p.first
        size = first_step(p, first, per_sample=False).item() if config.first_step is None else config.first_step
        h = size if t1 > t else -size
        choose = NextStep(config.step_controller, p.stepper.order)
        status = Status.MAX_STEPS
        for _ in range(config.max_steps):
            smallest = SMALLEST_STEP * ulp(t)
            h = copysign(max(abs(h), smallest), h)
            last = abs(h) >= abs(t1 - t) * (1 - 1e-12)
            t_next = t1 if last else t + h
            last = t_next == t1  # also when t + h happens to round to it
            p.rate.on_step(int(self.stats.accepted), False)
            attempt = p.stepper.step(p.rate, t, t_next, self.y, first)
            ratio = p.ratio(attempt, self.y, per_sample=False).cpu()
            accept = ratio <= 1.0
            self._note(t, t_next - t, float(ratio), bool(accept))
            h = float(choose(torch.tensor(t_next - t, dtype=torch.float64), ratio, accept))
            if not accept:
                first = attempt.stages[0]
                self._suspects = []
                if not bool(torch.isfinite(ratio)):
                    # A shorter step may save an undefined trial, within reason; nothing saves an undefined rate of change here.
                    hopeless = not_finite(first)
                    self._suspects = hopeless or not_finite((*attempt.y1, *attempt.stages[-1]))
                    smallest = inf if hopeless else SMALLEST_STEP * ulp(max(abs(t), abs(t1)))
                if abs(h) < smallest:
                    status = Status.STEP_UNDERFLOW
                    break
                continue
            step = Step(int(self.stats.accepted) - 1, t, t_next, self.y, attempt.y1, attempt.stages)
            self.y, t = attempt.y1, t_next
            yield step
            if last:
                status = Status.SUCCESS
                break
            first = p.stepper.next_first(attempt)
        self._finish(status, t, h, p.rate.calls - calls + (p.first is not None))

    def _note(self, t: float, h: float, ratio: float, accept: bool) -> None:
        stats = self.stats
        if stats.accepted + stats.rejected == 0:
            stats.first_step = h
        stats.last_step = h
        stats.accepted += accept
        stats.rejected += not accept
        if self.problem.config.record_steps:
            self._log.append((t, h, ratio, accept))

    def _finish(self, status: Status, t: float, h: float, nfe: int) -> None:
        self.stats.nfe = nfe
        if self.problem.config.record_steps:
            table = torch.tensor(self._log, dtype=torch.float64).reshape(-1, 4).T
            self.stats.steps = StepLog(table[0], table[1], table[2], table[3].bool())
        if status is Status.SUCCESS:
            return
        with torch.no_grad():
            bad = not_finite(self.problem.rate(t, self.y[: self.problem.width])) or self._suspects
        status = Status.NON_FINITE if bad else status
        if self.problem.config.on_failure == "raise":
            raise failure(status, t, h, float(rms(self.y, False)), bad or list(range(self.problem.batch)))
        self.status = (status,) * self.problem.batch


@torch.no_grad()
def not_finite(y: State) -> list[int]:
    """Indices of the samples with an infinite or undefined number anywhere; usually none, found in one pass."""
    if all(bool(torch.isfinite(part.sum())) for part in y):
        return []
    bad = torch.stack([~torch.isfinite(part).reshape(len(part), -1).all(1) for part in y]).any(0)
    return bad.nonzero().flatten().tolist()


def _one(time: Time) -> float:
    return float(time.flatten()[0]) if isinstance(time, Tensor) else time
