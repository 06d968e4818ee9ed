"""A sweep: the file with the axes whose product is its cells, and what the files of a cell say about it. Plain data, checked key by key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from continua.errors import ConfigError, unknown_name
from continua.runs import Recipe, Run, RunIndex, identity, load_recipe, merged, read_yaml, recipe_names, resolve, run_folder
from continua.train.checkpoint import checkpoints

AXES = {"recipes": "recipe", "models": "model", "data": "data", "per_class": "per_class", "seeds": "seed"}


@dataclass(frozen=True)
class Cell:
    """`label`: its place on the axes of the sweep, for people. `recipe` is resolved."""

    identity: str
    label: Mapping[str, Any]
    recipe: Recipe
    folder: Path

    @property
    def run(self) -> Run:
        return Run(self.folder)

    @property
    def name(self) -> str:
        """Short, for lines: `dcn_ode per_class=52 seed=1`."""
        rest = [f"{name}={value}" for name, value in self.label.items() if name != "model"]
        return " ".join([str(self.label["model"]), *rest])

    @property
    def result(self) -> dict[str, Any] | None:
        """What came out, once finished."""
        return self.run.result

    def reached(self) -> "Reached":
        """How far its files say it is."""
        run, epoch, accuracy = self.run, 0, None
        last = _last_epoch(run.metrics)
        if last is not None:
            epoch, accuracy = last["epoch"], last.get("train_accuracy")
        return Reached(epoch, accuracy, last_step(self.folder))


@dataclass(frozen=True)
class Reached:
    """Whole epochs, the last one's training accuracy, and the steps that the last checkpoint holds (-1: there is none)."""

    epoch: int
    accuracy: float | None
    step: int


def last_step(folder: Path) -> int:
    """Steps that the last checkpoint of a run holds; -1 where it has none."""
    saved = checkpoints(folder / "checkpoints")
    return int(saved[-1].stem.partition("-")[2]) if saved else -1


def _last_epoch(metrics: Path) -> dict[str, Any] | None:
    """The last whole line about an epoch, from the end of the file; a line may be in the making."""
    try:
        with open(metrics, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 20_000))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines[:-1]):
        try:
            numbers = json.loads(line)
        except ValueError:
            continue
        if numbers.get("event") == "epoch":
            return numbers
    return None


@dataclass(frozen=True)
class SweepFile:
    """What may be in a sweep file. A list is an axis; an entry is a value, or a mapping of fields of the recipe (with a `name` to show)."""

    recipes: Any
    models: Any = None
    data: Any = None
    per_class: Any = None
    seeds: Any = None  # a list, or how many: 3 is 0, 1, 2
    grid: Mapping[str, Any] = field(default_factory=dict)  # further axes: a field of the recipe, its values
    set: Mapping[str, Any] = field(default_factory=dict)  # fields of the recipe for every cell
    slurm: Mapping[str, Any] = field(default_factory=dict)  # sbatch's options: partition, time (minutes), cpus_per_task, …


@dataclass(frozen=True)
class Sweep:
    """The cells of a sweep file, each with its own identity, and where they are kept."""

    name: str
    path: Path
    cells: tuple[Cell, ...]
    slurm: Mapping[str, Any]
    folder: Path  # of the sweep's own files: job logs, results.json

    def __len__(self) -> int:
        return len(self.cells)


def load_sweep(path: "str | Path", runs: "str | Path | None" = None, device: str = "cpu", data_dir: "str | Path | None" = None) -> Sweep:
    """Read a sweep file, resolve every cell, and find the runs that are there already. Cells that are the same run are one cell."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no sweep file {path}")
    given = _checked(read_yaml(path), path)
    index = RunIndex(runs)
    cells: dict[str, Cell] = {}
    plain: dict[str, Recipe] = {}  # resolving builds a network, which seeds have in common
    for label, recipe in _recipes(given, path):
        key = repr(replace(recipe, seed=0))
        if key not in plain:
            plain[key] = resolve(recipe, device, data_dir)
        resolved = replace(plain[key], seed=recipe.seed)
        known = index.find(resolved)
        folder = (known.folder if known is not None else run_folder(resolved, runs)).absolute()
        cells.setdefault(identity(resolved), Cell(identity(resolved), label, resolved, folder))
    return Sweep(path.stem, path, tuple(cells.values()), given.slurm, (index.runs / "sweeps" / path.stem).absolute())


def _checked(data: Mapping[str, Any], path: Path) -> SweepFile:
    known = [item.name for item in fields(SweepFile)]
    for key, value in data.items():
        if key not in known:
            see = f"known: {', '.join(known)}; fields of the recipe belong under `set` or `grid`"
            raise ConfigError(f"{path}: {unknown_name('key', key, known, see=see)}")
        if key in ("grid", "set", "slurm") and not isinstance(value, Mapping):
            raise ConfigError(f"{path}: {key} is {value!r}; expected a mapping, such as {key}: {{…}}")
    if "recipes" not in data:
        raise ConfigError(f"{path}: there are no recipes; expected for example `recipes: [demo]` (known: {', '.join(recipe_names())})")
    return SweepFile(**data)


def _recipes(given: SweepFile, path: Path) -> Iterator[tuple[dict[str, Any], Recipe]]:
    """Every cell's label (its place on each axis that has several) and recipe."""
    axes = {name: _entries(values, name, path) for key, name in AXES.items() if (values := getattr(given, key)) is not None}
    axes |= {str(name): _entries(values, str(name), path) for name, values in given.grid.items()}
    for point in product(*axes.values()):
        changes, base, label = merged({}, given.set), "", {}
        for (name, entries), entry in zip(axes.items(), point, strict=True):
            shown, inside = _entry(entry, name)
            changes = merged(changes, inside)
            if name == "recipe":
                base = str(changes.pop("recipe"))
            if len(entries) > 1 or name == "model":
                label[name] = shown
        here = path.parent / base
        recipe = load_recipe(here if here.is_file() else base, changes)
        yield {"model": recipe.model, **label, "seed": recipe.seed}, recipe


def _entries(values: Any, name: str, path: Path) -> list[Any]:
    if name == "seed" and isinstance(values, int) and not isinstance(values, bool):
        values = list(range(values))
    values = [values] if not isinstance(values, Sequence) or isinstance(values, str) else list(values)
    if not values:
        raise ConfigError(f"{path}: {name} is an empty list, so the sweep has no cells; give at least one value or leave it out")
    return values


def _entry(entry: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """What to show for an entry, and the fields it sets. Values that are themselves mappings are given as `{name: …, FIELD: {…}}`."""
    if not isinstance(entry, Mapping):
        return ("all" if name == "per_class" and entry is None else entry), {name: entry}
    inside = {key: value for key, value in entry.items() if key != "name"}
    if name in ("recipe", "model", "data") and name not in inside:
        raise ConfigError(f"an entry of the axis {name} is {dict(entry)!r}; it needs a `{name}`")
    return entry.get("name", inside.get(name, ", ".join(f"{key}={value}" for key, value in inside.items()))), merged({}, inside)
