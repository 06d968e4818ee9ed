"""One training step, on all ranks at once: forward, agreement that all are well before anyone goes backward, gradients, update.

A batch whose solve, loss or gradient is no good changes nothing; the recipe's policy may first try it again with other tolerances.
"""

import hashlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from continua.data import Batch, Loader
from continua.errors import SolverError
from continua.float64 import double, widest
from continua.models import Network
from continua.runs import Recipe, Task, costs
from continua.train.optimiser import gradient_norm
from continua.train.solves import trained_ode_blocks, training_solves

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Handler = Callable[[int, FrameType | None], object] | int | None  # of a signal


class StopSignal:
    """SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal is gone) or SIGUSR1 (a cluster's warning): finish the step at hand, and save.

    A second one ends the process at once. What somebody else has decided about SIGHUP and SIGUSR1 stays: `nohup`, or a handler.
    """

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def listening(self) -> Iterator["StopSignal"]:
        before: dict[int, Handler] = {}

        def note(number: int, frame: FrameType | None) -> None:
            self.number = number
            for known, handler in before.items():
                signal.signal(known, handler)

        try:
            for number in (signal.SIGTERM, signal.SIGINT, *free_signals()):
                before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: whoever owns the process handles its signals
            before.clear()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def free_signals() -> list[signal.Signals]:
    """Those of SIGHUP and SIGUSR1 that would end the process: nobody has asked for anything else."""
    return [number for number in (signal.SIGHUP, signal.SIGUSR1) if signal.getsignal(number) is signal.SIG_DFL]


@dataclass
class Parts:
    """`net` is the network itself; `module` is what runs it in training (the same weights, spread over ranks and precisions)."""

    fabric: "Fabric"
    task: Task
    net: Network
    module: nn.Module
    optimiser: torch.optim.Optimizer
    train: Loader
    holdout: Loader | None
    test: Loader
    reported: str = "test"  # the split of `test`: "val", or "holdout", where a set has no test images


@dataclass
class StepResult:
    """What became of a batch. `failure`: why it changed nothing, else None. Numbers are sums (costs: means) over all ranks.

    `loss` is what this rank differentiates. `retried`: the factor of the tolerances with which it went well at last, and why not before.
    """

    failure: str | None
    stop: bool
    images: int
    total: float
    correct: float
    penalty: float
    nfe: list[float]
    rejected: list[float]
    nfe_backward: list[float]
    gradient_norm: float = 0.0
    loss: Tensor | None = None
    retried: tuple[float, str] | None = None


