"""Options as plain data, the form that JSON and YAML hold: reading them, writing them, and reading those of version 0.1."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from continua.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = Mapping[str, Any]  # as a user gives them
Plain = dict[str, Any]  # as a file holds them
T = TypeVar("T")

REPLACED = {
    "segments": "gradient=Checkpoint(segments=...), in a file gradient: {kind: checkpoint, segments: ...}",
    "adjoint_options": "gradient=Adjoint(norm=..., rtol=...), in a file gradient: {kind: adjoint, norm: ...}",
    "controller": "control=StepControl(kind=...), in a file control: {kind: ...}",
    "first_step": "control=StepControl(first_step=...), in a file control: {first_step: ...}",
    "max_steps": "control=StepControl(max_steps=...), in a file control: {max_steps: ...}",
    "implicit_options": "method=Implicit('radau5', ...), in a file method: {tableau: radau5, ...}",
}


def refuse_unknown(cls: type, what: str, names: "Mapping[str, object]", more: tuple[str, ...] = ()) -> None:
    """An error for a name that is no field of the class; spellings of version 0.1 are told the new one."""
    known = [*cls.__dataclass_fields__, *more]  # fields(cls) is unknown to torch.compile
    for name in names:
        if name in REPLACED and name not in known:
            raise ConfigError(f"{what} {name!r} has another place now: write {REPLACED[name]}")
        if name not in known:
            raise unknown_name(what, name, known)


def no_end_time(t0: object) -> ConfigError:
    """The error for a solve without an end time: the times of torchdiffeq's `odeint(f, y0, t)`, most likely."""
    if getattr(t0, "ndim", 0) == 1 or isinstance(t0, list | tuple):
        return ConfigError(
            "solve(f, y0, t0, t1) takes a start and an end, and got one list of times, as torchdiffeq's odeint does: write "
            "solve(f, y0, t[0], t[-1], save_at=t).ys"
        )
    return ConfigError(f"solve(f, y0, t0, t1) needs an end time t1; got t0={t0!r} alone")


def is_whole(value: object) -> bool:
    """Whether this is a whole number of at least 1, of 64 bits; True and False are numbers to Python only."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 63


def is_finite(value: object) -> bool:
    """Whether this is a number that a float can hold: Python's whole numbers have no end."""
    return isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < 1 << 1023


def build(cls: type[T], what: str, options: Options) -> T:
    """An object of the class from options by name."""
    refuse_unknown(cls, what, options)
    missing = [
        name
        for name, field in cls.__dataclass_fields__.items()
        if field.default is field.default_factory is MISSING and name not in options
    ]
    if missing:
        raise ConfigError(f"{what} {', '.join(missing)} is missing from {dict(options)!r}")
    return cls(**options)


def plain_differences(given: "DataclassInstance", default: "DataclassInstance") -> Plain:
    """The fields of a dataclass that differ from those of another."""
    names = [field.name for field in fields(given)]
    return {name: value for name in names if (value := getattr(given, name)) != getattr(default, name)}


def upgrade_solver_options(old: Options) -> Plain:
    """Solver options as version 0.1 stored them, in today's form; what is in today's form already stays as it is.

    For readers of stored files only: elsewhere the old spelling is an error that says the new one.

    Args:
        old: as stored.

    Returns:
        Options that `SolverConfig` takes.

    Examples:
        >>> from continua.ode import upgrade_solver_options
        >>> upgrade_solver_options({"method": "rk4", "steps": 2})
        {'method': 'rk4', 'steps': 2}
    """
    new = {name: value for name, value in old.items() if name not in REPLACED}
    steering = {name: old[name] for name in ("first_step", "max_steps") if old.get(name) is not None}
    control = {**_law(old.get("controller")), **steering}
    if control:
        new["control"] = {"per": old.get("control", "batch"), **control}
    if old.get("segments") is not None:
        new["gradient"] = {"kind": "checkpoint", "segments": old["segments"]}
    if old.get("adjoint_options"):
        new["gradient"] = {"kind": "adjoint", **_adjoint(old["adjoint_options"], control)}
    if old.get("implicit_options"):
        new["method"] = {"tableau": old.get("method", "dopri5"), **old["implicit_options"]}
    return new


def _law(controller: str | Options | None) -> Plain:
    if controller is None or controller == "i":
        return {}
    return {"kind": controller} if isinstance(controller, str) else dict(controller)


def _adjoint(options: Options, forward: Plain) -> Plain:
    """Options of the backward solve; what its control left out was that of the forward solve."""
    steering = {name: options[name] for name in ("first_step", "max_steps") if name in options}
    new = {name: value for name, value in options.items() if name not in (*steering, "controller")}
    if "controller" in options:
        kept = {name: forward[name] for name in ("first_step", "max_steps") if name in forward}
        new["control"] = {**kept, **_law(options["controller"]), **steering}
    elif steering:
        new["control"] = {**forward, **steering}
    return new
