"""Where a run computes, and a description of it: enough to say why two machines might differ."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from continua.errors import ConfigError
from continua.machine import cpu_name, machine_facts
from continua.native import kernels_text

PACKAGES = ("continua", "torch", "numpy", "lightning-fabric", "jsonargparse", "safetensors")


def chosen_device(asked: str) -> str:
    """The device "cpu" or "cuda"; "auto" takes a GPU where there is one."""
    if asked not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {asked!r}; expected auto, cpu or cuda")
    if asked == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but PyTorch finds no GPU here; use --device cpu")
    return "cuda" if asked == "cuda" or (asked == "auto" and torch.cuda.is_available()) else "cpu"


def describe_environment(device: torch.device, world_size: int) -> dict[str, Any]:
    """Versions, commit, processor, threads, determinism flags and what `continua doctor` says of the machine, as JSON holds them.

    No probe is made for it: a run in float32 has no use for one.
    """
    described: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "ranks": world_size,
        "device": str(device),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "machine": machine_facts(),
        "native_kernels": kernels_text(),
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
        described["cuda"] = torch.version.cuda
    return described


def _commit() -> str | None:
    """The commit of the source, with "+" where files differ from it; None outside a clone."""
    here = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*here, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run([*here, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else None
