"""An adaptive solve as one graph: its loop is PyTorch's `while_loop`, and all that the loop decides from is a tensor.

The law of the steps, the stages and the interpolant are those of every other solve. Under `control="sample"` samples that have arrived stay
in the batch, with steps of no length, until all have.

A solve that is differentiated takes two loops: one that finds the steps, without a graph, and one that takes those that were accepted.
A rejected step may hold infinite numbers, and nothing times infinity is no number: it must not be on the graph at all. Backward takes each
step of the second loop again from the state before it, which that loop has kept.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

from continua.errors import ConfigError
from continua.float64 import widest
from continua.ode.checking import check_state, end_times
from continua.ode.config import SolverConfig
from continua.ode.control import NextStep
from continua.ode.dense import stage_weights
from continua.ode.error import first_step, unfused_error_ratio
from continua.ode.integration import SMALLEST_STEP, Integration
from continua.ode.moving import moves
from continua.ode.plain import Options
from continua.ode.rate import Field, Rate, UncountedRate, broadcast_time
from continua.ode.solution import Solution, State, Stats, Time
from continua.ode.stepper import Attempt, ExplicitStepper
from continua.ode.tableau import Tableau

MOST_KEPT = 100_000  # accepted steps of which a solve that is differentiated can keep the times
FAILED = (
    "a compiled adaptive solve did not reach its end time: its state is not finite, its step too small or max_steps too few; call the "
    "same solve without torch.compile, which says where and what to do"
)


def solve_whole(
    config: SolverConfig, f: Field, y0: "Tensor | State", t0: "float | Tensor", t1: "float | Tensor", asked: Options
) -> Solution:
    """The solve as one `while_loop`. `asked`: the other keywords of `solve`; what a graph cannot give is refused."""
    single, state = isinstance(y0, Tensor), check_state(y0)
    _refuse(config, t0, t1, asked)
    start, end = end_times(t0, t1, state)
    each, device = config.control.per == "sample", state[0].device
    begin, finish = (_moment(time, state, each) for time in (start, end))
    times = None if asked["save_at"] is None else _times(asked["save_at"], start, end, device)
    rate = UncountedRate(f, state, single)
    loop = Loop(config, rate, begin, finish, times)
    return loop.run(state)


def _refuse(config: SolverConfig, t0: "float | Tensor", t1: "float | Tensor", asked: Options) -> None:
    for name in ("dense", "events", "each_step"):
        if asked[name]:
            raise ConfigError(f"an adaptive solve that is one graph has no {name}; leave it out, or one_graph")
    if moves(t0) or moves(t1) or isinstance(asked["save_at"], Tensor):
        raise ConfigError("an adaptive solve that is one graph takes save_at as a list of numbers, and t0 and t1 without gradients")
    if config.control.per == "batch" and any(isinstance(time, Tensor) and time.ndim for time in (t0, t1)):
        raise ConfigError("an adaptive solve that is one graph takes one interval for the batch, or control=dict(per='sample', ...)")


def _moment(time: Time, y0: State, each: bool) -> Tensor:
    value = torch.as_tensor(time, dtype=widest(y0[0].device), device=y0[0].device)
    return value.expand(y0[0].shape[0]).clone() if each else value


def _times(save_at: Sequence[float], t0: Time, t1: Time, device: torch.device) -> Tensor:
    times = [float(time) for time in save_at]
    if isinstance(t0, float) and isinstance(t1, float):
        low, high = min(t0, t1), max(t0, t1)
        if not times or not all(low <= time <= high for time in times):
            raise ConfigError(f"save_at = {save_at}; expected times between t0 = {t0:g} and t1 = {t1:g}")
    return torch.tensor(times, dtype=widest(device), device=device)


class Loop:
    """What one turn of the loop does. Nothing here changes while the loop runs: all that changes is handed from turn to turn.

    That is, in this order: the clock (t, the next step, the errors of the last two steps, whether the last one was rejected, whether the
    solve goes on, the size of the last step), the counts of tried and accepted steps, the state, f there, the states at asked times, and
    the ends of accepted steps.
    """

    def __init__(self, config: SolverConfig, rate: Rate, t0: Tensor, t1: Tensor, times: Tensor | None) -> None:
        self.config, self.rate, self.t0, self.t1, self.times = config, rate, t0, t1, times
        self.each = t1.ndim == 1
        self.tableau: Tableau = config.tableau.with_end_stage()
        self.stepper = ExplicitStepper(self.tableau)

    def run(self, y0: State) -> Solution:
        """The whole solve from y0."""
        control, first = self.config.control, self.rate(self.t0, y0)
        differentiated = any(part.requires_grad for part in (*y0, *first))
        if differentiated and control.max_steps > MOST_KEPT:
            raise ConfigError(
                f"an adaptive solve that is one graph and is differentiated keeps room for the times of max_steps={control.max_steps} "
                f"steps; give at most {MOST_KEPT}"
            )
        still, slope = ((tuple(part.detach() for part in state)) for state in (y0, first))
        with torch.no_grad():
            clock, (tried, accepted), y, ys, marks = self._search(still, slope, differentiated)
        extra = 1 if control.first_step is not None else 2
        if self.config.on_failure == "raise":
            torch.ops.aten._assert_async.msg((clock[0] == self.t1).all(), FAILED)
        if differentiated:
            y, ys = Along(self, marks[0], accepted.amax()).run(y0, first)
        taken = tried + accepted.amax() if differentiated else tried
        stats = Stats(extra + taken * self.stepper.evaluations, 0, accepted, tried - accepted, clock[6], clock[6])
        if self.rate.single:
            return Solution(y[0], ys[0] if ys else None, self.times, stats, ())
        return Solution(y, ys or None, self.times, stats, ())

    def _search(self, y0: State, first: State, keep: bool) -> tuple[State, State, State, State, State]:
        """The loop that finds the steps. `keep`: their ends are wanted, a row for each accepted step after the start, and nothing else."""
        t0, limit = self.t0, self.config.control.max_steps
        h = self._first_step(y0, first)
        one, count = torch.ones_like(t0), torch.zeros_like(t0, dtype=torch.int64)
        on = t0 != self.t1
        clock = (t0.clone(), torch.copysign(h, self.t1 - t0), one, one.clone(), torch.zeros_like(on), on, h.clone())
        marks = (t0.expand(limit + 1, *t0.shape).clone(),) if keep else ()
        counts = (torch.zeros((), dtype=torch.int64, device=t0.device), count)
        clock, counts, y, _, ys, marks = while_loop(
            self._goes_on, self._turn, (clock, counts, y0, first, () if keep else self.saved_at_start(y0), marks)
        )
        if keep:  # a sample that took fewer steps than others stays where it is
            rows = torch.arange(limit + 1, device=t0.device).reshape(-1, *(1,) * t0.ndim)
            marks = (torch.where(rows > counts[1], clock[0], marks[0]),)
        return clock, counts, y, ys, marks

    def _first_step(self, y0: State, first: State) -> Tensor:
        control, choose = self.config.control, NextStep(self.config.control, self.stepper.order)
        if control.first_step is not None:
            return choose.bounded(torch.full_like(self.t0, control.first_step))
        detached = tuple(part.detach() for part in y0)
        whole = Integration(self.rate, self.stepper, self.config, detached, self.t0, self.t1)
        return choose.bounded(first_step(whole, tuple(part.detach() for part in first), per_sample=self.each))

    def saved_at_start(self, y0: State) -> State:
        if self.times is None:
            return ()
        at_start = self.times[:, None] == self.t0 if self.each else self.times == self.t0
        return tuple(torch.where(_like(at_start, part), part[None], torch.nan) for part in y0)

    def _goes_on(self, clock: State, counts: State, *_: State) -> Tensor:
        return clock[5].any() & (counts[0] < self.config.control.max_steps)

    def _turn(self, clock: State, counts: State, y: State, first: State, ys: State, marks: State) -> tuple[State, ...]:
        t, h, previous, before, rejected, on, size = clock
        choose = NextStep(self.config.control, self.stepper.order)
        choose.previous, choose.before, choose.rejected = previous, before, rejected
        smallest = SMALLEST_STEP * torch.finfo(t.dtype).eps * t.abs().clamp(min=torch.finfo(t.dtype).tiny)
        h = torch.copysign(torch.maximum(h.abs(), smallest), h)
        t_next = torch.where(h.abs() >= (self.t1 - t).abs() * (1 - 1e-12), self.t1, t + h)
        taken = t_next - t
        attempt = self.stepper.step(self.rate, t, t_next, y, first)
        ratio = unfused_error_ratio(attempt.error or (), y, attempt.y1, self.config.rtol, self.config.atol, self.each).detach()
        accept = choose.accepts(taken, ratio) & on
        h = torch.where(on, choose(taken, ratio, accept), h)
        ys = self.save(attempt, t, taken, y, ys, accept) if ys else ys
        y = _where(accept, attempt.y1, y)
        first = _where(accept, attempt.stages[-1], first)
        failed = ~accept & (h.abs() < smallest)
        t = torch.where(accept, t_next, t)
        clock = (t, h, *_kept(choose, on, previous, before, rejected), on & ~failed & (t != self.t1), torch.where(on, taken, size))
        counts = (counts[0] + 1, counts[1] + accept)
        if marks:
            rows = torch.arange(len(marks[0]), device=t.device).reshape(-1, *(1,) * t.ndim)
            marks = (torch.where((rows == counts[1]) & accept, t_next, marks[0]),)
        return clock, counts, y, first, ys, marks

    def save(self, attempt: Attempt, t: Tensor, h: Tensor, y: State, ys: State, accept: Tensor) -> State:
        """States at asked times, with those that this step passes filled in."""
        if self.times is None:
            return ys
        times = self.times[:, None] if self.each else self.times
        theta = torch.where(times == t + h, 1.0, (times - t) / torch.where(h == 0, 1.0, h))
        inside = (theta > 0) & (theta <= 1) & accept
        weights = [weight * h for weight in stage_weights(self.tableau, theta.clamp(0, 1))]
        saved = []
        for index, part in enumerate(y):
            state = part[None]
            for weight, stage in zip(weights, attempt.stages, strict=True):
                state = state + _like(weight, part).to(part.dtype) * stage[index][None]
            saved.append(torch.where(_like(inside, part), state, ys[index]))
        return tuple(saved)


class Along:
    """The second loop of a solve that is differentiated: the steps between marks."""

    def __init__(self, loop: Loop, marks: Tensor, count: Tensor) -> None:
        self.loop, self.marks, self.count = loop, marks, count

    def run(self, y0: State, first: State) -> tuple[State, State]:
        """The end state, and the states at asked times."""
        # What the loop hands on must depend on y0 and parameters from the start.
        y0 = tuple(part + 0.0 * k for part, k in zip(y0, first, strict=True))
        index = torch.zeros((), dtype=torch.int64, device=self.marks.device)
        _, y, _, ys = while_loop(self._goes_on, self._turn, (index, y0, first, self.loop.saved_at_start(y0)))
        return y, ys

    def _goes_on(self, index: Tensor, *_: State) -> Tensor:
        return index < self.count

    def _turn(self, index: Tensor, y: State, first: State, ys: State) -> tuple[Tensor, State, State, State]:
        t, t_next = (torch.index_select(self.marks, 0, (index + ahead).reshape(1))[0] for ahead in (0, 1))
        attempt = self.loop.stepper.step(self.loop.rate, t, t_next, y, first)
        ys = self.loop.save(attempt, t, t_next - t, y, ys, t_next != t)
        return index + 1, attempt.y1, attempt.stages[-1], ys


def _like(per_time: Tensor, part: Tensor) -> Tensor:
    """(time,) or (time, batch) shaped to multiply (time, batch, ...)."""
    return per_time.reshape(*per_time.shape, *(1,) * (part.ndim + 1 - per_time.ndim))


def _where(accept: Tensor, new: State, old: State) -> State:
    return tuple(torch.where(broadcast_time(accept, a), a, b) for a, b in zip(new, old, strict=True))


def _kept(choose: NextStep, on: Tensor, *old: Tensor) -> State:
    """What the law of the steps remembers, as it was for samples that have arrived."""
    new = (choose.previous, choose.before, choose.rejected)
    return tuple(torch.where(on, torch.as_tensor(a), b) for a, b in zip(new, old, strict=True))
