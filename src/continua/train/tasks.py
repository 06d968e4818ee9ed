"""What a network is trained for: its loss of each sample, and whether a sample is right."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.data import Batch
from continua.errors import ConfigError
from continua.models import Reconstructor, create_model, from_pretrained, write_synced
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
        encoder: Any = from_pretrained(encoder_weights(str(self.recipe.encoder)).parent)
        return Reconstructor(encoder)

    def losses(self, net: Any, outputs: Tensor, batch: Batch, smoothing: bool = True) -> Tensor:
        return (outputs.float() - net.target(batch.images)).square().mean((1, 2, 3))

    def right(self, outputs: Tensor, batch: Batch) -> Tensor:
        return torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)

    def save(self, net: Any, folder: Path) -> None:
        """The weights of encoder and decoder beside the encoder's configuration, for `load_reconstructor`."""
        from safetensors.torch import save

        folder.mkdir(parents=True, exist_ok=True)
        write_synced(folder / "model.safetensors", save({name: t.detach().cpu().contiguous() for name, t in net.state_dict().items()}))
        text = json.dumps({"task": "reconstruct", "encoder": net.encoder.config, "format": 1}, indent=2, ensure_ascii=False)
        write_synced(folder / "config.json", (text + "\n").encode())


Task = Classify | Reconstruct


def task_of(recipe: Recipe) -> Task:
    return Classify(recipe) if recipe.task == "classify" else Reconstruct(recipe)


def load_reconstructor(folder: "str | Path") -> Reconstructor:
    """The encoder and decoder that a run with task 'reconstruct' saved in its best/ folder."""
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        saved = json.loads((folder / "config.json").read_text("utf-8"))["encoder"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder} holds no reconstructor ({error}); expected best/ of a run with task 'reconstruct'") from None
    encoder: Any = create_model(saved["model"], **saved["options"])
    net = Reconstructor(encoder)
    net.load_state_dict(load_file(folder / "model.safetensors"))
    return net.eval()
