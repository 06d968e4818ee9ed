"""The runs of a study: from rows to resolved recipes, to those that are there, to those that are trained now."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from continua.analysis import Answer, Question, Subject, answer, subject_of
from continua.errors import ConfigError, ContinuaError
from continua.models import Network, options_in_common
from continua.runs import Recipe, Run, RunIndex, identity, load_recipe, merged, resolve, run_folder, runs_folder, task_of
from continua.studies.study import Row, Setting, Study
from continua.train import Cell, Local, RunOptions, Slurm, Sweep, View, jobs_folder, run_sweep


@dataclass(frozen=True)
class Wanted:
    """One run of a study: its row, its seed, its resolved recipe, and where it is or will be."""

    row: Row
    recipe: Recipe
    run: Run

    @property
    def finished(self) -> bool:
        return self.run.result is not None

    @property
    def outcome(self) -> Mapping[str, Any]:
        """What came out of a finished run; an error where its file cannot be read any more."""
        result = self.run.result
        if result is None:
            raise ContinuaError(f"{self.name}: {self.run.result_file} was there and cannot be read now; run the study again")
        return result

    @property
    def name(self) -> str:
        return f"{self.row.label}, seed {self.recipe.seed}"


Train = Callable[[Sequence[Wanted], RunOptions], None]  # brings missing runs to their end


def wanted_runs(study: Study, scale: str, seeds: Sequence[int], places: "Places") -> Iterator[Wanted]:
    """Every run of a study, rows first, then seeds; a row that decodes another comes after it, once that one is finished."""
    setting = study.setting(scale)
    known: dict[tuple[str, int], Wanted] = {}
    for row in study.rows(scale):
        for seed in seeds:
            encoder = known.get((row.encoder, seed)) if row.encoder is not None else None
            if row.encoder is not None and (encoder is None or not encoder.finished):
                continue  # its turn comes when the encoder is trained
            wanted = _wanted(row, setting, seed, encoder, places)
            known[row.label, seed] = wanted
            yield wanted


def _wanted(row: Row, setting: Setting, seed: int, encoder: Wanted | None, places: "Places") -> Wanted:
    model, shared = row.change.get("model", ""), merged({}, setting.change)
    if model and (options := options_in_common(model, shared.pop("model_options", {}))):  # networks of several families share a setting
        shared["model_options"] = options
    changes = merged(merged(shared, setting.by_model.get(model, {})), row.change)
    if encoder is not None:
        changes["encoder"] = str(encoder.run.folder)
        changes.pop("model_options", None)  # a decoder is built from its encoder
    recipe = places.resolved(row.recipe, changes, seed)
    return Wanted(row, recipe, places.find(recipe))


class Places:
    """Where runs are: the folder of all runs, which new ones go to, and folders of kept ones, which are only read."""

    def __init__(self, runs: "Path | None", kept: Sequence[Path], options: RunOptions) -> None:
        self.runs, self.options = runs, options
        self.indices = [RunIndex(folder) for folder in (runs, *kept)]
        self._resolved: dict[str, Recipe] = {}

    def resolved(self, name: str, changes: Mapping[str, Any], seed: int) -> Recipe:
        """A recipe with changes, everything filled in. That builds a network, which seeds and often several studies have in common."""
        key = repr((name, changes))
        if key not in self._resolved:
            device = "cpu" if self.options.device == "auto" else self.options.device
            self._resolved[key] = resolve(load_recipe(name, changes), device, self.options.data_dir)
        return replace(self._resolved[key], seed=seed)

    def find(self, recipe: Recipe) -> Run:
        """A finished run before a begun one before none."""
        begun = [run for index in self.indices if (run := index.find(recipe)) is not None]
        finished = [run for run in begun if run.result is not None]
        own = self.indices[0].find(recipe)
        return finished[0] if finished else own or Run(run_folder(recipe, self.runs))


@dataclass(frozen=True)
class Runs:
    """Finished runs as a study's question sees them."""

    study: Study
    scale: str
    wanted: Sequence[Wanted]
    options: RunOptions
    answers: Path  # where answers of analyses lie; studies that ask the same of the same networks share them

    @property
    def setting(self) -> Setting:
        return self.study.setting(self.scale)

    @cached_property
    def by_label(self) -> dict[str, list[Wanted]]:
        finished: dict[str, list[Wanted]] = defaultdict(list)
        for wanted in self.wanted:
            if wanted.finished:
                finished[wanted.row.label].append(wanted)
        return dict(finished)

    def by_seed(self, number: str, times: float = 1.0) -> dict[str, dict[int, float]]:
        """A number of result.json for each row and seed, for claims, which are paired by seed: `runs.by_seed("test_accuracy", 100)`."""
        return {
            label: {wanted.recipe.seed: times * float(wanted.outcome[number]) for wanted in row} for label, row in self.by_label.items()
        }

    def values(self, number: str, times: float = 1.0) -> dict[str, list[float]]:
        """The same as plain lists, for tables."""
        return {label: list(row.values()) for label, row in self.by_seed(number, times).items()}

    def last_epoch(self, number: str, times: float = 1.0) -> dict[str, list[float]]:
        """A number of the last line of metrics.jsonl for each row, one per seed: how far training came."""
        found: dict[str, list[float]] = {}
        for label, row in self.by_label.items():
            lines = [[line[number] for line in wanted.run.lines() if number in line] for wanted in row]
            found[label] = [times * float(values[-1]) for values in lines if values]
        return found

    def errors(self) -> dict[str, list[float]]:
        """The test error of each row in per cent, one per seed."""
        return {label: [100 - value for value in values] for label, values in self.values("test_accuracy", 100).items()}

    def subjects(self, label: str, solver: Mapping[str, Any] | None = None) -> list[Subject]:
        """The networks of a row, for an analysis; with another solver than they were trained with where one is given."""
        finished = self.by_label.get(label, [])
        if not finished:
            raise ConfigError(f"{self.study.id} has no finished run {label!r} to ask")
        how = self.options
        read = [subject_of(run.run.folder, device=how.device, data_dir=how.data_dir, quiet=how.progress == "off") for run in finished]
        return [replace(subject, solver=solver) for subject in read]  # to the store of answers, with another solver it is another one

    def ask_each(self, question: Question, label: str, solver: Mapping[str, Any] | None = None, **options: object) -> dict[int, Answer]:
        """The answers for each network of a row, by seed."""
        seeds = [wanted.recipe.seed for wanted in self.by_label.get(label, [])]
        subjects = self.subjects(label, solver)
        return {seed: self.ask(question, [subject], **options) for seed, subject in zip(seeds, subjects, strict=True)}

    def untrained(self, label: str) -> dict[int, Network]:
        """The networks of a row as they were before their first update, by seed: what nature gives without learning."""
        with torch.random.fork_rng(devices=[]):
            return {wanted.recipe.seed: _first_weights(wanted.recipe) for wanted in self.by_label.get(label, [])}

    def ask(self, question: Question, subjects: Sequence[Subject], **options: object) -> Answer:
        """The answer of an analysis, from disk where it was asked before. The scale's own options come first, then these."""
        known = {name for name, *_ in question.option_fields()}
        chosen = {name: value for name, value in {**self.setting.look, **options}.items() if name in known}
        return answer(question, subjects, question.Options(**chosen), pictures=(), out=self.answers)


