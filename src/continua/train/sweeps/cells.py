"""A sweep: the file with the axes whose product is its cells, and how each cell is, from its run's files, its job and earlier commands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from continua.errors import ConfigError, unknown_name
from continua.files import Json
from continua.limits import CELLS
from continua.reading import UnreadableFile, parse_json, read_json_object
from continua.runs import Recipe, Run, RunIndex, identity, load_recipe, merged, read_yaml, recipe_names, resolve, run_folder
from continua.train.checkpoint import checkpoints

if TYPE_CHECKING:
    from continua.train.sweeps.jobs import Executor

TRIALS = 2  # a failed cell is tried once more
State = Literal["missing", "queued", "running", "elsewhere", "stopped", "failed", "done"]
STATUS_FILE = "cells.json"
KEPT = ("job", "on", "failures", "step", "error")
AXES = {"recipes": "recipe", "models": "model", "data": "data", "per_class": "per_class", "seeds": "seed"}


@dataclass(frozen=True)
class Cell:
    """`label`: its place on the axes of the sweep, for people. `recipe` is resolved."""

    identity: str
    label: Mapping[str, object]
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
    def result(self) -> Json | None:
        """What came out, once finished."""
        return self.run.result

    def reached(self) -> "Reached":
        """How far its files say it is."""
        last = _last_epoch(self.run.metrics) or {"epoch": 0}
        accuracy = last.get("train_accuracy")
        return Reached(last["epoch"], accuracy if isinstance(accuracy, float | int) else None, last_step(self.folder))


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


def _last_epoch(metrics: Path) -> Json | None:
    """The last whole line about an epoch, from the end of the file; a line may be in the making."""
    try:
        lines = _tail(metrics).split(b"\n")
    except OSError:
        return None
    for line in reversed(lines[:-1]):
        try:
            numbers = parse_json(line, metrics)
        except UnreadableFile:
            continue
        if isinstance(numbers, dict) and numbers.get("event") == "epoch" and isinstance(numbers.get("epoch"), int):
            return numbers
    return None


@dataclass(frozen=True)
class SweepFile:
    """What may be in a sweep file. A list is an axis; an entry is a value, or a mapping of fields of the recipe (with a `name` to show)."""

    recipes: object
    models: object = None
    data: object = None
    per_class: object = None
    seeds: object = None  # a list, or how many: 3 is 0, 1, 2
    grid: Json = field(default_factory=dict)  # further axes: a field of the recipe, its values
    set: Json = field(default_factory=dict)  # fields of the recipe for every cell
    slurm: Json = field(default_factory=dict)  # sbatch's options: partition, time (minutes), cpus_per_task, …


@dataclass(frozen=True)
class Sweep:
    """The cells of a sweep file, each with its own identity, and where they are kept."""

    name: str
    path: Path
    cells: tuple[Cell, ...]
    slurm: Json
    folder: Path  # of the sweep's own files: job logs, results.json

    def __len__(self) -> int:
        return len(self.cells)


def load_sweep(path: "str | Path", runs: "str | Path | None" = None, device: str = "cpu", data_dir: "str | Path | None" = None) -> Sweep:
    """Read a sweep file, resolve every cell, and find the runs that are there already. Cells that are the same run are one cell.

    Args:
        path: the YAML file.
        runs: folder of all runs.
        device: decides "auto".
        data_dir: folder of all data sets.

    Returns:
        The sweep.

    Raises:
        ConfigError: the file is not a sweep, or a cell of it does not fit its model.

    Examples:
        >>> from continua.train import load_sweep
        >>> load_sweep("sweep.yaml")  # doctest: +SKIP
    """
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


def _checked(data: Json, path: Path) -> SweepFile:
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


def _recipes(given: SweepFile, path: Path) -> Iterator[tuple[Json, Recipe]]:
    """Every cell's label (its place on each axis that has several) and recipe."""
    axes = {name: _entries(values, name, path) for key, name in AXES.items() if (values := getattr(given, key)) is not None}
    axes |= {str(name): _entries(values, str(name), path) for name, values in given.grid.items()}
    _refuse_many(prod(len(entries) for entries in axes.values()), path)
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


def _entries(values: object, name: str, path: Path) -> Sequence[object]:
    if name == "seed" and isinstance(values, int) and not isinstance(values, bool):
        _refuse_many(values, path)
        values = list(range(values))
    values = [values] if not isinstance(values, Sequence) or isinstance(values, str) else list(values)
    if not values:
        raise ConfigError(f"{path}: {name} is an empty list, so the sweep has no cells; give at least one value or leave it out")
    return values


def _refuse_many(cells: int, path: Path) -> None:
    if CELLS.exceeded(cells):
        raise ConfigError(f"{path}: the sweep has {cells:,} cells or more; {CELLS.advice()}")


