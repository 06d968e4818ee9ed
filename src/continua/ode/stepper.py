"""One Runge–Kutta step: the new state, its error estimate, and the stages that an interpolant or a gradient needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from continua.ode.rate import Rate, broadcast_time
from continua.ode.solution import State, Status
from continua.ode.tableau import Tableau

Time = Any  # a number for the batch, or a (batch,) tensor in float64


@dataclass
class Failed:
    """Why a step could not be taken, and the samples at fault."""

    status: Status
    samples: list[int]


@dataclass
class Attempt:
    """A tried step: `error` has the form of the leading components of the state and is None where the method has no estimate."""

    y1: State
    stages: list[State]
    error: State | None
    failed: Failed | None = None


class Stepper(Protocol):
    """What a step loop needs to know of a method."""

    order: int  # of the error estimate where there is one: the error of a step falls as h^order
    evaluations: int  # of f in a step whose first stage is known

    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt: ...

    def next_first(self, attempt: Attempt) -> State | None:
        """The first stage of the step that follows an accepted one, where it is known already."""
        ...


def combine(y: State | None, h: Time, weights: Sequence[float], stages: Sequence[State]) -> State:
    """y + h Σ w_j k_j (h Σ w_j k_j without y), in as few passes over memory as eager PyTorch allows.

    The in-place sums are safe under autograd: an addition saves none of its operands.
    """
    terms = [(weight, stage) for weight, stage in zip(weights, stages, strict=False) if weight != 0.0]
    count = len(stages[0])
    if not terms:
        return y if y is not None else tuple(torch.zeros_like(part) for part in stages[0])
    combined = []
    for part in range(count):
        (weight, stage), *rest = terms
        if isinstance(h, Tensor):
            total = stage[part] * weight
            for weight, stage in rest:
                total.add_(stage[part], alpha=weight)
            scale = broadcast_time(h, total).to(total.dtype)
            total = total * scale if y is None else torch.addcmul(y[part], total, scale)
        else:
            total = stage[part] * (h * weight) if y is None else torch.add(y[part], stage[part], alpha=h * weight)
            for weight, stage in rest:
                total.add_(stage[part], alpha=h * weight)
        combined.append(total)
    return tuple(combined)


def stage_time(t: Time, t_next: Time, h: Time, c: float) -> Time:
    """t + c h; exactly the end of the step for c = 1, so that rounding never carries an evaluation past the end time."""
    if c == 0.0:
        return t
    return t_next if c == 1.0 else t + c * h


class ExplicitStepper:
    """An explicit tableau, stage after stage."""

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        self.order = tableau.estimate_order
        self.evaluations = tableau.stages - 1

    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        tableau, h = self.tableau, t_next - t
        stages = self.stages(rate, t, t_next, y, first)
        y1 = combine(y, h, tableau.b, stages)
        for i in range(tableau.needed, tableau.stages):
            point = y1 if tableau.a[i] == tableau.b else combine(y, h, tableau.a[i], stages)
            stages.append(rate(stage_time(t, t_next, h, tableau.c[i]), point))
        error = None
        if tableau.b_error is not None:
            with torch.no_grad():
                error = combine(None, h, tableau.b_error, stages)
        return Attempt(y1, stages, error)

    def stages(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None = None) -> list[State]:
        """The stages that the new state depends on, without those for the error estimate or the next step alone."""
        tableau, h = self.tableau, t_next - t
        stages = [rate(t, y) if first is None else first]
        for i in range(1, tableau.needed):
            stages.append(rate(stage_time(t, t_next, h, tableau.c[i]), combine(y, h, tableau.a[i], stages)))
        return stages

    def next_first(self, attempt: Attempt) -> State | None:
        return attempt.stages[-1] if self.tableau.fsal else None


def rms(parts: Sequence[Tensor], per_sample: bool) -> Tensor:
    """Root mean square over a component (of each sample, if asked), the largest over components; float64."""
    norms = []
    for part in parts:
        wide = part if part.dtype in (torch.float32, torch.float64) else part.float()
        if per_sample:
            flat = wide.reshape(len(wide), -1)
            norms.append(torch.linalg.vector_norm(flat, dim=1).double() / max(flat.shape[1], 1) ** 0.5)
        else:
            norms.append(torch.linalg.vector_norm(wide).double() / max(wide.numel(), 1) ** 0.5)
    return norms[0] if len(norms) == 1 else torch.stack(norms).amax(0)


@torch.no_grad()
def error_ratio(error: State, y0: State, y1: State, rtol: float, atol: float, per_sample: bool) -> Tensor:
    """RMS of error / (atol + rtol max(|y0|, |y1|)): a step is accepted when this is at most 1."""
    scaled = []
    for e, before, after in zip(error, y0, y1, strict=False):
        # Few temporaries: on a CPU the pages of a fresh large tensor cost more than the arithmetic on it.
        scale = before.abs()
        torch.maximum(scale, after.abs(), out=scale)
        scale = scale if scale.dtype in (torch.float32, torch.float64) else scale.float()
        torch.add(torch.tensor(atol, dtype=scale.dtype), scale, alpha=rtol, out=scale)
        scaled.append(torch.div(e, scale, out=scale))
    return rms(scaled, per_sample)
