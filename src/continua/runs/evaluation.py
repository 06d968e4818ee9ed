"""What a network is trained for, and how good it is at it: one loop for training, `continua evaluate`, analyses and studies."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import ODEBlock
from continua.data import Batch, Loader
from continua.errors import ConfigError, SolverError, typed
from continua.files import Json
from continua.float64 import double
from continua.models import Network, Reconstructor, buildable, create_model, from_pretrained
from continua.ode import Stats
from continua.runs.recipe import Recipe
from continua.runs.resolving import encoder_weights
from continua.runs.view import RunView

BINS = 15  # of the calibration error, as Guo et al. 2017
Batches = Iterable[tuple[Tensor, Tensor]]  # images and labels
"""Images and labels, batch by batch."""


# --- what a network is trained for: how it is built, its loss of each sample, and whether a sample is right -------------


class Classify:
    """Cross-entropy; right is the class with the highest logit."""

    has_accuracy = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def build(self) -> Network:
        """A new network, its weights drawn by PyTorch's generator as it stands."""
        with buildable(self.recipe.model, "model_options"):
            return create_model(self.recipe.model, **self.recipe.model_options)

    def losses(self, net: Network, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The loss of each sample; targets are smoothed where one learns from them, never where one measures."""
        amount = self.recipe.label_smoothing if smoothing else 0.0
        return functional.cross_entropy(outputs.float(), batch.labels, reduction="none", label_smoothing=amount)

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Whether each sample is right."""
        return outputs.argmax(1) == batch.labels


class Reconstruct:
    """Mean squared error of the image that a decoder makes of a frozen encoder's features, per pixel and channel (DCN §4.3)."""

    has_accuracy = False

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        if recipe.augmentation.mean is not None:
            raise ConfigError("task 'reconstruct' compares images in [0, 1]; leave augmentation.mean and std out")

    def build(self) -> Network:
        """A new decoder on the recipe's encoder."""
        return Reconstructor(from_pretrained(encoder_weights(str(self.recipe.encoder)).parent))

    def losses(self, net: Network, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The mean squared error of each image."""
        return (outputs.float() - cast(Reconstructor, net).target(batch.images)).square().mean((1, 2, 3))

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """An image is never simply right."""
        return torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)


Task = Classify | Reconstruct
"""What a network is trained for."""


def task_of(recipe: Recipe) -> Task:
    """What the recipe trains for.

    Args:
        recipe: any recipe.

    Returns:
        The task.

    Examples:
        >>> from continua.runs import load_recipe, task_of
        >>> task = task_of(load_recipe("demo"))
    """
    return Classify(recipe) if recipe.task == "classify" else Reconstruct(recipe)


# --- how good it is -----------------------------------------------------------------------------------------------------


@dataclass
class Evaluation:
    """What one pass over images gave, as sums, from which ranks can make theirs.

    A batch whose solve did not reach its end has `failed`: its images count as wrong, and neither in the loss nor in evaluations of f.
    `solves` are, of each batch that was solved, its images and the evaluations of f in each block. `predictions` are the class with the
    largest output for each image in turn, −1 where it failed. `outputs`, `labels` and `losses`, where kept, are of those that did not.
    """

    solved: int = 0
    failed: int = 0
    correct: int | None = 0  # None: nothing is right or wrong about what the network does
    loss_sum: float = 0.0
    seconds: float = 0.0
    solves: list[tuple[int, list[float]]] = field(default_factory=list)
    predictions: list[int] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)

    @property
    def images(self) -> int:
        return self.solved + self.failed

    @property
    def accuracy(self) -> float | None:
        """As a fraction of all images."""
        return None if self.correct is None else self.correct / max(1, self.images)

    @property
    def loss(self) -> float:
        """The mean over images that were solved."""
        return self.loss_sum / self.solved if self.solved else float("inf")

    @property
    def score(self) -> float:
        """Larger is better."""
        return -self.loss if self.accuracy is None else self.accuracy

    @property
    def nfe_per_image(self) -> list[float]:
        """Evaluations of f in each block, mean over images."""
        totals = [sum(block) for block in zip(*([images * cost for cost in costs] for images, costs in self.solves), strict=True)]
        return [total / max(1, self.solved) for total in totals]

    @property
    def nfe_per_solve(self) -> list[float]:
        """Evaluations of f in each block, mean over batches."""
        return [sum(block) / len(self.solves) for block in zip(*(costs for _, costs in self.solves), strict=True)]

    def over_ranks(self, sum_over_ranks: Callable[[list[float]], list[float]]) -> "Evaluation":
        """Counts and loss of all ranks together."""
        sums = sum_over_ranks([self.solved, self.failed, self.correct or 0, self.loss_sum])
        correct = None if self.correct is None else int(sums[2])
        return replace(self, solved=int(sums[0]), failed=int(sums[1]), correct=correct, loss_sum=sums[3])


@torch.no_grad()
def evaluate(
    network: Network,
    split: "Loader | Iterable[Batch | tuple[Tensor, Tensor]]",
    *,
    task: Task | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    keep: bool = False,
) -> Evaluation:
    """Every batch of a split once, in evaluation mode.

    Args:
        network: The network, which keeps the statistics of its last solve in `stats`.
        split: A loader, or batches: (images, labels), or `Batch`, of which only valid samples count.
        task: What the loss is; without it there is none, and right is the class with the largest output.
        forward: How images go through the network where `network(images)` is not what is wanted: changed, or in another precision.
        keep: Also keep outputs, labels and losses.

    Returns:
        Sums over all images, with `accuracy`, `loss` and evaluations of f as properties.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.runs import evaluate
        >>> batches = [(torch.rand(4, 3, 32, 32), torch.zeros(4, dtype=torch.long))]
        >>> evaluate(ct.create_model("resnet4"), batches).images
        4
    """
    run, training = forward or network, network.training
    result = Evaluation(correct=0 if task is None or task.has_accuracy else None)
    network.eval()
    try:
        for batch in _batches(split):
            start = time.monotonic()
            try:
                outputs = run(batch.images)
            except SolverError:  # one image can spoil a batch's solve; the others must still be counted
                count = int(batch.valid.sum())
                result.failed += count
                result.predictions += [-1] * count
                continue
            _count(result, network, outputs, batch, task, keep)  # waits for a GPU, so the clock is right
            result.seconds += time.monotonic() - start
    finally:
        network.train(training)
    return result


def _count(result: Evaluation, network: Network, outputs: Tensor, batch: Batch, task: Task | None, keep: bool) -> None:
    valid = batch.valid
    count = int(valid.sum())
    result.solved += count
    result.solves.append((count, costs(network.stats, "nfe")))
    if result.correct is not None:
        best = outputs.argmax(1)
        result.correct += int((best == batch.labels.to(best.device))[valid].sum())
        result.predictions += best[valid].tolist()
    if task is not None:
        losses = task.losses(network, outputs, batch, smoothing=False)[valid]
        result.loss_sum += float(double(losses).sum())
        result.losses += [losses.cpu()] if keep else []
    if keep:
        result.outputs.append(outputs[valid].float().cpu())
        result.labels.append(batch.labels[valid].cpu())


def _batches(split: "Loader | Iterable[Batch | tuple[Tensor, Tensor]]") -> Iterator[Batch]:
    for batch in split.epoch(0) if isinstance(split, Loader) else split:
        if isinstance(batch, Batch):
            yield batch
        else:
            images, labels = batch
            indices = torch.arange(len(labels), device=labels.device)
            yield Batch(images, labels.long(), indices, torch.ones_like(indices, dtype=torch.bool))


def costs(stats: Sequence[Stats | None], name: str) -> list[float]:
    """A statistic of each block's last solve, its mean over samples where each has its own; 0 for blocks without a solver.

    Args:
        stats: as `net.stats` gives them.
        name: of the statistic, such as "nfe".

    Returns:
        A number for each block.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.runs import costs
        >>> net = ct.create_model("resnet4")
        >>> logits = net(torch.rand(1, 3, 32, 32))
        >>> sum(costs(net.stats, "nfe"))
        0.0
    """
    return [0.0 if block is None else float(torch.as_tensor(getattr(block, name)).cpu().double().mean()) for block in stats]


def evaluate_run(
    folder: "str | Path",
    *,
    data: str | None = None,
    split: str | None = None,
    tolerance: float | None = None,
    batch_size: int | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
) -> Json:
    """A finished run, looked at closely: what its weights are worth on a split, accuracy by class, confusion, calibration, cost.

    Args:
        folder: of the run.
        data: another data set than the run's own.
        split: which split; None: the one that results are reported on.
        tolerance: rtol = atol of the solves; None: the network's own.
        batch_size: images at a time; None: the recipe's.
        data_dir: folder of all data sets; None: where the run found them.
        device: "auto", "cpu" or "cuda".

    Returns:
        A mapping with the keys `run`, `model`, `data`, `split`, `batch_size`, `tolerance` (what was evaluated and how), `images` and
        `failed` (how many, and of how many the solve failed: these count as wrong), `loss` (mean over images), `nfe` (evaluations of f in
        each block, mean over solves) and `images_per_second`; for classifiers also `top1` and `top5` (fractions of all images),
        `calibration_error` (expected, in 15 bins), `per_class` (by name) and `confusion` (rows: true classes, columns: predicted).

    Raises:
        ConfigError: the run is not finished, or the data have another number of classes than the network.
        SolverError: not one batch could be solved.

    Examples:
        >>> from continua.runs import evaluate_run
        >>> evaluate_run("runs/demo/dcn_ode")["top1"]  # doctest: +SKIP
    """
    view = RunView(folder, device=device, data_dir=data_dir)
    if view.result is None:
        raise ConfigError(f"{folder} is not finished; `continua train --resume {typed(folder)}` goes on with it")
    task, network = task_of(view.recipe), view.load_network()
    set_tolerance(network, tolerance)
    images = view.images(data=data, split=split, batch_size=batch_size, own=False)
    measured = evaluate(network, images.loader, task=task, keep=True)
    if not measured.solved:
        raise SolverError("not one batch could be solved; try a looser --tolerance")
    numbers: Json = {"run": str(view.folder), "model": view.recipe.model, "data": images.data, "split": images.name}
    numbers |= {"batch_size": images.batch_size, "tolerance": tolerance, "images": images.count, "failed": measured.failed}
    numbers |= {"loss": float(torch.cat(measured.losses).mean())}
    if task.has_accuracy:
        logits = torch.cat(measured.outputs)
        if logits.shape[1] != len(images.classes):
            known = f"the network knows {logits.shape[1]} classes and {images.data} has {len(images.classes)}"
            raise ConfigError(f"{known}; choose a matching --data")
        numbers |= classification(logits, torch.cat(measured.labels), images.classes, images.count)
    return {**numbers, "nfe": measured.nfe_per_solve, "images_per_second": measured.solved / max(1e-9, measured.seconds)}


def classification(logits: Tensor, labels: Tensor, classes: tuple[str, ...], images: int) -> Json:
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
        "per_class": {name: _of_class(row, index, classes) for index, (name, row) in enumerate(zip(classes, confusion, strict=True))},
        "confusion": confusion.tolist(),
    }


def _of_class(row: Tensor, index: int, classes: tuple[str, ...]) -> Json:
    images, others = int(row.sum()), row.clone()
    others[index] = 0
    wrong = classes[int(others.argmax())] if others.sum() else None
    return {"images": images, "accuracy": float(row[index]) / max(1, images), "confused_with": wrong}


def set_tolerance(network: nn.Module, tolerance: float | None) -> None:
    """Solve every block adaptively at this rtol and atol: by its own method, or by dopri5 if it takes fixed steps."""
    if tolerance is None:
        return
    blocks = [module for module in network.modules() if isinstance(module, ODEBlock)]
    if not blocks:
        raise ConfigError("--tolerance has no effect: this network has no ODE block, so no solver")
    for block in blocks:
        own = {} if block.solver.steps is None else {"method": "dopri5", "steps": None}
        block.solver = block.solver.replace(rtol=tolerance, atol=tolerance, **own)
