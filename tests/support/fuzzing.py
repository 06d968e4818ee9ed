"""How hard to fuzz: a few hundred inputs in `make test`; FUZZ_EXAMPLES=10000 once in a while."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from continua.errors import ContinuaError

SECONDS = 10.0  # of processor time; more than that on one input is a hang
MEMORY = 512 * 2**20  # bytes by which one input may raise the most memory that the process ever held


def examples(share: float = 1.0) -> settings:
    """Settings of a fuzzing test; `share` of the usual number for one whose inputs take long."""
    count = int(os.environ.get("FUZZ_EXAMPLES", "100"))
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=max(1, round(count * share)), deadline=None, suppress_health_check=checks)


@contextmanager
def only_our_errors() -> Iterator[None]:
    """Inside, nothing but `ContinuaError` may be raised, and nothing may take long or much memory."""
    begun, held = time.process_time(), _most_memory()
    with suppress(ContinuaError):
        yield
    assert time.process_time() - begun < SECONDS, "it hung"
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
