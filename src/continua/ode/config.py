"""How to solve: one dataclass with the solver's keywords, checked when it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Literal, Never

import torch
from torch import Tensor

from continua.errors import ConfigError, unknown_name
from continua.ode.control import Per, StepControl
from continua.ode.error import Tolerance
from continua.ode.gradients import Adjoint, Checkpoint, Direct, Gradient, Leapfrog, Reversible
from continua.ode.implicit import Implicit
from continua.ode.plain import Options, Plain, build, is_finite, is_whole, refuse_unknown
from continua.ode.tableau import Tableau, find_method, name_of


@dataclass(frozen=True, init=False, eq=False)
class SolverConfig:
    """The solver keywords of `solve`; a dict with the same keys is accepted wherever one of these is.

    `control` and `gradient` may be given by name or as dicts, an implicit `method` as a dict; they are objects afterwards. `steps` is how
    many equal ones there are, or how long each is in relation to the others: (1, 2, 4) are three, each twice as long as the one before.
    """

    method: "str | Tableau | Implicit"
    rtol: Tolerance
    atol: Tolerance
    steps: int | tuple[float, ...] | None
    control: StepControl
    gradient: Gradient
    on_failure: Literal["raise", "status"]
    record_steps: bool

    def __init__(
        self,
        method: "str | Tableau | Implicit | Options" = "dopri5",
        rtol: "Tolerance | Sequence[float]" = 1e-3,
        atol: "Tolerance | Sequence[float]" = 1e-3,
        steps: int | Sequence[float] | None = None,
        control: "Per | StepControl | Options" = "batch",
        gradient: "str | Gradient | Options" = "checkpoint",
        on_failure: Literal["raise", "status"] = "raise",
        record_steps: bool = False,
        **unknown: Never,
    ) -> None:
        if unknown:
            refuse_unknown(SolverConfig, "solver option", unknown)
        if isinstance(method, Mapping):  # of a file: the numbers of a tableau, or an implicit method
            method = find_method(method) if "b" in method else build(Implicit, "option of an implicit method:", method)
        values = dict(method=method, control=StepControl.of(control), gradient=find_gradient(gradient))
        values |= dict(
            rtol=_tolerance("rtol", rtol),
            atol=_tolerance("atol", atol),
            steps=_settled(steps),
            on_failure=on_failure,
            record_steps=record_steps,
        )
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_values()
        self._check_combination()

    @classmethod
    def of(cls, given: "SolverConfig | Options | None") -> "SolverConfig":
        """A configuration from a configuration, a dict or nothing."""
        if isinstance(given, SolverConfig):
            return given
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(f"a solver is options by name, such as method='rk4', steps=2; got {given!r}")
        return cls().replace(**dict(given or {}))

    def replace(self, **changes: object) -> "SolverConfig":
        """A copy with some keywords changed; an unknown keyword names the nearest known one."""
        return replace(self, **changes)

    def plain(self) -> Plain:
        """The keywords that differ from the defaults, as JSON or YAML would hold them; `SolverConfig.of` reads them again.

        A tableau of your own is written as its numbers; a gradient of your own stays the object it is.
        """
        default = SolverConfig()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["method"] = self.method.plain() if isinstance(self.method, Implicit) else name_of(self.method)
        values |= {name: _plain_tolerance(values[name]) for name in ("rtol", "atol")}
        values["steps"] = list(self.steps) if isinstance(self.steps, tuple) else self.steps
        changed = {name: value for name, value in values.items() if value != getattr(default, name)}
        return {name: value.plain() if isinstance(value, StepControl | Gradient) else value for name, value in changed.items()}

    def __eq__(self, other: object) -> bool:
        return self.plain() == other.plain() if isinstance(other, SolverConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.tableau.name, self.steps, self.control, self.on_failure, self.record_steps))

    def loosened(self, factor: float) -> "SolverConfig":
        """A copy with both tolerances multiplied."""
        return self.replace(rtol=_times(self.rtol, factor), atol=_times(self.atol, factor))

    @property
    def tolerances(self) -> str:
        """Both tolerances, as one reads them."""
        return ", ".join(f"{name}={_shown(getattr(self, name))}" for name in ("rtol", "atol"))

    @property
    def count(self) -> int | None:
        """How many fixed steps there are; None where they are chosen."""
        return len(self.steps) if isinstance(self.steps, tuple) else self.steps

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Where each fixed step ends, as a share of the interval; None where they are equal or chosen."""
        if not isinstance(self.steps, tuple):
            return None
        return tuple(end / sum(self.steps) for end in accumulate(self.steps))

    def _check_combination(self) -> None:
        tableau = self.tableau
        if self.steps is not None and self.control.stops:
            raise ConfigError(f"steps={self.steps} are fixed and land on no step_at or jump_at; leave steps out, or those")
        if self.steps is None and not (tableau.b_error is not None and (tableau.explicit or tableau.diagonal)):
            kind, better = ("a method without an error estimate", "dopri5, tsit5, bosh3, ...")
            if not tableau.explicit:
                kind, better = "an implicit method without an error estimate", "kvaerno5 or kvaerno3"
            raise ConfigError(f"{tableau.name} is {kind} and cannot choose its steps; give steps=N, or use {better}")
        if self.steps is None and not tableau.explicit and self.implicit.solver != "newton":
            raise ConfigError(f"{tableau.name} chooses its steps with solver='newton' only; leave the solver out, or give steps=N")
        if self.control.jump_at and max(tableau.c) > 1:
            raise ConfigError(
                f"{tableau.name} evaluates f beyond the end of a step, so it would look past jump_at; use kvaerno3, or step_at"
            )
        self.gradient.check(self)
        if self.control.one_graph and self.steps is None:
            self._check_one_graph()
        if self.control.per == "sample" and not (tableau.explicit or (tableau.reuses_last and self.steps is None)):
            text = f"the implicit method {tableau.name} cannot be combined with control='sample'"
            fixed = " and steps" if tableau.reuses_last else ""
            raise ConfigError(f"{text}{fixed}; use control='batch', an explicit method, or adaptive steps of kvaerno5")

    def _check_one_graph(self) -> None:
        """What a loop inside a graph does not have."""
        exact = isinstance(self.gradient, Checkpoint | Direct)
        for name, given in (
            (f"the implicit method {self.tableau.name}", not self.tableau.explicit),
            (f"gradient={self.gradient}: its own is that of 'checkpoint'", not exact),
            ("record_steps", self.record_steps),
            ("step_at or jump_at", self.control.stops),
        ):
            if given:
                raise ConfigError(f"control: one_graph=True does not go with {name}; leave one of them out")

    def _check_values(self) -> None:
        if self.steps is not None and not (_are_lengths(self.steps) if isinstance(self.steps, tuple) else is_whole(self.steps)):
            raise ConfigError(f"steps={self.steps!r}; expected a whole number of at least 1, or the relative lengths of steps: (1, 2, 4)")
        if self.on_failure not in ("raise", "status"):
            raise ConfigError(f"on_failure={self.on_failure!r}; expected one of 'raise', 'status'")

    @property
    def tableau(self) -> Tableau:
        return find_method(self.method.tableau if isinstance(self.method, Implicit) else self.method)

    @property
    def implicit(self) -> Implicit:
        """How the stage equations of an implicit method are solved."""
        return self.method if isinstance(self.method, Implicit) else Implicit(self.method)

    def why_not_one_graph(self) -> str | None:
        """What keeps a solve from becoming one graph for export or `torch.compile`; None if nothing does."""
        name, switch = self.tableau.name, "switch to explicit fixed steps first: net.with_solver(method='rk4', steps=4, gradient='direct')"
        if self.steps is None:
            return f"{name} chooses its steps from the data, which cannot be one graph for export or torch.compile; {switch}"
        if not self.tableau.explicit:
            return f"{name} iterates until it has converged, which cannot be one graph; {switch}"
        reason = self.gradient.why_not_one_graph()
        return None if reason is None else f"{reason}; {switch}"


