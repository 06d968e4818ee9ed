"""Checkpointed discretise-then-optimise: keep states at accepted steps, replay one step at a time backwards with the same steps.

Rejected steps are never replayed. `segments=k` keeps only the starts of k segments of steps and re-creates one segment at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continua.ode.control import Problem
from continua.ode.dense import DenseOutput, Save, Saver, stage_weights
from continua.ode.discrete import InnerCotangent, ParameterGradients, step_vjp
from continua.ode.implicit import ImplicitStepper
from continua.ode.loops import Loop, Step
from continua.ode.rate import Rate, broadcast_time
from continua.ode.solution import State, Stats
from continua.ode.stepper import ExplicitStepper, Time, combine
from continua.ode.tableau import Tableau


@dataclass
class Job:
    """One solve: what is to be done and, once run, what was found besides the states."""

    problem: Problem
    loop: Loop
    tableau: Tableau
    saver: Saver | None = None
    dense: DenseOutput | None = None

    def run(self, each: Callable[[Step], None] | None = None) -> State:
        """Take all steps; `each` sees every accepted one."""
        for step in self.loop:
            if self.saver is not None:
                self.saver.take(step)
            if self.dense is not None:
                self.dense.take(step)
            if each is not None:
                each(step)
        return (*self.loop.y, *(self.saver.stacked() if self.saver is not None else ()))


class Checkpoints:
    """States at every `stride`-th accepted step; the stride doubles when more are held than the policy allows."""

    def __init__(self, segments: "int | str | None", steps: int | None, y0: State) -> None:
        self.segments = segments
        self.stride = -(-steps // segments) if steps is not None and isinstance(segments, int) else 1
        self.kept: list[tuple[int, State]] = []
        self.count = 0
        self._now = y0  # the whole batch, when only some samples move in a step
        self._whole = segments is None

    def take(self, step: Step) -> None:
        if self._whole:
            self.kept.append((self.count, step.y0))
        else:
            if self.count % self.stride == 0:
                self.kept.append((self.count, self._now if step.rows is not None else step.y0))
                self._thin()
            if step.rows is not None:
                self._now = _put(self._now, step.rows, step.y1)
        self.count += 1

    def _thin(self) -> None:
        limit = 2 * self.stride if self.segments == "sqrt" else self.segments
        if len(self.kept) > int(limit or 1):
            self.kept = self.kept[::2]
            self.stride *= 2


@dataclass
class _Replay:
    """One accepted step as backward needs it: numbers and small tensors, no state."""

    index: int
    t: Time
    t_next: Time
    rows: Tensor | None


class CheckpointSolve(torch.autograd.Function):
    """y1 (and ys) of a solve as a function of y0 and the parameters."""

    @staticmethod
    def forward(ctx: Any, job: Job, count: int, *tensors: Tensor) -> State:
        config = job.problem.config
        checkpoints = Checkpoints(config.segments, config.steps, tensors[:count])
        replays: list[_Replay] = []

        def each(step: Step) -> None:
            checkpoints.take(step)
            replays.append(_Replay(step.index, step.t, step.t_next, step.rows))

        outputs = tuple(part.detach() for part in job.run(each))
        ctx.count, ctx.replays, ctx.tableau, ctx.rate, ctx.stats = count, replays, job.tableau, job.problem.rate, job.loop.stats
        ctx.stepper = job.problem.stepper
        ctx.saves = job.saver.saves if job.saver is not None else None
        ctx.starts = [index for index, _ in checkpoints.kept]
        ctx.whole = config.segments is None
        ctx.like = [(part.shape, part.dtype) for part in tensors[:count]]
        ctx.at_start = _slots_at_start(job.saver, job.problem.t0)
        ctx.save_for_backward(*tensors[count:], *(part for _, state in checkpoints.kept for part in state))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        count, saved = ctx.count, ctx.saved_tensors
        params = saved[: len(saved) - count * len(ctx.starts)]
        states = [saved[len(params) + count * i : len(params) + count * (i + 1)] for i in range(len(ctx.starts))]
        backward = _Backward(ctx, cotangents, params)
        backward.go(ctx.starts, states, ctx.whole)
        backward.add_saves_at_start(ctx.at_start)
        return None, None, *backward.g, *backward.gradients.sums


class _Backward:
    """Goes through the replayed steps from last to first, carrying g = ∂L/∂y of the whole batch."""

    def __init__(self, ctx: Any, cotangents: tuple[Tensor | None, ...], params: tuple[Tensor, ...]) -> None:
        self.rate: Rate = ctx.rate
        self.tableau: Tableau = ctx.tableau
        self.stepper: ExplicitStepper | ImplicitStepper = ctx.stepper
        self.replays: list[_Replay] = ctx.replays
        self.stats: Stats = ctx.stats
        self.saves: list[list[Save]] = ctx.saves or [[] for _ in ctx.replays]
        self.gradients = ParameterGradients(params)
        self.of_ys = cotangents[ctx.count :]
        ends = zip(cotangents[: ctx.count], ctx.like, strict=True)
        self.g: State = tuple(torch.zeros(s, dtype=d, device=ctx.rate.device) if g is None else g for g, (s, d) in ends)

    def go(self, starts: list[int], states: list[State], whole: bool) -> None:
        ends = [*starts[1:], len(self.replays)] if starts else []  # a solve that failed at once took no step
        for start, end in zip(reversed(starts), reversed(ends), strict=True):
            y = states.pop()
            inside = [y] if whole else self._recreate(start, end, y)
            for position in reversed(range(start, end)):
                self._step(position, inside.pop())

    def add_saves_at_start(self, slots: "list[tuple[int, Tensor | None]]") -> None:
        """Times equal to t0 give y0 itself."""
        for slot, rows in slots:
            pairs = zip(self.g, self.of_ys, strict=True)
            if rows is None:
                self.g = tuple(g if c is None else g + c[slot] for g, c in pairs)
            else:
                self.g = tuple(g if c is None else g.index_add(0, rows, c[slot, rows]) for g, c in pairs)

    def _recreate(self, start: int, end: int, y: State) -> list[State]:
        """States at the steps of a segment (of the rows that each step moves), taken again without a graph."""
        inside = []
        for position in range(start, end):
            replay = self.replays[position]
            rows = y if replay.rows is None else _pick(y, replay.rows)
            inside.append(rows)
            if position + 1 == end:
                break
            calls = self.rate.calls
            self.rate.on_step(replay.index, True)
            stages = self.stepper.stages(self.rate, replay.t, replay.t_next, rows)
            moved = combine(rows, replay.t_next - replay.t, self.tableau.b, stages)
            self._count(replay, self.rate.calls - calls)
            y = moved if replay.rows is None else _put(y, replay.rows, moved)
        return inside

    def _step(self, position: int, y: State) -> None:
        replay, rows = self.replays[position], self.replays[position].rows
        g = self.g if rows is None else _pick(self.g, rows)
        inner, g = self._cotangents_inside(position, g)
        calls = self.rate.calls
        self.rate.on_step(replay.index, True)
        if isinstance(self.stepper, ImplicitStepper):
            mu = self.stepper.vjp(self.rate, replay.t, replay.t_next, y, g, self.gradients)
        else:
            mu, _ = step_vjp(self.rate, self.tableau, replay.t, replay.t_next, y, g, self.gradients, inner)
        self._count(replay, self.rate.calls - calls)
        g = combine(g, 1.0, [1.0] * (len(mu) + len(inner)), [*mu, *(cotangent for _, cotangent in inner)])
        self.g = g if rows is None else _put(self.g, rows, g)

    def _cotangents_inside(self, position: int, g: State) -> tuple[list[InnerCotangent], State]:
        """Cotangents of states taken inside the step, and g with those taken at its very end added."""
        inner: list[InnerCotangent] = []
        for save in self.saves[position]:
            cotangent = self._cotangent(save, position, g)
            if isinstance(save.theta, Tensor):
                theta = torch.zeros(len(g[0]), dtype=torch.float64, device=g[0].device)
                theta = theta.index_copy(0, save.rows, save.theta)  # pyright: ignore[reportArgumentType]
                ending = theta >= 1.0
                at_end = tuple(c * broadcast_time(ending, c) for c in cotangent)
                g = tuple(a + b for a, b in zip(g, at_end, strict=True))
                cotangent = tuple(c - e for c, e in zip(cotangent, at_end, strict=True))
                inner.append((stage_weights(self.tableau, theta.where(~ending, 0.0)), cotangent))
            elif save.theta == 1.0:
                g = tuple(a + b for a, b in zip(g, cotangent, strict=True))
            else:
                inner.append((stage_weights(self.tableau, save.theta), cotangent))
        return inner, g

    def _cotangent(self, save: Save, position: int, g: State) -> State:
        """∂L/∂ys of one asked time, for the rows of the step; zero for rows that it does not concern."""
        moved = self.replays[position].rows
        parts = []
        for part, cotangent in zip(g, self.of_ys, strict=True):
            if cotangent is None:
                parts.append(torch.zeros_like(part))
            elif save.rows is None:
                parts.append(cotangent[save.slot])
            else:
                here = save.rows if moved is None else moved[save.rows]
                parts.append(torch.zeros_like(part).index_copy(0, save.rows, cotangent[save.slot, here]))
        return tuple(parts)

    def _count(self, replay: _Replay, calls: int) -> None:
        if replay.rows is not None:
            self.stats.nfe_backward[replay.rows] += calls
        else:
            self.stats.nfe_backward += calls


def _pick(state: State, rows: Tensor) -> State:
    return tuple(part.index_select(0, rows) for part in state)


def _put(state: State, rows: Tensor, parts: State) -> State:
    return tuple(full.index_copy(0, rows, part) for full, part in zip(state, parts, strict=True))


def _slots_at_start(saver: Saver | None, t0: Time) -> "list[tuple[int, Tensor | None]]":
    if saver is None:
        return []
    if isinstance(saver.times, Tensor):
        return [(slot, rows) for slot, at in enumerate(saver.times == t0) if len(rows := at.nonzero().flatten())]
    return [(slot, None) for slot, time in enumerate(saver.times) if time == t0]
