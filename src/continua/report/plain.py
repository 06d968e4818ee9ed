"""Dataclasses of numbers to plain data that JSON holds, and back by their type annotations. Used for pages and for answers of analyses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeGuard, Union, get_args, get_origin, get_type_hints

import numpy as np

from continua.errors import ConfigError

LARGE = 20_000  # numbers; arrays beyond this are kept apart from the JSON where the caller can


def to_plain(value: Any, arrays: dict[str, np.ndarray] | None = None, where: str = "") -> Any:
    """What JSON can hold: fields that have their default value are left out, NaN is null, ∞ is "inf".

    With `arrays`, large arrays go there under the name of their field, and {"array": name} stands for them.

    Args:
        value: any dataclass, array, mapping or number.
        arrays: takes up large arrays.
        where: name of the field that is written.

    Returns:
        Plain data.

    Examples:
        >>> from continua.report import to_plain
        >>> to_plain({"a": (1, 2)})
        {'a': [1, 2]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        record = {}
        for item in fields(value):
            inside = getattr(value, item.name)
            if not _is_default(inside, item.default):
                record[item.name] = to_plain(inside, arrays, f"{where}.{item.name}" if where else item.name)
        return record
    if hasattr(value, "detach"):  # a tensor; this module does not import PyTorch
        value = getattr(value, "detach")().cpu().numpy()  # noqa: B009 - the type checker knows no detach here
    if isinstance(value, np.ndarray):
        if arrays is not None and value.size > LARGE:
            arrays[where] = value
            return {"array": where}
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, arrays, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_plain(item, arrays, f"{where}.{place}") for place, item in enumerate(value)]
    return _scalar(value, where)


def from_plain(hint: Any, data: Any, arrays: Mapping[str, np.ndarray] | None = None) -> Any:
    """The object of type `hint` that `plain` made `data` from.

    Args:
        hint: the type of the object.
        data: as `to_plain` made it.
        arrays: large arrays by name.

    Returns:
        The object.

    Raises:
        ConfigError: the data do not fit the type.

    Examples:
        >>> from continua.report import from_plain
        >>> from_plain(tuple[int, ...], [1, 2])
        (1, 2)
    """
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    if arrays is not None and _kept_apart(data):
        return arrays[data["array"]]
    if origin in (Union, UnionType):
        return from_plain(_fitting(inner, data), data, arrays)
    if data is None:
        return math.nan if hint is float else None
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{name: from_plain(hints[name], item, arrays) for name, item in data.items() if name in hints})
    if hint is np.ndarray or hasattr(hint, "array_type"):
        return _array(data)
    if origin in (list, tuple, Sequence) or hint in (list, tuple):
        kinds = inner if origin is tuple and inner[-1:] != (Ellipsis,) else inner[:1] * len(data)
        items = [from_plain(kind, item, arrays) for kind, item in zip(kinds or [Any] * len(data), data, strict=True)]
        return tuple(items) if tuple in (origin, hint) else items
    if origin in (dict, Mapping):
        return {inner[0](key): from_plain(inner[1], item, arrays) for key, item in data.items()}
    return float(data) if hint is float else data


def _kept_apart(data: object) -> TypeGuard[dict[str, str]]:
    return isinstance(data, dict) and set(data) == {"array"}


def _scalar(value: Any, where: str) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"{where or 'value'} is a {type(value).__name__}; results hold numbers, text, lists, arrays and dataclasses of these")


def _is_default(value: object, default: object) -> bool:
    return default is not MISSING and type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def _fitting(kinds: Sequence[Any], data: object) -> Any:
    """Which type of a union the data is."""
    records = [kind for kind in kinds if is_dataclass(kind)]
    if data is None:
        return float if float in kinds and type(None) not in kinds else type(None)
    if isinstance(data, dict) and records:
        return next((kind for kind in records if set(data) <= {item.name for item in fields(kind)}), records[0])
    if isinstance(data, list):
        lists = [kind for kind in kinds if get_origin(kind) or hasattr(kind, "array_type") or kind is np.ndarray]
        words = any(isinstance(item, str) and item not in ("inf", "-inf") for item in data)
        return next((kind for kind in lists if (get_args(kind)[:1] == (str,)) is words), lists[0] if lists else Any)
    if type(data) in kinds:
        return type(data)
    return float if float in kinds and isinstance(data, int | str) and str not in kinds else Any


def _array(data: object) -> np.ndarray:
    array = np.asarray(data)
    return array if array.dtype.kind in "bif" else np.asarray(data, dtype=np.float64)  # null is NaN