def _entry(entry: object, name: str) -> tuple[object, Json]:
    """What to show for an entry, and the fields it sets. Values that are themselves mappings are given as `{name: …, FIELD: {…}}`."""
    if not isinstance(entry, Mapping):
        return ("all" if name == "per_class" and entry is None else entry), {name: entry}
    inside = {key: value for key, value in entry.items() if key != "name"}
    if name in ("recipe", "model", "data") and name not in inside:
        raise ConfigError(f"an entry of the axis {name} is {dict(entry)!r}; it needs a `{name}`")
    return entry.get("name", inside.get(name, ", ".join(f"{key}={value}" for key, value in inside.items()))), merged({}, inside)


# --- how each cell is ---------------------------------------------------------------------------------------------------


@dataclass
class CellStatus:
    """One cell. `step`: of its last checkpoint when its job was submitted; `failures`: of this command; `said`: by the cluster.

    `state`: missing is not begun; elsewhere, another command trains it; stopped goes on from its checkpoint; failed did so twice.
    """

    cell: Cell
    state: State = "missing"
    job: str | None = None
    on: str | None = None
    failures: int = 0
    step: int = -1
    said: str = ""
    error: str = ""

    def rest(self) -> None:
        """The state of a cell that no job of ours works on."""
        if self.cell.result is not None:
            self.state, self.said, self.error = "done", "", ""
        elif self.cell.run.owner() is not None:
            self.state, self.said = "elsewhere", self.cell.run.owner() or ""
        elif self.failures >= TRIALS:
            self.state = "failed"
        else:
            self.state = "stopped" if self.cell.run.exists else "missing"


def read_statuses(sweep: Sweep, executor: "Executor | None" = None) -> list[CellStatus]:
    """The cells as files tell it, and as the executor does for its jobs that are still there.

    Which jobs had been submitted for them is in `job` and `on`.

    Args:
        sweep: the sweep.
        executor: which runs its jobs, if any.

    Returns:
        A status for each cell.

    Examples:
        >>> from continua.train import read_statuses
        >>> read_statuses(sweep)  # doctest: +SKIP
    """
    try:
        written = read_json_object(sweep.folder / STATUS_FILE, sweep.folder)
    except UnreadableFile:  # also where there is none yet; which jobs there were is then forgotten, and runs are found by their files
        written = {}
    statuses = []
    for cell in sweep.cells:
        status = CellStatus(cell, **_remembered(written.get(cell.identity)))
        status.rest()
        statuses.append(status)
    if executor is not None:
        ask_after_jobs(statuses, executor)
    return statuses


def _remembered(known: object) -> Json:
    """What an earlier command wrote of a cell, as far as it is what such a command writes."""
    kinds: Mapping[str, type] = {"job": str, "on": str, "failures": int, "step": int, "error": str}
    known = known if isinstance(known, Mapping) else {}
    return {key: known[key] for key in KEPT if key in known and (known[key] is None or isinstance(known[key], kinds[key]))}


def ask_after_jobs(statuses: Sequence[CellStatus], executor: "Executor") -> list[str]:
    """Jobs of an earlier command that are still there; their cells' statuses become what the executor says of them."""
    waiting = {status.job: status for status in statuses if status.job and status.on == executor.name and status.state != "done"}
    there = []
    for job, state in executor.states(waiting).items():
        if state.kind != "ended":
            waiting[job].state, waiting[job].said = state.kind, state.said
            there.append(job)
    return there


def write_statuses(sweep: Sweep, statuses: Sequence[CellStatus]) -> None:
    """What the next command must know. Cells that a file no longer lists are forgotten; their runs stay."""
    data = {status.cell.identity: {"name": status.cell.name} | {key: getattr(status, key) for key in KEPT} for status in statuses}
    Run(sweep.folder).write_json(sweep.folder / STATUS_FILE, data)


def jobs_folder(sweep: Sweep) -> Path:
    """Where the jobs of a sweep keep their files.

    Args:
        sweep: the sweep.

    Returns:
        The folder.

    Examples:
        >>> from continua.train import jobs_folder
        >>> jobs_folder(sweep)  # doctest: +SKIP
    """
    return sweep.folder / "jobs"


def last_words(log: Path) -> str:
    """The error that ended a job: the last line of its traceback, else what Slurm wrote, else the last line there is."""
    try:
        lines = [line.strip() for line in _tail(log).decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return f"it left no log ({log})"
    own = [line for line in lines if not line.startswith(("srun:", "slurmstepd", "submitit "))]
    if any(line.startswith("Traceback ") for line in own):
        return own[-1].removeprefix("continua.errors.").removeprefix("continua.train.loop.")
    slurm = [line for line in lines if line.startswith("slurmstepd")]
    return (slurm or own or [f"it ended without a word (log: {log})"])[-1]


def _tail(path: Path) -> bytes:
    """The last 20,000 bytes of a file."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - 20_000))
        return file.read()
