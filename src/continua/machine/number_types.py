"""What a reduced number type is worth on this CPU: decided here and nowhere else.

A CPU's flags are no proof: on some machines oneDNN's AMX products in bfloat16 kill the process, or fail and spoil every later float32
convolution of it. So a flag is believed only after a probe in a child process (`probe.py`), which is made at most once per machine, CPU,
PyTorch and oneDNN limit, and is kept in the user's cache folder. Nothing here runs on `import continua`, nor where all is float32.

Where the probe fails it is made again with oneDNN limited to older instructions. So there are four verdicts: it works, it works under a
limit, it does not work, or (no probe is needed for that) it is emulated.

`CONTINUA_PROBE` stands in for the probe, for tests and for people who know better: `works`, `limited` or `broken` for all questions, or for
some of them, `bfloat16=broken,inductor=works`.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from continua.errors import ConfigError
from continua.files import Json
from continua.machine.asking import ask_child, keep_answer, kept_answer

LIMIT = "ONEDNN_MAX_CPU_ISA"  # the variable by which oneDNN is told to use older instructions only
STAND_IN = "CONTINUA_PROBE"
NUMBER_TYPES = ("bfloat16", "float16")
# From the newest to the oldest that may help; AVX2 has no reduced type at all.
LIMITS = {"bfloat16": ("AVX512_CORE_BF16", "AVX512_CORE"), "float16": ("AVX512_CORE_FP16", "AVX512_CORE")}
ABLE = {"avx512bw", "avx_ne_convert"}  # without any of these oneDNN has no reduced number type on x86
State = Literal["works", "limited", "broken", "emulated"]


@dataclass(frozen=True)
class Verdict:
    """What a number type is worth in a process that starts as this one did.

    `state`: "works"; "limited": works with oneDNN limited to `limit`; "broken"; "emulated": correct, but slow. `reason`: why it does not
    simply work. `flags`: what oneDNN said it had in the child, by which a process can tell that its own limit is another one.
    """

    state: State
    reason: str = ""
    limit: str = ""
    flags: Mapping[str, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.state == "limited":
            return f"works with {LIMIT}={self.limit} only ({self.reason})"
        said = {"works": "works", "broken": "does not work", "emulated": "emulated, slow"}[self.state]
        return f"{said} ({self.reason})" if self.reason else said


def onednn_limit() -> str:
    """The limit in the environment; "" where there is none. oneDNN reads it once, at its first use in a process."""
    return (os.environ.get(LIMIT) or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()


def verdict(name: str) -> Verdict:
    """What `name` ("bfloat16", "float16") is worth here; the first time on a machine this starts a child process for some seconds.

    Args:
        name: "bfloat16" or "float16".

    Returns:
        What was found, and why.

    Examples:
        >>> from continua.machine import verdict
        >>> verdict("bfloat16")  # doctest: +SKIP
    """
    return known_verdict(name) or ask_again(name)


def known_verdict(name: str) -> Verdict | None:
    """The verdict if there is one without a probe: given by the stand-in, in memory, in the cache folder, or plain from the CPU's flags."""
    limit = onednn_limit()
    if (said := stand_in(name)) is not None:
        return _stood_in(name, said, limit)
    if not claims_number_types():
        return Verdict("emulated", "the CPU has no instructions for it")
    if (name, limit) not in _known and (kept := _read(kept_answer(name, _about(limit)))) is not None:
        _known[name, limit] = kept
    return _known.get((name, limit))


def ask_again(name: str) -> Verdict:
    """Make the probe, whatever is known already, and keep what comes of it."""
    limit = onednn_limit()
    if (stand_in(name) or not claims_number_types()) and (known := known_verdict(name)) is not None:
        return known
    plain, lasting = _probe(name, limit)
    for lower in LIMITS[name] if plain.state == "broken" else ():
        if lower != limit and (limited := _probe(name, lower)[0]).state == "works":
            plain = Verdict("limited", plain.reason, lower, limited.flags)
            return _keep(name, limit, plain, lasting)
    return plain


_known: dict[tuple[str, str], Verdict] = {}


def _probe(name: str, limit: str) -> tuple[Verdict, bool]:
    """What the child says, which is kept, and whether it would say so again."""
    reply = ask_child(name, {LIMIT: limit} if limit else {})
    said = reply.answer or {}
    flags = said.get("flags", {})
    if said.get("supported", True):
        probed = Verdict("broken" if reply.fault else "works", reply.fault or "", flags=flags)
    else:
        probed = Verdict("emulated", "oneDNN has no instructions for it here", flags=flags)
    return _keep(name, limit, probed, reply.lasting), reply.lasting


def _keep(name: str, limit: str, probed: Verdict, lasting: bool) -> Verdict:
    _known[name, limit] = probed
    if lasting:
        keep_answer(name, _about(limit), asdict(probed))
    return probed


def _about(limit: str) -> Json:
    """What a verdict depends on."""
    import torch

    flags = hashlib.sha256(" ".join(sorted(cpu_flags())).encode()).hexdigest()[:16]
    return {"cpu": cpu_name(), "flags": flags, "torch": torch.__version__, "limit": limit}


def _read(answer: Json | None) -> Verdict | None:
    try:
        kept = Verdict(**(answer or {}))
    except TypeError:
        return None
    return kept if kept.state in get_args(State) else None


def stand_in(question: str) -> str | None:
    """What the stand-in says about a question; None where it is silent."""
    said: str | None = None
    for entry in filter(None, os.environ.get(STAND_IN, "").split(",")):
        name, _, word = entry.strip().rpartition("=")
        if word not in ("works", "limited", "broken") or name not in ("", *NUMBER_TYPES, "inductor"):
            raise ConfigError(
                f"{STAND_IN} is {os.environ[STAND_IN]!r}; expected works, limited or broken, or a list like bfloat16=broken,inductor=works"
            )
        if name in ("", question):
            said = word
    return said


def _stood_in(name: str, said: str, limit: str) -> Verdict:
    """As the probe would have it: under its own limit a limited type works."""
    reason, lower = f"{STAND_IN} says so", LIMITS[name][0]
    if said == "works" or (said == "limited" and limit == lower):
        return Verdict("works")
    return Verdict("limited", reason, lower) if said == "limited" else Verdict("broken", reason)


# --- what the processor says of itself ----------------------------------------------------------------------------------


@cache
def cpu_name() -> str:
    """As the system calls it."""
    return _cpu_field("model name") or platform.processor() or platform.machine()


@cache
def cpu_flags() -> frozenset[str]:
    """Everything that the system says this CPU can do; empty where it does not say."""
    return frozenset((_cpu_field("flags") or _cpu_field("Features")).split())


def claims_number_types() -> bool:
    """Whether a reduced number type may be native here. True where the system does not say: then PyTorch is asked."""
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")
    return not (x86 and cpu_flags()) or bool(ABLE & cpu_flags())


def _cpu_field(name: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
