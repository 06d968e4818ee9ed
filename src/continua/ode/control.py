"""How steps are chosen: the error of a step, Hairer's first step, and the law that turns an error into the next step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.native import is_transforming, native_error_rms
from continua.ode.plain import Options, Plain, build, is_whole, plain_differences
from continua.ode.solution import State, Time
from continua.ode.stepper import combine

if TYPE_CHECKING:
    from continua.ode.integration import Integration

Per = Literal["batch", "sample"]
TINY = 1e-30  # keeps an error of exactly 0 from dividing


@dataclass(frozen=True)
class StepControl:
    """Whose error chooses a step, and how the next step follows from the error of the last one.

    `per`: "batch", one step for all, or "sample", every sample its own time and step. `first_step`: the size of the first step (default:
    Hairer's rule). `max_steps`: tried steps after which a solve fails.

    With r the error relative to the tolerance and k the order of the error estimate, the next step is h · clip(safety · r^(−α) ·
    r_prev^β, factor_min, factor_max). `kind="i"` has α = 1/k, β = 0: the papers' and torchdiffeq's. `"pi"` has α = 0.7/k, β = 0.4/k
    (Gustafsson 1991; Hairer & Wanner II, §IV.2). After an accepted step the factor is at least `accept_factor_min`, after a
    rejected one at most 1, and the step that follows a rejection does not grow when `hold_after_rejection` is set.
    """

    per: Per = "batch"
    kind: Literal["i", "pi"] = "i"
    first_step: float | None = None
    max_steps: int = 1000
    safety: float = 0.9
    factor_min: float = 0.2
    factor_max: float = 10.0
    accept_factor_min: float | None = None  # "i": 1, as torchdiffeq; "pi": factor_min
    alpha: float | None = None  # both exponents as multiples of 1/k
    beta: float | None = None
    hold_after_rejection: bool | None = None  # "i": no, as torchdiffeq; "pi": yes, as Hairer

    @classmethod
    def of(cls, given: "StepControl | Per | Options") -> "StepControl":
        """A control from a control, from "batch" or "sample", or from its options by name."""
        if isinstance(given, StepControl):
            return given
        return build(cls, "option of control", given) if isinstance(given, Mapping) else cls(per=given)

    def replace(self, **changes: object) -> "StepControl":
        """A copy with some options changed. Constants that belong to the kind follow it."""
        return build(StepControl, "option of control", {**self._differences(), **changes})

    def plain(self) -> "str | Plain":
        """The options that differ from the defaults; "batch" or "sample" where only that is chosen."""
        options = self._differences()
        return self.per if not options.keys() - {"per"} else options

    def _differences(self) -> Plain:
        # Constants left out follow from these two.
        basis = StepControl(kind=self.kind, factor_min=self.factor_min)
        chosen = plain_differences(basis, StepControl()).keys() & {"kind", "factor_min"} | plain_differences(self, basis).keys()
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in chosen}

    def __post_init__(self) -> None:
        if self.per not in ("batch", "sample"):
            hint = f"; the law of the step is control=dict(kind={self.per!r})" if self.per in ("i", "pi") else ""
            raise ConfigError(f"control={self.per!r}; expected 'batch', 'sample' or a StepControl{hint}")
        if self.kind not in ("i", "pi"):
            raise ConfigError(f"control: kind={self.kind!r}; expected 'i' or 'pi'")
        if not is_whole(self.max_steps):
            raise ConfigError(f"control: max_steps={self.max_steps!r}; expected a whole number of at least 1")
        if self.first_step is not None and not (isfinite(self.first_step) and self.first_step > 0):
            raise ConfigError(f"control: first_step={self.first_step!r}; expected a finite number above 0 (its sign follows t1 − t0)")
        if not (0 < self.safety <= 1 and 0 < self.factor_min < 1 < self.factor_max):
            given = f"safety={self.safety}, factor_min={self.factor_min}, factor_max={self.factor_max}"
            raise ConfigError(f"control: {given}; expected 0 < safety ≤ 1 and 0 < factor_min < 1 < factor_max")
        simple = self.kind == "i"
        defaults = dict(
            accept_factor_min=1.0 if simple else self.factor_min,
            alpha=1.0 if simple else 0.7,
            beta=0.0 if simple else 0.4,
            hold_after_rejection=not simple,
        )
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)


class NextStep:
    """The law of `StepControl`, for one step or for a step per sample; remembers the last error and rejection."""

    def __init__(self, control: StepControl, estimate_order: int) -> None:
        self.control = control
        self.k = estimate_order
        self.previous: Tensor | float = 1.0
        self.rejected: Tensor | bool = False

    def __call__(self, h: Tensor, ratio: Tensor, accept: Tensor) -> Tensor:
        c = self.control

        def either(accepted: float | None, rejected: float) -> Tensor:
            # torch.where of two numbers would round them to the default dtype, which users may set to a narrow one
            return torch.full_like(ratio, rejected).masked_fill(accept, float(accepted or 0.0))

        alpha, beta = either(c.alpha, 1.0) / self.k, either(c.beta, 0.0) / self.k
        factor = c.safety * ratio.clamp(min=TINY) ** -alpha * self.previous**beta
        lower, upper = either(c.accept_factor_min, c.factor_min), either(c.factor_max, 1.0)
        if c.hold_after_rejection:
            upper = upper.masked_fill(torch.as_tensor(self.rejected, device=accept.device), 1.0)
        self.previous = torch.where(accept, ratio.clamp(min=1e-4), self.previous)
        self.rejected = ~accept
        return h * torch.clamp(factor.nan_to_num(nan=0.0), lower, upper)

    def keep(self, rows: Tensor) -> None:
        """Forget the samples that have left."""
        if isinstance(self.previous, Tensor) and isinstance(self.rejected, Tensor):
            self.previous, self.rejected = self.previous[rows], self.rejected[rows]


@torch.no_grad()
def first_step(integration: "Integration", f0: State, per_sample: bool) -> Tensor:
    """Hairer, Nørsett & Wanner I, §II.4: a step whose Euler increment is about 1 % of the state, refined by one probe of f.

    The probe stays inside the interval. Returns the size, without its sign.
    """
    p, n = integration, integration.measured
    span = torch.as_tensor(p.t1 - p.t0, dtype=torch.float64, device=p.rate.device)
    y0 = p.y0[:n]
    scales = [part.abs().mul_(p.config.rtol).add_(p.config.atol) for part in y0]
    d0 = rms([y / s for y, s in zip(y0, scales, strict=True)], per_sample)
    d1 = rms([f / s for f, s in zip(f0, scales, strict=False)], per_sample)
    h0 = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1.clamp(min=TINY)).minimum(span.abs())
    signed: Time = torch.copysign(h0, span)
    if per_sample:
        moment: Time = torch.where(h0 == span.abs(), p.t1, p.t0 + signed)  # t0 + (t1 − t0) may round to beyond t1
    else:
        signed = float(signed)
        moment = p.t1 if signed == float(span) else p.t0 + signed
    f1 = p.rate(moment, combine(p.y0, signed, [1.0], [f0]))
    change = [(b - a) / s for a, b, s in zip(f0, f1, scales, strict=False)]
    d2 = rms(change, per_sample) / h0.clamp(min=TINY)
    steepest = torch.maximum(d1, d2)
    h1 = torch.where(steepest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / steepest.clamp(min=TINY)) ** (1 / p.stepper.order))
    # A non-finite rate of change gives no step: any will do, the loop then finds and names the sample.
    return torch.minimum(100 * h0, h1).minimum(span.abs()).nan_to_num(nan=1e-6).detach()  # forward mode knows no `no_grad`


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
    if not per_sample and len(error) == 1:
        ratio = native_error_rms(error[0], y0[0], y1[0], rtol, atol)
        if ratio is not None:
            return ratio
    if is_transforming():  # the choice of steps is not differentiated, and `out=` below is unknown there
        return rms([(e / (atol + rtol * torch.maximum(a.abs(), b.abs()))) for e, a, b in _without_tangents(error, y0, y1)], per_sample)
    scaled = []
    for e, before, after in zip(error, y0, y1, strict=False):
        # Few temporaries: on a CPU the pages of a fresh large tensor cost more than the arithmetic on it.
        scale = before.abs()
        torch.maximum(scale, after.abs(), out=scale)
        scale = scale if scale.dtype in (torch.float32, torch.float64) else scale.float()
        torch.add(torch.tensor(atol, dtype=scale.dtype), scale, alpha=rtol, out=scale)
        scaled.append(torch.div(e, scale, out=scale))
    return rms(scaled, per_sample)


def _without_tangents(*states: State) -> Iterator[tuple[Tensor, ...]]:
    for parts in zip(*states, strict=False):
        yield tuple(part.detach() for part in parts)
