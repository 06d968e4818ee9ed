"""Loss and accuracy of a network on a split, over all ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from continua.data import Loader
from continua.errors import SolverError
from continua.train.tasks import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Measured:
    """`failed`: images whose solve did not reach its end; they count as wrong and are left out of the loss."""

    images: int
    loss: float
    accuracy: float | None
    failed: int

    @property
    def score(self) -> float:
        """Larger is better."""
        return -self.loss if self.accuracy is None else self.accuracy


@torch.no_grad()
def measure(net: Any, loader: Loader, task: Task, fabric: "Fabric", channels_last: bool = False) -> Measured:
    """The whole split once, in evaluation mode."""
    training, sums = net.training, torch.zeros(4, dtype=torch.float64)
    net.eval()
    for batch in loader.epoch(0):
        count = int(batch.valid.sum())
        try:
            with fabric.autocast():
                outputs = net(batch.images.contiguous(memory_format=torch.channels_last) if channels_last else batch.images)
        except SolverError:  # one image can spoil a batch's solve; the ranks must still meet below
            sums[3] += count
            continue
        losses = task.losses(net, outputs, batch, smoothing=False)[batch.valid].double().sum()
        sums += torch.stack([torch.tensor(count), losses.cpu(), task.right(outputs, batch)[batch.valid].sum().cpu(), torch.tensor(0)])
    net.train(training)
    if fabric.world_size > 1:
        sums = fabric.all_reduce(sums.to(fabric.device), reduce_op="sum")
    images, loss, correct, failed = sums.tolist()  # pyright: ignore[reportAttributeAccessIssue]
    accuracy = correct / max(1, images + failed) if task.has_accuracy else None
    return Measured(int(images + failed), loss / images if images else float("inf"), accuracy, int(failed))
