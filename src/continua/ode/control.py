"""How steps are chosen: the options, and the law that turns the error of a step into the size of the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import copysign, inf, isfinite, isnan
from typing import Literal

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.plain import Options, Plain, build, is_finite, is_whole, plain_differences

Per = Literal["batch", "sample"]
LAWS = {"i": (1.0, 0.0, 0.0), "pi": (0.7, 0.4, 0.0), "pid": (0.75, 0.5, 0.05)}  # α, β, γ as multiples of 1/k
TINY = 1e-30  # keeps an error of exactly 0 from dividing


@dataclass(frozen=True)
class StepControl:
    """Whose error chooses a step, and how the next step follows from the error of the last one.

    `per`: "batch", one step for all, or "sample", every sample its own time and step. `first_step`: the size of the first step (default:
    Hairer's rule). `max_steps`: tried steps after which a solve fails. `min_step`, `max_step`: bounds of a step's size; one of `min_step`
    is accepted whatever its error. `step_at`: times to land on; `jump_at`: times to land on where f jumps, so that no step reaches over
    them and f is evaluated anew on the other side. `one_graph`: inside `torch.compile`, the loop of an adaptive solve becomes part of the
    graph (elsewhere it changes nothing).

    With r the error relative to the tolerance and k the order of the error estimate, the next step is h · clip(safety · r^(−α) ·
    r_prev^β · r_prevprev^(−γ), factor_min, factor_max). `kind="i"` has α = 1/k, β = γ = 0: the papers' and torchdiffeq's. `"pi"` has
    α = 0.7/k, β = 0.4/k, γ = 0 (Gustafsson 1991; Hairer & Wanner II, §IV.2). `"pid"` adds a derivative part of 0.05/k to that:
    α = 0.75/k, β = 0.5/k, γ = 0.05/k (Söderlind 2003). After an accepted step the factor is at least `accept_factor_min`, after a
    rejected one at most 1, and the step that follows a rejection does not grow when `hold_after_rejection` is set.
    """

    per: Per = "batch"
    kind: Literal["i", "pi", "pid"] = "i"
    first_step: float | None = None
    max_steps: int = 1000
    safety: float = 0.9
    factor_min: float = 0.2
    factor_max: float = 10.0
    accept_factor_min: float | None = None  # "i": 1, as torchdiffeq; else factor_min
    alpha: float | None = None  # the exponents as multiples of 1/k
    beta: float | None = None
    hold_after_rejection: bool | None = None  # "i": no, as torchdiffeq; else yes, as Hairer
    gamma: float | None = None
    min_step: float | None = None
    max_step: float | None = None
    step_at: "Sequence[float]" = ()
    jump_at: "Sequence[float]" = ()
    one_graph: bool = False

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
            hint = f"; the law of the step is control=dict(kind={self.per!r})" if self.per in list(LAWS) else ""
            raise ConfigError(f"control={self.per!r}; expected 'batch', 'sample' or a StepControl{hint}")
        if self.kind not in list(LAWS):
            raise ConfigError(f"control: kind={self.kind!r}; expected one of {', '.join(map(repr, LAWS))}")
        if not is_whole(self.max_steps):
            raise ConfigError(f"control: max_steps={self.max_steps!r}; expected a whole number of at least 1")
        for name in ("first_step", "min_step", "max_step"):
            value = getattr(self, name)
            if value is not None and not (is_finite(value) and value > 0):
                raise ConfigError(f"control: {name}={value!r}; expected a finite number above 0 (its sign follows t1 − t0)")
        if self.min_step is not None and self.max_step is not None and self.min_step > self.max_step:
            raise ConfigError(f"control: min_step={self.min_step} is above max_step={self.max_step}")
        for name in ("safety", "factor_min", "factor_max", "accept_factor_min", "alpha", "beta", "gamma"):
            value = getattr(self, name)
            if value is not None and not is_finite(value):
                raise ConfigError(f"control: {name}={value!r}; expected a finite number")
        if not (0 < self.safety <= 1 and 0 < self.factor_min < 1 < self.factor_max):
            given = f"safety={self.safety}, factor_min={self.factor_min}, factor_max={self.factor_max}"
            raise ConfigError(f"control: {given}; expected 0 < safety ≤ 1 and 0 < factor_min < 1 < factor_max")
        for name in ("step_at", "jump_at"):
            object.__setattr__(self, name, _as_times(name, getattr(self, name)))
        simple, (alpha, beta, gamma) = self.kind == "i", LAWS[self.kind]
        defaults = dict(alpha=alpha, beta=beta, gamma=gamma, hold_after_rejection=not simple)
        for name, value in dict(accept_factor_min=1.0 if simple else self.factor_min, **defaults).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def stops(self) -> bool:
        """Whether there are times to land on."""
        return bool(self.step_at or self.jump_at)


def _as_times(name: str, given: object) -> tuple[float, ...]:
    if isinstance(given, Tensor) and given.requires_grad:
        raise ConfigError(f"control: {name} requires gradients, and has none: steps are not differentiated; give {name}.detach()")
    try:
        times = tuple(sorted({float(time) for time in (given.tolist() if isinstance(given, Tensor) else given)}))  # pyright: ignore
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"control: {name}={given!r}; expected times, in a list or a 1-D tensor") from error
    if not all(map(isfinite, times)):
        raise ConfigError(f"control: {name} holds a time that is not finite")
    return times


class NextStep:
    """The law of `StepControl`, for one step or for a step per sample; remembers the last errors and rejection.

    `unit`: how long a unit of the loop's clock is in t.
    """

    def __init__(self, control: StepControl, estimate_order: int, unit: float = 1.0) -> None:
        self.control = control
        self.k = estimate_order
        self.previous: Tensor | float = 1.0
        self.before: Tensor | float = 1.0  # the previous one
        self.rejected: Tensor | bool = False
        self.least = None if control.min_step is None else control.min_step / unit
        self.most = None if control.max_step is None else control.max_step / unit

    def of_batch(self, h: float, ratio: float, accept: bool) -> float:
        """The same law where one step serves the whole batch, in numbers: a dozen operations on tensors of one number would cost more."""
        c, k = self.control, self.k
        factor = c.safety * _power(max(ratio, TINY), -((c.alpha or 0.0) if accept else 1.0) / k)
        if accept and c.beta:
            factor *= _power(float(self.previous), c.beta / k)
        if accept and c.gamma:
            factor *= _power(float(self.before), -c.gamma / k)
        lower, upper = (c.accept_factor_min or 0.0, c.factor_max) if accept else (c.factor_min, 1.0)
        if c.hold_after_rejection and self.rejected:
            upper = 1.0
        if accept:
            self.before, self.previous = self.previous, max(ratio, 1e-4)
        self.rejected = not accept
        return self.bounded_of_batch(h * min(max(0.0 if isnan(factor) else factor, lower), upper))

    def bounded_of_batch(self, h: float) -> float:
        """`bounded`, in numbers."""
        if self.least is None and self.most is None:
            return h
        return copysign(min(max(abs(h), self.least or 0.0), inf if self.most is None else self.most), h)

    def accepts_of_batch(self, h: float, ratio: float) -> bool:
        """`accepts`, in numbers."""
        return ratio <= 1.0 or (self.least is not None and isfinite(ratio) and abs(h) <= self.least * (1 + 1e-9))

    def __call__(self, h: Tensor, ratio: Tensor, accept: Tensor) -> Tensor:
        c = self.control

        def either(accepted: float | None, rejected: float) -> Tensor:
            # torch.where of two numbers would round them to the default dtype, which users may set to a narrow one
            return torch.full_like(ratio, rejected).masked_fill(accept, float(accepted or 0.0))

        alpha, beta = either(c.alpha, 1.0) / self.k, either(c.beta, 0.0) / self.k
        factor = c.safety * ratio.clamp(min=TINY) ** -alpha * self.previous**beta
        if c.gamma:
            factor = factor * self.before ** -(either(c.gamma, 0.0) / self.k)
            self.before = torch.where(accept, self.previous, self.before)
        lower, upper = either(c.accept_factor_min, c.factor_min), either(c.factor_max, 1.0)
        if c.hold_after_rejection:
            upper = upper.masked_fill(torch.as_tensor(self.rejected, device=accept.device), 1.0)
        self.previous = torch.where(accept, ratio.clamp(min=1e-4), self.previous)
        self.rejected = ~accept
        return self.bounded(h * torch.clamp(factor.nan_to_num(nan=0.0), lower, upper))

    def accepts(self, h: "float | Tensor", ratio: Tensor) -> Tensor:
        """Whether a step of this error counts; one that may not be shorter always does, if it is a number."""
        within = ratio <= 1.0
        return (
            within
            if self.least is None
            else within | (torch.isfinite(ratio) & torch.as_tensor(abs(h) <= self.least * (1 + 1e-9), device=ratio.device))
        )

    def bounded(self, h: Tensor) -> Tensor:
        """A step of allowed size."""
        if self.least is None and self.most is None:
            return h
        return torch.copysign(h.abs().clamp(self.least, self.most), h)

    def keep(self, rows: Tensor) -> None:
        """Forget the samples that have left."""
        if isinstance(self.previous, Tensor) and isinstance(self.rejected, Tensor):
            self.previous, self.rejected = self.previous[rows], self.rejected[rows]
        if isinstance(self.before, Tensor):
            self.before = self.before[rows]


def _power(base: float, exponent: float) -> float:
    """As tensors have it: what is too large for a number is infinite."""
    try:
        return base**exponent
    except OverflowError:
        return inf
