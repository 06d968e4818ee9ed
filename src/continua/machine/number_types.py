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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from continua.errors import ConfigError
from continua.machine.children import ask
from continua.machine.cpu import claims_number_types, cpu_flags, cpu_name
from continua.machine.kept import keep_answer, kept_answer

LIMIT = "ONEDNN_MAX_CPU_ISA"  # the variable by which oneDNN is told to use older instructions only
STAND_IN = "CONTINUA_PROBE"
NUMBER_TYPES = ("bfloat16", "float16")
# From the newest to the oldest that may help; AVX2 has no reduced type at all.
LIMITS = {"bfloat16": ("AVX512_CORE_BF16", "AVX512_CORE"), "float16": ("AVX512_CORE_FP16", "AVX512_CORE")}
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
    """What `name` ("bfloat16", "float16") is worth here; the first time on a machine this starts a child process for some seconds."""
    return known_verdict(name) or ask_again(name)


def known_verdict(name: str) -> Verdict | None:
    """The verdict if there is one without a probe: given by the stand-in, in memory, in the cache folder, or plain from the CPU's flags."""
    limit = onednn_limit()
    said = stand_in(name)
    if said is not None:
        return _stood_in(name, said, limit)
    if not claims_number_types():
        return Verdict("emulated", "the CPU has no instructions for it")
    if (name, limit) not in _known:
        read = _read(kept_answer(name, _about(limit)))
        if read is None:
            return None
        _known[name, limit] = read
    return _known[name, limit]


def ask_again(name: str) -> Verdict:
    """Make the probe, whatever is known already, and keep what comes of it."""
    before, limit = (known_verdict(name) if stand_in(name) or not claims_number_types() else None), onednn_limit()
    if before is not None:
        return before
    plain, lasting = _probe(name, limit)
    _keep(name, limit, plain, lasting)
    if plain.state != "broken":
        return plain
    for tried in LIMITS[name]:
        if tried == limit:
            continue
        limited, sure = _probe(name, tried)
        _keep(name, tried, limited, sure)
        if limited.state == "works":
            plain = Verdict("limited", plain.reason, tried, limited.flags)
            _keep(name, limit, plain, lasting)
            break
    return plain


_known: dict[tuple[str, str], Verdict] = {}


def forget() -> None:
    """Forget what this process knows; what is in the cache folder stays."""
    _known.clear()


def _keep(name: str, limit: str, found: Verdict, lasting: bool) -> None:
    _known[name, limit] = found
    if lasting:
        keep_answer(name, _about(limit), asdict(found))


def _probe(name: str, limit: str) -> tuple[Verdict, bool]:
    """What the child says, and whether it would say so again."""
    reply = ask(name, {LIMIT: limit} if limit else {})
    if reply.answer is None:
        return Verdict("broken", reply.fault or ""), reply.lasting
    flags, fault = reply.answer.get("flags", {}), reply.answer.get("fault")
    if not reply.answer.get("supported", True):
        return Verdict("emulated", "oneDNN has no instructions for it here", flags=flags), True
    return Verdict("broken" if fault else "works", fault or "", flags=flags), True


def _about(limit: str) -> dict[str, Any]:
    """What a verdict depends on."""
    import torch

    flags = hashlib.sha256(" ".join(sorted(cpu_flags())).encode()).hexdigest()[:16]
    return {"cpu": cpu_name(), "flags": flags, "torch": torch.__version__, "limit": limit}


def _read(answer: dict[str, Any] | None) -> Verdict | None:
    try:
        read = Verdict(**answer) if answer is not None else None
    except TypeError:
        return None
    return read if read is not None and read.state in ("works", "limited", "broken", "emulated") else None


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
    if said == "limited" and limit == lower:
        said = "works"
    if said == "limited":
        return Verdict("limited", reason, lower)
    return Verdict("works" if said == "works" else "broken", "" if said == "works" else reason)
