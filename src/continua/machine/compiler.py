"""Whether `torch.compile` can build and run on this machine, with inductor, its usual back end: tried in a child process and kept."""

import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from continua.machine.children import ask
from continua.machine.kept import keep_answer, kept_answer
from continua.machine.number_types import stand_in

BUILD_SECONDS = 240.0  # the first build of a machine compiles headers, and others may be at work
NAMES = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Inductor:
    """`works`, or `reason` says why not."""

    works: bool
    reason: str = ""

    def __str__(self) -> str:
        return "works" if self.works else f"does not work ({self.reason})"


def inductor() -> Inductor:
    """Whether `torch.compile` works here; the first time on a machine this takes a minute."""
    return known_inductor() or ask_inductor_again()


def known_inductor() -> Inductor | None:
    """What is known without trying."""
    said = stand_in("inductor")
    if said is not None:
        return Inductor(True) if said != "broken" else Inductor(False, "CONTINUA_PROBE says so")
    if not compilers():
        return Inductor(False, "it needs a C++ compiler, and there is none")
    kept = kept_answer("inductor", _about())
    return Inductor(bool(kept.get("works")), str(kept.get("reason", ""))) if kept is not None else None


def ask_inductor_again() -> Inductor:
    """Try it, whatever is known already, and keep what comes of it."""
    if (stand_in("inductor") or not compilers()) and (before := known_inductor()) is not None:
        return before
    reply = ask("inductor", seconds=BUILD_SECONDS)
    fault = reply.answer.get("fault") if reply.answer is not None else reply.fault
    found = Inductor(not fault, fault or "")
    if reply.lasting:
        keep_answer("inductor", _about(), asdict(found))
    return found


@cache
def compilers() -> dict[str, str]:
    """C++ compilers by name, each with what it says its version is."""
    names = filter(None, (os.environ.get("CXX"), *NAMES))
    return {Path(name).name: _version(path) for name in names if (path := shutil.which(name)) is not None}


def _version(path: str) -> str:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer"
    return (said.splitlines() or ["does not answer"])[0]


def _about() -> dict[str, Any]:
    import torch

    # By the folder as well: inductor's linker cannot take every path.
    return {"torch": torch.__version__, "python": sys.version.split()[0], "compilers": compilers(), "prefix": sys.prefix}