def _settled(steps: object) -> object:
    """Lengths of steps as a tuple of numbers; whatever else was given is left to be looked at."""
    return tuple(float(item) if type(item) is int else item for item in steps) if isinstance(steps, list | tuple) else steps


def _are_lengths(steps: tuple[object, ...]) -> bool:
    return bool(steps) and all(isinstance(length, float) and is_finite(length) and length > 0 for length in steps)


def _tolerance(name: str, given: object) -> Tolerance:
    """A tolerance that has been looked at: a number, a tensor of them, or a tuple with one for each part of the state."""
    if isinstance(given, tuple):
        return tuple(_tolerance(name, part) for part in given)  # pyright: ignore[reportReturnType]
    value = given.detach() if isinstance(given, Tensor) else _tensor(name, given) if isinstance(given, list) else given
    if isinstance(value, Tensor):
        good = (
            value.is_floating_point()
            and value.numel() > 0
            and bool((torch.isfinite(value) & (value >= 0)).all())
            and (name == "rtol" or bool((value > 0).all()))
        )
    else:
        good = is_finite(value) and not isinstance(value, bool) and (value > 0 or (name, value) == ("rtol", 0))  # pyright: ignore
    if not good:
        least = "of at least 0" if name == "rtol" else "above 0"
        raise ConfigError(f"{name}={given!r}; a tolerance must be a finite number {least}, or a tensor of them that broadcasts against y0")
    return float(value) if isinstance(value, int) else value  # pyright: ignore - PyTorch takes whole numbers of 64 bits only


def _tensor(name: str, given: list[object]) -> Tensor:
    try:
        return torch.tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConfigError(f"{name}={given!r}; expected numbers, in one list or in lists of equal length") from error


def _times(value: Tolerance, factor: float) -> Tolerance:
    return tuple(part * factor for part in value) if isinstance(value, tuple) else value * factor


def _plain_tolerance(value: Tolerance) -> object:
    if isinstance(value, tuple):
        return tuple(_plain_tolerance(part) for part in value)
    return value.tolist() if isinstance(value, Tensor) else value


def _shown(value: Tolerance) -> str:
    if isinstance(value, float | int):
        return f"{value:g}"
    parts = value if isinstance(value, tuple) else (value,)
    low, high = (
        pick([float(f(part)) if isinstance(part, Tensor) else part for part in parts]) for f, pick in ((torch.min, min), (torch.max, max))
    )
    return f"{low:g} … {high:g}"


GRADIENTS: dict[str, type[Gradient]] = {kind.kind: kind for kind in (Checkpoint, Direct, Reversible, Leapfrog, Adjoint)}


def find_gradient(given: "Gradient | str | Options") -> Gradient:
    """A gradient from its name, or from its options with the name as `kind`; an object is passed through."""
    if isinstance(given, Gradient):
        return given
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = options.pop("kind", None)
    if isinstance(given, type) or not isinstance(kind, str):
        raise ConfigError(f"gradient={given!r}; expected a name, a dict with its kind, or an object such as Checkpoint(segments='sqrt')")
    if kind not in GRADIENTS:
        raise unknown_name("gradient", kind, GRADIENTS)
    return build(GRADIENTS[kind], f"option of gradient {kind!r}:", options) if options else GRADIENTS[kind]()
