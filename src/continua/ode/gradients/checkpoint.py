"""Checkpointed discretise-then-optimise: keep states at accepted steps, replay one step at a time backwards with the same steps.

Rejected steps are never replayed. `segments=k` keeps only the starts of k segments of steps and re-creates one segment at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.dense import Saver
from continua.ode.gradients.base import Cotangents, ForwardPass, Gradient, Gradients, connect
from continua.ode.gradients.saves import AskedTimes
from continua.ode.integration import AcceptedSteps, Integration
from continua.ode.plain import is_whole
from continua.ode.rate import Rate
from continua.ode.solution import Solution, State, Stats, Time, detached, pick, put
from continua.ode.stepper import ParameterGradients, Step, Stepper
from continua.ode.sums import combine

SMALL_GRAPH = 256 * 2**20
"""Bytes. Steps of which autograd holds no more together are not taken again: it would cost time and save little."""
# An adaptive solve with times or events keeps all of its graph or nothing: it begins to if so many steps have room.
FEWEST_STEPS = 8


@dataclass(frozen=True)
class Checkpoint(Gradient):
    """The exact gradient of the steps taken, in the memory of one step and of the states that are kept.

    `segments`: None keeps the state before every step; k keeps those at the starts of k segments, and "sqrt" about √steps of them; steps
    between are taken once more in backward.

    `direct_below`: bytes. The graph of the first steps is kept up to this size, as `Direct` keeps it, and backward does not evaluate them
    again; of the steps that follow, states alone are kept. (With `save_at` or events, all of the graph or nothing of it.) The size is that
    of the first evaluation's graph, times the evaluations of accepted steps. None: `SMALL_GRAPH`, 256 MiB; 0: never. It is for explicit
    steps shared by the batch; with `segments` or `dense` states alone are kept.
    """

    kind: ClassVar[str] = "checkpoint"
    exact_times: ClassVar[bool] = True
    segments: "int | Literal['sqrt'] | None" = None
    direct_below: int | None = None

    def __post_init__(self) -> None:
        if self.segments not in (None, "sqrt") and not is_whole(self.segments):
            raise ConfigError(f"Checkpoint(segments={self.segments!r}); expected a whole number of at least 1, 'sqrt' or None")
        if self.direct_below not in (None, 0) and not is_whole(self.direct_below):
            raise ConfigError(f"Checkpoint(direct_below={self.direct_below!r}); expected a number of bytes, 0 for never, or None")

    def integrate(self, integration: Integration) -> Solution:
        if not integration.differentiable:
            return integration.run().solution()
        limit = self._room(integration)
        y0 = integration.y0
        # As in a replay, f sees a state that requires gradients, whether or not y0 does.
        leaves = tuple(part if part.requires_grad else part.detach().requires_grad_() for part in y0) if limit else None
        integration.probe(self, leaves)
        trail = _Trail(self.segments, integration.config.count, y0)
        parted = integration.saver is None and integration.watch is None  # nothing but y1 is asked for: some steps may keep their graph
        fewest = 1 if parted else integration.config.count or FEWEST_STEPS
        if leaves is None or not _fits(integration, fewest, limit):
            integration.first = None if integration.first is None else detached(integration.first)
            steps = integration.steps()
            return connect(integration, steps, lambda: self._take(integration, steps, iter(steps), trail))
        integration.y0 = leaves
        steps = integration.steps()
        walk = iter(steps)
        for step in walk:
            trail.take(step)
            ahead = trail.count + 1 if parted else trail.count
            if trail.count != integration.config.count and not _fits(integration, ahead, limit):
                break
        else:
            return steps.solution()
        integration.y0 = steps.y if parted else y0
        steps.forget_graph()
        trail = _Trail(None, None, integration.y0) if parted else trail
        return connect(integration, steps, lambda: self._take(integration, steps, walk, trail))

    def _room(self, integration: Integration) -> int:
        """How many bytes the graph of a solve may hold."""
        config, keep = integration.config, SMALL_GRAPH if self.direct_below is None else self.direct_below
        suits = integration.stepper.tableau.explicit and config.control.per == "batch" and not torch.compiler.is_compiling()
        return keep if suits and self.segments is None and integration.dense is None else 0

    def _take(self, integration: Integration, steps: AcceptedSteps, walk: Iterator[Step], trail: "_Trail") -> ForwardPass:
        for step in walk:
            trail.take(step)
        saver = integration.saver
        tape = _Tape(
            integration.rate,
            integration.stepper,
            steps.stats,
            trail.replays,
            starts=[index for index, _ in trail.kept],
            whole=self.segments is None,
            saver=saver,
            like=[(part.shape, part.dtype) for part in integration.y0],
            t0=integration.t0,
        )
        kept = tuple(part for _, state in trail.kept for part in state)
        return ForwardPass(steps.detached(), kept, tape.backward, tape.again if tape.stepper.tableau.explicit else None)


def _fits(integration: Integration, steps: int, limit: int) -> bool:
    stepper = integration.stepper
    evaluations = stepper.evaluations + (not stepper.tableau.fsal)  # a step that does not inherit its first stage makes it
    return steps * max(1, evaluations) * integration.graph_bytes <= limit


class _Trail:
    """The accepted steps as backward needs them, and the states at every `stride`-th.

    The stride doubles when more are held than the policy allows.
    """

    def __init__(self, segments: "int | str | None", steps: int | None, y0: State) -> None:
        self.segments = segments
        self.stride = -(-steps // segments) if steps is not None and isinstance(segments, int) else 1
        self.kept: list[tuple[int, State]] = []
        self.replays: list[_Replay] = []
        self._now = y0  # the whole batch, when only some samples move in a step
        self._whole = segments is None

    @property
    def count(self) -> int:
        return len(self.replays)

    def take(self, step: Step) -> None:
        if self._whole:
            state = detached(step.y0) if torch.is_grad_enabled() else step.y0
            self.kept.append((self.count, state if self.kept or step.rows is not None else self._now))
        else:
            if self.count % self.stride == 0:
                self.kept.append((self.count, self._now if step.rows is not None else step.y0))
                self._thin()
            if step.rows is not None:
                self._now = put(self._now, step.rows, step.y1)
        self.replays.append(_Replay(step.index, step.t, step.t_next, step.rows))

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


@dataclass
class _Tape:
    """What a forward pass leaves to its backward pass, besides tensors of the size of the state."""

    rate: Rate
    stepper: Stepper
    stats: Stats
    replays: list[_Replay]
    starts: list[int]  # positions of the kept states among the steps
    whole: bool  # every state is kept, of the rows that its step moves
    saver: Saver | None
    like: list[tuple[torch.Size, torch.dtype]]
    t0: Time

    def backward(self, params: State, saved: State, cotangents: Cotangents) -> Gradients:
        width = len(self.like)
        states = [saved[i : i + width] for i in range(0, len(saved), width)]
        walk = _Backward(self, params, cotangents)
        walk.run(states)
        return walk.g, walk.gradients.sums

    def again(self, y0: State, params: State) -> tuple[State, State]:
        """The components of y1, then those of ys, by the same steps under autograd; and the parameters."""
        old, y, calls, saver = self.saver, y0, self.rate.calls, None
        if old is not None:
            moving = None if old.moving is None else old.moving.detach().requires_grad_()  # may be a function of other parameters
            saver = Saver(old.tableau, old.times, y0, self.t0, moving)
            params = params if moving is None else (*params[:-1], moving)
        for replay in self.replays:
            start = y if replay.rows is None else pick(y, replay.rows)
            self.rate.on_step(replay.index, True)
            attempt = self.stepper.step(self.rate, replay.t, replay.t_next, start, None)
            if saver is not None:
                saver.take(Step(replay.index, replay.t, replay.t_next, start, attempt.y1, attempt.stages, replay.rows))
            y = attempt.y1 if replay.rows is None else put(y, replay.rows, attempt.y1)
        self.stats.add_backward(self.rate.calls - calls)
        return (y if saver is None else (*y, *saver.stacked())), params


class _Backward:
    """Goes through the replayed steps from last to first, carrying g = ∂L/∂y of the whole batch."""

    def __init__(self, tape: _Tape, params: State, cotangents: Cotangents) -> None:
        self.tape, self.rate, self.stepper, self.replays = tape, tape.rate, tape.stepper, tape.replays
        self.gradients = ParameterGradients(params)
        ends = zip(cotangents, tape.like, strict=False)
        self.asked = AskedTimes(tape.saver, tape.t0, cotangents[len(tape.like) :])
        self.g: State = tuple(torch.zeros(s, dtype=d, device=tape.rate.device) if g is None else g for g, (s, d) in ends)

    def run(self, states: list[State]) -> None:
        starts = self.tape.starts
        ends = [*starts[1:], len(self.replays)] if starts else []  # a solve that failed at once took no step
        for start, end in zip(reversed(starts), reversed(ends), strict=True):
            y = states.pop()
            inside = [y] if self.tape.whole else self._recreate(start, end, y)
            for position in reversed(range(start, end)):
                self._step(position, inside.pop())
        self.g = self.asked.at_start(self.g)
        self.asked.finish(self.gradients)

    def _recreate(self, start: int, end: int, y: State) -> list[State]:
        """States at the steps of a segment (of the rows that each step moves), taken again without a graph."""
        inside = []
        for position in range(start, end):
            replay = self.replays[position]
            moving = y if replay.rows is None else pick(y, replay.rows)
            inside.append(moving)
            if position + 1 == end:
                break
            calls = self.rate.calls
            self.rate.on_step(replay.index, True)
            moved = self.stepper.advance(self.rate, replay.t, replay.t_next, moving)
            self.tape.stats.add_backward(self.rate.calls - calls, replay.rows)
            y = moved if replay.rows is None else put(y, replay.rows, moved)
        return inside

    def _step(self, position: int, y: State) -> None:
        replay, rows = self.replays[position], self.replays[position].rows
        g = self.g if rows is None else pick(self.g, rows)
        saves = self.asked.of_step(position, rows, g)
        calls = self.rate.calls
        self.rate.on_step(replay.index, True)
        if not saves.timed:
            g = self.stepper.pull_back(self.rate, replay.t, replay.t_next, y, saves.g, self.gradients, saves.inner)
        else:
            mu, stages = self.stepper.vjp(self.rate, replay.t, replay.t_next, y, saves.g, self.gradients, saves.inner)
            saves.to_times(stages)
            g = saves.to_start(combine(saves.g, 1.0, [1.0] * len(mu), mu))
        self.tape.stats.add_backward(self.rate.calls - calls, rows)
        self.g = g if rows is None else put(self.g, rows, g)