def _first_weights(recipe: Recipe) -> Network:
    torch.manual_seed(recipe.seed)
    net = task_of(recipe).build()
    if not isinstance(net, Network):
        raise ConfigError(f"{recipe.model} is not a network with blocks, so there is nothing to ask of it untrained")
    return net.eval()


# --- training those that are missing ------------------------------------------------------------------------------------------


def train_here(missing: Sequence[Wanted], options: RunOptions) -> None:
    """One after the other in this process.

    Args:
        missing: the runs.
        options: device, threads and data folder.

    Examples:
        >>> from continua.studies import train_here
        >>> train_here([], options)  # doctest: +SKIP
    """
    from continua.train import resume, train

    for place, wanted in enumerate(missing, 1):
        print(f"run {place} of {len(missing)} that are missing: {wanted.name} ({wanted.run.folder})")
        if wanted.run.exists:
            resume(wanted.run.folder, options)
        else:
            train(wanted.recipe, wanted.run.folder, options)


def sweep_trainer(name: str, *, on: str, jobs: int | None, runs: Path | None, again: str) -> Train:
    """A trainer of missing runs as the cells of a sweep, by processes here (`on` local) or jobs on a cluster (slurm).

    `again` is the command that goes on after an interruption.

    Args:
        name: of the sweep.
        on: "local" or "slurm".
        jobs: runs at a time; None: one for each core.
        runs: folder of all runs.
        again: the command that continues after an interruption.

    Returns:
        A function for `reproduce(..., train=...)`.

    Raises:
        ContinuaError: runs failed twice.
        SystemExit: a signal ended the sweep.

    Examples:
        >>> from continua.studies import sweep_trainer
        >>> sweep_trainer("table2a", on="local", jobs=2, runs=None, again="continua reproduce dcn/table2a")  # doctest: +SKIP
    """

    def train(missing: Sequence[Wanted], options: RunOptions) -> None:
        names = [{"model": wanted.row.label, "seed": wanted.recipe.seed} for wanted in missing]
        cells = [
            Cell(identity(wanted.recipe), name, wanted.recipe, wanted.run.folder.absolute())
            for name, wanted in zip(names, missing, strict=True)
        ]
        title = name.replace("/", "-")
        sweep = Sweep(title, Path(f"{title}.yaml"), tuple(cells), {}, (runs_folder(runs) / "sweeps" / title).absolute())
        folder = jobs_folder(sweep)
        executor = Local(folder) if on == "local" else Slurm(folder, sweep.slurm)
        at_once = jobs or (os.cpu_count() or 1) if on == "local" else jobs
        data = options.data_dir.absolute() if options.data_dir is not None else None
        with View(sweep.name) as view:
            outcome = run_sweep(sweep, executor, replace(options, data_dir=data, progress="lines"), jobs=at_once, watch=view)
        if outcome.signal:
            print(f"stopped, every run saved; the same command goes on: {again}")
            raise SystemExit(128 + outcome.signal)
        if outcome.count("done") < len(cells):
            raise ContinuaError(
                f"{len(cells) - outcome.count('done')} of {len(cells)} runs of {name} failed twice; the same command tries them again"
            )

    return train
