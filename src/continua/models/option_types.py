"""Whether the options of a model are of the types its signature says: a width of "eight" is refused here, not deep inside PyTorch."""

from collections.abc import Mapping, Sequence
from inspect import Parameter
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from continua.errors import ConfigError

COUNTS = ("num_classes", "in_channels")  # of every network; at least one
NUMBERS = {int: Integral, float: Real}  # NumPy's too
WORDS = {int: "a whole number", float: "a number", str: "a name", bool: "true or false", NoneType: "nothing"}


def check_option_types(model: str, options: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Refuse the first option that is not what its annotation says, or a network without classes or channels."""
    for name, value in options.items():
        hint = parameters[name].annotation
        if not _fits(value, hint):
            raise ConfigError(f"{model}: {name} is {value!r}; expected {_words(hint)}")
        if name in COUNTS and value < 1:
            raise ConfigError(f"{model}: {name} is {value!r}; expected at least 1")


def _fits(value: Any, hint: Any) -> bool:
    """Only what plain data can be is judged; any other annotation is the model's own business."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:  # which of them is told by the model, with its own words
        return type(value) in {type(one) for one in inner}
    if hint in NUMBERS:  # True is a number to Python, and to nobody else
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    if origin is Mapping or origin is dict:
        return isinstance(value, Mapping)
    if origin is Sequence or origin in (list, tuple):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(one, inner[0]) for one in value if inner)
    return isinstance(value, hint) if isinstance(hint, type) and hint not in (Any, Parameter.empty) else True


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in inner))
    if origin is Literal:
        return " or ".join(repr(one) for one in inner)
    if origin is Mapping or origin is dict:
        return "options by name"
    if origin is Sequence or origin in (list, tuple):
        return f"a list, of {_words(inner[0])} each" if inner else "a list"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))
