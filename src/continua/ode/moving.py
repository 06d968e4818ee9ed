"""Times that are differentiated: t0, t1 and asked times as functions of something.

Where the steps themselves are functions of t0 and t1 (fixed steps, exact gradients) a solve runs on the clock s ∈ [0, 1] and t0 and t1 are
parameters of its f. Elsewhere the *flow* is differentiated: moving the start by δ is starting at y0 − δ f(t0, y0), and
dy1/dt1 = f(t1, y1), whatever the steps were.
"""

from typing import TypeGuard

import torch
from torch import Tensor
from torch.autograd import forward_ad

from continua.float64 import widest
from continua.ode.rate import Field, Rate, broadcast_time
from continua.ode.solution import Solution, State, Time


def moves(time: object) -> "TypeGuard[Tensor]":
    """Whether anybody may ask for the derivative with respect to this time."""
    if not isinstance(time, Tensor):
        return False
    if time.requires_grad and torch.is_grad_enabled():
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(time).tangent is not None


def with_graph(value: "Time | list[float]", given: object, device: torch.device) -> Tensor:
    """A time (or asked times) that has been checked, as a tensor in the widest type of the device, with the graph of what was given."""
    number = torch.as_tensor(value, dtype=widest(device), device=device)
    if not moves(given):
        return number
    offset = _offset(given).to(device, widest(device))
    return number + (offset[:, None] if offset.ndim == 1 and number.ndim == 2 else offset)


def attach_start(f: Field, y0: State, t0: "float | Tensor", single: bool) -> State:
    """Makes y1 depend on t0: moving the start by δ is starting at y0 − δ f(t0, y0)."""
    return _nudge(f, y0, t0, single, sign=-1.0) if moves(t0) else y0


def attach_end(f: Field, solution: Solution, t1: "float | Tensor") -> Solution:
    """Makes y1 depend on t1: dy1/dt1 = f(t1, y1)."""
    if moves(t1):
        single, y1 = _parts(solution.y1)
        y1 = _nudge(f, y1, t1, single, sign=1.0)
        solution.y1 = y1[0] if single else y1
    return solution


def attach_saved(f: Field, solution: Solution, save_at: object) -> Solution:
    """Makes ys depend on the asked times: dy/dt = f(t, y)."""
    if moves(save_at) and solution.ys is not None:
        single, ys = _parts(solution.ys)
        rows = [_nudge(f, tuple(part[slot] for part in ys), time, single, sign=1.0) for slot, time in enumerate(save_at.unbind())]
        ys = tuple(torch.stack(parts) for parts in zip(*rows, strict=True))
        solution.ys = ys[0] if single else ys
    return solution


def _parts(state: "Tensor | State") -> tuple[bool, State]:
    return (True, (state,)) if isinstance(state, Tensor) else (False, state)


def _offset(time: Tensor) -> Tensor:
    """0, with the graph of a time."""
    return time - time.detach()


def _nudge(f: Field, y: State, t: Tensor, single: bool, sign: float) -> State:
    """y carried along the flow (against it with sign −1) over the offset of t, by the midpoint rule: right in second derivatives too."""
    rate, offset, still = Rate(f, y, single), _offset(t), t.detach()
    half = carried(y, rate(still, y), 0.5 * offset, sign)
    return carried(y, rate(still + 0.5 * offset, half), offset, sign)


def carried(y: State, k: State, offset: Tensor, sign: float) -> State:
    """y ± offset · k."""
    return tuple(part + broadcast_time(sign * offset, part).to(part.dtype) * slope for part, slope in zip(y, k, strict=True))
