"""From a recipe as written to one with plain numbers only, and its identity.

Tables are looked up, "auto" is decided, the options of the model are complete.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from math import floor
from pathlib import Path
from typing import Literal

import torch

from continua.data import CATALOGUE, catalogue_entry, folder_size, load
from continua.errors import ConfigError, ContinuaWarning
from continua.files import Json
from continua.filters import fast_on_cpu, why_no_library
from continua.machine import why_unusable
from continua.models import buildable, complete_options, model_config, model_entry, tensors_digest
from continua.reading import read_json_object
from continua.runs.loading import stretched
from continua.runs.recipe import Recipe


def resolve(recipe: Recipe, device: str = "cpu", data_dir: "str | Path | None" = None) -> Recipe:
    """Tables looked up, "auto" decided, the model's options complete: what config.yaml of a run holds.

    Args:
        recipe: any recipe.
        device: decides "auto".
        data_dir: folder of all data sets.

    Returns:
        The complete recipe.

    Raises:
        ConfigError: an option does not fit the model or the data.

    Examples:
        >>> from continua.runs import load_recipe, resolve
        >>> resolve(load_recipe("demo")).model_options["t1"]
        2.0
    """
    if not folder_size(recipe.data):
        catalogue_entry(recipe.data)
    recipe = _looked_up(recipe)
    if recipe.precision == "auto":
        recipe = replace(recipe, precision=_fast_precision(recipe, device))
    if recipe.drop_last == "auto":
        recipe = replace(recipe, drop_last=_training_images(recipe, data_dir) >= recipe.batch_size)
    if recipe.encoder is not None:
        weights = encoder_weights(recipe.encoder)
        return replace(recipe, model=_model_of(weights.with_name("config.json")), encoder=str(weights.parents[1].resolve()))
    return replace(recipe, model_options=_complete_options(recipe, data_dir))


LATER_OPTIONS: Mapping[str, object] = {"last_activation": True, "explicit_time": True, "form": "concatenated", "block_solvers": None}
"""Options of models that came after the first runs were kept, and what a network without them is."""


def identity(recipe: Recipe) -> str:
    """Sixteen hexadecimal digits that name a resolved recipe; an encoder counts by its weights, not by the folder it lies in.

    Args:
        recipe: resolved.

    Returns:
        The digits.

    Examples:
        >>> from continua.runs import identity, load_recipe, resolve
        >>> len(identity(resolve(load_recipe("demo"))))
        16
    """
    return _identity(recipe, tensors_digest)


def identities(recipe: Recipe) -> tuple[str, ...]:
    """The identity, then those by which earlier versions knew the same recipe: an encoder was known by the bytes of its file.

    Args:
        recipe: resolved.

    Returns:
        Identities, today's first.

    Examples:
        >>> from continua.runs import identities, load_recipe, resolve
        >>> len(identities(resolve(load_recipe("demo")))[0])
        16
    """
    today = identity(recipe)
    return (today,) if recipe.encoder is None else (today, _identity(recipe, _bytes_digest))


def _identity(recipe: Recipe, digest: Callable[[Path], str]) -> str:
    data, default = asdict(recipe), asdict(Recipe())
    # What came after the first runs were kept is no part of the identity where it is not used, which then stays what it was.
    for fields_of, plain, names in ((data, default, ("refine",)), (data["regularise"], default["regularise"], ("error", "end_time"))):
        for name in names:
            if fields_of[name] == plain[name]:
                del fields_of[name]
    for name, plain in LATER_OPTIONS.items():
        if name in data["model_options"] and data["model_options"][name] == plain:
            del data["model_options"][name]
    if recipe.encoder is not None:
        data["encoder"] = digest(encoder_weights(recipe.encoder))
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=list).encode()).hexdigest()[:16]


def _bytes_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_id(recipe: Recipe, device: str = "cpu", data_dir: "str | Path | None" = None) -> str:
    """The identity of the run that a recipe, resolved or not, asks for: equal whenever the trainings are.

    Args:
        recipe: resolved or not.
        device: decides "auto".
        data_dir: folder of all data sets.

    Returns:
        Sixteen hexadecimal digits.

    Examples:
        >>> from continua.runs import load_recipe, run_id
        >>> len(run_id(load_recipe("demo")))
        16
    """
    return identity(resolve(recipe, device, data_dir))


def encoder_weights(run: str) -> Path:
    """The weights of a finished run."""
    path = Path(run) / "best" / "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"encoder: {run} has no {path.relative_to(run)}; expected the folder of a finished run")
    return path


def _model_of(config: Path) -> str:
    """The model that a config.json beside weights names."""
    model = read_json_object(config).get("model")
    if not isinstance(model, str):
        raise ConfigError(f"{config} names no model; expected a file that save_pretrained wrote")
    return model


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


def _complete_options(recipe: Recipe, data_dir: "str | Path | None") -> Json:
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
    elif "num_classes" in entry.options and "num_classes" not in options:
        options["num_classes"] = len(load(recipe.data, data_dir).classes)
    with buildable(recipe.model, "model_options"):
        return complete_options(recipe.model, options)


def _fast_precision(recipe: Recipe, device: str) -> Literal["bfloat16", "float32"]:
    """bfloat16 where the device is fast in it. A CPU that only claims to be gets float32, and its owner one line that says why."""
    if (
        device == "cpu"
        and recipe.encoder is None
        and why_no_library() is None
        and model_config(recipe.model, **recipe.model_options).has_jets
    ):
        return "float32"  # the native kernels compute in it anyway; bfloat16 would only add conversions
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if fast_on_cpu(torch.bfloat16):
        return "bfloat16"
    if fault := why_unusable("bfloat16"):
        warnings.warn(f"precision auto is float32 on this CPU: bfloat16 {fault}", ContinuaWarning, stacklevel=2)
    return "float32"