class TrainingStep:
    """Carries out steps. Random numbers (dropout, probes) depend on (seed, step, rank) only, whatever came before."""

    def __init__(self, parts: Parts, recipe: Recipe, stop: StopSignal) -> None:
        self.fabric, self.net, self.module, self.task = parts.fabric, parts.net, parts.module, parts.task
        self.optimiser, self.recipe, self.stop = parts.optimiser, recipe, stop
        self.weights = recipe.regularise.weights
        self.regularised = trained_ode_blocks(self.net) if self.weights else []

    def __call__(self, batch: Batch, step: int, progress: float = inf) -> StepResult:
        """Forward, backward and update; nothing changes where the batch fails. `progress`: epochs gone, which decide how fine it solves."""
        self.progress = progress
        result = self._forward_with_retries(batch, step)
        if result.loss is not None:
            self._backward(result, result.loss)
        return result

    # --- forward ------------------------------------------------------------------------------------------------------

    def _forward_with_retries(self, batch: Batch, step: int) -> StepResult:
        policy, result = self.recipe.failure, self._forward(batch, step)
        problem, power = result.failure, {"loosen": 1, "tighten": -1}.get(policy.policy, 0)
        for trial in range(1, policy.retries + 1 if power else 1):
            if result.failure is None:
                break
            factor = policy.tolerance_factor ** (power * trial)
            result = self._forward(batch, step, factor)
            if result.failure is None:
                result.retried = factor, problem or ""
        return result

    def _forward(self, batch: Batch, step: int, tolerance_factor: float = 1.0) -> StepResult:
        seed = hashlib.sha256(f"{self.recipe.seed}/{step}/{self.fabric.global_rank}".encode()).digest()
        torch.manual_seed(int.from_bytes(seed[:7], "big"))
        buffers = [buffer.clone() for buffer in self.net.buffers()]
        losses, sums, problem = None, [0.0] * 4, None
        try:
            with training_solves(self.net, self.recipe, step, self.progress, tolerance_factor):
                outputs = self.module(laid_out(batch.images, self.recipe.channels_last))
            losses, sums = self._losses(outputs, batch)
            problem = None if isfinite(sums[1] + sums[3]) else f"the loss is not finite ({sums[1] + sums[3]})"
        except SolverError as error:
            problem = str(error)
        result = self._agree(problem, sums)
        if result.failure is not None:
            for buffer, before in zip(self.net.buffers(), buffers, strict=True):
                buffer.copy_(before)  # what a failed batch did to running statistics is undone
        elif losses is not None:
            # DDP takes the mean over ranks of each rank's gradient: × ranks ÷ all valid samples makes that the mean over samples.
            result.loss = losses.sum() * (self.fabric.world_size / max(1, result.images))
        return result

    def _losses(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, list[float]]:
        """The loss of each valid sample with its penalties, and this rank's sums: images, loss, right, penalties."""
        valid = batch.valid.to(outputs.device)
        losses = self.task.losses(self.net, outputs, batch).where(valid, 0.0)
        penalties = self._penalties(outputs).where(valid, 0.0)
        right = self.task.right(outputs, batch) & valid
        sums = torch.stack([valid.sum(), double(losses.detach()).sum(), right.sum(), double(penalties.detach()).sum()])
        return losses + penalties, sums.tolist()

    def _penalties(self, outputs: Tensor) -> Tensor:
        """Energies and estimated errors of each sample's way through all blocks, weighted (Finlay et al. 2020; Pal et al. 2021)."""
        total = outputs.new_zeros(len(outputs), dtype=torch.float32)
        for block in self.regularised:
            for name, energy in (block.energies or {}).items():
                total = total + self.weights[name] * energy.float()
        return total

    def _agree(self, problem: str | None, sums: list[float]) -> StepResult:
        """All ranks learn whether one failed or was asked to stop; without this some would wait for ever."""
        own = costs(self.net.stats, "nfe") + costs(self.net.stats, "rejected")
        finite = [value if isfinite(value) else 0.0 for value in sums]
        failed, stop, images, total, correct, penalty, *stats = self.sum_over_ranks(
            [problem is not None, self.stop.number != 0, *finite, *own]
        )
        if failed and self.fabric.world_size > 1:
            problems: list[str | None] = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(problems, problem)
            problem = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(problems) if text)
        stats = [value / self.fabric.world_size for value in stats]
        half = len(stats) // 2
        return StepResult(problem, bool(stop), int(images), total, correct, penalty, stats[:half], stats[half:], [])

    def sum_over_ranks(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all ranks, which all must ask for."""
        if self.fabric.world_size == 1:
            return [float(number) for number in numbers]
        mine = torch.tensor(numbers, dtype=widest(self.fabric.device), device=self.fabric.device)
        return torch.as_tensor(self.fabric.all_reduce(mine, reduce_op="sum")).tolist()

    # --- backward -----------------------------------------------------------------------------------------------------

    def _backward(self, result: StepResult, loss: Tensor) -> None:
        """Gradients, reduced over ranks, and the optimiser's step; else what is wrong with them, the same on every rank."""
        self.optimiser.zero_grad(set_to_none=True)
        try:
            self.fabric.backward(loss)
        except SolverError as error:  # of the adjoint's own solve; among ranks the others wait in this backward and must hear of it
            if self.fabric.world_size > 1:
                raise
            result.failure = f"backward: {error}"
            return
        norm, limit = gradient_norm(self.net), self.recipe.optimiser.clip_norm
        if not isfinite(norm):
            result.failure = f"the gradient is not finite (norm {norm})"
            return
        if limit:
            torch.nn.utils.clip_grads_with_norm_(self.net.parameters(), limit, torch.tensor(norm))
        self.optimiser.step()
        result.gradient_norm = norm
        backward = self.sum_over_ranks(costs(self.net.stats, "nfe_backward"))
        result.nfe_backward = [value / self.fabric.world_size for value in backward]


def laid_out(images: Tensor, channels_last: bool) -> Tensor:
    """Images in the memory format of the recipe."""
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images
