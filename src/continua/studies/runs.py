"""The runs of a study: from rows to resolved recipes, to those that are there, to those that are trained now."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from continua.analysis import Answer, Question, Subject, answer, subject_of
from continua.errors import ConfigError
from continua.models import options_in_common
from continua.runs import Recipe, Run, RunIndex, load_recipe, merged, resolve, run_folder
from continua.studies.study import Row, Setting, Study
from continua.train import RunOptions


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
    def name(self) -> str:
        return f"{self.row.label}, seed {self.recipe.seed}"


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
        found = [run for index in self.indices if (run := index.find(recipe)) is not None]
        finished = [run for run in found if run.result is not None]
        own = self.indices[0].find(recipe)
        return finished[0] if finished else own or Run(run_folder(recipe, self.runs))


@dataclass(frozen=True)
class Runs:
    """Finished runs as a study's question sees them."""

    study: Study
    scale: str
    wanted: Sequence[Wanted]
    options: RunOptions
    out: Path

    @property
    def setting(self) -> Setting:
        return self.study.setting(self.scale)

    @cached_property
    def by_label(self) -> dict[str, list[Wanted]]:
        found: dict[str, list[Wanted]] = defaultdict(list)
        for one in self.wanted:
            if one.finished:
                found[one.row.label].append(one)
        return dict(found)

    def values(self, number: "str | Callable[[dict[str, Any]], float]", times: float = 1.0) -> dict[str, list[float]]:
        """A number of result.json for each row, one per seed: `runs.values("test_accuracy", 100)`."""
        get = number if callable(number) else lambda result: result[number]
        return {label: [times * float(get(one.run.result or {})) for one in some] for label, some in self.by_label.items()}

    def subjects(self, label: str, solver: Mapping[str, Any] | None = None) -> list[Subject]:
        """The networks of a row, for an analysis; with another solver than they were trained with where one is given."""
        found = self.by_label.get(label, [])
        if not found:
            raise ConfigError(f"{self.study.id} has no finished run {label!r} to ask")
        subjects = [self._subject(one.run) for one in found]
        return [replace(subject, solver=solver) for subject in subjects]  # to the store of answers, with another solver it is another one

    def ask(self, question: Question, subjects: Sequence[Subject], **options: Any) -> Answer:
        """The answer of an analysis, from disk where it was asked before. The scale's own options come first, then these."""
        known = {name for name, *_ in question.option_fields()}
        chosen = {name: value for name, value in {**self.setting.look, **options}.items() if name in known}
        return answer(question, subjects, question.Options(**chosen), pictures=(), out=self.out / "analysis")

    def _subject(self, run: Run) -> Subject:
        how = self.options
        return subject_of(run.folder, device=how.device, data_dir=how.data_dir, quiet=how.progress == "off")
