"""When there is not enough memory: one line that says what was tried, how large it was, and what would make it smaller."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from continua.errors import ContinuaError

_WORDS = ("not enough memory", "out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "failed to allocate")


class OutOfMemory(ContinuaError):
    """The machine, or a limit set on it, has not the memory that something needs."""


@contextmanager
def enough_memory(what: str, smaller: str) -> Iterator[None]:
    """Around something large: `what` it is, and what would make it `smaller`. Any way of running out becomes an `OutOfMemory`.

    Args:
        what: what is being made.
        smaller: what the person can reduce.

    Returns:
        A context.

    Raises:
        OutOfMemory: memory did not suffice.

    Examples:
        >>> from continua.machine import enough_memory
        >>> with enough_memory("the batch", "batch_size"): pass
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if (size := memory_asked(error)) is None:
            raise
        raise OutOfMemory(f"there is not enough memory for {what}{size}; {smaller}") from error


def memory_asked(error: BaseException) -> str | None:
    """ " (4.2 GB more were asked for)", or nothing where the error does not say; None where it is about something else.

    Args:
        error: any error.

    Returns:
        Words for a message, or None.

    Examples:
        >>> from continua.machine import memory_asked
        >>> memory_asked(ValueError("something else")) is None
        True
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not any(word in text.lower() for word in _WORDS):
        return None
    if asked := re.search(r"allocate (\d+) bytes", text):
        return f" ({int(asked[1]) / 1e9:.3g} GB more were asked for)"
    if asked := re.search(r"allocate ([\d.]+ [KMGT]i?B)", text):
        return f" ({asked[1]} more were asked for)"
    return ""
