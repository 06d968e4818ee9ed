"""From a recipe as written to one with plain numbers only, and its identity."""

import hashlib
import json
import warnings
from dataclasses import asdict, replace
from math import floor
from pathlib import Path
from typing import Any, Literal

import torch

from continua.data import CATALOGUE, catalogue_entry, folder_size, load
from continua.errors import ConfigError, ContinuaWarning
from continua.filters import fast_on_cpu
from continua.machine import why_unusable
from continua.models import complete_options, model_entry
from continua.runs.loading import stretched
from continua.runs.recipe import Recipe


def resolve(recipe: Recipe, device: str = "cpu", data_dir: "str | Path | None" = None) -> Recipe:
    """Tables looked up, "auto" decided, the model's options complete: what config.yaml of a run holds."""
    if not folder_size(recipe.data):
        catalogue_entry(recipe.data)
    recipe = _looked_up(recipe)
    if recipe.precision == "auto":
        recipe = replace(recipe, precision=_fast_precision(device))
    if recipe.drop_last == "auto":
        recipe = replace(recipe, drop_last=_training_images(recipe, data_dir) >= recipe.batch_size)
    if recipe.encoder is not None:
        weights = encoder_weights(recipe.encoder)
        known = json.loads(weights.with_name("config.json").read_text("utf-8"))
        return replace(recipe, model=known["model"], encoder=str(weights.parents[1].resolve()))
    return replace(recipe, model_options=_complete_options(recipe))


def identity(recipe: Recipe) -> str:
    """Sixteen hexadecimal digits that name a resolved recipe; an encoder counts by its weights, not by the folder it lies in."""
    data = asdict(recipe)
    if recipe.encoder is not None:
        data["encoder"] = hashlib.sha256(encoder_weights(recipe.encoder).read_bytes()).hexdigest()
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=list).encode()).hexdigest()[:16]


def run_id(recipe: Recipe, device: str = "cpu", data_dir: "str | Path | None" = None) -> str:
    """The identity of the run that a recipe, resolved or not, asks for: equal whenever the trainings are."""
    return identity(resolve(recipe, device, data_dir))


def encoder_weights(run: str) -> Path:
    """The weights of a finished run."""
    path = Path(run) / "best" / "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"encoder: {run} has no {path.relative_to(run)}; expected the folder of a finished run")
    return path


def _looked_up(recipe: Recipe) -> Recipe:
    table = recipe.length_by_per_class
    if not table:
        return recipe
    plain = replace(recipe, length_by_per_class={})
    if recipe.per_class is None:
        return plain
    if recipe.per_class not in table:
        known = ", ".join(map(str, sorted(table)))
        raise ConfigError(
            f"length_by_per_class has no entry for per_class={recipe.per_class}; it has {known}. Give --epochs to choose the length"
        )
    return stretched(plain, table[recipe.per_class])


def _training_images(recipe: Recipe, data_dir: "str | Path | None") -> int:
    """How many images are left to train on, without reading any."""
    if folder_size(recipe.data):
        return len(load(recipe.data, data_dir, per_class=recipe.per_class, holdout=recipe.holdout)["train"])
    counts = CATALOGUE[recipe.data].counts["train"]
    images = sum(counts) if recipe.per_class is None else recipe.per_class * len(counts)
    return images - floor((recipe.holdout or 0.0) * images + 0.5)


def _complete_options(recipe: Recipe) -> dict[str, Any]:
    """The model's options with all defaults; classes and channels from the data where not given."""
    entry, options = model_entry(recipe.model), dict(recipe.model_options)
    if entry.task != recipe.task:
        raise ConfigError(
            f"{entry.name} is for task {entry.task!r}, and the recipe's task is {recipe.task!r}; "
            "decoders are trained by `continua train --recipe reconstruction --encoder RUN`"
        )
    if recipe.data in CATALOGUE:
        known = CATALOGUE[recipe.data]
        implied = dict(num_classes=len(next(iter(known.counts.values()))), in_channels=known.shape[0])
        options = {name: value for name, value in implied.items() if name in entry.options} | options
    return complete_options(recipe.model, options)


def _fast_precision(device: str) -> Literal["bfloat16", "float32"]:
    """bfloat16 where the device is fast in it. A CPU that only claims to be gets float32, and its owner one line that says why."""
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if fast_on_cpu(torch.bfloat16):
        return "bfloat16"
    if fault := why_unusable("bfloat16"):
        warnings.warn(f"precision auto is float32 on this CPU: bfloat16 {fault}", ContinuaWarning, stacklevel=2)
    return "float32"
