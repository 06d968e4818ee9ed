"""What a network is trained for: its loss of each sample, and whether a sample is right."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.data import Batch
from continua.errors import ConfigError
from continua.models import Reconstructor, create_model, from_pretrained
from continua.train.recipe import Recipe
from continua.train.resolution import encoder_weights


class Classify:
    """Cross-entropy; right is the class with the highest logit."""

    has_accuracy = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def build(self) -> nn.Module:
        return create_model(self.recipe.model, **self.recipe.model_options)

    def losses(self, net: nn.Module, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        amount = self.recipe.label_smoothing if smoothing else 0.0
        return functional.cross_entropy(outputs.float(), batch.labels, reduction="none", label_smoothing=amount)

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        return outputs.argmax(1) == batch.labels

    def save(self, net: Any, folder: Path) -> None:
        net.save_pretrained(folder)


class Reconstruct:
    """Mean squared error of the image that a decoder makes of a frozen encoder's features, per pixel and channel (DCN §4.3)."""

    has_accuracy = False

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        if recipe.augmentation.mean is not None:
            raise ConfigError("task 'reconstruct' compares images in [0, 1]; leave augmentation.mean and std out")

    def build(self) -> nn.Module:
        return Reconstructor(from_pretrained(encoder_weights(str(self.recipe.encoder)).parent))

    def losses(self, net: Any, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        return (outputs.float() - net.target(batch.images)).square().mean((1, 2, 3))

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        return torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)

    def save(self, net: Any, folder: Path) -> None:
        net.save_pretrained(folder)


Task = Classify | Reconstruct


def task_of(recipe: Recipe) -> Task:
    return Classify(recipe) if recipe.task == "classify" else Reconstruct(recipe)


def load_reconstructor(folder: "str | Path") -> Reconstructor:
    """The encoder and decoder that a run with task 'reconstruct' saved in its best/ folder."""
    net = from_pretrained(folder)
    if not isinstance(net, Reconstructor):
        raise ConfigError(f"{folder} holds no reconstructor but {net.name}; expected best/ of a run with task 'reconstruct'")
    return net
