"""From YAML files and command lines to recipes, from a recipe as written to one with plain numbers only, and its identity.

Every key is known, every value of its type; mistakes are named with the nearest right key.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from math import floor
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch
import yaml

from continua.data import CATALOGUE, catalogue_entry, folder_size, load
from continua.errors import ConfigError, ContinuaWarning, unknown_name
from continua.files import Json
from continua.filters import fast_on_cpu, why_no_library
from continua.machine import why_unusable
from continua.models import buildable, complete_options, model_config, model_entry, options_in_common, tensors_digest, upgrade_options
from continua.options import british, typed_value
from continua.reading import parse_yaml, read_json_object, read_yaml_file
from continua.runs.recipe import Recipe

FREE = ("model_options",)  # fields whose keys are the model's business
"""Fields of a recipe whose keys are the model's business."""
FORMAT = 2  # of config.yaml; 1: as version 0.1 wrote it, without a number
T = TypeVar("T")


def recipe_names() -> list[str]:
    """The recipes that come with Continua.

    Returns:
        Their names.

    Examples:
        >>> from continua.runs import recipe_names
        >>> "demo" in recipe_names()
        True
    """
    return sorted(item.name.removesuffix(".yaml") for item in files("continua.recipes").iterdir() if item.name.endswith(".yaml"))


def load_recipe(name: "str | Path", changes: Mapping[str, Any] | None = None) -> Recipe:
    """A packaged recipe by name, or a YAML file by path, with `changes` (nested as the file is) on top.

    Another number of epochs stretches the schedule with it, unless the schedule's own times are given too. Another model takes those of
    the recipe's model options that it has.

    Args:
        name: a packaged recipe, or the path of a YAML file.
        changes: nested as the file is.

    Returns:
        The recipe.

    Raises:
        ConfigError: there is no such recipe, or it has a field that recipes do not have.

    Examples:
        >>> from continua.runs import load_recipe
        >>> load_recipe("demo", {"epochs": 2, "optimiser": {"lr": 0.001}}).epochs
        2
    """
    base = {british(str(key)): value for key, value in _without_format(read_yaml(name), FORMAT, name)[0].items()}
    check_keys(base, str(name))
    changes = {british(str(key)): value for key, value in (changes or {}).items()}
    check_keys(changes, "options")
    if "epochs" in changes and "length_by_per_class" not in changes:
        base = {**base, "length_by_per_class": {}}
    if changes.get("model", base.get("model")) != base.get("model") and isinstance(base.get("model_options"), Mapping):
        base = {**base, "model_options": options_in_common(changes["model"], base["model_options"])}
    recipe = parse_recipe(merged(base, changes))
    if "epochs" not in changes:
        return recipe
    given = (*changes.get("schedule", {}), *(f"refine.{name}" for name in changes.get("refine", {})))
    before = typed_value("epochs", base.get("epochs", Recipe.__dataclass_fields__["epochs"].default), int)
    return stretched(recipe, recipe.epochs / max(1, before), keep=given, epochs=recipe.epochs)


def stored_recipe(path: Path, *, upgrade: bool = True) -> Recipe:
    """The recipe that config.yaml of a run holds, whichever version wrote it: as one says it today, or else as it stands."""
    data, written = _without_format(read_yaml(path, path.parent), 1, path)
    return parse_recipe(_upgraded(data) if upgrade and written < FORMAT else data)


def _without_format(data: Json, unnumbered: int, path: "str | Path") -> tuple[Json, int]:
    """The fields of a recipe, and the format they are written in (`unnumbered` where the file does not say)."""
    written = data.pop("format", unnumbered)
    if written not in range(1, FORMAT + 1):
        raise ConfigError(f"{path} has format {written!r}; this version of Continua reads up to {FORMAT}: use a newer one")
    return data, written


def _upgraded(data: Json) -> Json:
    """Format 1 to 2: the model's options as they are spelt today."""
    options, model = data.get("model_options"), data.get("model", Recipe.model)
    return {**data, "model_options": upgrade_options(model, options)} if isinstance(options, Mapping) and options else data


def stretched(recipe: Recipe, factor: float, *, keep: tuple[str, ...] = (), epochs: int | None = None) -> Recipe:
    """A recipe that takes `factor` times as long, with the times of its schedule in proportion (but those in `keep`)."""
    schedule = recipe.schedule
    times: Json = dict(milestones=tuple(round(milestone * factor, 6) for milestone in schedule.milestones))
    times |= dict(every=round(schedule.every * factor, 6), warmup=round(schedule.warmup * factor, 6))
    schedule = replace(schedule, **{name: value for name, value in times.items() if name not in keep})
    refine = recipe.refine
    if "refine.epochs" not in keep:
        refine = replace(refine, epochs=tuple(round(time * factor, 6) for time in refine.epochs))
    return replace(recipe, epochs=epochs or max(1, round(recipe.epochs * factor)), schedule=schedule, refine=refine)


def parse_recipe(data: Mapping[str, object]) -> Recipe:
    """A recipe from nested plain data.

    Args:
        data: as `plain_recipe` makes it.

    Returns:
        The recipe.

    Raises:
        ConfigError: a field is unknown or has a wrong value.

    Examples:
        >>> from continua.runs import parse_recipe
        >>> parse_recipe({"model": "resnet4", "epochs": 3}).epochs
        3
    """
    check_keys(data, "recipe")
    return _built(Recipe, data)


