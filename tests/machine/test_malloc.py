"""Freed memory is kept where the C library allows it."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from continua import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else False
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x = torch.zeros(4_000_000)
for _ in range(3):
    (x + 1) + (x + 2)
rounds = []
for _ in range(5):  # the best of them: a busy system may take pages back in between
    before = faults()
    for _ in range(20):
        (x + 1) + (x + 2)
    rounds.append(faults() - before)
print(kept, min(rounds))
"""


def faults(how: str) -> tuple[bool, int]:
    found = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout.split()
    return found[0] == "True", int(found[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has these settings")
def test_a_large_temporary_reuses_memory_once_it_is_kept() -> None:
    kept, with_keeping = faults("keep")
    _, without = faults("plain")
    if not kept:
        pytest.skip("this C library has no mallopt")
    assert with_keeping < 1000  # 40 temporaries of 16 MB are 160,000 pages
    assert with_keeping <= without
