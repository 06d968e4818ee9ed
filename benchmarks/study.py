"""Whole `dcn_ode` in two steps of rk4, batch 128, in two respects that `dcn_step.py` leaves out.

First table: images per second on one thread and on two, alone and beside a process that keeps one core busy, which this benchmark starts
and ends. Second: the peak memory of a training step with the native kernels and without them, each in a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from _common import machine, medians, options, peak_growth, show_all
from dcn_step import Reference, network, rk4_block, training_step

FIXED = dict(method="rk4", steps=2)
MEMORY_CASES = ("plain PyTorch modules", "continua, direct", "continua, checkpoint")


def step_of(case: str, batch: int) -> Callable[[], None]:
    torch.manual_seed(0)
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    if case == "plain PyTorch modules":
        return training_step(Reference(network(1.0), rk4_block), images, labels, False)
    return training_step(network(1.0, solver=dict(FIXED, gradient=case.split()[-1])), images, labels, False)


@contextmanager
def busy_process() -> Iterator[None]:
    """A second process that computes without end on one thread."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def busy_rows(batch: int, repeats: int) -> list[dict[str, object]]:
    step = step_of("continua, direct", batch)

    def on(threads: int) -> Callable[[], None]:
        def run() -> None:
            torch.set_num_threads(threads)
            step()

        return run

    cases = {"1": on(1), "2": on(2)}
    alone = medians(cases, repeats)
    with busy_process():
        beside = medians(cases, repeats)
    kinds = {"alone": alone, "beside a busy process": beside}
    return [
        {
            "dcn_ode, direct": name,
            "one thread, images/s": batch / found["1"],
            "two threads, images/s": batch / found["2"],
            "two : one": found["1"] / found["2"],
        }
        for name, found in kinds.items()
    ]


def memory_rows(batch: int) -> list[dict[str, object]]:
    rows = []
    for case in MEMORY_CASES:
        grown = {native: memory_in_own_process(case, batch, native) for native in (("", "off") if "continua" in case else ("off",))}
        ratio = grown[""] / grown["off"] if "" in grown else None
        rows.append({"rk4, 2 steps": case, "native, MB": grown.get("", "—"), "without, MB": grown["off"], "native : without": ratio or "—"})
    return rows


def memory_in_own_process(case: str, batch: int, native: str) -> float:
    command = [sys.executable, __file__, "--memory-of", case, "--batch", str(batch), "--threads", str(torch.get_num_threads())]
    chosen = {**os.environ, "CONTINUA_NATIVE": native} if native else {k: v for k, v in os.environ.items() if k != "CONTINUA_NATIVE"}
    done = subprocess.run(command, env={**chosen, "MALLOC_MMAP_THRESHOLD_": "65536"}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.set_defaults(threads=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--parts", nargs="+", choices=["busy", "memory"], default=["busy", "memory"], help="which of the two tables")
    parser.add_argument("--memory-of", help="print the memory of one case as JSON; used by the benchmark itself")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.memory_of:
        step = step_of(chosen.memory_of, chosen.batch)
        step()  # fills the caches
        print(json.dumps(peak_growth(step)))
        return
    tables = {}
    if "busy" in chosen.parts:
        tables[f"two threads beside other work, batch {chosen.batch}"] = busy_rows(chosen.batch, chosen.repeats)
        torch.set_num_threads(chosen.threads)
    if "memory" in chosen.parts:
        tables[f"peak memory of a training step, batch {chosen.batch}"] = memory_rows(chosen.batch)
    show_all(tables, machine(), chosen.json)


if __name__ == "__main__":
    main()
