"""Gradients that enter a solve between its ends: those of the states at asked times, and of the times themselves.

A state at a fraction θ of a step is y + h Σ b_i(θ) k_i, so its cotangent c goes to y and, by the weights h b_i(θ), to the stages; the time
gets ⟨c, Σ b_i'(θ) k_i⟩. What lies at the very end of a step is y1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from continua.float64 import widest
from continua.ode.dense import Save, Saver, stage_slopes, stage_weights
from continua.ode.rate import broadcast_time
from continua.ode.solution import State, Time
from continua.ode.stepper import ParameterGradients


class AskedTimes:
    """The cotangents of all states at asked times, handed out step by step."""

    def __init__(self, saver: Saver | None, t0: Time, of_ys: Sequence[Tensor | None]) -> None:
        self.saver, self.t0, self.of_ys = saver, t0, of_ys
        moving = None if saver is None else saver.moving
        self.of_times = None if moving is None else torch.zeros_like(moving, requires_grad=False)  # they are the last of the parameters

    def of_step(self, position: int, moved: Tensor | None, g: State) -> "StepSaves":
        """What enters in one step; `moved` are the rows that it moved, g = ∂L/∂y1 of those."""
        saves = StepSaves(self, moved, g)
        for save in self.saver.saves[position] if self.saver is not None else ():
            saves.add(save)
        return saves

    def at_start(self, g: State) -> State:
        """Times equal to t0 give y0 itself."""
        for slot, rows in _slots_at_start(self.saver, self.t0):
            pairs = zip(g, self.of_ys, strict=True)
            if rows is None:
                g = tuple(a if c is None else a + c[slot] for a, c in pairs)
            else:
                g = tuple(a if c is None else a.index_add(0, rows, c[slot, rows]) for a, c in pairs)
        return g

    def finish(self, gradients: ParameterGradients) -> None:
        """Put the gradients of the times in their place."""
        if self.of_times is not None:
            gradients.sums[-1] = self.of_times

    def cotangent(self, save: Save, moved: Tensor | None, like: State) -> State:
        """∂L/∂ys of one asked time, for the rows of the step; zero for rows that it does not concern."""
        parts = []
        for part, cotangent in zip(like, self.of_ys, strict=True):
            if cotangent is None:
                parts.append(torch.zeros_like(part))
            elif save.rows is None:
                parts.append(cotangent[save.slot])
            else:
                here = save.rows if moved is None else moved[save.rows]
                parts.append(torch.zeros_like(part).index_copy(0, save.rows, cotangent[save.slot, here]))
        return tuple(parts)

    def add_to_time(self, save: Save, moved: Tensor | None, cotangent: State, stages: list[State]) -> None:
        if self.saver is None or self.of_times is None:
            return
        rows, theta, of_times = (
            save.rows,
            torch.as_tensor(save.theta, dtype=widest(self.of_times.device), device=self.of_times.device),
            self.of_times,
        )
        slopes = stage_slopes(self.saver.tableau, theta)
        for part, c in enumerate(cotangent):
            seed = c if rows is None else c[rows]
            for slope, stage in zip(slopes, stages, strict=True):
                product = seed * (stage[part] if rows is None else stage[part][rows])
                if rows is None:
                    of_times[save.slot] += slope * product.sum()
                else:
                    of_times[save.slot, rows if moved is None else moved[rows]] += slope * product.flatten(1).sum(1)


@dataclass
class StepSaves:
    """What enters in one step: `inner` for `Stepper.vjp`, and g = ∂L/∂y1 with the cotangents of the very end added."""

    asked: AskedTimes
    moved: Tensor | None
    g: State
    inner: list[tuple[Sequence[Time], State]] = field(default_factory=list)
    timed: list[tuple[Save, State]] = field(default_factory=list)

    def add(self, save: Save) -> None:
        asked, g = self.asked, self.g
        if asked.saver is None:
            return
        tableau, cotangent = asked.saver.tableau, asked.cotangent(save, self.moved, g)
        if asked.of_times is not None:
            self.timed.append((save, cotangent))
        if isinstance(save.theta, Tensor):
            theta = torch.zeros(len(g[0]), dtype=widest(g[0].device), device=g[0].device)
            theta = save.theta if save.rows is None else theta.index_copy(0, save.rows, save.theta)
            ending = theta >= 1.0
            at_end = tuple(c * broadcast_time(ending, c) for c in cotangent)
            self.g = _sum(g, at_end)
            cotangent = tuple(c - e for c, e in zip(cotangent, at_end, strict=True))
            self.inner.append((stage_weights(tableau, theta.where(~ending, 0.0)), cotangent))
        elif save.theta == 1.0:
            self.g = _sum(g, cotangent)
            if self.timed:  # so that all stages are there
                self.inner.append(([0.0] * tableau.stages, tuple(torch.zeros_like(part) for part in g)))
        else:
            self.inner.append((stage_weights(tableau, save.theta), cotangent))

    def to_times(self, stages: list[State]) -> None:
        """The gradients of the times, once the stages are known."""
        for save, cotangent in self.timed:
            self.asked.add_to_time(save, self.moved, cotangent, stages)

    def to_start(self, g: State) -> State:
        """g with the cotangents of the states inside, which reach the state before the step as they are."""
        for _, cotangent in self.inner:
            g = _sum(g, cotangent)
        return g


def _sum(a: State, b: State) -> State:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _slots_at_start(saver: Saver | None, t0: Time) -> "list[tuple[int, Tensor | None]]":
    if saver is None:
        return []
    if isinstance(saver.times, Tensor):
        at_start = saver.times == t0 if saver.moving is None else saver.waiting
        return [(slot, rows) for slot, at in enumerate(at_start) if len(rows := at.nonzero().flatten())]
    return [(slot, None) for slot, time in enumerate(saver.times) if time == t0 and saver.moving is None]
