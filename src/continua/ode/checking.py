"""Questions asked of the input of a solve before any work: states, end times, asked times."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import TypeGuard

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.float64 import on_host, widest
from continua.ode.rate import are_tensors
from continua.ode.solution import State, Time


def check_state(y0: object) -> State:
    """y0 as a tuple of floating tensors with the same, non-empty batch."""
    parts = (y0,) if isinstance(y0, Tensor) else y0
    if not are_tensors(parts) or not parts:
        raise ConfigError(f"y0 is a {type(y0).__name__}; expected a tensor or a tuple of tensors, batch first")
    for part in parts:
        if part.is_complex():
            raise ConfigError(
                f"y0 has dtype {part.dtype}, and solve takes real states: give it torch.view_as_real(y0), with torch.view_as_complex "
                "inside f, or use continua.compat.torchdiffeq.odeint, which takes complex ones"
            )
        if not part.is_floating_point():
            raise ConfigError(f"y0 has dtype {part.dtype}; expected a floating point state (y0.float())")
        if part.ndim == 0 or part.shape[0] == 0:
            raise ConfigError(f"y0 has shape {tuple(part.shape)}; expected a batch of at least one sample in the first dimension")
    if any(part.shape[0] != parts[0].shape[0] or part.device != parts[0].device for part in parts):
        shapes = ", ".join(f"{tuple(part.shape)} on {part.device}" for part in parts)
        raise ConfigError(f"the parts of y0 are {shapes}; they must have the same batch size and device")
    return tuple(parts)


def end_times(t0: "float | Tensor", t1: "float | Tensor", y0: State) -> tuple[Time, Time]:
    """Start and end as two numbers, or as two (batch,) float64 tensors when either is given per sample.

    A graph cannot look at a number in a tensor: under `torch.compile` it stays there, unchecked.
    """
    start, end = (_one_time(name, value, y0) for name, value in (("t0", t0), ("t1", t1)))
    if not torch.compiler.is_compiling() and not all(_is_finite(value) for value in (start, end)):
        raise ConfigError(f"t0 = {t0}, t1 = {t1}; times must be finite")
    if any(isinstance(value, Tensor) and value.ndim for value in (start, end)):
        return per_sample(start, y0), per_sample(end, y0)
    return start, end


def _is_finite(time: Time) -> bool:
    return bool(torch.isfinite(time).all()) if isinstance(time, Tensor) else isfinite(time)


def _one_time(name: str, value: "float | Tensor", y0: State) -> Time:
    if not isinstance(value, Tensor):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"{name} = {value!r}; expected a number, or a tensor with one number or one per sample") from error
    if value.ndim == 0:
        return value.detach() if torch.compiler.is_compiling() else float(value.detach())
    if value.shape != y0[0].shape[:1]:
        raise ConfigError(f"{name} has shape {tuple(value.shape)}; expected one number, or ({len(y0[0])},): one per sample")
    return value.detach().to(y0[0].device, widest(y0[0].device))


def check_times(save_at: "Sequence[float] | Tensor | None", t0: Time, t1: Time, batch: int) -> "list[float] | Tensor | None":
    """Asked times: a list for the batch, or (time, batch) in float64; inside the interval and in its order."""
    if save_at is None:
        return None
    if not torch.compiler.is_compiling() and _are_in_order(save_at, t0, t1):
        return list(save_at)
    try:
        times = (save_at.cpu() if isinstance(save_at, Tensor) else torch.as_tensor(save_at, dtype=torch.float64)).detach().double()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConfigError(f"save_at = {save_at!r}; expected a list or a tensor of times, sorted from t0 to t1") from error
    if times.ndim not in (1, 2) or len(times) == 0 or (times.ndim == 2 and times.shape[1] != batch):
        raise ConfigError(f"save_at has shape {tuple(times.shape)}; expected (time,) or (time, {batch}), with at least one time")
    if times.ndim == 2 and not isinstance(t1, Tensor):
        raise ConfigError("save_at is given per sample, (time, batch), but t0 and t1 are not; give t1 as a (batch,) tensor too")
    start, end = (on_host(t) for t in (t0, t1))
    wide = times.cpu() if times.ndim == 2 else times.cpu()[:, None]
    if isinstance(save_at, Tensor) and save_at.is_floating_point():
        for limit in (start, end):  # torch.linspace(0, 0.1, 5) ends a rounding error of float32 past 0.1: it means 0.1
            wide = torch.where(wide == limit.to(save_at.dtype).double(), limit, wide)
    low, high = torch.minimum(start, end), torch.maximum(start, end)
    outside = (wide < low) | (wide > high)
    if bool(outside.any()) or not bool(torch.isfinite(wide).all()):
        value = wide.expand(-1, outside.shape[1])[outside][0] if bool(outside.any()) else torch.nan
        raise ConfigError(f"save_at asks for t = {float(value):.6g}, outside the interval of the solve; it must lie between t0 and t1")
    order = wide.diff(dim=0) * torch.sign(end - start)
    if bool((order < 0).any()):
        raise ConfigError("save_at must be sorted in the direction of the solve, from t0 to t1")
    if isinstance(t1, Tensor):
        return wide.expand(-1, batch).to(t1.device, t1.dtype)
    return wide.flatten().tolist()


def _are_in_order(times: object, t0: Time, t1: Time) -> "TypeGuard[list[float]]":
    """Whether these are plain numbers inside the interval and in its order: most are, and numbers are quickly looked at."""
    if not isinstance(times, list) or not times or isinstance(t0, Tensor) or isinstance(t1, Tensor):
        return False
    if not all(type(time) is float for time in times):
        return False
    pairs = pairwise([t0, *times, t1])
    return all(a <= b for a, b in pairs) if t0 <= t1 else all(a >= b for a, b in pairs)


def per_sample(time: Time, y0: State) -> Tensor:
    """A number for the batch as one per sample."""
    return torch.as_tensor(time, dtype=widest(y0[0].device), device=y0[0].device).expand(len(y0[0]))


def times_per_sample(times: "list[float] | Tensor", y0: State) -> Tensor:
    """Asked times as (time, batch) in float64."""
    wide = times if isinstance(times, Tensor) else torch.tensor(times, dtype=widest(y0[0].device), device=y0[0].device)[:, None]
    return wide.expand(-1, len(y0[0]))
