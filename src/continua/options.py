"""Fields of dataclasses that are also options of a command: their sentence in --help, and their values checked by their annotation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from continua.errors import ConfigError
from continua.reading import UnreadableFile, parse_yaml

WORDS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
WORDS |= dict.fromkeys((tuple, list, Sequence), "a list, such as [1, 2]")
WORDS |= dict.fromkeys((dict, Mapping), "options by name, such as {a: 1}")


def option(default: Any, help: str) -> Any:
    """A field with its sentence. Where the default is a class (`dict`), each object gets one of its own.

    Args:
        default: the default value; a class such as `dict` is called for each object.
        help: a sentence for people, shown by `--help` and in the tables of options.

    Returns:
        A dataclass field.

    Examples:
        >>> from dataclasses import dataclass
        >>> from continua.analysis import option
        >>> @dataclass
        ... class Options:
        ...     times: int = option(21, "at how many moments")
    """
    if isinstance(default, type):
        return field(default_factory=default, metadata={"help": help})
    return field(default=default, metadata={"help": help})


def typed_value(name: str, value: object, hint: Any) -> Any:
    """`value` as the annotation `hint` has it: 1 as 1.0 for a float, a list as a tuple; words of a command line as what they spell.

    What fits no reading of the annotation is refused: "epochs is 'many'; expected a whole number".
    """
    try:
        return _fitted(value, hint)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name} is {_short(value)}; expected {expected_words(hint)}") from None


def _short(value: object) -> str:
    text = repr(str(value))
    return text if len(text) <= 200 else f"{text[:200]} …"


def expected_words(hint: Any) -> str:
    """What an annotation asks for, in words of people; that a value may be absent goes without saying."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(expected_words(part) for part in inner if part is not NoneType))
    if origin is Literal:
        return " or ".join(str(choice) for choice in inner)
    return WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")


def text_value(text: str) -> Any:
    """What a text spells as YAML has it: 1e-4, true, [8, 16], {method: rk4, steps: 2}. Raises `UnreadableFile`, a ConfigError."""
    return parse_yaml(text)


def _fitted(value: Any, hint: Any) -> Any:
    """Raises TypeError or ValueError where the value does not fit."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is Any:
        return value
    if origin in (Union, UnionType):
        return _first_that_fits(value, inner)
    if origin is Literal:
        return value if value in inner else _spelled(value) if _spelled(value) in inner else _refused()
    if origin is str or (isinstance(origin, type) and is_dataclass(origin)):
        return value if isinstance(value, origin) else _refused()
    if origin is Path:
        return Path(value)
    return _plain_fitted(_spelled(value), origin, inner)


def _plain_fitted(value: Any, origin: Any, inner: tuple[Any, ...]) -> Any:
    if origin in (tuple, list, Sequence):
        return _items(value, origin, inner)
    if origin in (dict, Mapping):
        key, item = inner or (Any, Any)
        return {_fitted(k, key): _fitted(v, item) for k, v in value.items()} if isinstance(value, Mapping) else _refused()
    if origin in (int, float) and isinstance(value, bool):  # True is a number to Python, and to nobody else
        return _refused()
    if origin is float and isinstance(value, int):
        return float(value)
    return value if isinstance(value, origin) else _refused()


def _items(value: Any, origin: Any, inner: tuple[Any, ...]) -> Any:
    if not isinstance(value, list | tuple):
        return _refused()
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        kinds: Iterable[Any] = inner
    else:
        kinds = [inner[0] if inner else Any] * len(value)
    items = [_fitted(item, kind) for item, kind in zip(value, kinds, strict=True)]
    return tuple(items) if origin is tuple else items


def _first_that_fits(value: Any, kinds: Sequence[Any]) -> Any:
    """Text last: `null` is nothing and 3 a number where they may be."""
    for kind in sorted(kinds, key=lambda kind: kind in (str, Path)):
        try:
            return _fitted(value, kind)
        except (TypeError, ValueError, OverflowError):
            continue
    return _refused()


def _spelled(value: Any) -> Any:
    """A word of the command line as the number, list or mapping it spells."""
    if not isinstance(value, str):
        return value
    try:
        return text_value(value)
    except UnreadableFile:
        return value


def _refused() -> NoReturn:
    raise ValueError


AMERICAN = {
    "analyze": "analyse",
    "optimizer": "optimiser",
    "regularize": "regularise",
    "standardize": "standardise",
    "normalize": "normalise",
}
"""Names of ours as they are spelt in America, which are understood too."""


def british(name: str) -> str:
    """A dotted name as ours is spelt: `optimizer.lr` is `optimiser.lr`."""
    return ".".join(AMERICAN.get(part, part) for part in name.split("."))
