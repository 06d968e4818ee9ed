"""What every benchmark shares: interleaved timing, the machine's description, a table or JSON."""

import argparse
import ctypes
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from continua import keep_freed_memory
from continua.machine import why_unusable
from continua.native import kernels_text

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def options(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """The options all benchmarks have; add your own before `parse_args`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repeats", type=int, default=repeats, help="timed rounds; medians are reported")
    parser.add_argument("--default-malloc", action="store_true", help="leave the C library's memory settings as they are, for all cases")
    parser.add_argument("--threads", type=int, default=1, help="threads PyTorch may use")
    return parser


def computable(name: str) -> bool:
    """Whether a number type can be computed in here; if not, says why its rows are left out."""
    fault = why_unusable(name) if name != "float32" else ""
    if fault:
        print(f"{name} is left out: on this CPU it {fault}", file=sys.stderr)
    return not fault


def medians(cases: dict[str, Callable[[], object]], repeats: int, cold: Collection[str] = ()) -> dict[str, float]:
    """Median seconds of each case. Each round runs every case once, so a busy moment of the machine slows all of them alike.

    `cold`: cases so long that a run to warm up, which all others have, would change nothing.
    """
    if "--default-malloc" not in sys.argv:
        keep_freed_memory()
    for name, case in cases.items():
        if name not in cold:
            case()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_growth(case: Callable[[], object]) -> float:
    """MB by which the resident set grew at most."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier cases freed must not hide what this one takes
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to the present size
    before = _resident("VmRSS")
    case()
    return (_resident("VmHWM") - before) / 1e6


def _resident(mark: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(mark))
    return 1024 * int(line.split()[1])


def machine(*packages: str) -> dict[str, Any]:
    """Processor, cores, threads, instruction sets and versions: what a figure means nothing without."""
    info = _cpuinfo()
    flags = set(info.get("flags", "").split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **{flag: flag in flags for flag in CPU_FLAGS},
        "oneDNN limit": os.environ.get("ONEDNN_MAX_CPU_ISA"),
        "PyTorch limit": os.environ.get("ATEN_CPU_CAPABILITY"),
        "native kernels": kernels_text(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", *packages)},
    }


def show(title: str, rows: list[dict[str, Any]], about: dict[str, Any], as_json: bool) -> None:
    """Print the rows, which all have the same keys, and the machine they were measured on."""
    if as_json:
        print(json.dumps({"title": title, "machine": about, "rows": rows}, indent=2))
    else:
        _print_tables({title: rows}, about)


def show_all(tables: dict[str, list[dict[str, Any]]], about: dict[str, Any], as_json: bool) -> None:
    """Several tables by title, as one JSON document or one after the other."""
    if as_json:
        print(json.dumps({"machine": about, "tables": tables}, indent=2))
    else:
        _print_tables(tables, about)


def _print_tables(tables: dict[str, list[dict[str, Any]]], about: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)  # a file has no width; 80 columns would cut the heads
    for title, rows in tables.items():
        table = Table(title=title)
        for key in rows[0]:
            table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right")
        for row in rows:
            table.add_row(*(_cell(value) for value in row.values()))
        console.print(table)
    console.print(", ".join(f"{key} {value}" for key, value in about.items()), style="dim")


def _cell(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) and value < 1000 else f"{value:,.0f}" if isinstance(value, float) else str(value)


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    pairs = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
