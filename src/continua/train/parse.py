"""From YAML files and command lines to recipes: every key known, every value of its type, mistakes named with the nearest right key."""

import re
from argparse import ArgumentError
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentParser

from continua.errors import ConfigError
from continua.models import options_in_common
from continua.train.parser_words import parser_words
from continua.train.recipe import Recipe

FREE = ("model_options",)  # fields whose keys are the model's business


class _Loader(yaml.SafeLoader):
    """YAML without objects, and with 1e-4 as a number, which YAML 1.1 reads as text."""


_Loader.yaml_implicit_resolvers = {key: list(value) for key, value in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789."))


def recipe_names() -> list[str]:
    """The recipes that come with Continua."""
    return sorted(item.name.removesuffix(".yaml") for item in files("continua.recipes").iterdir() if item.name.endswith(".yaml"))


def load_recipe(name: "str | Path", changes: Mapping[str, Any] | None = None) -> Recipe:
    """A packaged recipe by name, or a YAML file by path, with `changes` (nested as the file is) on top.

    Another number of epochs stretches the schedule with it, unless the schedule's own times are given too. Another model takes those of
    the recipe's model options that it has.
    """
    base = read_yaml(name)
    check_keys(base, str(name))
    changes = dict(changes or {})
    check_keys(changes, "options")
    if "epochs" in changes and "length_by_per_class" not in changes:
        base = {**base, "length_by_per_class": {}}
    if changes.get("model", base.get("model")) != base.get("model") and base.get("model_options"):
        base = {**base, "model_options": options_in_common(changes["model"], base["model_options"])}
    recipe = parse_recipe(merged(base, changes))
    if "epochs" not in changes:
        return recipe
    given = changes.get("schedule", {})
    before = base.get("epochs", Recipe.__dataclass_fields__["epochs"].default)
    return stretched(recipe, recipe.epochs / before, keep=tuple(given), epochs=recipe.epochs)


def stretched(recipe: Recipe, factor: float, *, keep: tuple[str, ...] = (), epochs: int | None = None) -> Recipe:
    """A recipe that takes `factor` times as long, with the times of its schedule in proportion (but those in `keep`)."""
    schedule = recipe.schedule
    times: dict[str, Any] = dict(milestones=tuple(_short(m * factor) for m in schedule.milestones))
    times |= dict(every=_short(schedule.every * factor), warmup=_short(schedule.warmup * factor))
    schedule = replace(schedule, **{name: value for name, value in times.items() if name not in keep})
    return replace(recipe, epochs=epochs or max(1, round(recipe.epochs * factor)), schedule=schedule)


def parse_recipe(data: Mapping[str, Any]) -> Recipe:
    """A recipe from nested plain data."""
    check_keys(data, "recipe")
    parser = _recipe_parser()
    try:
        found = parser.instantiate(parser.parse_object({"recipe": dict(data)})).recipe
    except (ArgumentError, TypeError) as error:
        raise ConfigError(parser_words(str(error))) from None
    return replace(found, model_options=_plain(found.model_options))


@cache
def _recipe_parser() -> ArgumentParser:
    """Made once: building it takes longer than a parse, and a list of studies reads many recipes."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Recipe, "recipe")
    return parser


def read_yaml(name: "str | Path") -> dict[str, Any]:
    """The contents of a packaged recipe or of a YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.is_file():
            raise ConfigError(f"there is no recipe file {path}")
        text = path.read_text("utf-8")
    elif str(name) in recipe_names():
        text = (files("continua.recipes") / f"{name}.yaml").read_text("utf-8")
    else:
        raise ConfigError(f"there is no recipe, and no file, {str(name)!r}; {_nearest(str(name), recipe_names())}")
    try:
        data = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name} holds {type(data).__name__}; a recipe is a mapping of fields, such as `model: dcn_ode`")
    return data


def parse_value(text: str, name: str) -> Any:
    """One value as YAML has it: 1e-4, true, [8, 16], {method: rk4, steps: 2}."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"--{name} {text!r} is not a value: {' '.join(str(error).split())}") from None


def write_yaml(recipe: Recipe) -> str:
    """The recipe as text that `load_recipe` reads back as an equal recipe."""
    return yaml.safe_dump(_plain(asdict(recipe)), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def recipe_fields(kind: type = Recipe, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and type of every field, nested ones included."""
    hints = get_type_hints(kind)
    for item in fields(kind):
        inner = _dataclass_of(hints[item.name])
        if inner is not None and hints[item.name] is inner:
            yield from recipe_fields(inner, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", hints[item.name]


def check_keys(data: Mapping[str, Any], where: str, kind: type = Recipe, prefix: str = "") -> None:
    """Refuse keys that no recipe has, naming the nearest one that it has."""
    hints = get_type_hints(kind)
    for key, value in data.items():
        if key not in hints:
            known = [f"{prefix}{name}" for name in hints] + ([name for name, _ in recipe_fields()] if not prefix else [])
            raise ConfigError(f"{where}: unknown key {prefix}{key}; {_nearest(f'{prefix}{key}', known)}")
        inner = _dataclass_of(hints[key])
        if inner is None or key in FREE or (value is None and hints[key] is not inner):
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {prefix}{key} is {value!r}; expected fields of its own: {', '.join(get_type_hints(inner))}")
        check_keys(value, where, inner, f"{prefix}{key}.")


def unknown_option(given: str, known: list[str]) -> ConfigError:
    """For a word of the command line that is no option."""
    return ConfigError(f"there is no option --{given}; {_nearest(given, known, dashes=True)}")


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top, mapping by mapping. Keys such as "solver.rtol" reach inside; an empty mapping empties."""
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


def _nearest(given: str, known: list[str], dashes: bool = False) -> str:
    near = get_close_matches(given, known, n=1, cutoff=0.5) or [name for name in known if name.endswith(f".{given}")][:1]
    shown = [f"--{name}" if dashes else name for name in (near or known)]
    return f"did you mean {shown[0]}?" if near else f"known: {', '.join(shown)}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _short(epochs: float) -> float:
    return round(epochs, 6)
