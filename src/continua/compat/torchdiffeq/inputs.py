"""What is asked of `odeint`, checked once: function, state, times, tolerances, method and options.

Where torchdiffeq would fail an assertion or raise another kind of error, ours are of that kind too, so that programs that catch them go on
working.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.methods import CALLBACKS, OPTIONS, Method, find
from continua.compat.torchdiffeq.state import Function, State, StateLayout
from continua.errors import ConfigError, ContinuaWarning, SolverError

Tolerance = float | Tensor | Iterable["float | Tensor"]
Options = Mapping[str, Any]
Callback = Callable[[Tensor, State, Tensor], object]


class BadInput(ConfigError, AssertionError):
    """An argument that `odeint` cannot work with."""


class BadType(ConfigError, TypeError):
    """An argument of the wrong type."""


class SolveFailed(SolverError, AssertionError):
    """A solve that could not reach its end: the step became too small, there were too many, or the state stopped being finite."""


@dataclass
class Problem:
    """One call of `odeint`: dy/dt = func(t, y) from y0, with the states wanted at the times t."""

    func: Function
    y0: State
    t: Tensor
    rtol: Tolerance
    atol: Tolerance
    method: Method
    options: dict[str, Any]
    callbacks: dict[str, Callback]
    params: tuple[Tensor, ...] | None = None  # what `odeint_adjoint` differentiates; None: whatever autograd reaches

    def __post_init__(self) -> None:
        # Implicit steps treat samples apart, and nobody says here which axis of a state counts samples.
        self.layout = StateLayout.of(self.y0, whole=self.method.kind == "implicit")
        self.times: list[float] = self.t.detach().double().tolist()

    @property
    def direction(self) -> float:
        return -1.0 if len(self.times) > 1 and self.times[1] < self.times[0] else 1.0

    @property
    def device(self) -> torch.device:
        return (self.y0 if isinstance(self.y0, Tensor) else self.y0[0]).device


def check(
    func: Function,
    y0: State,
    t: Tensor,
    rtol: Tolerance,
    atol: Tolerance,
    method: str | None,
    options: Options | None,
    params: tuple[Tensor, ...] | None = None,
) -> Problem:
    """The problem, or an error that says what is wrong with it."""
    parts = _check_state(y0)
    t = _check_times(t)
    if t.device != parts[0].device:
        warnings.warn(f"t is on {t.device}, y0 on {parts[0].device}; t is moved there", ContinuaWarning, stacklevel=4)
        t = t.to(parts[0].device)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if isinstance(tolerance, Tensor) and tolerance.requires_grad:
            raise BadInput(f"{name} requires a gradient, which a tolerance cannot have; pass {name}.detach()")
    chosen = find(method)
    known, options = OPTIONS[chosen.kind], dict(options or {})
    unexpected = {name: value for name, value in options.items() if name not in known}
    if unexpected:
        text = f"{chosen.name}: unexpected options {unexpected}; they are ignored"
        warnings.warn(f"{text}. It knows {', '.join(sorted(known))}", ContinuaWarning, stacklevel=4)
    options = {name: value for name, value in options.items() if name in known}
    return Problem(func, y0, t, rtol, atol, chosen, options, _callbacks(func, chosen), params)


def _check_state(y0: object) -> tuple[Tensor, ...]:
    parts = (y0,) if isinstance(y0, Tensor) else y0
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Tensor) for part in parts):
        raise BadInput(f"y0 is a {type(y0).__name__}; expected a tensor or a tuple of tensors")
    for part in parts:
        if not part.is_floating_point() and not part.is_complex():
            raise BadType(f"y0 has dtype {part.dtype}; expected floating point or complex numbers (y0.float())")
    return parts


def _check_times(t: object) -> Tensor:
    if not isinstance(t, Tensor):
        raise BadInput(f"t is a {type(t).__name__}; expected a 1-D tensor of times (torch.as_tensor(t))")
    if not t.is_floating_point():
        raise BadType(f"t has dtype {t.dtype}; expected floating point numbers (t.float())")
    if t.ndim != 1 or len(t) == 0:
        raise BadInput(f"t has shape {tuple(t.shape)}; it must be one dimensional, with at least one time")
    times: list[float] = t.tolist()
    if not (all(a < b for a, b in pairwise(times)) or all(a > b for a, b in pairwise(times))):
        raise BadInput("t must be strictly increasing or decreasing; remove repeated times, and sort it")
    return t


def _callbacks(func: object, method: Method) -> dict[str, Callback]:
    callbacks = {name: callback for name in CALLBACKS if (callback := getattr(func, name, None)) is not None}
    unknown = sorted(callbacks.keys() - set(method.callbacks))
    if unknown:
        text = f"method {method.name!r} does not support the callbacks {', '.join(unknown)}"
        warnings.warn(f"{text}; they will not be called", ContinuaWarning, stacklevel=5)
    return {name: callback for name, callback in callbacks.items() if name in method.callbacks}
