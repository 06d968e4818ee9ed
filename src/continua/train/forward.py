"""One batch through the network, on all ranks at once: losses, costs, and whether all are well, agreed before anyone goes backward."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from continua.data import Batch
from continua.errors import SolverError
from continua.train.devices import StopSignal
from continua.train.recipe import Recipe
from continua.train.setup import Parts, solver_modules
from continua.train.sums import costs


@dataclass
class Forward:
    """`loss` is what this rank differentiates, None where the batch failed; the numbers are sums (costs: means) over all ranks."""

    loss: Tensor | None
    failure: str | None
    stop: bool
    images: int
    total: float
    correct: float
    penalty: float
    nfe: list[float]
    rejected: list[float]


class ForwardPass:
    """Runs batches forward. Random numbers (dropout, probes) depend on (seed, step, rank) only, whatever came before."""

    def __init__(self, parts: Parts, recipe: Recipe, stop: StopSignal) -> None:
        self.fabric, self.net, self.module, self.task = parts.fabric, parts.net, parts.module, parts.task
        self.recipe, self.stop = recipe, stop
        wanted = recipe.regularise
        self.regularised = solver_modules(self.net) if wanted.kinetic or wanted.jacobian else []

    def __call__(self, batch: Batch, step: int, tolerance_factor: float = 1.0) -> Forward:
        seed = hashlib.sha256(f"{self.recipe.seed}/{step}/{self.fabric.global_rank}".encode()).digest()
        torch.manual_seed(int.from_bytes(seed[:7], "big"))
        buffers = [buffer.clone() for buffer in self.net.buffers()]
        losses, found, problem = None, [0.0] * 4, None
        try:
            with scaled_tolerances(self.net, tolerance_factor):
                outputs = self.module(_laid_out(batch.images, self.recipe.channels_last))
            losses, found = self._losses(outputs, batch)
            problem = None if isfinite(found[1] + found[3]) else f"the loss is not finite ({found[1] + found[3]})"
        except SolverError as error:
            problem = str(error)
        agreed = self._agree(problem, found)
        if agreed.failure is not None:
            for buffer, before in zip(self.net.buffers(), buffers, strict=True):
                buffer.copy_(before)  # what a failed batch did to running statistics is undone
        elif losses is not None:
            # DDP takes the mean over ranks of each rank's gradient: × ranks ÷ all valid samples makes that the mean over samples.
            agreed.loss = losses.sum() * (self.fabric.world_size / max(1, agreed.images))
        return agreed

    def _losses(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, list[float]]:
        """The loss of each valid sample with its penalties, and this rank's sums: images, loss, right, penalties."""
        valid = batch.valid.to(outputs.device)
        losses = self.task.losses(self.net, outputs, batch).where(valid, 0.0)
        penalties = self._penalties(outputs).where(valid, 0.0)
        right = self.task.right(outputs, batch) & valid
        sums = torch.stack([valid.sum(), losses.detach().double().sum(), right.sum(), penalties.detach().double().sum()])
        return losses + penalties, sums.tolist()

    def _penalties(self, outputs: Tensor) -> Tensor:
        """Kinetic energy and Jacobian norm of each sample's way through all blocks, weighted (Finlay et al. 2020, eq. 8 and 9)."""
        total = outputs.new_zeros(len(outputs), dtype=torch.float32)
        for block in self.regularised:
            for name, energy in block.energies.items():
                total = total + getattr(self.recipe.regularise, name) * energy.float()
        return total

    def _agree(self, problem: str | None, found: list[float]) -> Forward:
        """All ranks learn whether one failed or was asked to stop; without this some would wait for ever."""
        own = costs(self.net.stats, "nfe") + costs(self.net.stats, "rejected")
        found = [value if isfinite(value) else 0.0 for value in found]
        failed, stop, images, total, correct, penalty, *stats = self.sum_over_ranks(
            [problem is not None, self.stop.number != 0, *found, *own]
        )
        if failed and self.fabric.world_size > 1:
            told: list[Any] = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(told, problem)
            problem = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(told) if text)
        stats = [value / self.fabric.world_size for value in stats]
        half = len(stats) // 2
        return Forward(None, problem, bool(stop), int(images), total, correct, penalty, stats[:half], stats[half:])

    def sum_over_ranks(self, numbers: list[Any]) -> list[float]:
        if self.fabric.world_size == 1:
            return [float(number) for number in numbers]
        mine = torch.tensor(numbers, dtype=torch.float64, device=self.fabric.device)
        return self.fabric.all_reduce(mine, reduce_op="sum").tolist()  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def scaled_tolerances(net: Any, factor: float) -> Iterator[None]:
    """Inside, every adaptive solve has its tolerances times `factor`."""
    blocks = [] if factor == 1.0 else [block for block in solver_modules(net) if block.solver.steps is None]
    before = [block.solver for block in blocks]
    try:
        for block in blocks:
            block.solver = block.solver.replace(rtol=block.solver.rtol * factor, atol=block.solver.atol * factor)
        yield
    finally:
        for block, solver in zip(blocks, before, strict=True):
            block.solver = solver


def _laid_out(images: Tensor, channels_last: bool) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images
