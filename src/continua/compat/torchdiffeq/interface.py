"""`odeint`, `odeint_adjoint` and `odeint_event` with torchdiffeq's signatures."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from continua.compat.torchdiffeq.adjoint import BackwardSolve, integrate_with_adjoint
from continua.compat.torchdiffeq.event import EventFunction, integrate_until, linked
from continua.compat.torchdiffeq.inputs import BadInput, Options, Problem, Tolerance, check
from continua.compat.torchdiffeq.integrate import integrate, make_plan
from continua.compat.torchdiffeq.methods import CALLBACKS
from continua.compat.torchdiffeq.state import Function, State
from continua.errors import ConfigError, ContinuaWarning


def odeint(
    func: Function,
    y0: State,
    t: Tensor,
    *,
    rtol: Tolerance = 1e-7,
    atol: Tolerance = 1e-9,
    method: str | None = None,
    options: Options | None = None,
    event_fn: EventFunction | None = None,
) -> Any:
    """Integrate dy/dt = func(t, y), y(t[0]) = y0, and give the states at the times t.

    Every operation of the solve is on autograd's graph: gradients reach y0, t and whatever func holds, any number of times.

    Args:
        func: func(t, y) -> rate of change, shaped like y; t is a 0-d tensor of y's precision.
        y0: a tensor of any shape, real or complex, or a tuple of such.
        t: times in increasing or decreasing order, 1-D; the first is the start.
        rtol, atol: numbers, tensors that broadcast to the state, or for a tuple one of these for each of its tensors.
        method: see `METHODS` in `continua.compat.torchdiffeq.methods`; dopri5 if left out.
        options: of the method, by torchdiffeq's names; one that the method does not know is warned of.
        event_fn: event_fn(t, y) -> tensor; the solve ends where one of its numbers crosses zero. `t` then has two times, of which the
            second says only which way to go.

    Returns:
        The states, time first (a tuple for a tuple); with `event_fn` the time of the event and the states at the start and there.

    Examples:
        >>> import torch
        >>> from continua.compat.torchdiffeq import odeint
        >>> odeint(lambda t, y: -y, torch.ones(3, dtype=torch.float64), torch.linspace(0, 1, 5)).shape
        torch.Size([5, 3])
    """
    problem = check(func, y0, t, rtol, atol, method, options)
    return _solved(problem, event_fn)


def odeint_adjoint(
    func: Function,
    y0: State,
    t: Tensor,
    *,
    rtol: Tolerance = 1e-7,
    atol: Tolerance = 1e-9,
    method: str | None = None,
    options: Options | None = None,
    event_fn: EventFunction | None = None,
    adjoint_rtol: Tolerance | None = None,
    adjoint_atol: Tolerance | None = None,
    adjoint_method: str | None = None,
    adjoint_options: Options | None = None,
    adjoint_params: Iterable[Tensor] | None = None,
) -> Any:
    """`odeint` in less memory, with gradients to y0, t and the parameters of func.

    The gradient is that of the steps taken, exact, by checkpoints. The adjoint equation is solved only if you say how: with any of
    `adjoint_rtol`, `adjoint_atol`, `adjoint_method`, `adjoint_options` (an empty dict is enough), with a `callback_*_adjoint` of func,
    and under `scipy_solver`, which leaves no steps to go back through.

    Args:
        func: as for `odeint`; an `nn.Module`, unless `adjoint_params` is given.
        y0, t, rtol, atol, method, options, event_fn: as for `odeint`.
        adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options: of the adjoint equation; what is left out is as for the solve.
        adjoint_params: tensors that get gradients, instead of the parameters of func.

    Returns:
        What `odeint` returns.

    Raises:
        ConfigError: `adjoint_method` differs from `method`, and `options` are given without `adjoint_options`.

    Examples:
        >>> import torch
        >>> from continua.compat.torchdiffeq import odeint_adjoint
        >>> odeint_adjoint(torch.nn.Tanh(), torch.ones(3), torch.tensor([0.0, 1.0]))  # doctest: +SKIP
    """
    params = _parameters(func, adjoint_params)
    if adjoint_method is not None and adjoint_method != method and options is not None and adjoint_options is None:
        raise ConfigError(
            f"adjoint_method={adjoint_method!r} is not method={method!r}, so that `options` cannot be used for it; give adjoint_options too"
        )
    needed = tuple(p for p in params if p.requires_grad)
    if len(needed) != len(params) and callable((adjoint_options or {}).get("norm")):
        text = "a parameter does not require a gradient"
        warnings.warn(
            f"{text}; it takes no part in the backward solve, and the adjoint norm does not see it", ContinuaWarning, stacklevel=2
        )
    problem = check(func, y0, t, rtol, atol, method, options, params=needed)
    watched = any(hasattr(func, f"{name}_adjoint") for name in CALLBACKS)
    asked = any(given is not None for given in (adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options))
    if not (asked or watched or problem.method.kind == "scipy"):
        result = _solved(problem, event_fn)
        if event_fn is None:
            return result
        event_t, states = result  # on the graph, as a result of the solve; `odeint_event` gives it its gradient
        return event_t + 0.0 * (states if isinstance(states, Tensor) else states[0]).real.sum().to(event_t), states
    if adjoint_options is None:
        adjoint_options = {name: value for name, value in (options or {}).items() if name != "norm"}
    back = BackwardSolve(
        rtol if adjoint_rtol is None else adjoint_rtol,
        atol if adjoint_atol is None else adjoint_atol,
        method if adjoint_method is None else adjoint_method,
        dict(adjoint_options),
    )
    return integrate_with_adjoint(problem, needed, back, event_fn)


def odeint_event(
    func: Function,
    y0: State,
    t0: Tensor,
    *,
    event_fn: EventFunction,
    reverse_time: bool = False,
    odeint_interface: Callable[..., Any] = odeint,
    **kwargs: Any,
) -> tuple[Tensor, State]:
    """Integrate from t0 until `event_fn` crosses zero; the time of the event and the state there are differentiable.

    Args:
        func, y0: as for `odeint`.
        t0: the start, a tensor with one number.
        event_fn: event_fn(t, y) -> tensor; the solve ends where one of its numbers crosses zero.
        reverse_time: look into the past.
        odeint_interface: `odeint` or `odeint_adjoint`.
        kwargs: its other keywords.

    Returns:
        The time of the event, and the states at the start and there.

    Examples:
        >>> import torch
        >>> from continua.compat.torchdiffeq import odeint_event
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> event_t, _ = odeint_event(lambda t, y: -one, one, torch.tensor(0.0), event_fn=lambda t, y: y - 0.5)
        >>> round(event_t.item(), 3)
        0.5
    """
    start = t0.reshape(-1)
    t = torch.cat([start, start.detach() + (-1.0 if reverse_time else 1.0)])
    event_t, states = odeint_interface(func, y0, t, event_fn=event_fn, **kwargs)
    event_t = event_t.detach()
    if not torch.is_grad_enabled():
        return event_t, states
    rows = states if isinstance(states, tuple) else (states,)
    last = tuple(row[-1] for row in rows)
    event_t, y = linked(func, event_fn, t[0], y0, event_t, last if isinstance(states, tuple) else last[0])
    ends = y if isinstance(y, tuple) else (y,)
    rows = tuple(torch.cat([row[:-1], end[None]]) for row, end in zip(rows, ends, strict=True))
    return event_t, rows if isinstance(states, tuple) else rows[0]


def odeint_dense(
    func: Function,
    y0: Tensor,
    t0: Tensor,
    t1: Tensor,
    *,
    rtol: Tolerance = 1e-7,
    atol: Tolerance = 1e-9,
    method: str | None = None,
    options: Options | None = None,
) -> Callable[[Tensor], State]:
    """The solution between t0 and t1 as a function of time, by the interpolant of an adaptive method.

    Args:
        func, y0, rtol, atol, method, options: as for `odeint`.
        t0, t1: start and end.

    Returns:
        A function of the time, or of several times, that gives the state there.

    Examples:
        >>> import torch
        >>> from continua.compat.torchdiffeq import odeint_dense
        >>> state = odeint_dense(lambda t, y: -y, torch.ones(1, dtype=torch.float64), torch.tensor(0.0), torch.tensor(1.0))
        >>> round(state(torch.tensor(0.5)).item(), 4)
        0.6065
    """
    problem = check(func, y0, torch.stack([torch.as_tensor(t0), torch.as_tensor(t1)]), rtol, atol, method, options)
    solution = make_plan(problem).solve(dense=True)

    def state(t: Tensor) -> State:
        parts = solution.interpolate(t)
        return problem.layout.unpack((parts,) if isinstance(parts, Tensor) else parts, ahead=torch.as_tensor(t).ndim)

    return state


def _solved(problem: Problem, event_fn: EventFunction | None) -> Any:
    if event_fn is None:
        return integrate(problem)
    event_t, states = integrate_until(problem, event_fn)
    return event_t.to(problem.t), states


def _parameters(func: object, given: Iterable[Tensor] | None) -> tuple[Tensor, ...]:
    if given is not None:
        return tuple(given)
    if not isinstance(func, nn.Module):
        raise BadInput(
            f"func is a {type(func).__name__} that owns no parameters: make it an nn.Module, or give adjoint_params=(...), () for none"
        )
    if not getattr(func, "_is_replica", False):
        return tuple(func.parameters())
    # replicas of DataParallel hold tensors in the place of parameters
    return tuple(value for module in func.modules() for value in vars(module).values() if isinstance(value, Tensor) and value.requires_grad)
