"""Sweeps small enough for tests, and an executor that tests can watch."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from continua.runs.loading import merged, parse_recipe
from continua.train import Recipe, Run, identity
from continua.train.sweeps.jobs import CellJob, JobState

RECIPE: dict[str, Any] = dict(
    model="dcn_ode",
    model_options=dict(channels=[4, 8], stem_padding=1, solver=dict(method="rk4", steps=1)),
    data="digits",
    per_class=2,  # one batch an epoch
    epochs=3,
    batch_size=16,
    augmentation=dict(crop_padding=1),
    optimiser=dict(kind="sgd", lr=0.01, momentum=0.9),
    schedule=dict(kind="cosine"),
)


def small_recipe(**changes: Any) -> Recipe:
    return parse_recipe(merged(RECIPE, changes))


def write_sweep(path: Path, *, epochs: int = 3, **content: Any) -> Path:
    """A sweep file, and beside it the recipe it is of; `content` as in the file."""
    path.with_name("recipe.yaml").write_text(yaml.safe_dump(RECIPE | {"epochs": epochs}))
    path.write_text(yaml.safe_dump({"recipes": "recipe.yaml", **content}, sort_keys=False))
    return path


class Pretended:
    """Jobs end when they are looked at, with the files of a finished run; `fail`: folders of cells whose first so many jobs fail."""

    name, pause, survives = "pretended", 0.0, False

    def __init__(self, fail: Mapping[Path, int] | None = None) -> None:
        self.jobs: dict[str, CellJob] = {}
        self.left = dict(fail or {})
        self.most, self.ended, self.said = 0, set[str](), ""

    def submit(self, job: CellJob, name: str) -> str:
        self.jobs[str(len(self.jobs))] = job
        self.most = max(self.most, len(self.jobs) - len(self.ended))
        return str(len(self.jobs) - 1)

    def states(self, jobs: Iterable[str]) -> dict[str, JobState]:
        return {job: self._end(job) for job in jobs}

    def _end(self, number: str) -> JobState:
        job = self.jobs[number]
        self.ended.add(number)
        if self.left.get(job.folder, 0):
            self.left[job.folder] -= 1
            return JobState("ended", self.said or "failed")
        run, recipe = Run(job.folder), parse_recipe(job.recipe)
        if not run.exists:
            run.create(recipe)
        run.write_json(run.result_file, {"identity": identity(recipe), "parameters": 7, "test_accuracy": recipe.seed / 10})
        return JobState("ended")

    def stop(self, jobs: Iterable[str]) -> None:
        pass

    @property
    def folders(self) -> list[str]:
        return [job.folder.name for job in self.jobs.values()]
