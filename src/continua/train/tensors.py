"""Train a network on tensors in memory by a recipe's optimisation, without a run folder: what estimators and notebooks want.

`train` is the whole thing: checkpoints, resuming, ranks, failures, metrics. This is its smallest relative, with the same optimiser,
schedule, order of images and augmentation.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from continua.data import permutation
from continua.errors import ConfigError, ContinuaError
from continua.runs import Recipe
from continua.train.optimiser import build_optimiser, gradient_norm, lr_factor, set_lr


def fit_tensors(
    net: nn.Module,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    *,
    weights: Tensor | None = None,
    watch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Minimise the cross-entropy of a network on images in memory.

    Args:
        net: Changed in place; left in training mode, on the device where it was.
        images: (n, channels, height, width), as the network reads them; uint8 images are augmented as the recipe says.
        labels: The class of each, 0 … num_classes − 1.
        recipe: Its optimiser, schedule, epochs, batch size, seed and augmentation count. Its data, hold-out and precision do not.
        weights: How much each image counts, at least 0; None: all the same.
        watch: Called after each epoch with its number, from 1, and the mean loss.

    Returns:
        The mean loss of each epoch.

    Raises:
        ConfigError: The recipe needs what is not here: a hold-out for its schedule, or augmentation of images that are not uint8.
        ContinuaError: The loss is no longer a number.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.train import fit_tensors, load_recipe
        >>> net = ct.create_model("resnet4", num_classes=2)
        >>> images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
        >>> len(fit_tensors(net, images, torch.tensor([0, 1, 0, 1]), load_recipe("demo", {"epochs": 2})))
        2
    """
    still = recipe.augmentation.evaluation()
    if recipe.schedule.kind == "plateau":
        raise ConfigError("schedule.kind 'plateau' watches a hold-out, and there is none here; use cosine, step, multistep or constant")
    if images.dtype != torch.uint8 and recipe.augmentation != type(still)():
        raise ConfigError(f"the recipe augments images, which needs uint8 ones, and these are {images.dtype}; set its augmentation to {{}}")
    device, optimiser = next(net.parameters()).device, build_optimiser(net, recipe.optimiser)
    batches, losses = -(-len(images) // recipe.batch_size), []
    net.train()
    for epoch in range(recipe.epochs):
        order, total = permutation(len(images), recipe.seed, epoch), 0.0
        for place, chosen in enumerate(order.split(recipe.batch_size)):
            factor = lr_factor(recipe.schedule, epoch + place / batches, recipe.epochs, 1 / batches)
            set_lr(optimiser, recipe.optimiser.lr * factor)
            batch = images[chosen].to(device)
            if batch.dtype == torch.uint8:
                batch = recipe.augmentation.apply(batch, recipe.seed, epoch, chosen.to(device))
            each = nn.functional.cross_entropy(net(batch), labels[chosen].to(device), reduction="none")
            counts = torch.ones_like(each) if weights is None else weights[chosen].to(each)
            if not float(counts.sum()):
                continue
            loss = (each * counts).sum() / counts.sum()
            _update(net, optimiser, loss, recipe)
            total += float(loss.detach()) * len(chosen)
        losses.append(total / len(images))
        if watch is not None:
            watch(epoch + 1, losses[-1])
    return losses


def _update(net: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor, recipe: Recipe) -> None:
    if not torch.isfinite(loss.detach()):
        raise ContinuaError(f"the loss is {float(loss.detach())}; lower optimiser.lr ({recipe.optimiser.lr:g}) or add schedule.warmup")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.optimiser.clip_norm:
        torch.nn.utils.clip_grads_with_norm_(net.parameters(), recipe.optimiser.clip_norm, torch.tensor(gradient_norm(net)))
    optimiser.step()
