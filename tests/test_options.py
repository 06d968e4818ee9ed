"""Values of options are what their annotations say, also where they come as words of a command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from continua.errors import ConfigError
from continua.options import typed_value


@pytest.mark.parametrize(
    ("hint", "given", "read"),
    [
        (int, 3, 3),
        (int, "3", 3),
        (float, 3, 3.0),
        (float, "1e-4", 1e-4),
        (float, ".5", 0.5),
        (bool, "true", True),
        (bool, False, False),
        (str, "3", "3"),
        (str | None, "null", None),
        (int | None, None, None),
        (Path | None, "null", None),
        (Path | None, "a/b", Path("a/b")),
        (Path, Path("a"), Path("a")),
        (Literal["sgd", "adamw"], "sgd", "sgd"),
        (Literal[1, 2], "2", 2),
        (bool | Literal["auto"], "auto", "auto"),
        (bool | Literal["auto"], "false", False),
        (tuple[float, float], [1, 2.5], (1.0, 2.5)),
        (tuple[float, ...], "[1, 2, 3]", (1.0, 2.0, 3.0)),
        (tuple[float, ...], (), ()),
        (tuple[tuple[float, ...], ...], [[1], [2, 3]], ((1.0,), (2.0, 3.0))),
        (tuple[float, ...] | None, "null", None),
        (list[str], ["a"], ["a"]),
        (Sequence[int], "[1]", [1]),
        (dict[int, float], "{52: 3}", {52: 3.0}),
        (dict[int, float], {"52": 3}, {52: 3.0}),
        (dict[str, Any], {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (Mapping[str, Any] | None, "{a: 1}", {"a": 1}),
    ],
)
def test_a_value_is_read_as_its_annotation_says(hint: Any, given: object, read: object) -> None:
    value = typed_value("x", given, hint)
    assert value == read
    assert type(value) is type(read)
    assert typed_value("x", value, hint) == value, "what was read is read the same"


@pytest.mark.parametrize(
    ("hint", "given", "said"),
    [
        (int, 2.5, "x is '2.5'; expected a whole number"),
        (int, True, "x is 'True'; expected a whole number"),
        (int | None, "many", "x is 'many'; expected a whole number"),
        (float, "soon", "x is 'soon'; expected a number"),
        (float, None, "x is 'None'; expected a number"),
        (float, "[", "x is '['; expected a number"),
        (bool, 1, "x is '1'; expected true or false"),
        (str, 5, "x is '5'; expected text"),
        (bool | Literal["auto"], "maybe", "x is 'maybe'; expected true or false or auto"),
        (tuple[float, float], [1], "x is '[1]'; expected a list"),
        (tuple[float, float] | None, "3", "x is '3'; expected a list"),
        (tuple[float, ...], ["a"], "expected a list"),
        (dict[str, Any], [1], "expected options by name"),
    ],
)
def test_what_fits_no_reading_is_refused_in_words(hint: Any, given: object, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        typed_value("x", given, hint)
    assert said in str(refused.value)
