"""Reading the pickles of the CIFAR sets without trusting them.

A pickle is a small program, and Python's own reader runs whatever it asks for. This reader knows only the instructions
that CIFAR files use, hands out inert stand-ins instead of NumPy's constructors (whose own `__setstate__` can be made to
read stray memory), and refuses everything else by name before anything is called.
"""

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from continua.data.files import opened
from continua.errors import DataError

INSTRUCTIONS = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
    BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""


class _Refused(Exception):
    """The pickle asks for something that no CIFAR file needs."""


class _Array:
    """What a pickle says about an array: its shape, element type and raw bytes."""

    __slots__ = ("state",)

    def __init__(self, kind: object, shape: object, code: object) -> None:
        self.state: object = None  # the arguments only say "an empty ndarray"; what counts arrives in __setstate__

    def __setstate__(self, state: object) -> None:
        self.state = state

    def numpy(self) -> np.ndarray:
        if not isinstance(self.state, tuple):
            raise _Refused("an array that nothing is said about")
        version, shape, element, fortran, raw = self.state
        if version != 1 or not isinstance(element, _Element) or element.code not in (b"u1", "u1"):
            code = element.code if isinstance(element, _Element) else element
            raise _Refused(f"an array of {code!r} where bytes (u1) were expected")
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


class _Element:
    """What a pickle says about an element type; byte order and the like do not matter for single bytes."""

    __slots__ = ("code",)

    def __init__(self, code: object, align: object = False, copy: object = False) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _StandIn:
    """Something a pickle may name and, where `make` is given, call; it has no attributes a pickle could set."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., object] | None) -> None:
        object.__setattr__(self, "make", make)

    def __call__(self, *arguments: object) -> object:
        if self.make is None:
            raise _Refused("a call of numpy.ndarray itself")
        return self.make(*arguments)

    def __setattr__(self, name: str, value: object) -> None:
        raise _Refused(f"to change {name}")

    def __setstate__(self, state: object) -> None:
        raise _Refused("to change what it names")


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old-style pickle."""
    if encoding != "latin1":
        raise _Refused(f"the codec {encoding!r}")
    return text.encode("latin1")


GLOBALS = {
    "numpy.core.multiarray._reconstruct": _StandIn(_Array),
    "numpy._core.multiarray._reconstruct": _StandIn(_Array),
    "numpy.ndarray": _StandIn(None),
    "numpy.dtype": _StandIn(_Element),
    "_codecs.encode": _StandIn(_latin1),
}


class _Instructions(dict[int, Callable[..., None]]):
    def __missing__(self, code: int) -> Callable[..., None]:
        name = next((op.name for op in pickletools.opcodes if ord(op.code) == code), hex(code))
        raise _Refused(f"the instruction {name}")


# The reader written in Python, not its twin in C: only there can instructions be taken away, and a forged
# memo index costs one dictionary entry instead of a table of that many gigabytes.
_PythonUnpickler: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue]


class _CifarUnpickler(_PythonUnpickler):
    dispatch = _Instructions(
        {ord(op.code): _PythonUnpickler.dispatch[ord(op.code)] for op in pickletools.opcodes if op.name in INSTRUCTIONS.split()}
    )

    def find_class(self, module: str, name: str) -> object:
        if f"{module}.{name}" not in GLOBALS:
            raise _Refused(f"{module}.{name}")
        return GLOBALS[f"{module}.{name}"]


def read_pickle(path: Path, remedy: str) -> dict[str, object]:
    """The dictionary in a CIFAR pickle: arrays as NumPy arrays of uint8, keys as text, other strings as they were written."""
    with opened(path, remedy) as stream:
        contents = stream.read()
    try:
        stored = _CifarUnpickler(io.BytesIO(contents), encoding="bytes").load()
        if not isinstance(stored, dict):
            raise DataError(f"{path} holds a {type(stored).__name__}, expected a dictionary; {remedy}")
        text = {key: key.decode("latin1") if isinstance(key, bytes) else str(key) for key in stored}
        return {text[key]: value.numpy() if isinstance(value, _Array) else value for key, value in stored.items()}
    except DataError:
        raise
    except _Refused as refusal:
        raise DataError(f"{path} asks for {refusal}, which no CIFAR file needs: refused, nothing in it was run; {remedy}") from None
    except Exception as error:  # a damaged pickle can fail in as many ways as there are instructions
        raise DataError(f"{path} is truncated or damaged ({type(error).__name__}: {error}); {remedy}") from None
