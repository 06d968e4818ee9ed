"""What this machine is, as plain data: for `continua doctor`, and for environment.json of a run. Nothing here says whose machine it is."""

import os
import platform
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from continua.machine import children
from continua.machine.compiler import ask_inductor_again, compilers, known_inductor
from continua.machine.cpu import cpu_features, cpu_name, usable_cores
from continua.machine.number_types import NUMBER_TYPES, STAND_IN, Verdict, ask_again, known_verdict, onednn_limit

# Packages without which a part of Continua is missing, and which part.
OPTIONAL = {
    "streamlit": "continua explore",
    "submitit": "continua sweep",
    "tensorboard": "continua train --tensorboard",
    "onnx": "export to ONNX",
    "onnxscript": "export to ONNX",
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")


def machine_facts(ask: bool = False) -> dict[str, Any]:
    """CPU, memory, number types, PyTorch, compilers, GPUs. Probes are made only if `ask`; else what is known of them is told."""
    return {
        "cpu": {"name": cpu_name(), "architecture": platform.machine(), "features": cpu_features()},
        "cores": {"machine": os.cpu_count(), "usable": usable_cores()},
        "memory": memory(),
        "threads": threads(),
        "torch": torch_build(),
        "onednn_limit": onednn_limit() or None,
        "stand_in": os.environ.get(STAND_IN) or None,
        "number_types": {name: _number_type(ask_again(name) if ask else known_verdict(name)) for name in NUMBER_TYPES},
        "compilers": compilers(),
        "inductor": _told(ask_inductor_again() if ask else known_inductor()),
        "gpus": gpus(),
    }


def memory() -> dict[str, int | None]:
    """Bytes: of the machine, available now, and the limit of a container or job where it has one."""
    found: dict[str, int | None] = {"machine": None, "available": None, "limit": None}
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            name = {"MemTotal": "machine", "MemAvailable": "available"}.get(line.split(":")[0])
            if name is not None:
                found[name] = int(line.split()[1]) * 1024
    if found["machine"] is None:
        with suppress(OSError, ValueError, AttributeError):
            found["machine"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        found["limit"] = int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8"))
    return found


def threads() -> dict[str, Any]:
    """How many PyTorch uses, and the variables that had a say in it."""
    import torch

    said = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    return {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads(), "variables": said}


def torch_build() -> dict[str, Any]:
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


def gpus() -> list[dict[str, Any]]:
    """Those that PyTorch can use."""
    import torch

    if not torch.cuda.is_available():
        return []
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return [{"name": card.name, "memory": card.total_memory, "bfloat16": bfloat16} for card in cards]


def packages() -> dict[str, dict[str, str | None]]:
    """Optional packages: the version, None where it is not installed, and what it is for."""
    return {name: {"version": _installed(name), "for": purpose} for name, purpose in OPTIONAL.items()}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _number_type(found: Verdict | None) -> dict[str, Any] | None:
    return None if found is None else {"state": found.state, "reason": found.reason, "limit": found.limit or None}


def _told(found: Any) -> dict[str, Any] | None:
    return None if found is None else {"works": found.works, "reason": found.reason}


def writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, or the folder itself where it is not there yet. Tried: permissions do not tell all."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def float32_fault() -> str | None:
    """What is wrong with float32 here, in words; None if nothing is. Tried in a child process, each time."""
    reply = children.ask("float32")
    return reply.fault if reply.answer is None else reply.answer.get("fault")
