"""What this machine is, as plain data, and what follows from it: for `continua doctor`, and for environment.json of a run.

Nothing here says whose machine it is.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from continua.files import Json
from continua.machine.asking import ask_child, keep_answer, kept_answer
from continua.machine.number_types import (
    NUMBER_TYPES,
    STAND_IN,
    Verdict,
    ask_again,
    cpu_flags,
    cpu_name,
    known_verdict,
    onednn_limit,
    stand_in,
)

# Of a CPU: what decides how fast, and in which number types, it computes.
FEATURES = (
    *("sse4_2", "avx", "avx2", "fma", "f16c"),
    *("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("avx_vnni", "avx_ne_convert", "amx_tile", "amx_bf16", "amx_fp16", "amx_int8"),
    *("asimd", "sve", "bf16", "svebf16"),
)
# Packages without which a part of Continua is missing, and which part.
OPTIONAL = {
    "streamlit": "continua explore",
    "submitit": "continua sweep",
    "tensorboard": "continua train --tensorboard",
    "huggingface_hub": 'push_to_hub, from_pretrained("user/name")',
    "onnx": "export to ONNX",
    "onnxscript": "export to ONNX",
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
BUILD_SECONDS = 240.0  # the first build of a machine compiles headers, and others may be at work


def machine_facts(ask: bool = False) -> Json:
    """CPU, memory, number types, PyTorch, compilers, GPUs. Probes are made only if `ask`; else what is known of them is told.

    Args:
        ask: also probe the number types, which may take some seconds.

    Returns:
        Facts by name, as `continua doctor --json` prints them.

    Examples:
        >>> from continua.machine import machine_facts
        >>> facts = machine_facts()
    """
    compiles = ask_inductor_again() if ask else known_inductor()
    return {
        "cpu": {"name": cpu_name(), "architecture": platform.machine(), "features": [name for name in FEATURES if name in cpu_flags()]},
        "cores": {"machine": os.cpu_count(), "usable": usable_cores()},
        "memory": memory(),
        "threads": threads(),
        "torch": torch_build(),
        "onednn_limit": onednn_limit() or None,
        "stand_in": os.environ.get(STAND_IN) or None,
        "number_types": {name: _number_type(ask_again(name) if ask else known_verdict(name)) for name in NUMBER_TYPES},
        "compilers": compilers(),
        "inductor": None if compiles is None else asdict(compiles),
        "gpus": gpus(),
    }


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine has, in a container or a job of a cluster.

    Returns:
        Their number.

    Examples:
        >>> from continua.machine import usable_cores
        >>> usable_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> dict[str, int | None]:
    """Bytes: of the machine, available now, and the limit of a container or job where it has one."""
    sizes: dict[str, int | None] = {"machine": None, "available": None, "limit": None}
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            name = {"MemTotal": "machine", "MemAvailable": "available"}.get(line.split(":")[0])
            if name is not None:
                sizes[name] = int(line.split()[1]) * 1024
    if sizes["machine"] is None:
        with suppress(OSError, ValueError, AttributeError):
            sizes["machine"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        sizes["limit"] = int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8"))
    return sizes


def threads() -> Json:
    """How many PyTorch uses, and the variables that had a say in it."""
    import torch

    variables = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    return {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads(), "variables": variables}


def torch_build() -> Json:
    """Which PyTorch, and what it was built with."""
    import torch

    return {
        "version": torch.__version__,
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "mkl": torch.backends.mkl.is_available(),
        "openmp": torch.backends.openmp.is_available(),
        "cuda": torch.version.cuda,
    }


def gpus() -> list[Json]:
    """Those that PyTorch can use."""
    import torch

    if not torch.cuda.is_available():
        return []
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return [{"name": card.name, "memory": card.total_memory, "bfloat16": bfloat16} for card in cards]


def packages() -> dict[str, dict[str, str | None]]:
    """Optional packages: the version, None where it is not installed, and what it is for.

    Returns:
        By name: version, and purpose.

    Examples:
        >>> from continua.machine import packages
        >>> known = packages()
    """
    listed: dict[str, dict[str, str | None]] = {name: {"version": None, "for": purpose} for name, purpose in OPTIONAL.items()}
    for name in listed:
        with suppress(PackageNotFoundError):
            listed[name]["version"] = version(name)
    return listed


def writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, or the folder itself where it is not there yet. Tried: permissions do not tell all.

    Args:
        folder: there or not.

    Returns:
        Whether it can be written to.

    Examples:
        >>> from pathlib import Path
        >>> from continua.machine import writable
        >>> allowed = writable(Path("."))
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def float32_fault() -> str | None:
    """What is wrong with float32 here, in words; None if nothing is. Tried in a child process, each time.

    Returns:
        The fault, or None.

    Examples:
        >>> from continua.machine import float32_fault
        >>> float32_fault()  # doctest: +SKIP
    """
    return ask_child("float32").fault


def _number_type(known: Verdict | None) -> Json | None:
    return None if known is None else {"state": known.state, "reason": known.reason, "limit": known.limit or None}


# --- torch.compile with inductor, its usual back end: tried in a child process and kept ---------------------------------


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
        return Inductor(True) if said != "broken" else Inductor(False, f"{STAND_IN} says so")
    if not compilers():
        return Inductor(False, "it needs a C++ compiler, and there is none")
    kept = kept_answer("inductor", _about_compiling())
    return Inductor(bool(kept.get("works")), str(kept.get("reason", ""))) if kept is not None else None


def ask_inductor_again() -> Inductor:
    """Try it, whatever is known already, and keep what comes of it."""
    if (stand_in("inductor") or not compilers()) and (known := known_inductor()) is not None:
        return known
    reply = ask_child("inductor", seconds=BUILD_SECONDS)
    tried = Inductor(not reply.fault, reply.fault or "")
    if reply.lasting:
        keep_answer("inductor", _about_compiling(), asdict(tried))
    return tried


@cache
def compilers() -> dict[str, str]:
    """C++ compilers by name, each with what it says its version is."""
    versions = {}
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if (path := shutil.which(name)) is not None:
            text = ""
            with suppress(OSError, subprocess.TimeoutExpired):
                text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
            versions[Path(name).name] = (text.splitlines() or ["does not answer"])[0]
    return versions


def _about_compiling() -> Json:
    import torch

    # By the folder as well: inductor's linker cannot take every path.
    return {"torch": torch.__version__, "python": platform.python_version(), "compilers": compilers(), "prefix": sys.prefix}


# --- what follows from all this -----------------------------------------------------------------------------------------


def faults(facts: Json) -> list[str]:
    """What makes commands fail, each as a sentence with what to do. A number type that is not used is none: float32 takes its place.

    Args:
        facts: as `machine_facts` gives them.

    Returns:
        Sentences; none where all is well.

    Examples:
        >>> from continua.machine import faults, machine_facts
        >>> problems = faults(machine_facts(ask=True))  # doctest: +SKIP
    """
    sentences = []
    if facts["float32"] not in (None, "works"):
        sentences.append(f"float32 does not work: {facts['float32']}; install PyTorch anew, and try ONEDNN_MAX_CPU_ISA=AVX2")
    for name, variable in {"cache": "XDG_CACHE_HOME", "runs": "CONTINUA_RUNS"}.items():
        folder = facts["folders"][name]
        if not folder["writable"]:
            sentences.append(f"the {name} folder {folder['path']} cannot be written; name another one by {variable}")
    return sentences


def remarks(facts: Json) -> list[str]:
    """What works, but less well than it might.

    Args:
        facts: as `machine_facts` gives them.

    Returns:
        Sentences.

    Examples:
        >>> from continua.machine import machine_facts, remarks
        >>> said = remarks(machine_facts(ask=True))  # doctest: +SKIP
    """
    sentences = []
    for name, state in facts["number_types"].items():
        if state is not None and state["state"] in ("limited", "broken"):
            sentences.append(f"the CPU claims {name}, and the probe failed: {state['reason']}")
    if facts["inductor"] is not None and not facts["inductor"]["works"]:
        sentences.append(f"torch.compile does not work with inductor: {facts['inductor']['reason']}")
    if not facts["folders"]["data"]["writable"]:
        sentences.append(f"the data folder {facts['folders']['data']['path']} is read only: nothing can be fetched into it")
    if not _has_kernels(facts):
        sentences.append(f"N-jets take PyTorch's operations, several times slower than the native kernels ({facts['native_kernels']})")
    missing = {name: package["for"] for name, package in facts["packages"].items() if package["version"] is None}
    return sentences + [f"{name} is not installed: no {purpose}" for name, purpose in missing.items()]


def _has_kernels(facts: Json) -> bool:
    return not facts["native_kernels"].startswith("none")


def consequences(facts: Json) -> dict[str, str]:
    """What Continua will do here where it has the choice.

    Args:
        facts: as `machine_facts` gives them.

    Returns:
        What is chosen, by what is chosen about.

    Examples:
        >>> from continua.machine import consequences, machine_facts
        >>> chosen = consequences(machine_facts(ask=True))  # doctest: +SKIP
    """
    gpus, state = facts["gpus"], facts["number_types"]["bfloat16"] or {"state": "unknown"}
    asked = {
        "works": "computes in bfloat16",
        "limited": f"limits oneDNN by ONEDNN_MAX_CPU_ISA={state.get('limit')} first; in a notebook, set that yourself",
        "broken": "is refused",
        "emulated": "works, slowly: convolutions compute in float32 and round",
        "unknown": "is decided by a probe when it is first wanted",
    }[state["state"]]
    automatic = {"works": "bfloat16", "unknown": asked}.get(state["state"], "float32")
    if gpus:
        automatic = "bfloat16" if gpus[0]["bfloat16"] else "float32"
    inductor, filters = facts["inductor"], "compute in bfloat16" if state["state"] == "works" else "compute in float32 and round"
    if _has_kernels(facts):
        filters += "; N-jets in float32 always, by the native kernels"
    return {
        "device auto": f"cuda, {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}" if gpus else "cpu",
        "precision auto": automatic,
        "precision bfloat16": asked + (" (on the CPU)" if gpus else ""),
        "filters in bfloat16": filters,
        "threads": f"{facts['threads']['torch']}, unless --threads says otherwise",
        "torch.compile": "as you ask" if inductor is None or inductor["works"] else 'not with inductor; backend="aot_eager" works',
    }
