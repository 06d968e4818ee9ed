"""How to solve: one dataclass with the solver's keywords, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal

from continua.errors import ConfigError
from continua.ode.tableau import Tableau, method


@dataclass(frozen=True)
class Controller:
    """How the next step follows from the error of the last one.

    With r the error relative to the tolerance and k the order of the error estimate, the next step is h · clip(safety · r^(−α) ·
    r_prev^β, factor_min, factor_max). `"i"` has α = 1/k, β = 0: the papers' and torchdiffeq's. `"pi"` has α = 0.7/k, β = 0.4/k
    (Gustafsson 1991; Hairer & Wanner II, §IV.2). After an accepted step the factor is at least `accept_factor_min`, after a
    rejected one at most 1, and the step that follows a rejection does not grow when `hold_after_rejection` is set.
    """

    kind: Literal["i", "pi"] = "i"
    safety: float = 0.9
    factor_min: float = 0.2
    factor_max: float = 10.0
    accept_factor_min: float | None = None  # "i": 1, as torchdiffeq; "pi": factor_min
    alpha: float | None = None  # both exponents as multiples of 1/k
    beta: float | None = None
    hold_after_rejection: bool | None = None  # "i": no, as torchdiffeq; "pi": yes, as Hairer

    def __post_init__(self) -> None:
        if self.kind not in ("i", "pi"):
            raise ConfigError(f"controller kind {self.kind!r} is not known; expected 'i' or 'pi'")
        if not (0 < self.safety <= 1 and 0 < self.factor_min < 1 < self.factor_max):
            given = f"safety={self.safety}, factor_min={self.factor_min}, factor_max={self.factor_max}"
            raise ConfigError(f"controller: {given}; expected 0 < safety ≤ 1 and 0 < factor_min < 1 < factor_max")
        plain = self.kind == "i"
        defaults = dict(
            accept_factor_min=1.0 if plain else self.factor_min,
            alpha=1.0 if plain else 0.7,
            beta=0.0 if plain else 0.4,
            hold_after_rejection=not plain,
        )
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)


GRADIENTS = ("checkpoint", "direct", "reversible", "adjoint")


@dataclass(frozen=True)
class SolverConfig:
    """The solver keywords of `solve`; a dict with the same keys is accepted wherever one of these is."""

    method: "str | Tableau" = "dopri5"
    rtol: float = 1e-3
    atol: float = 1e-3
    steps: int | None = None
    first_step: float | None = None
    max_steps: int = 1000
    control: Literal["batch", "sample"] = "batch"
    controller: "str | Mapping[str, Any] | Controller" = "i"
    gradient: Literal["checkpoint", "direct", "reversible", "adjoint"] = "checkpoint"
    segments: "int | Literal['sqrt'] | None" = None
    adjoint_options: Mapping[str, Any] | None = None
    implicit_options: Mapping[str, Any] | None = None
    on_failure: Literal["raise", "status"] = "raise"
    record_steps: bool = False

    @classmethod
    def of(cls, given: "SolverConfig | Mapping[str, Any] | None") -> "SolverConfig":
        """A configuration from a configuration, a dict or nothing."""
        if isinstance(given, SolverConfig):
            return given
        return cls().replace(**dict(given or {}))

    def replace(self, **changes: Any) -> "SolverConfig":
        """A copy with some keywords changed; an unknown keyword names the nearest known one."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                raise ConfigError(f"unknown solver option {name!r}; {hint}")
        return replace(self, **changes)

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_choices()
        tableau = self.tableau
        if self.steps is None and tableau.b_error is None:
            kind = "an implicit method" if not tableau.explicit else "a method without an error estimate"
            raise ConfigError(f"{tableau.name} is {kind} and cannot choose its steps; give steps=N, or use dopri5, tsit5, bosh3, ...")
        if not tableau.explicit and self.gradient in ("reversible", "adjoint"):
            raise ConfigError(f"{tableau.name} is implicit: gradient={self.gradient!r} needs an explicit method; use 'checkpoint'")
        if self.control == "sample" and (self.gradient in ("reversible", "adjoint") or not tableau.explicit):
            what = f"gradient={self.gradient!r}" if tableau.explicit else f"the implicit method {tableau.name}"
            raise ConfigError(f"{what} cannot be combined with control='sample'; use control='batch', or an explicit method with 'checkpoint'")
        if self.segments is not None and self.gradient != "checkpoint":
            raise ConfigError(f"segments={self.segments!r} belongs to gradient='checkpoint', but gradient is {self.gradient!r}")

    def _check_numbers(self) -> None:
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and isfinite(value) and value > 0):
                raise ConfigError(f"{name}={value!r}; a tolerance must be a finite number above 0")
        for name in ("steps", "max_steps"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name}={value!r}; expected a whole number of at least 1")
        if self.first_step is not None and not (isfinite(self.first_step) and self.first_step > 0):
            raise ConfigError(f"first_step={self.first_step!r}; expected a finite number above 0 (its sign follows t1 − t0)")
        if self.segments not in (None, "sqrt") and (not isinstance(self.segments, int) or self.segments < 1):
            raise ConfigError(f"segments={self.segments!r}; expected a whole number of at least 1, 'sqrt' or None")

    def _check_choices(self) -> None:
        allowed = dict(control=("batch", "sample"), gradient=GRADIENTS, on_failure=("raise", "status"))
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ConfigError(f"{name}={getattr(self, name)!r}; expected one of {', '.join(map(repr, values))}")
        _ = self.step_controller

    @property
    def tableau(self) -> Tableau:
        return method(self.method)

    @property
    def step_controller(self) -> Controller:
        if isinstance(self.controller, Controller):
            return self.controller
        options = {"kind": self.controller} if isinstance(self.controller, str) else dict(self.controller)
        try:
            return Controller(**options)
        except TypeError as error:
            raise ConfigError(f"controller: {error}; known: {', '.join(f.name for f in fields(Controller))}") from None
