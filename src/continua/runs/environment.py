"""Where a run computes: the device, and enough about the machine to say why two of them might differ."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from continua.errors import ConfigError
from continua.files import Json
from continua.machine import cpu_name, machine_facts
from continua.native import kernels_text

PACKAGES = ("continua", "torch", "numpy", "lightning-fabric", "jsonargparse", "safetensors")


def chosen_device(asked: str) -> str:
    """A device that is here; "auto" is cuda where there is one, else cpu.

    Args:
        asked: "auto", "cpu", "cuda" (NVIDIA, AMD), "mps" (Apple) or "xpu" (Intel).

    Returns:
        Its name, without "auto".

    Raises:
        ConfigError: there is no such device here.

    Examples:
        >>> from continua.runs import chosen_device
        >>> chosen_device("cpu")
        'cpu'
    """
    there = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "xpu": torch.xpu.is_available,
    }
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked not in there:
        raise ConfigError(f"device is {asked!r}; expected auto, {', '.join(there)}")
    if not there[asked]():
        raise ConfigError(f"device is {asked!r}, but PyTorch finds no such GPU here; use --device cpu")
    return asked


def describe_environment(device: torch.device, world_size: int) -> Json:
    """Versions, commit, processor, threads, determinism flags and what `continua doctor` says of the machine, as JSON holds them.

    No probe is made for it: a run in float32 has no use for one.

    Args:
        device: on which the run is trained.
        world_size: number of processes.

    Returns:
        Facts by name.

    Examples:
        >>> import torch
        >>> from continua.runs import describe_environment
        >>> facts = describe_environment(torch.device("cpu"), 1)
    """
    described: Json = {
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
