"""The error of a step relative to the tolerances, and the first step that they suggest."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import copysign, isnan, nan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.float64 import double, widest
from continua.native import is_transforming, native_error_rms
from continua.ode.control import TINY
from continua.ode.solution import State, Time
from continua.ode.sums import combine

if TYPE_CHECKING:
    from continua.ode.integration import Integration

Tolerance = float | Tensor | tuple[float | Tensor, ...]  # for all of the state; a tensor broadcasts against it; a tuple has one per part
LARGEST = 1e38  # float32 holds no more, and a tolerance that large accepts everything anyhow


def tolerance_of(tolerance: Tolerance, index: int, like: Tensor) -> "float | Tensor":
    """The tolerance of one part of the state."""
    chosen = tolerance[index % len(tolerance)] if isinstance(tolerance, tuple) else tolerance
    return chosen.to(like) if isinstance(chosen, Tensor) else min(float(chosen), LARGEST)


def check_tolerances(name: str, tolerance: Tolerance, y0: State, each: bool) -> None:
    """Refuse tolerances that do not fit the state."""
    if isinstance(tolerance, float | int):
        return
    if isinstance(tolerance, tuple) and len(tolerance) != len(y0):
        raise ConfigError(f"{name} is a tuple of {len(tolerance)}; expected one for each of the {len(y0)} parts of y0, or a list or tensor")
    for index, part in enumerate(y0):
        value = tolerance_of(tolerance, index, part)
        if not isinstance(value, Tensor):
            continue
        try:
            fits = torch.broadcast_shapes(value.shape, part.shape) == part.shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ConfigError(f"{name} has shape {tuple(value.shape)}, which does not broadcast against a state of {tuple(part.shape)}")
        if each and value.ndim == part.ndim and value.shape[0] != 1:
            raise ConfigError(f"{name} differs between samples, whose number falls under control='sample'; give {name} one batch entry")


def largest_tolerance(*tolerances: Tolerance) -> float:
    """The largest number in them."""
    parts = [part for given in tolerances for part in (given if isinstance(given, tuple) else (given,))]
    return max(float(part.max()) if isinstance(part, Tensor) else float(part) for part in parts)


@torch.no_grad()
def first_step(integration: "Integration", f0: State, per_sample: bool) -> Tensor:
    """Hairer, Nørsett & Wanner I, §II.4: a step whose Euler increment is about 1 % of the state, refined by one probe of f.

    The probe stays inside the interval. Returns the size, without its sign. The rule is about t: on another clock it is translated.
    """
    p, n, unit = integration, integration.measured, integration.unit
    span = torch.as_tensor(p.t1 - p.t0, dtype=widest(p.rate.device), device=p.rate.device)
    y0 = p.y0[:n]
    scales = _scales(p, y0)
    d0 = rms([y / s for y, s in zip(y0, scales, strict=True)], per_sample)
    d1 = rms([f / s for f, s in zip(f0, scales, strict=False)], per_sample) / unit
    h0 = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1.clamp(min=TINY)).minimum(span.abs() * unit)
    signed: Time = torch.copysign(h0, span) / unit
    if isinstance(p.t1, Tensor):
        moment: Time = torch.where(h0 == span.abs(), p.t1, p.t0 + signed)  # t0 + (t1 − t0) may round to beyond t1
    else:
        signed = float(signed)
        moment = p.t1 if signed == float(span) else p.t0 + signed
    f1 = p.rate(moment, combine(p.y0, signed, [1.0], [f0]))
    change = [(b - a) / s for a, b, s in zip(f0, f1, scales, strict=False)]
    d2 = rms(change, per_sample) / unit / h0.clamp(min=TINY)
    steepest = torch.maximum(d1, d2)
    h1 = torch.where(steepest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / steepest.clamp(min=TINY)) ** (1 / p.stepper.order))
    # A non-finite rate of change gives no step: any will do, the loop then finds and names the sample.
    size = torch.minimum(100 * h0, h1).minimum(span.abs() * unit).nan_to_num(nan=1e-6) / unit
    return size.detach()  # forward mode knows no `no_grad`


@torch.no_grad()
def first_step_of_batch(integration: "Integration", f0: State) -> float:
    """`first_step` for an interval that the batch shares, in numbers."""
    p, unit, order = integration, integration.unit, integration.stepper.order
    t0, t1 = float(p.t0), float(p.t1)
    longest, y0 = abs(t1 - t0) * unit, p.y0[: p.measured]
    scales = _scales(p, y0)
    d0 = _rms_number([y / s for y, s in zip(y0, scales, strict=True)])
    d1 = _rms_number([f / s for f, s in zip(f0, scales, strict=False)]) / unit
    h0 = min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / max(d1, TINY), longest)
    signed = copysign(h0, t1 - t0) / unit
    f1 = p.rate(t1 if signed == t1 - t0 else t0 + signed, combine(p.y0, signed, [1.0], [f0]))
    d2 = _rms_number([(b - a) / s for a, b, s in zip(f0, f1, scales, strict=False)]) / unit / max(h0, TINY)
    steepest = _largest([d1, d2])
    h1 = max(1e-6, 1e-3 * h0) if steepest <= 1e-15 else (0.01 / steepest) ** (1 / order)
    # A non-finite rate of change gives no step: any will do, the loop then finds and names the sample.
    return (1e-6 if isnan(h0) or isnan(h1) else min(100 * h0, h1, longest)) / unit


def _scales(p: "Integration", y0: State) -> list[Tensor]:
    """atol + rtol |y| of every part."""
    rtol, atol = p.config.rtol, p.config.atol
    return [part.abs().mul_(tolerance_of(rtol, i, part)).add_(tolerance_of(atol, i, part)) for i, part in enumerate(y0)]


def _rms_number(parts: Sequence[Tensor]) -> float:
    """`rms` of a batch as a number."""
    wide = [part if part.dtype in (torch.float32, torch.float64) else part.float() for part in parts]
    return _largest([float(torch.linalg.vector_norm(part)) / max(part.numel(), 1) ** 0.5 for part in wide])


def _largest(numbers: list[float]) -> float:
    return nan if any(map(isnan, numbers)) else max(numbers)


def rms(parts: Sequence[Tensor], per_sample: bool) -> Tensor:
    """Root mean square over a component (of each sample, if asked), the largest over components; in float64 where the device has it."""
    norms = []
    for part in parts:
        wide = part if part.dtype in (torch.float32, torch.float64) else part.float()
        if per_sample:
            flat = wide.reshape(len(wide), -1)
            norms.append(double(torch.linalg.vector_norm(flat, dim=1)) / max(flat.shape[1], 1) ** 0.5)
        else:
            norms.append(double(torch.linalg.vector_norm(wide)) / max(wide.numel(), 1) ** 0.5)
    return norms[0] if len(norms) == 1 else torch.stack(norms).amax(0)


@torch.no_grad()
def error_ratio(error: State, y0: State, y1: State, rtol: Tolerance, atol: Tolerance, per_sample: bool) -> Tensor:
    """RMS of error / (atol + rtol max(|y0|, |y1|)): a step is accepted when this is at most 1."""
    if not (isinstance(rtol, float | int) and isinstance(atol, float | int)) or is_transforming():
        return unfused_error_ratio(error, y0, y1, rtol, atol, per_sample)
    if not per_sample and len(error) == 1:
        ratio = native_error_rms(error[0], y0[0], y1[0], rtol, atol)
        if ratio is not None:
            return ratio
    scaled = []
    for e, before, after in zip(error, y0, y1, strict=False):
        # Few temporaries: on a CPU the pages of a fresh large tensor cost more than the arithmetic on it.
        scale = before.abs()
        torch.maximum(scale, after.abs(), out=scale)
        scale = scale if scale.dtype in (torch.float32, torch.float64) else scale.float()
        torch.add(_constant(min(atol, LARGEST), scale.dtype), scale, alpha=min(rtol, LARGEST), out=scale)
        scaled.append(torch.div(e, scale, out=scale))
    return rms(scaled, per_sample)


@lru_cache(maxsize=64)
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(value, dtype=dtype, device="cpu")


def unfused_error_ratio(error: State, y0: State, y1: State, rtol: Tolerance, atol: Tolerance, per_sample: bool) -> Tensor:
    """The same with tolerances of any kind, also where `out=` is unknown: the choice of steps is not differentiated."""
    scaled = []
    for index, (e, before, after) in enumerate(_detached(error, y0, y1)):
        scale = torch.maximum(before.abs(), after.abs())
        scaled.append(e / (tolerance_of(atol, index, scale) + tolerance_of(rtol, index, scale) * scale))
    return rms(scaled, per_sample)


def _detached(*states: State) -> Iterator[tuple[Tensor, ...]]:
    for parts in zip(*states, strict=False):
        yield tuple(part.detach() for part in parts)
