"""Events: what a solve is to stop at, or to note and go on. `Watch` looks for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.error import rms
from continua.ode.solution import State

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig


@dataclass(frozen=True)
class Event:
    """A solve stops, or takes note, where function(t, y) crosses zero.

    function: given t and y as f is, it returns one number for each sample, (batch,), under per-sample control, and one number for the whole
        batch otherwise. It may depend on tensors that need gradients.
    direction: 1 for crossings from below to above, −1 for those from above to below, 0 for both.
    terminal: whether the solve stops there; else the moment is recorded.
    takes_rate: whether the function is given f(t, y) as a third argument.
    precision: how closely the crossing is located, as a share of the step; no closer than eight rounding errors of the state.
    interpolated: whether a sample that stops where no gradient is taken gets its state from the interpolant: that costs no evaluations of f
        and has the interpolant's accuracy. Only under per-sample control and without save_at or dense, else the step is taken again.
    """

    function: "Callable[..., Tensor]"
    direction: int = 0
    terminal: bool = True
    takes_rate: bool = False
    precision: float = 1e-10
    interpolated: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"Event({self.function!r}): expected a function of t and y whose zero is the event")
        if self.direction not in (-1, 0, 1):
            raise ConfigError(f"Event(direction={self.direction!r}); expected 1 (upwards), -1 (downwards) or 0 (both)")
        if not 0 < self.precision < 1:
            raise ConfigError(f"Event(precision={self.precision!r}); expected a share of a step, above 0 and below 1")

    def past(self, value: Tensor) -> Tensor:
        """Where the function is beyond zero already; nowhere for an event without a direction."""
        return value >= 0 if self.direction > 0 else value <= 0 if self.direction < 0 else torch.zeros_like(value, dtype=torch.bool)


def steady_state(tolerance: float = 1e-3) -> Event:
    """Stop where the state hardly changes: the RMS of f over a sample (the batch, under batch control) falls below `tolerance`.

    Args:
        tolerance: the RMS of f below which the state counts as steady.

    Returns:
        An event for `solve(..., event=...)`.

    Raises:
        ConfigError: `tolerance` is not positive.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.ode import steady_state
        >>> sol = ct.solve(lambda t, y: -y, torch.ones(2, 1), 0.0, 50.0, event=steady_state(1e-2))
    """
    if not tolerance > 0:
        raise ConfigError(f"steady_state({tolerance!r}); expected a rate of change above 0")

    def excess(t: Tensor, y: "Tensor | State", rate: "Tensor | State") -> Tensor:
        parts = (rate,) if isinstance(rate, Tensor) else rate
        return rms(parts, per_sample=t.ndim == 1) - tolerance

    return Event(excess, direction=-1, takes_rate=True)


def as_events(given: "Event | Sequence[Event] | None") -> tuple[Event, ...]:
    """What `solve` was given, as a tuple."""
    events = () if given is None else (given,) if isinstance(given, Event) else given
    if not isinstance(events, tuple | list) or not all(isinstance(event, Event) for event in events):
        raise ConfigError(f"event={given!r}; expected an Event(function), or a list of them")
    return tuple(events)


def check_events(config: "SolverConfig", relative: bool) -> None:
    """Refuse what events cannot be combined with."""
    if config.steps is not None and config.control.per == "sample":
        raise ConfigError(
            f"events under control='sample' need adaptive steps, and steps={config.steps} are fixed: leave steps out (with a method that "
            "chooses its steps, such as dopri5), or use control='batch', where an event stops the whole batch"
        )
    if relative and config.steps is not None:
        raise ConfigError(
            f"events with steps={config.steps} need t0 and t1 that all samples share and that need no gradients: leave steps out (for an "
            "interval per sample with control='sample')"
        )
    if relative:
        raise ConfigError(
            "events under control='batch' need one interval for the whole batch, and t0 or t1 is given per sample: use control='sample'"
        )
