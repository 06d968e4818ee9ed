"""From YAML files and command lines to recipes, and back.

Every key is known, every value of its type; mistakes are named with the nearest right key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

import yaml

from continua.errors import ConfigError, unknown_name
from continua.files import Json
from continua.models import options_in_common, upgrade_options
from continua.options import british, typed_value
from continua.reading import parse_yaml, read_yaml_file
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
