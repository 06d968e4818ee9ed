"""One solve as its accepted steps: a fixed grid, or adaptive with one step for the whole batch.

`Integration` holds all that belongs to a solve. Its `steps()` are iterated over once; afterwards `y` is the end state, `stats` what it
cost and `status` how each sample fared. How the solve is differentiated is the business of the gradient that iterates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import copysign, inf, isfinite, ulp
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.ode.control import NextStep
from continua.ode.dense import DenseOutput, Saver
from continua.ode.error import error_ratio, first_step_of_batch, rms
from continua.ode.rate import Rate, hidden_leaves, probe, refuse_hidden, sees_no_numbers
from continua.ode.solution import Solution, State, Stats, Status, StepLog, Time, detached, failure
from continua.ode.stepper import Attempt, Step, Stepper
from continua.ode.stops import Stop, Stops

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig
    from continua.ode.watch import Watch

SMALLEST_STEP = 10  # rounding errors of t: a step that is rejected below this size has failed


@dataclass
class Integration:
    """One solve: dy/dt = rate(t, y) from (t0, y0) to t1 by the steps of `stepper`, and what is wanted of it."""

    rate: Rate
    stepper: Stepper
    config: "SolverConfig"
    y0: State
    t0: Time
    t1: Time
    loop: "Callable[[Integration], AcceptedSteps] | None" = None  # which kind of steps; None: as many equal ones as the configuration says
    params: State = ()  # tensors besides y0 that need gradients
    controlled: int | None = None  # leading components that error control looks at; None: all that f takes
    unit: float = 1.0  # how long a unit of the clock of t0 and t1 is for the user
    first: State | None = None  # f(t0, y0), where it is known already
    graph_bytes: int = 0  # what autograd holds of one evaluation of f, once it has been probed
    saver: Saver | None = None  # of states at asked times
    dense: DenseOutput | None = None  # of an interpolant for later
    watch: "Watch | None" = None  # for events
    each_step: "Callable[[Step], None] | None" = None  # is shown every accepted step

    @property
    def batch(self) -> int:
        return self.y0[0].shape[0]  # len() would fix it when a solve is exported

    @property
    def differentiable(self) -> bool:
        """Whether anybody may ask for a gradient."""
        return torch.is_grad_enabled() and any(part.requires_grad for part in (*self.y0, *self.params))

    @property
    def measured(self) -> int:
        return self.rate.width if self.controlled is None else self.controlled

    def steps(self) -> "AcceptedSteps":
        """The accepted steps, to be iterated over once."""
        return FixedSteps(self) if self.loop is None else self.loop(self)

    def probe(self, gradient: object, y0: State | None = None) -> None:
        """Evaluate f(t0, y0), and refuse an f whose second evaluation in backward would give wrong gradients.

        Given `y0`, whose parts all require gradients, `first` keeps its graph.
        """
        if torch.compiler.is_compiling():
            return
        self.rate.on_step(0, False)
        start = detached(self.y0) if y0 is None else y0
        first, self.graph_bytes = probe(self.rate, self.t0, start, self.params, str(gradient))
        self.first = detached(first) if y0 is None else first

    def run(self) -> "AcceptedSteps":
        """All steps, where nothing that the solve knows of needs a gradient; an f that hides what does is refused at the first."""
        steps = self.steps()
        for step in steps:
            if step.index or not torch.is_grad_enabled() or torch.compiler.is_compiling():
                continue
            # Implicit steps are taken without a graph; of explicit ones, the state tells.
            if not self.stepper.tableau.explicit or any(part.requires_grad for part in step.y1):
                start = tuple(part.detach().clone() for part in self.y0[: self.rate.width])  # f may ask for gradients to its state
                first, second = (hidden_leaves(self.rate.evaluate(self.t0, start), start) for _ in range(2))
                lasting = [leaf for leaf in first if any(leaf is other for other in second)]  # the others f makes anew at each call
                refuse_hidden(lasting, str(self.config.gradient))
        return steps

    def ratio(self, attempt: Attempt, y: State, per_sample: bool) -> Tensor:
        """The error of an attempt relative to the tolerance: at most 1 is accepted."""
        measured = (attempt.error or ())[: self.measured]
        return error_ratio(measured, y, attempt.y1, self.config.rtol, self.config.atol, per_sample)


class AcceptedSteps(ABC):
    """The accepted steps of an integration, and what is known when they are through."""

    def __init__(self, integration: Integration, stats: Stats | None = None) -> None:
        self.integration = integration
        self.y = integration.y0
        self.stats = Stats() if stats is None else stats
        # A compiled or mapped solve looks at no numbers, so it claims nothing; and its batch may be of any size.
        self.blind = sees_no_numbers()
        self.status: tuple[Status, ...] = () if self.blind else (Status.SUCCESS,) * integration.batch

    @abstractmethod
    def accepted(self) -> Iterator[Step]:
        """Takes steps, and yields those that count."""

    def __iter__(self) -> Iterator[Step]:
        saver, dense, each_step = self.integration.saver, self.integration.dense, self.integration.each_step
        steps = self.accepted() if self.integration.watch is None else self._until_an_event(self.integration.watch)
        for step in steps:
            if saver is not None:
                saver.take(step)
            if dense is not None:
                dense.take(step)
            if each_step is not None:
                each_step(step)
            yield step

    def _until_an_event(self, watch: "Watch") -> Iterator[Step]:
        """The accepted steps up to the first event that stops the batch, the last of them shortened."""
        p, calls = self.integration, self.integration.rate.calls
        watch.begin(p.t0, self.y)
        steps = self.accepted()
        for step in steps:
            stop = watch.look(step)
            if stop is None:
                yield step
                continue
            t_next = float(stop[1])
            attempt = p.stepper.shortened(p.rate, step, t_next)
            self.y, self.status = attempt.y1, (Status.STOPPED,) * p.batch
            yield replace(step, t_next=t_next, y1=attempt.y1, stages=attempt.stages)
            self.stop(t_next, p.rate.calls - calls + (p.first is not None))
            break

    def stop(self, t: float, nfe: int) -> None:
        """The last words of a solve that an event has stopped."""
        self.stats.nfe = nfe

    def run(self) -> "AcceptedSteps":
        """Take all steps."""
        for _ in self:
            pass
        return self

    @property
    def ys(self) -> State:
        """States at the asked times; nothing if none were asked for."""
        saver = self.integration.saver
        return () if saver is None else saver.stacked()

    def detached(self) -> State:
        """The components of y1, then those of ys, without their graph."""
        return detached((*self.y, *self.ys))

    def forget_graph(self) -> None:
        """Go on from the same states without what led to them."""
        self.y, saver = detached(self.y), self.integration.saver
        if saver is not None:
            saver.ys = [list(detached(slot)) for slot in saver.ys]

    def solution(self, y1: State | None = None, ys: State | None = None) -> Solution:
        """What the user gets: y1 and ys, connected to y0 and the parameters as the caller did, or as they are."""
        y1, ys = self.y if y1 is None else y1, (self.ys if ys is None else ys) or None
        if self.integration.rate.single:
            return Solution(y1[0], ys and ys[0], None, self.stats, self.status, self.integration.dense)
        return Solution(y1, ys, None, self.stats, self.status, self.integration.dense)

    def _fail(self, status: Status, t: Time, h: Time, samples: list[int]) -> None:
        """An error, or the status of the whole batch, which shares its steps: as the configuration says."""
        if self.integration.config.on_failure == "raise":
            raise failure(status, _first_of(t), _first_of(h), float(rms(self.y, False)), samples)
        self.status = (status,) * self.integration.batch


class FixedSteps(AcceptedSteps):
    """N steps, equal or of given shares of the interval. Times are numbers, or (batch,) where each sample has its own interval."""

    def __init__(self, integration: Integration) -> None:
        super().__init__(integration)
        self.count, self.shares = integration.config.count or 1, integration.config.shares
        self._last_good: dict[int, State] = {}
        self._log: list[Tensor] = []

    def accepted(self) -> Iterator[Step]:
        p, calls = self.integration, self.integration.rate.calls
        h = self._end(0) - p.t0 if self.shares else (p.t1 - p.t0) / self.count
        t, first, last = p.t0, p.first, h
        for index in range(self.count):
            t_next = self._end(index)
            p.rate.on_step(index, False)
            attempt = p.stepper.step(p.rate, t, t_next, self.y, first)
            if attempt.failed is not None:  # an implicit step of some samples: the batch stays at its last good state
                self._fail(attempt.failed.status, t, h, attempt.failed.samples)
                self.count = index
                break
            if not self.blind:
                self._note(t, t_next, attempt)
            step = Step(index, t, t_next, self.y, attempt.y1, attempt.stages)
            last = t_next - t if self.shares else h
            self.y, t, first = attempt.y1, t_next, p.stepper.next_first(attempt)
            yield step
        self._count(p.rate.calls - calls + (p.first is not None), h, last)
        if not self.blind:
            self._check(last)

    def _end(self, index: int) -> Time:
        """Where a step ends; the last one, at the end of the interval to the bit."""
        p = self.integration
        if index == self.count - 1:
            return p.t1
        return p.t0 + (index + 1) * ((p.t1 - p.t0) / self.count) if self.shares is None else p.t0 + self.shares[index] * (p.t1 - p.t0)

    def stop(self, t: float, nfe: int) -> None:
        t0, forward = self.integration.t0, self.integration.t1 > self.integration.t0
        starts = [t0, *(self._end(index) for index in range(self.count - 1))]
        ends = [*starts[1:], self.integration.t1]
        count = len([start for start in starts if (start < t) == forward])
        self.count = count
        self._count(nfe, ends[0] - t0, ends[count - 1] - starts[count - 1])

    def _count(self, nfe: int, h: Time, last: Time) -> None:
        if isinstance(h, Tensor):
            each = torch.ones_like(h, dtype=torch.int64)
            self.stats = Stats(nfe * each, 0 * each, self.count * each, 0 * each, h, torch.as_tensor(last))
        else:
            self.stats = Stats(nfe, 0, self.count, 0, h, last)
        if self._log:
            sample, t, size, error = torch.cat(self._log, dim=1)
            accepted = torch.ones_like(t, dtype=torch.bool)
            self.stats.steps = StepLog(t, size, error, accepted, sample.long() if isinstance(h, Tensor) else None)

    @torch.no_grad()
    def _note(self, t: Time, t_next: Time, attempt: Attempt) -> None:
        """What options ask for: the last good state of a sample, and the step with its error where the method estimates one."""
        config = self.integration.config
        if config.on_failure == "status":
            for row in not_finite(attempt.y1):
                self._last_good.setdefault(row, tuple(part[row] for part in self.y))
        if config.record_steps:
            each = isinstance(t, Tensor)
            rows = torch.arange(self.integration.batch if each else 1, dtype=torch.float64)
            error = torch.nan if attempt.error is None else self.integration.ratio(attempt, self.y, per_sample=each)
            columns = (rows, t, t_next - t, error)
            self._log.append(torch.stack([torch.as_tensor(c, dtype=torch.float64).cpu().expand(len(rows)) for c in columns]))

    def _check(self, h: Time) -> None:
        bad = not_finite(self.y)
        if not bad or self.status[0] is Status.NON_FINITE or self.status[0] is Status.NOT_CONVERGED:  # an implicit step has said so
            return
        self._fail(Status.NON_FINITE, self.integration.t1, h, bad)
        self.status = tuple(Status.NON_FINITE if i in bad else Status.SUCCESS for i in range(self.integration.batch))
        rows = torch.tensor(bad, device=self.y[0].device)
        good = (torch.stack(parts) for parts in zip(*(self._last_good[row] for row in bad), strict=True))
        self.y = tuple(part.index_copy(0, rows, kept) for part, kept in zip(self.y, good, strict=True))


class BatchSteps(AcceptedSteps):
    """Adaptive, one step for the whole batch, chosen by the RMS error over all of it. Times are numbers."""

    def __init__(self, integration: Integration) -> None:
        super().__init__(integration)
        self._log: list[tuple[float, float, float, bool]] = []
        self._suspects: list[int] = []  # samples that became infinite or undefined in the last rejected trial

    def accepted(self) -> Iterator[Step]:
        p, control, calls = self.integration, self.integration.config.control, self.integration.rate.calls
        t, t1 = float(p.t0), float(p.t1)
        stops = Stops(control, t, t1, p.rate.time_dtype).list if control.stops else [Stop(t1, t1, False)]
        stop, *stops = stops
        p.rate.on_step(0, False)
        first: State | None = p.rate(t, self.y[: p.rate.width]) if p.first is None else p.first
        choose = NextStep(control, p.stepper.order, p.unit)
        h = self._first_step(first, choose)
        status = Status.MAX_STEPS
        for _ in range(control.max_steps):
            smallest = SMALLEST_STEP * ulp(t)
            h = planned = copysign(max(abs(h), smallest), h)
            last = abs(h) >= abs(stop.end - t) * (1 - 1e-12)
            t_next = stop.end if last else t + h
            last = t_next == stop.end  # also when t + h happens to round to it
            p.rate.on_step(int(self.stats.accepted), False)
            attempt = p.stepper.step(p.rate, t, t_next, self.y, first)
            ratio = float(p.ratio(attempt, self.y, per_sample=False))
            accept = choose.accepts_of_batch(t_next - t, ratio)
            self._note(t, t_next - t, ratio, accept)
            h = choose.of_batch(t_next - t, ratio, accept)
            if not accept:
                first = attempt.stages[0] if p.stepper.starts_with_rate else first
                if self._hopeless(attempt, ratio, t, t1, h, smallest):
                    status = Status.STEP_UNDERFLOW if attempt.failed is None else attempt.failed.status
                    break
                continue
            step = Step(int(self.stats.accepted) - 1, t, t_next, self.y, attempt.y1, attempt.stages)
            self.y, t, first = attempt.y1, t_next, p.stepper.next_first(attempt)
            yield step
            if last and not stops:
                status = Status.SUCCESS
                break
            if last:  # cut short by a stop: that says nothing about the next step
                t, h, first = stop.resume, max(h, planned, key=abs), None if stop.jump else first
                stop, *stops = stops
        self._finish(status, t, h, p.rate.calls - calls + (p.first is not None))

    def _first_step(self, first: State, choose: NextStep) -> float:
        p = self.integration
        given = p.config.control.first_step
        size = choose.bounded_of_batch(first_step_of_batch(p, first) if given is None else given / p.unit)
        return size if p.t1 > p.t0 else -size

    def _hopeless(self, attempt: Attempt, ratio: float, t: float, t1: float, h: float, smallest: float) -> bool:
        """Whether no shorter step can help after a rejected one."""
        self._suspects = []
        if not isfinite(ratio):
            # A shorter step may save an undefined trial, within reason; nothing saves an undefined rate of change here.
            hopeless = not_finite(attempt.stages[0])
            self._suspects = hopeless or not_finite((*attempt.y1, *attempt.stages[-1]))
            smallest = inf if hopeless else SMALLEST_STEP * ulp(max(abs(t), abs(t1)))
            if self.integration.config.control.min_step is not None:
                smallest = max(smallest, self.integration.config.control.min_step / self.integration.unit * (1 + 1e-12))
        return abs(h) < smallest

    def stop(self, t: float, nfe: int) -> None:
        self._finish(Status.SUCCESS, t, 0.0, nfe)

    def _note(self, t: float, h: float, ratio: float, accept: bool) -> None:
        stats = self.stats
        if stats.accepted + stats.rejected == 0:
            stats.first_step = h
        stats.last_step = h
        stats.accepted += accept
        stats.rejected += not accept
        if self.integration.config.record_steps:
            self._log.append((t, h, ratio, accept))

    def _finish(self, status: Status, t: float, h: float, nfe: int) -> None:
        self.stats.nfe = nfe
        if self.integration.config.record_steps:
            table = torch.tensor(self._log, dtype=torch.float64).reshape(-1, 4).T
            self.stats.steps = StepLog(table[0], table[1], table[2], table[3].bool())
        if status is Status.SUCCESS:
            return
        with torch.no_grad():
            bad = not_finite(self.integration.rate(t, self.y[: self.integration.rate.width])) or self._suspects
        self._fail(Status.NON_FINITE if bad else status, t, h, bad or list(range(self.integration.batch)))


@torch.no_grad()
def not_finite(y: State) -> list[int]:
    """Indices of the samples with an infinite or undefined number anywhere; usually none, found in one pass."""
    if all(bool(torch.isfinite(part.sum())) for part in y):
        return []
    bad = torch.stack([~torch.isfinite(part).reshape(len(part), -1).all(1) for part in y]).any(0)
    return bad.nonzero().flatten().tolist()


def _first_of(time: Time) -> float:
    return float(time.flatten()[0]) if isinstance(time, Tensor) else time
