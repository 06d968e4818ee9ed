"""What a network is trained for: how it is built and saved, its loss of each sample, and whether a sample is right."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from continua.data import Batch
from continua.errors import ConfigError
from continua.models import CONFIG_FILE, WEIGHTS_FILE, Network, Reconstructor, create_model, from_pretrained, write_synced
from continua.runs.recipe import Recipe
from continua.runs.resolution import encoder_weights

Trained = Network | Reconstructor


class Classify:
    """Cross-entropy; right is the class with the highest logit."""

    has_accuracy = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def build(self) -> Trained:
        """A new network, its weights drawn by PyTorch's generator as it stands."""
        return create_model(self.recipe.model, **self.recipe.model_options)

    def losses(self, net: Trained, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The loss of each sample; targets are smoothed where one learns from them, never where one measures."""
        amount = self.recipe.label_smoothing if smoothing else 0.0
        return functional.cross_entropy(outputs.float(), batch.labels, reduction="none", label_smoothing=amount)

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Whether each sample is right."""
        return outputs.argmax(1) == batch.labels

    def save(self, net: Any, folder: Path) -> None:
        """Write the weights and what is needed to build the network again."""
        net.save_pretrained(folder)

    def load(self, folder: Path) -> Trained:
        """The network that `save` wrote, in evaluation mode."""
        return from_pretrained(folder)


class Reconstruct:
    """Mean squared error of the image that a decoder makes of a frozen encoder's features, per pixel and channel (DCN §4.3)."""

    has_accuracy = False

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        if recipe.augmentation.mean is not None:
            raise ConfigError("task 'reconstruct' compares images in [0, 1]; leave augmentation.mean and std out")

    def build(self) -> Trained:
        """A new decoder on the recipe's encoder."""
        encoder: Any = from_pretrained(encoder_weights(str(self.recipe.encoder)).parent)
        return Reconstructor(encoder)

    def losses(self, net: Any, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        """The mean squared error of each image."""
        return (outputs.float() - net.target(batch.images)).square().mean((1, 2, 3))

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        """An image is never simply right."""
        return torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)

    def save(self, net: Any, folder: Path) -> None:
        """The weights of encoder and decoder beside the encoder's configuration, for `load_reconstructor`."""
        from safetensors.torch import save

        folder.mkdir(parents=True, exist_ok=True)
        write_synced(folder / WEIGHTS_FILE, save({name: t.detach().cpu().contiguous() for name, t in net.state_dict().items()}))
        text = json.dumps({"task": "reconstruct", "encoder": net.encoder.config, "format": 1}, indent=2, ensure_ascii=False)
        write_synced(folder / CONFIG_FILE, (text + "\n").encode())

    def load(self, folder: Path) -> Trained:
        """The network that `save` wrote, in evaluation mode."""
        return load_reconstructor(folder)


Task = Classify | Reconstruct


def task_of(recipe: Recipe) -> Task:
    """What the recipe trains for."""
    return Classify(recipe) if recipe.task == "classify" else Reconstruct(recipe)


def load_reconstructor(folder: "str | Path") -> Reconstructor:
    """The encoder and decoder that a run with task 'reconstruct' saved in its best/ folder."""
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        saved = json.loads((folder / CONFIG_FILE).read_text("utf-8"))["encoder"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder} holds no reconstructor ({error}); expected best/ of a run with task 'reconstruct'") from None
    encoder: Any = create_model(saved["model"], **saved["options"])
    net = Reconstructor(encoder)
    net.load_state_dict(load_file(folder / WEIGHTS_FILE))
    return net.eval()
