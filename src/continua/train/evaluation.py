"""A finished run, looked at closely: accuracy by class, confusion, calibration, cost."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from continua.data import DataSet, Loader, load
from continua.errors import ConfigError, SolverError
from continua.models import from_pretrained
from continua.train.devices import chosen_device
from continua.train.run import Run
from continua.train.setup import test_split
from continua.train.sums import costs
from continua.train.tasks import load_reconstructor, task_of

BINS = 15  # of the calibration error, as Guo et al. 2017


@torch.no_grad()
def evaluate(
    folder: "str | Path",
    *,
    data: str | None = None,
    split: str | None = None,
    tolerance: float | None = None,
    batch_size: int | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """What a run's weights are worth on a split, as plain numbers."""
    run = Run(folder)
    recipe, where = run.recipe, chosen_device(device)
    if run.result is None:
        raise ConfigError(f"{folder} is not finished; `continua train --resume {folder}` goes on with it")
    net: Any = load_reconstructor(run.best) if recipe.task == "reconstruct" else from_pretrained(run.best)
    net = _with_tolerance(net, tolerance).to(where)
    found = load(data or recipe.data, data_dir)
    split = split or test_split(found)
    size = batch_size or recipe.evaluation_batch_size
    loader = Loader(found[split], size, augmentation=recipe.augmentation.evaluation(), device=where)
    about = {"run": str(run.folder), "model": recipe.model, "data": found.name, "split": split, "batch_size": size, "tolerance": tolerance}
    outputs, labels, losses, cost = _run(net, loader, task_of(recipe))
    numbers: dict[str, Any] = {"images": len(found[split].labels), "failed": cost.pop("failed"), "loss": float(losses.mean())}
    if recipe.task == "classify":
        _check_classes(outputs, found)
        numbers |= classification(outputs, labels, found.classes, numbers["images"])
    return {**about, **numbers, **cost}


def classification(logits: Tensor, labels: Tensor, classes: tuple[str, ...], images: int) -> dict[str, Any]:
    """Top-1, top-5, calibration error, per class, confusion (row: true class). `images` counts failed ones too: they are wrong."""
    from torchmetrics.functional.classification import multiclass_calibration_error, multiclass_confusion_matrix

    count = logits.shape[1]
    ranked = logits.topk(min(5, count), dim=1).indices == labels[:, None]
    confusion = multiclass_confusion_matrix(logits, labels, num_classes=count)
    error = multiclass_calibration_error(logits.softmax(1), labels, num_classes=count, n_bins=BINS, norm="l1")
    return {
        "top1": float(ranked[:, 0].sum()) / images,
        "top5": float(ranked.any(1).sum()) / images,
        "calibration_error": float(error),
        "per_class": {name: _one_class(row, index, classes) for index, (name, row) in enumerate(zip(classes, confusion, strict=True))},
        "confusion": confusion.tolist(),
    }


def _one_class(row: Tensor, index: int, classes: tuple[str, ...]) -> dict[str, Any]:
    images, others = int(row.sum()), row.clone()
    others[index] = 0
    wrong = classes[int(others.argmax())] if others.sum() else None
    return {"images": images, "accuracy": float(row[index]) / max(1, images), "confused_with": wrong}


def _run(net: Any, loader: Loader, task: Any) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """Outputs, labels and losses of all images whose solve reached its end, and what it cost."""
    outputs, labels, losses, nfe, failed, seconds = [], [], [], [], 0, 0.0
    for batch in loader.epoch(0):
        start = time.monotonic()
        try:
            found = net(batch.images)
        except SolverError:
            failed += int(batch.valid.sum())
            continue
        losses.append(task.losses(net, found, batch, smoothing=False)[batch.valid].cpu())  # waits for a GPU, so the clock is right
        seconds += time.monotonic() - start
        outputs.append(found[batch.valid].float().cpu())
        labels.append(batch.labels[batch.valid].cpu())
        nfe.append(costs(net.stats, "nfe"))
    if not outputs:
        raise SolverError("not one batch could be solved; try a looser --tolerance")
    images = sum(map(len, labels))
    means = [sum(block) / len(nfe) for block in zip(*nfe, strict=True)]
    cost = {"failed": failed, "nfe": means, "images_per_second": images / max(1e-9, seconds)}
    return torch.cat(outputs), torch.cat(labels), torch.cat(losses), cost


def _with_tolerance(net: Any, tolerance: float | None) -> nn.Module:
    if tolerance is None:
        return net
    blocks = [m for m in net.modules() if hasattr(m, "solver") and hasattr(m, "field")]
    if not any(block.solver.steps is None for block in blocks):
        raise ConfigError("--tolerance has no effect: no block of this network chooses its steps by a tolerance")
    for block in blocks:
        block.solver = block.solver.replace(rtol=tolerance, atol=tolerance)
    return net


def _check_classes(outputs: Tensor, data: DataSet) -> None:
    if outputs.shape[1] != len(data.classes):
        raise ConfigError(f"the network knows {outputs.shape[1]} classes and {data.name} has {len(data.classes)}; choose a matching --data")
