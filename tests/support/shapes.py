"""The checker that `tests/conftest.py` puts on every annotated function: beartype, except where it cannot read an annotation."""

from typing import Any

from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception


def check(function: Any) -> Any:
    """Refuses wrong shapes and types at each call. Left as they are: functions that return Self or take a structural protocol."""
    try:
        return beartype(function)
    except (BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception):
        return function
