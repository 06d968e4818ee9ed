"""The continuous adjoint, for whoever asks for it: a second solve backwards in time, of the same kind as the first.

With a(t) = ∂L/∂y(t), the system (y, a, ∂L/∂p, ∂L/∂t) follows dy/dt = f, da/dt = −(∂f/∂y)ᵀ a and −(∂f/∂p)ᵀ a, −(∂f/∂t)ᵀ a for the last two
(Chen et al. 2018). It starts anew from the forward pass's state at every asked time.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from continua.compat.torchdiffeq.event import EventFunction, integrate_until
from continua.compat.torchdiffeq.hooks import Norm, mixed_norm, rms_norm
from continua.compat.torchdiffeq.inputs import Problem, Tolerance, check
from continua.compat.torchdiffeq.integrate import integrate
from continua.compat.torchdiffeq.methods import CALLBACKS
from continua.compat.torchdiffeq.state import Parts, State


@dataclass
class BackwardSolve:
    """How the adjoint is solved: torchdiffeq's `adjoint_*` arguments."""

    rtol: Tolerance
    atol: Tolerance
    method: str | None
    options: dict[str, Any]


class Flat:
    """States of a problem as one tensor: a single tensor is itself, those of a tuple are joined."""

    def __init__(self, y0: State) -> None:
        self.single = isinstance(y0, Tensor)
        parts = (y0,) if isinstance(y0, Tensor) else y0
        self.shapes = [part.shape for part in parts]
        self.dtypes = [part.dtype for part in parts]

    def join(self, y: State, ahead: int = 0) -> Tensor:
        if isinstance(y, Tensor):
            return y
        return torch.cat([part.reshape(*part.shape[:ahead], -1) for part in y], dim=-1)

    def split(self, flat: Tensor, ahead: int = 0) -> State:
        if self.single:
            return flat
        parts, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            stop = start + shape.numel()
            parts.append(flat[..., start:stop].reshape((*flat.shape[:ahead], *shape)).to(dtype))
            start = stop
        return tuple(parts)


def adjoint_norm(asked: "Norm | str | None", flat: Flat, state_norm: Norm | None) -> Norm:
    """The norm of the backward solve over (∂L/∂t, y, a, ∂L/∂p…), from `adjoint_options["norm"]` and that of the forward solve."""
    inner: Any = state_norm or (rms_norm if flat.single else mixed_norm)

    def of_state(y: Tensor) -> Any:
        return inner(flat.split(y))

    if asked is None:
        return lambda parts: max(parts[0].abs(), of_state(parts[1]), of_state(parts[2]), mixed_norm(parts[3:]))
    if asked == "seminorm":  # Kidger, Chen & Lyons 2021
        return lambda parts: max(parts[0].abs(), of_state(parts[1]), of_state(parts[2]))
    own: Norm = asked  # pyright: ignore[reportAssignmentType]
    if flat.single:
        return own
    return lambda parts: own((parts[0], *flat.split(parts[1]), *flat.split(parts[2]), *parts[3:]))


def integrate_with_adjoint(problem: Problem, params: Parts, back: BackwardSolve, event_fn: EventFunction | None = None) -> Any:
    """`integrate`, or `integrate_until`, whose states are connected to y0, the times and the parameters by the adjoint."""
    flat = Flat(problem.y0)
    options = {**back.options, "norm": adjoint_norm(back.options.get("norm"), flat, problem.options.get("norm"))}
    event_t, states = _Adjoint.apply(problem, flat, back, options, event_fn, flat.join(problem.y0), problem.t, *params)
    states = flat.split(states, ahead=1)
    return states if event_fn is None else (event_t, states)


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        flat: Flat,
        back: BackwardSolve,
        options: dict[str, Any],
        event_fn: EventFunction | None,
        y0: Tensor,
        t: Tensor,
        *params: Tensor,
    ) -> tuple[Tensor, Tensor]:
        del y0
        with torch.no_grad():
            if event_fn is None:
                event_t, states = t.new_zeros(()), integrate(problem)
            else:
                event_t, states = integrate_until(problem, event_fn)
            event_t = event_t.to(t.dtype)
        ys = flat.join(states, ahead=1)
        ctx.problem, ctx.flat, ctx.back, ctx.adjoint_options, ctx.until_event = problem, flat, back, options, event_fn is not None
        ctx.t_requires_grad = t.requires_grad
        ctx.save_for_backward(t, ys, event_t, *params)
        ctx.set_materialize_grads(False)
        return event_t, ys.clone() if ys is states else ys

    @staticmethod
    def backward(ctx: Any, _: Tensor | None, g: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        t, ys, event_t, *params = ctx.saved_tensors
        nothing = (None,) * 5
        if g is None:
            return (*nothing, None, None, *(None,) * len(params))
        times = torch.stack([t[0], event_t]) if ctx.until_event else t
        walk = _Backward(ctx.problem, ctx.flat, ctx.back, ctx.adjoint_options, tuple(params), ctx.t_requires_grad)
        with torch.no_grad():
            of_y0, of_t, of_params = walk.run(times, ys, g)
        if of_t is not None and ctx.until_event:  # the second time says only which way to go
            of_t = torch.stack([of_t[0], torch.zeros_like(of_t[0])])
        return (*nothing, of_y0, of_t, *of_params)


class _Backward:
    """The adjoint of one solve, piece by piece from the last asked time to the first."""

    def __init__(self, problem: Problem, flat: Flat, back: BackwardSolve, options: dict[str, Any], params: Parts, times_too: bool) -> None:
        self.func, self.flat, self.back, self.options = problem.func, flat, back, options
        self.params, self.times_too = params, times_too
        for name in CALLBACKS:
            callback = getattr(self.func, f"{name}_adjoint", None)
            if callback is not None:
                setattr(self, name, callback)

    def run(self, t: Tensor, ys: Tensor, g: Tensor) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        of_t = torch.zeros_like(t)
        state: list[Tensor] = [ys.real.new_zeros(()), ys[-1], g[-1], *(torch.zeros_like(p) for p in self.params)]
        for i in range(len(t) - 1, 0, -1):
            if self.times_too:
                moved = (self._rate(t[i], ys[i]).conj() * g[i]).real.sum()
                of_t[i] = moved
                state[0] = state[0] - moved
            state = self._solve(t[i - 1 : i + 1].flip(0), state)
            state[1], state[2] = ys[i - 1], state[2] + g[i - 1]
        of_t[0] = state[0]
        return state[2], of_t if self.times_too else None, state[3:]

    def _solve(self, t: Tensor, state: list[Tensor]) -> list[Tensor]:
        back = self.back
        states = integrate(check(self, tuple(state), t, back.rtol, back.atol, back.method, self.options))
        return [part[1] for part in states]

    def _rate(self, t: Tensor, y: Tensor) -> Tensor:
        return self.flat.join(self.func(t.to(y.real.dtype), self.flat.split(y)))

    def __call__(self, t: Tensor, state: State) -> Parts:
        """The rate of change of (∂L/∂t, y, a, ∂L/∂p…)."""
        y, a = state[1], state[2]
        with torch.enable_grad():
            time, point = t.detach().requires_grad_(self.times_too), y.detach().requires_grad_()
            f = self._rate(time, point)
            inputs = ((time,) if self.times_too else ()) + (point, *self.params)
            grads: Any = (None,) * len(inputs)
            if f.requires_grad:
                grads = torch.autograd.grad(f, inputs, -a, allow_unused=True)
        grads = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, grads, strict=True)]
        of_t = grads.pop(0).to(state[0].dtype) if self.times_too else torch.zeros_like(state[0])
        return (of_t, f.detach(), *grads)
