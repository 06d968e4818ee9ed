"""One training step of ERKNet-7×1_7×1_7×1 and IRKNet-4×1_4×1_4×1 (k = 36) beside the form anyone would write first.

The naive form concatenates all maps for every growth, normalises the copy, activates it and convolves; it has the same weights and gives
the same loss and gradients (checked before anything is timed). Ours comes as it is and with `memory_efficient=True`. A third form, one
convolution per pair of maps whose results are added, shows why the blocks write into one buffer instead.

Memory is the growth of the process's resident set, measured in a process of its own as in solver.py.
"""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from _common import machine, medians, options, peak_growth, show
from continua import Network, create_model
from continua.blocks import ERKStep

MODELS = {"ERKNet-7×1_7×1_7×1": "erknet", "IRKNet-4×1_4×1_4×1": "irknet"}


class NaiveStep(nn.Module):
    """An ERK or IRK step by concatenation, on the weights of one of ours."""

    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step, self.eps = step, step.style.norm_eps

    def layer(self, parts: list[Tensor], affine: Any, weight: Tensor) -> Tensor:
        x = functional.batch_norm(torch.cat(parts, 1), None, None, affine.weight, affine.bias, True, 0.1, self.eps)
        return functional.conv2d(functional.relu(x), weight, padding=1)

    def forward(self, y: Tensor, use: int = 0) -> Tensor:
        return y + sum(self.explicit(y) if isinstance(self.step, ERKStep) else self.implicit(y))

    def explicit(self, y: Tensor) -> list[Tensor]:
        parts = [y]
        for growth in self.step.growths:
            parts.append(self.layer(parts, growth.affine, growth.conv.filter.weight))
        return parts[1:]

    def implicit(self, y: Tensor) -> list[Tensor]:
        z: list[Tensor] = []
        for node in self.step.nodes:
            z.append(self.layer([y, *z], node.first, node.conv.filter.weight[:, : node.seen]))
        for i, node in enumerate(self.step.nodes):
            z[i] = self.layer(z[:i] + z[i + 1 :], node.update, node.conv.filter.weight[:, self.step.channels :])
        return z


class PairwiseStep(NaiveStep):
    """A kernel over a concatenation as a sum of kernels over its parts."""

    def layer(self, parts: list[Tensor], affine: Any, weight: Tensor) -> Tensor:
        total, at = None, 0
        for part in parts:
            here = slice(at, at := at + part.shape[1])
            x = functional.batch_norm(part, None, None, affine.weight[here], affine.bias[here], True, 0.1, self.eps)
            one = functional.conv2d(functional.relu(x), weight[:, here], padding=1)
            total = one if total is None else total + one
        assert total is not None
        return total


def variants(name: str) -> dict[str, Network]:
    """The same network four times."""
    torch.manual_seed(0)
    plain = create_model(name)
    thrifty = create_model(name, memory_efficient=True)
    thrifty.load_state_dict(plain.state_dict())
    made: dict[str, Network] = {"naive": copy.deepcopy(plain), "pairwise": copy.deepcopy(plain)}
    for label, kind in (("naive", NaiveStep), ("pairwise", PairwiseStep)):
        for block in made[label].blocks:
            block.forward = kind(block.first).forward  # pyright: ignore
    return {"naive": made["naive"], "pairwise": made["pairwise"], "ours": plain, "ours, memory_efficient": thrifty}


def training_step(net: Network, images: Tensor, labels: Tensor) -> float:
    net.zero_grad(set_to_none=True)
    loss = functional.cross_entropy(net(images), labels)
    loss.backward()
    return float(loss.detach())


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.randn(size, 3, 32, 32, generator=source), torch.randint(0, 10, (size,), generator=source)


def gradient(net: Network) -> Tensor:
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def check(nets: dict[str, Network]) -> None:
    """All variants are the same function."""
    batch = batch_of(4)
    losses = {label: training_step(net, *batch) for label, net in nets.items()}
    expected = gradient(nets["naive"])
    for label, net in nets.items():
        error = float((gradient(net) - expected).norm() / expected.norm())
        if abs(losses[label] - losses["naive"]) > 1e-4 or error > 1e-3:
            raise SystemExit(f"{label} is not the naive network: loss {losses[label]} and {losses['naive']}, gradient error {error}")


def memory(model: str, batch: int) -> dict[str, float]:
    """Peak of one training step of each variant, in MB, measured in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", model, "--batch", str(batch), "--threads", str(torch.get_num_threads())]
    done = subprocess.run(command, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def memory_of(model: str, batch: int) -> dict[str, float]:
    found = {}
    for label, net in variants(model).items():
        data = batch_of(batch)
        training_step(net, *data)  # fills the caches
        found[label] = peak_growth(lambda net=net, data=data: training_step(net, *data))
    return found


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--batch", type=int, default=64, help="images per step")
    parser.add_argument("--quick", action="store_true", help="small batches, one round: does it run, not what it costs")
    parser.add_argument(
        "--memory-of", choices=list(MODELS.values()), help="print the memory of one model as JSON; used by the benchmark itself"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    batch, repeats = (4, 1) if chosen.quick else (chosen.batch, chosen.repeats)
    if chosen.memory_of:
        print(json.dumps(memory_of(chosen.memory_of, chosen.batch)))
        return
    rows = []
    for title, model in MODELS.items():
        nets, data = variants(model), batch_of(batch)
        check(nets)
        cases: dict[str, Callable[[], object]] = {
            label: (lambda net=net, data=data: training_step(net, *data)) for label, net in nets.items()
        }
        seconds, peak = medians(cases, repeats), memory(model, batch)
        for label in nets:
            row = {"network": title, "form": label, "s": seconds[label], "× naive": seconds[label] / seconds["naive"]}
            rows.append({**row, "MB": peak[label], "% of naive": 100 * peak[label] / peak["naive"]})
    show(f"one training step, batch {batch}, 32×32", rows, machine(), chosen.json)


if __name__ == "__main__":
    main()
