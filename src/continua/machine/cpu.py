"""The processor: its name, its features, its cores."""

import os
import platform
from functools import cache
from pathlib import Path

# What decides how fast, and in which number types, a CPU computes.
FEATURES = (
    *("sse4_2", "avx", "avx2", "fma", "f16c"),
    *("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("avx_vnni", "avx_ne_convert", "amx_tile", "amx_bf16", "amx_fp16", "amx_int8"),
    *("asimd", "sve", "bf16", "svebf16"),
)
ABLE = {"avx512bw", "avx_ne_convert"}  # without any of these oneDNN has no reduced number type on x86


@cache
def cpu_name() -> str:
    """As the system calls it."""
    return _field("model name") or platform.processor() or platform.machine()


@cache
def cpu_flags() -> frozenset[str]:
    """Everything that the system says this CPU can do; empty where it does not say."""
    return frozenset((_field("flags") or _field("Features") or "").split())


def cpu_features() -> list[str]:
    """The flags that matter here."""
    return [name for name in FEATURES if name in cpu_flags()]


def claims_number_types() -> bool:
    """Whether a reduced number type may be native here. True where the system does not say: then PyTorch is asked."""
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")
    return not (x86 and cpu_flags()) or bool(ABLE & cpu_flags())


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine has, in a container or a job of a cluster."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _field(name: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