def _built(kind: type[T], data: Mapping[str, object], prefix: str = "") -> T:
    """A dataclass from plain data, dataclasses among its fields included; each value is what its annotation says, or refused."""
    hints, values = field_types(kind), {}
    for key, value in data.items():
        inner = _dataclass_of(hints[key])
        if inner is not None and isinstance(value, Mapping):
            values[key] = _built(inner, value, f"{prefix}{key}.")
        elif key in FREE:
            values[key] = _plain(typed_value(f"{prefix}{key}", value, hints[key]))
        else:
            values[key] = typed_value(f"{prefix}{key}", value, hints[key])
    return kind(**values)


@cache
def field_types(kind: type) -> Json:
    """The annotation of each field. Kept: a list of studies reads many recipes."""
    return get_type_hints(kind)


def read_yaml(name: "str | Path", root: Path | None = None) -> Json:
    """The contents of a packaged recipe or of a YAML file; below `root`, where it is given, no link is followed.

    Args:
        name: a packaged recipe, or the path of a file.
        root: folder below which no link is followed.

    Returns:
        Plain data.

    Raises:
        ConfigError: the file is not there or not YAML.

    Examples:
        >>> from continua.runs import read_yaml
        >>> read_yaml("demo")["data"]
        'digits16'
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.exists():
            raise ConfigError(f"there is no recipe file {path}")
        data = read_yaml_file(path, root)
    elif str(name) in recipe_names():
        data = parse_yaml((files("continua.recipes") / f"{name}.yaml").read_text("utf-8"), name)
    else:
        raise unknown_name("recipe", str(name), recipe_names())
    if not isinstance(data, dict):
        raise ConfigError(f"{name} holds {type(data).__name__}; a recipe is a mapping of fields, such as `model: dcn_ode`")
    return data


def parse_value(text: str, name: str) -> Any:
    """One value as YAML has it: 1e-4, true, [8, 16], {method: rk4, steps: 2}.

    Args:
        text: as a person types it.
        name: of the option, for messages.

    Returns:
        The value.

    Raises:
        ConfigError: the text is not YAML.

    Examples:
        >>> from continua.runs import parse_value
        >>> parse_value("[8, 16]", "channels")
        [8, 16]
    """
    return parse_yaml(text, f"the value of --{name}, {text[:200]!r},")


def write_yaml(recipe: Recipe) -> str:
    """The recipe as text that `load_recipe` reads back as an equal recipe.

    Args:
        recipe: any recipe.

    Returns:
        YAML.

    Examples:
        >>> from continua.runs import load_recipe, write_yaml
        >>> text = write_yaml(load_recipe("demo"))
    """
    return yaml.safe_dump(
        {"format": FORMAT, **plain_recipe(recipe)}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )


def plain_recipe(recipe: Recipe) -> Json:
    """The recipe as nested plain data that `parse_recipe` makes an equal recipe of.

    Args:
        recipe: any recipe.

    Returns:
        Nested mappings.

    Examples:
        >>> from continua.runs import load_recipe, plain_recipe
        >>> plain_recipe(load_recipe("demo"))["data"]
        'digits16'
    """
    return _plain(asdict(recipe))


def recipe_fields(kind: type = Recipe, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and type of every field, nested ones included.

    Args:
        kind: the dataclass.
        prefix: in front of each name.

    Returns:
        Pairs.

    Examples:
        >>> from continua.runs import recipe_fields
        >>> "optimiser.lr" in dict(recipe_fields())
        True
    """
    hints = field_types(kind)
    for item in fields(kind):
        inner = _dataclass_of(hints[item.name])
        if inner is not None and hints[item.name] is inner:
            yield from recipe_fields(inner, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", hints[item.name]


def check_keys(data: Mapping[str, object], where: str, kind: type = Recipe, prefix: str = "") -> None:
    """Refuse keys that no recipe has, naming the nearest one that it has."""
    hints = field_types(kind)
    for key, value in data.items():
        if key not in hints:
            known = [f"{prefix}{name}" for name in hints] + ([name for name, _ in recipe_fields()] if not prefix else [])
            raise ConfigError(f"{where}: {unknown_name('key', f'{prefix}{key}', dict.fromkeys(known))}")
        inner = _dataclass_of(hints[key])
        if inner is None or key in FREE or (value is None and hints[key] is not inner):
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {prefix}{key} is {value!r}; expected fields of its own: {', '.join(field_types(inner))}")
        check_keys(value, where, inner, f"{prefix}{key}.")


def merged(base: Mapping[str, object], changes: Mapping[str, object]) -> Json:
    """`base` with `changes` on top, mapping by mapping. Keys such as "solver.rtol" reach inside; an empty mapping empties.

    Args:
        base: plain data.
        changes: on top.

    Returns:
        A new mapping.

    Examples:
        >>> from continua.runs import merged
        >>> merged({"a": {"b": 1, "c": 2}}, {"a.b": 3})
        {'a': {'b': 3, 'c': 2}}
    """
    result = dict(base)
    for key, value in changes.items():
        name, _, rest = str(key).partition(".")
        value = {rest: value} if rest else value
        key = name if rest else key
        inside = result.get(key)
        if isinstance(value, Mapping):
            value = merged(inside if isinstance(inside, Mapping) and value else {}, value)
        result[key] = value
    return result


def _dataclass_of(hint: Any) -> type | None:
    """The dataclass a field holds, also where it may be None."""
    options = [part for part in get_args(hint) if part is not NoneType] if isinstance(hint, UnionType) else [hint]
    return options[0] if len(options) == 1 and is_dataclass(options[0]) and isinstance(options[0], type) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


# --- tables looked up, "auto" decided, the model's options complete ----------------------------------------------------


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


# Options of models that came after the first runs were kept, and what a network without them is.
LATER_OPTIONS: Mapping[str, object] = {"last_activation": True, "explicit_time": True, "form": "concatenated"}


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
        if data["model_options"].get(name) == plain:
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
