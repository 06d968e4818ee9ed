"""The options of a model as a frozen dataclass, one per family: typed, checked when it is made, and plain data where it is stored.

    @dataclass(frozen=True, kw_only=True)
    class PlainConfig(ClassifierConfig):
        width: int = option(16, "channels of every layer")

A family that lacks an option has no field for it, so the option is refused by name; `registry` says which model has it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from continua.blocks import Activation
from continua.errors import ConfigError
from continua.files import Json
from continua.models.bounded import check_sides, check_steps
from continua.ode import SolverConfig
from continua.options import option

Options = Mapping[str, Any]
SolverOptions = SolverConfig | Options | None


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What every family's configuration can do. A subclass adds fields with `option(default, help)`, and `check` where types are not all.

    Lists become tuples and NumPy's numbers become Python's, so equal options make equal configurations.
    """

    def __post_init__(self) -> None:
        check_types(type(self).__name__, vars(self), type(self))
        for name, value in vars(self).items():
            check_sides(name, value)
            self._settle(name, _settled(value))
        self.check()

    def check(self) -> None:
        """Refuse (ConfigError) what the types allow and the family does not. May settle fields that follow from others."""

    def vary(self, **options: object) -> Self:
        """This configuration with other options."""
        return replace(self, **options)

    @property
    def has_jets(self) -> bool:
        """Whether the blocks' filters are N-jets, which the native kernels compute in float32 whatever the precision."""
        return vars(self).get("filters", "pixel") != "pixel"

    def with_solver(self, solver: SolverConfig, changed: Collection[str] | None = None) -> "ModelConfig":
        """This configuration with another solver, where it has one; `changed` are the keywords that are new, None for all."""
        return self

    def plain(self) -> Json:
        """Every option as JSON and YAML hold it; a solver as its differences from the defaults."""
        return {item.name: _plain(vars(self)[item.name]) for item in fields(self)}

    def _settle(self, name: str, value: object) -> None:
        """Write a field of a frozen object: only while it is being made."""
        object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ModelConfig):
    """Images in, logits out."""

    num_classes: int = option(10, "classes, the length of the logits; 0 for pooled features and no classifier")
    in_channels: int = option(3, "channels of the images")


@dataclass(frozen=True, kw_only=True)
class Solved(ModelConfig):
    """Blocks that are ODEs have a solver."""

    solver: SolverOptions = option(None, "keywords of continua.solve, such as {method: rk4, steps: 2}")

    def check(self) -> None:
        super().check()
        self._settle("solver", SolverConfig.of(self.solver))
        check_steps("solver.steps", SolverConfig.of(self.solver).count)

    def with_solver(self, solver: SolverConfig, changed: Collection[str] | None = None) -> Self:
        return self.vary(solver=solver)


@dataclass(frozen=True, kw_only=True)
class InTime(Solved):
    """ODE blocks whose end time is free."""

    t1: float = option(2.0, "end time T of every ODE block, which starts at 0")


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a word that is not one of a few."""
    if value not in known:
        raise ConfigError(f"unknown {name} {value!r}; known: {', '.join(known)}")


def check_widths(name: str, widths: Sequence[int]) -> None:
    """Refuse a list of widths that is empty or has a block without channels."""
    if not widths or min(widths) < 1:
        raise ConfigError(f"{name}={widths!r}; expected the widths of the blocks, whole numbers of at least 1, such as (32, 64, 128)")


def check_style(activation: str, norm_groups: "int | str") -> None:
    """Refuse an unknown activation, and groups of norms that are no count."""
    Activation(activation)
    if norm_groups != "channels" and (isinstance(norm_groups, str) or norm_groups < 1):
        raise ConfigError(f"norm_groups={norm_groups!r}; expected a whole number of at least 1, or 'channels'")


def check_counts(**counts: "int | None") -> None:
    """Refuse the first number that is below 1; None is not asked."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value!r}; expected a whole number of at least 1")


def _settled(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return tuple(_settled(item) for item in value)
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, int | float) else value


def _plain(value: object) -> Any:
    if isinstance(value, SolverConfig):
        return value.plain()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


# --- types ------------------------------------------------------------------------------------------------------------

COUNTS = {"num_classes": 0, "in_channels": 1}  # of every network, at least so many; no classes: the features before the classifier
NUMBERS = {int: Integral, float: Real}  # NumPy's too
WORDS = {int: "a whole number", float: "a number", str: "a name", bool: "true or false", NoneType: "nothing", Any: "anything"}


@cache
def option_types(config: type[ModelConfig]) -> dict[str, Any]:
    """The annotation of every option."""
    hints = get_type_hints(config)
    return {item.name: hints[item.name] for item in fields(config)}


def check_types(who: str, options: Options, config: type[ModelConfig]) -> None:
    """Refuse the first option that is not what its annotation says, or a network without channels."""
    hints = option_types(config)
    for name, value in options.items():
        if not _fits(value, hints[name]):
            raise ConfigError(f"{who}: {name} is {value!r}; expected {type_words(hints[name])}")
        if name in COUNTS and value < COUNTS[name]:
            raise ConfigError(f"{who}: {name} is {value!r}; expected at least {COUNTS[name]}")


def _fits(value: object, hint: Any) -> bool:
    """Only what plain data can be is judged; any other annotation is the model's own business."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, choice) for choice in inner)
    if origin is Literal:  # which of them is the model's to say, in its own words
        return type(value) in {type(choice) for choice in inner}
    if hint in NUMBERS:  # True is a number to Python, and to nobody else
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    if origin is Mapping or origin is dict:
        return isinstance(value, Mapping)
    if origin is Sequence or origin in (list, tuple):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(item, inner[0]) for item in value if inner)
    return isinstance(value, hint) if isinstance(hint, type) and hint is not Any else True


def type_words(hint: Any) -> str:
    """An annotation in words: "a list, of a whole number each"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_words(choice) for choice in inner))
    if origin is Literal:
        return " or ".join(repr(choice) for choice in inner)
    if origin is Mapping or origin is dict:
        return "options by name"
    if origin is Sequence or origin in (list, tuple):
        return f"a list, of {type_words(inner[0])} each" if inner else "a list"
    if hint in WORDS:
        return WORDS[hint]
    return hint.__name__ if isinstance(hint, type) else str(hint)
