"""How to solve: one dataclass with the solver's keywords, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal

from continua.errors import ConfigError
from continua.ode.tableau import Tableau, find_method


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


@dataclass(frozen=True)
class ImplicitOptions:
    """How the stage equations of an implicit method are solved.

    `solver`: "newton" (Newton–Krylov: linear systems by GMRES, for stiff equations) or "fixed_point" (plain iteration: converges only
    while the step is short, about |h λ| < 1). An iteration has converged when its last correction, relative to the state, is at most
    `tol` (default eps^(3/4): 2e-12 in float64, 6e-6 in float32). `max_iterations` per step: by default 20 for Newton, 200 for fixed
    point. `krylov`: the largest dimension of a Krylov space. `jacobian`: "exact" (derivatives of f by autograd) or "difference" (central
    differences, for an f that autograd cannot differentiate twice).
    """

    solver: Literal["newton", "fixed_point"] = "newton"
    tol: float | None = None
    max_iterations: int | None = None
    krylov: int = 50
    jacobian: Literal["exact", "difference"] = "exact"

    @classmethod
    def of(cls, given: "Mapping[str, Any] | ImplicitOptions | None") -> "ImplicitOptions":
        if isinstance(given, ImplicitOptions):
            return given
        if given is None:
            return cls()
        if not isinstance(given, Mapping | None):
            raise ConfigError(f"implicit_options={given!r}; expected a dict, for example dict(solver='fixed_point')")
        options, known = dict(given or {}), [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                raise ConfigError(f"implicit_options: unknown option {name!r}; {hint}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name, values in dict(solver=("newton", "fixed_point"), jacobian=("exact", "difference")).items():
            if getattr(self, name) not in values:
                raise ConfigError(f"implicit_options: {name}={getattr(self, name)!r}; expected one of {', '.join(map(repr, values))}")
        if self.tol is not None and not (isinstance(self.tol, int | float) and 0 < self.tol < 1):
            raise ConfigError(f"implicit_options: tol={self.tol!r}; expected a number between 0 and 1, relative to the state")
        if self.max_iterations is None:
            object.__setattr__(self, "max_iterations", 20 if self.solver == "newton" else 200)
        for name in ("max_iterations", "krylov"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"implicit_options: {name}={value!r}; expected a whole number of at least 1")


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
        if self.steps is None and (tableau.b_error is None or not tableau.explicit):
            kind = "an implicit method" if not tableau.explicit else "a method without an error estimate"
            raise ConfigError(f"{tableau.name} is {kind} and cannot choose its steps; give steps=N, or use dopri5, tsit5, bosh3, ...")
        if not tableau.explicit and self.gradient != "checkpoint":
            text = f"{tableau.name} is implicit: gradient={self.gradient!r} needs an explicit method"
            raise ConfigError(f"{text}; use 'checkpoint', which differentiates implicit steps by the implicit function theorem")
        if self.control == "sample" and (self.gradient in ("reversible", "adjoint") or not tableau.explicit):
            what = f"gradient={self.gradient!r}" if tableau.explicit else f"the implicit method {tableau.name}"
            raise ConfigError(
                f"{what} cannot be combined with control='sample'; use control='batch', or an explicit method with 'checkpoint'"
            )
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
        _ = self.step_controller, self.implicit

    @property
    def tableau(self) -> Tableau:
        return find_method(self.method)

    @property
    def implicit(self) -> ImplicitOptions:
        return ImplicitOptions.of(self.implicit_options)

    @property
    def step_controller(self) -> Controller:
        if isinstance(self.controller, Controller):
            return self.controller
        options: dict[str, Any] = {"kind": self.controller} if isinstance(self.controller, str) else dict(self.controller)
        try:
            return Controller(**options)
        except TypeError as error:
            raise ConfigError(f"controller: {error}; known: {', '.join(f.name for f in fields(Controller))}") from None
