"""What a network is trained for: how it is built and saved, its loss of each sample, and whether a sample is right."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from continua.data import Batch
from continua.errors import ConfigError
from continua.models import Network, Reconstructor, create_model, from_pretrained
from continua.runs.recipe import Recipe
from continua.runs.resolution import encoder_weights


class Classify:
    """Cross-entropy; right is the class with the highest logit."""

    has_accuracy = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def build(self) -> Network:
        """A new network, its weights drawn by PyTorch's generator as it stands."""
        return create_model(self.recipe.model, **self.recipe.model_options)

    def losses(self, net: Network, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The loss of each sample; targets are smoothed where one learns from them, never where one measures."""
        amount = self.recipe.label_smoothing if smoothing else 0.0
        return functional.cross_entropy(outputs.float(), batch.labels, reduction="none", label_smoothing=amount)

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Whether each sample is right."""
        return outputs.argmax(1) == batch.labels

    def save(self, net: Any, folder: Path) -> None:
        """Write the weights and what is needed to build the network again."""
        net.save_pretrained(folder)

    def load(self, folder: Path) -> Network:
        """The network that `save` wrote, in evaluation mode."""
        return from_pretrained(folder)


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

    def losses(self, net: Any, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The mean squared error of each image."""
        return (outputs.float() - net.target(batch.images)).square().mean((1, 2, 3))

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """An image is never simply right."""
        return torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)

    def save(self, net: Any, folder: Path) -> None:
        """Weights and configuration of encoder and decoder, for `from_pretrained`."""
        net.save_pretrained(folder)

    def load(self, folder: Path) -> Network:
        """The network that `save` wrote, in evaluation mode."""
        return load_reconstructor(folder)


Task = Classify | Reconstruct
"""What a network is trained for."""


def task_of(recipe: Recipe) -> Task:
    """What the recipe trains for."""
    return Classify(recipe) if recipe.task == "classify" else Reconstruct(recipe)


def load_reconstructor(folder: "str | Path") -> Reconstructor:
    """The encoder and decoder that a run with task 'reconstruct' saved in its best/ folder."""
    net = from_pretrained(folder)
    if not isinstance(net, Reconstructor):
        raise ConfigError(f"{folder} holds no reconstructor but {net.name}; expected best/ of a run with task 'reconstruct'")
    return net
