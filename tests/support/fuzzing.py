"""How hard to fuzz: 250 inputs of each kind in `make test`; scripts/fuzz.py gives any number and keeps the counts."""

import functools
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from continua.errors import ContinuaError

SECONDS = 10.0  # of processor time; more than that on one input is a hang
MEMORY = 512 * 2**20  # bytes by which one input may raise the most memory that the process ever held
GIVEN = Counter[str]()  # inputs so far, by the kind of thing that was fuzzed
SLOWEST: dict[str, float] = {}  # seconds of processor time, by kind


def fuzzed(kind: str, share: float = 1.0) -> Callable[[Any], Any]:
    """A fuzzing test of things of this kind. It draws its `share` of the kind's inputs; the shares of a kind add up to one."""
    number = max(1, round(int(os.environ.get("FUZZ_EXAMPLES", "250")) * share))
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

    def dressed(test: Any) -> Any:
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def counting(*words: Any, **named: Any) -> None:
            GIVEN[kind] += 1
            begun = time.process_time()
            inner(*words, **named)
            SLOWEST[kind] = max(SLOWEST.get(kind, 0.0), time.process_time() - begun)

        test.hypothesis.inner_test = counting
        return settings(max_examples=number, deadline=None, suppress_health_check=checks)(test)

    return dressed


class Hung(BaseException):
    """One input took too long. Not an `Exception`: code that forgives errors must not forgive this one."""


@contextmanager
def only_our_errors() -> Iterator[None]:
    """Inside, nothing but `ContinuaError` may be raised, and nothing may take long or much memory."""

    def ring(*_: object) -> None:
        raise Hung(f"more than {SECONDS:g} s of processor time")

    held, before = _most_memory(), signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with suppress(ContinuaError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert _most_memory() - held < MEMORY, "it took too much memory"


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Values as YAML and JSON have them, also those that nobody would write.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 40),
    st.sampled_from([10**6, 10**9, 10**12, 2**63, 10**30, -1, -(2**63)]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["auto", "dcn_ode", "digits", "rk4", "dopri5", "channels", "sgd", "1e-3", "[1, 2]", "../..", "/etc/passwd", "\x00", "σ"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS.map(str), inner, max_size=4), max_leaves=8
)


def changed(data: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """Damage as it happens: bits flipped, a piece cut out, zeroed, doubled or replaced."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        stop = min(len(data), start + draw(st.sampled_from([1, 2, 8, 64, 10_000])))
        how = draw(st.sampled_from(["flip", "cut", "zero", "double", "replace"]))
        piece = bytes(data[start:stop])
        if how == "flip" and data:
            data[start] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del data[start:stop]
        elif how == "zero":
            data[start:stop] = bytes(stop - start)
        elif how == "double":
            data[start:start] = piece
        else:
            data[start:stop] = draw(st.binary(max_size=16))
    return bytes(data)
