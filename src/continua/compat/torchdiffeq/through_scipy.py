"""`scipy_solver`: the same problem through `scipy.integrate.solve_ivp`, without a graph."""

import warnings
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from continua.compat.torchdiffeq.inputs import Problem
from continua.compat.torchdiffeq.state import State, StateLayout
from continua.errors import ConfigError, ContinuaWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray


@torch.no_grad()
def solve_by_scipy(problem: Problem) -> State:
    """The states at the asked times, one row each."""
    from scipy.integrate import solve_ivp  # slow to import

    layout, device = problem.layout, problem.device
    parts = (problem.y0,) if isinstance(problem.y0, Tensor) else problem.y0
    kind = parts[0].dtype
    for part in parts[1:]:
        kind = torch.promote_types(kind, part.dtype)

    def rate(t: float, y: "NDArray[np.generic]") -> "NDArray[np.generic]":
        # SciPy goes on with the same array, which f must not see change
        state = _split(torch.tensor(y, dtype=kind, device=device)[None], layout, ahead=0)
        out = problem.func(torch.tensor(t, dtype=kind.to_real(), device=device), state)
        return _join((out,) if isinstance(out, Tensor) else out, layout)

    bounds: dict[str, Any] = {name: float(problem.options[name]) for name in ("min_step", "max_step") if name in problem.options}
    bounds = {name: value for name, value in bounds.items() if isfinite(value) and value != 0}
    start = _join(parts, layout)
    rtol, atol = (_tolerance(name, value, layout) for name, value in (("rtol", problem.rtol), ("atol", problem.atol)))
    times = np.asarray(problem.times)
    method = problem.options.get("solver", "LSODA")
    result = solve_ivp(rate, (times[0], times[-1]), start, method=method, t_eval=times, rtol=rtol, atol=atol, **bounds)
    states = np.full((len(times), len(start)), np.nan, dtype=result.y.dtype)
    states[: result.y.shape[1]] = result.y.T
    if result.y.shape[1] < len(times):
        text = f"SciPy's {method} stopped after {result.y.shape[1]} of {len(times)} times: {result.message}"
        warnings.warn(f"{text}; the states after that are not numbers", ContinuaWarning, stacklevel=4)
    return _split(torch.tensor(states, device=device), layout, ahead=1)


def _join(parts: "tuple[Tensor, ...] | list[Tensor]", layout: StateLayout) -> "NDArray[np.generic]":
    fitted = [part.to(dtype).expand(shape) for part, shape, dtype in zip(parts, layout.shapes, layout.dtypes, strict=True)]
    return torch.cat([part.reshape(-1) for part in fitted]).detach().cpu().numpy()


def _split(flat: Tensor, layout: StateLayout, ahead: int) -> State:
    sizes = [shape.numel() for shape in layout.shapes]
    pieces = zip(flat.split(sizes, dim=1), layout.shapes, layout.dtypes, strict=True)
    parts = tuple(piece.to(dtype).reshape((*flat.shape[:ahead], *shape)) for piece, shape, dtype in pieces)
    return parts[0] if layout.single else parts


def _tolerance(name: str, value: object, layout: StateLayout) -> "float | NDArray[np.float64]":
    """One number, or one for each number of the state."""
    if isinstance(value, int | float):
        return float(value)
    each = (
        [value] * len(layout.shapes)
        if layout.single
        else list(value)
        if isinstance(value, tuple | list | Tensor) and np.ndim(value)
        else None
    )
    if each is None:
        return float(value)  # pyright: ignore[reportArgumentType]  # a 0-d tensor
    if len(each) != len(layout.shapes):
        raise ConfigError(f"{name} has {len(each)} entries for a state of {len(layout.shapes)} tensors; give one number, or one for each")
    wide = [torch.as_tensor(tolerance).double().expand(shape).reshape(-1) for tolerance, shape in zip(each, layout.shapes, strict=True)]
    return torch.cat(wide).cpu().numpy()
