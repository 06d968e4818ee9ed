"""What the training loop costs beyond its model, and what a second rank brings.

First table: images per second of whole epochs (batches, augmentation, agreed failures, metrics, checkpoint) against the bare forward,
backward and optimiser step of the same model on batches that lie ready. Second: one process against two ranks, one thread each, with the
same global batch. Images are the embedded digits at 32×32, networks have the widths of the DCN paper.
"""

import copy
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from _common import machine, medians, options, show_all
from continua.runs.folder import Run
from continua.train import RunOptions, load_recipe, resolve
from continua.train.loop import Training
from continua.train.metrics import Progress
from continua.train.start import assemble, launch_fabric

CASES: dict[str, dict[str, Any]] = {
    "resnet_blocks": dict(model="resnet_blocks", model_options={}),
    "dcn_ode, RK4 in one step": dict(model="dcn_ode", model_options=dict(solver=dict(method="rk4", steps=1, rtol=1e-3, atol=1e-3))),
}
WIDE: dict[str, Any] = dict(channels=[32, 64, 128], norm_groups=32, stem_padding=0)


def recipe_of(case: dict[str, Any], batch: int, per_class: int) -> Any:
    """The dcn recipe on digits, without what an epoch need not do: no look at test images."""
    chosen = dict(case, model_options=WIDE | case["model_options"], data="digits32", per_class=per_class, batch_size=batch, epochs=1000)
    return resolve(load_recipe("dcn", chosen))


def epochs_of(training: Training) -> Callable[[], None]:
    """One whole epoch at each call."""

    def one() -> None:
        training._end_epoch(training._train_epoch(Progress("off", 1, 1)))

    return one


def bare_steps(training: Training) -> Callable[[], None]:
    """As many steps as an epoch has, with nothing around them, on a copy of the network."""
    net = copy.deepcopy(training.net).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    batches = [(batch.images, batch.labels) for batch in training.parts.train.epoch(0)]

    def steps() -> None:
        for images, labels in batches:
            optimiser.zero_grad(set_to_none=True)
            cross_entropy(net(images), labels).backward()
            optimiser.step()

    return steps


def loop_rows(batch: int, per_class: int, repeats: int) -> list[dict[str, Any]]:
    rows = []
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            recipe, how = recipe_of(case, batch, per_class), RunOptions(progress="off", device="cpu")
            parts = assemble(recipe, how, launch_fabric("cpu", "float32", 600.0))
            training = Training(Run(folder), recipe, parts, how)
            images = len(parts.train) * batch
            seconds = medians({"bare": bare_steps(training), "loop": epochs_of(training)}, repeats)
        rows.append(
            {
                "network": name,
                "bare step, images/s": images / seconds["bare"],
                "whole loop, images/s": images / seconds["loop"],
                "loop : bare": seconds["bare"] / seconds["loop"],
            }
        )
    return rows


def rank_rows(batch: int, per_class: int, epochs: int) -> list[dict[str, Any]]:
    rows = []
    for name, case in CASES.items():
        one, two = (speed_of(case, batch, per_class, epochs, ranks) for ranks in (1, 2))
        rows.append({"network": name, "one rank, images/s": one, "two ranks, images/s": two, "two : one": two / one})
    return rows


def speed_of(case: dict[str, Any], batch: int, per_class: int, epochs: int, ranks: int) -> float:
    """Images per second of `continua train`, median over all epochs but the first."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    options = json.dumps(WIDE | case["model_options"])
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "continua", "train", "--recipe", "dcn", "--model", case["model"], "--model_options", options, "--data", "digits32"]
        words += ["--per-class", str(per_class), "--batch-size", str(batch), "--epochs", str(epochs), "--threads", "1"]
        words += ["--device", "cpu", "--progress", "off", "--out", f"{folder}/run"]
        many = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port] if ranks > 1 else []
        done = subprocess.run([sys.executable, *many, *words], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise SystemExit(done.stderr)
        return median(line["images_per_second"] for line in Run(Path(folder) / "run").lines()[1:] if line["event"] == "epoch")


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--batch", type=int, default=128, help="images per batch, over all ranks")
    parser.add_argument("--per-class", type=int, default=64, help="images per class in an epoch")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each training with ranks")
    parser.add_argument("--only", choices=["loop", "ranks"], default=None, help="one of the two tables")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    tables = {}
    if chosen.only != "ranks":
        tables[f"the loop against the bare step, batch {chosen.batch}"] = loop_rows(chosen.batch, chosen.per_class, chosen.repeats)
    if chosen.only != "loop":
        tables[f"two ranks against one, global batch {chosen.batch}"] = rank_rows(chosen.batch, chosen.per_class, chosen.epochs)
    show_all(tables, machine("lightning-fabric"), chosen.json)


if __name__ == "__main__":
    main()
