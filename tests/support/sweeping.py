"""Sweeps small enough for tests, and executors that tests can watch."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from training import TINY

from continua.train import Run, identity
from continua.train.parse import parse_recipe
from continua.train.sweeps.executors import JobState
from continua.train.sweeps.job import CellJob


def write_sweep(path: Path, *, epochs: int = 3, slurm: Mapping[str, Any] | None = None, **axes: Any) -> Path:
    """A sweep file of the tiny digits recipe; `axes` as in the file."""
    fixed = {name: value for name, value in TINY.items() if name not in ("model", *axes)}
    fixed |= {"per_class": 2, "epochs": epochs, **axes.pop("set", {})}  # one batch an epoch
    content = {"recipes": "demo", "models": "dcn_ode", "set": fixed, **axes} | ({"slurm": dict(slurm)} if slurm else {})
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


class Pretended:
    """Jobs end when they are looked at, with the files of a finished run; `fail`: folders of cells whose first so many jobs fail."""

    name, pause, survives = "in process", 0.0, False

    def __init__(self, fail: Mapping[Path, int] | None = None) -> None:
        self.jobs: dict[str, CellJob] = {}
        self.left = dict(fail or {})
        self.most, self.ended, self.said = 0, set[str](), ""

    def submit(self, job: CellJob, name: str) -> str:
        self.jobs[str(len(self.jobs))] = job
        self.most = max(self.most, len(self.jobs) - len(self.ended))
        return str(len(self.jobs) - 1)

    def states(self, jobs: Iterable[str]) -> dict[str, JobState]:
        return {job: self._carry_out(job) for job in jobs}

    def _carry_out(self, number: str) -> JobState:
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
