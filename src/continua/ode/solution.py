"""What a solve gives back: the end state, states at asked times, how it went and what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.errors import ConfigError, SolverError
from continua.showing import Shown

if TYPE_CHECKING:
    from continua.ode.dense import DenseOutput

State = tuple[Tensor, ...]  # batch first
Time = float | Tensor  # a number for the whole batch, or (batch,) in float64
Count = int | Tensor  # a number for the whole batch, or (batch,)


def pick(state: State, rows: Tensor) -> State:
    """The state of some samples."""
    return tuple(part.index_select(0, rows) for part in state)


def put(state: State, rows: Tensor, parts: State) -> State:
    """A copy of the state with that of some samples replaced."""
    return tuple(full.index_copy(0, rows, part) for full, part in zip(state, parts, strict=True))


def detached(parts: Sequence[Tensor]) -> State:
    """The same states without their graph."""
    return tuple(part.detach() for part in parts)


def zeros_where_none(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> State:
    """Gradients or cotangents of what nothing depends on are zeros."""
    return tuple(torch.zeros_like(part) if gradient is None else gradient for gradient, part in zip(gradients, like, strict=True))


class Status(Enum):
    """How the solve of a sample ended; the value is the sentence for people."""

    SUCCESS = "reached the end time"
    NON_FINITE = "the state or its rate of change became infinite or not a number"
    STEP_UNDERFLOW = "the step became too small to advance time: the equation is too stiff for this method, or the tolerance too tight"
    MAX_STEPS = "took max_steps steps without reaching the end time"
    STOPPED = "was stopped by an event"
    NOT_CONVERGED = "the iteration for the stages of an implicit step did not converge"


ADVICE = {
    Status.NON_FINITE: "check the input and the parameters for overflow; lower the learning rate, or shorten the time interval",
    Status.STEP_UNDERFLOW: "loosen rtol/atol, make the field smoother, or use method='kvaerno5' where it is stiff (docs/stiff.md)",
    Status.MAX_STEPS: "the equation may be stiff, which costs an explicit method many steps: use method='kvaerno5' (docs/stiff.md); "
    "if it is not, loosen rtol/atol, or raise the limit by control=StepControl(max_steps=...)",
    Status.NOT_CONVERGED: "take more steps (steps=N), compute in float64, or set solver='newton', a larger krylov or tol of Implicit(...)",
}


@dataclass(repr=False)
class StepLog(Shown):
    """Every tried step, in order; `sample` names the sample of each entry under per-sample control."""

    t: Tensor
    h: Tensor
    error: Tensor
    accepted: Tensor
    sample: Tensor | None = None


@dataclass(repr=False)
class Stats(Shown):
    """What a solve cost. Tensors of shape (batch,) under per-sample control, else numbers.

    `nfe` counts evaluations of f in the forward pass, `nfe_backward` those in the backward pass (filled in after it); `error` of a
    step is relative to the tolerance, so that 1 is the limit. `first_step` and `last_step` are in units of t; under batch control
    with one end time per sample they are fractions of each sample's interval. Of a block with a stop, `t_end` says when each sample ended
    and `stopped` whether the stop ended it.
    """

    nfe: Count = 0
    nfe_backward: Count = 0
    accepted: Count = 0
    rejected: Count = 0
    first_step: Time = 0.0
    last_step: Time = 0.0
    routes: dict[str, str] = field(default_factory=dict)
    steps: StepLog | None = None
    t_end: Tensor | None = None
    stopped: Tensor | None = None

    def shown(self) -> dict[str, object]:
        """What a prompt shows: what there is; a log or a stop that was not asked for is left out."""
        return {name: value for name, value in super().shown().items() if value is not None}

    def add_backward(self, calls: int, rows: Tensor | None = None) -> None:
        """Evaluations of the backward pass: of all samples, or of those in `rows`."""
        if rows is not None and isinstance(self.nfe_backward, Tensor):
            self.nfe_backward[rows] += calls
        else:
            self.nfe_backward += calls


@dataclass
class EventLog:
    """Every occurrence of one event, in the order of the steps: when, the states, and whose under per-sample control.

    `y` has the occurrences first: (occurrence, ...) of single samples, or (occurrence, batch, ...). Without gradients: those of a terminal
    event are in `Solution.t_end` and `Solution.y1`.
    """

    t: Tensor
    y: "Tensor | State"
    sample: Tensor | None = None


@dataclass(repr=False)
class Solution(Shown):
    """The result of `solve`. `y1` and `ys` have the form of `y0` (a tensor or a tuple); `ys` is (time, batch, ...).

    `status` has an entry per sample; it is empty inside a compiled or exported solve, which cannot check its states.

    With `event=`: `t_end` says when the solve ended, `stopped` by which event (−1: none, it reached t1), for the batch or for each sample;
    `events` has a log of every event. Times in `save_at` that were not reached are NaN in `ys`.
    """

    y1: "Tensor | State"
    ys: "Tensor | State | None"
    ts: Tensor | None
    stats: Stats
    status: tuple[Status, ...]
    _dense: "DenseOutput | None" = None
    t_end: Tensor | None = None
    stopped: Tensor | None = None
    events: tuple[EventLog, ...] = ()

    @property
    def success(self) -> bool:
        """Whether every sample reached its end time, or an event that stopped it."""
        return all(status in (Status.SUCCESS, Status.STOPPED) for status in self.status)

    def shown(self) -> dict[str, object]:
        """What a prompt shows: states, how it ended, what it cost."""
        ended = {status.name: self.status.count(status) for status in dict.fromkeys(self.status)}
        cost = {name: getattr(self.stats, name) for name in ("nfe", "accepted", "rejected")}
        states = {name: value for name in ("y1", "ys", "ts") if (value := getattr(self, name)) is not None}
        return {**states, "status": ended, **cost}

    def interpolate(self, t: "float | Sequence[float] | Tensor") -> "Tensor | State":
        """The state at time t inside the interval, by the method's interpolant. Needs `dense=True`.

        One time, or several in any order, as a list or 1-D tensor (then the result is (time, batch, ...)). Differentiable only under
        `gradient="direct"`; elsewhere use `save_at`.
        """
        if self._dense is None:
            raise ConfigError("this solution kept no interpolant; call solve(..., dense=True)")
        single = isinstance(self.y1, Tensor)
        times = torch.as_tensor(t, dtype=torch.float64)
        states = [torch.stack(parts) for parts in zip(*(self._dense(time) for time in times.reshape(-1).tolist()), strict=True)]
        if times.ndim == 0:
            states = [state[0] for state in states]
        return states[0] if single else tuple(states)


def failure(status: Status, t: float, h: float, norm: float, samples: list[int]) -> SolverError:
    """The error for a solve that could not go on, with its numbers as attributes."""
    shown = ", ".join(map(str, samples[:8])) + (f", … ({len(samples)} in all)" if len(samples) > 8 else "")
    where = f"t = {t:.6g}, step {h:.3g}, state norm {norm:.3g}, samples [{shown}]"
    message = f"{status.value} ({where}). What to do: {ADVICE[status]}"
    return SolverError(message, status=status, t=t, h=h, norm=norm, samples=samples)
