"""Train the runs that a study misses as the cells of a sweep."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from continua.errors import ContinuaError
from continua.runs import identity, runs_folder
from continua.train import Cell, Local, Slurm, Sweep, View, jobs_folder, run_sweep


def sweep_trainer(name: str, *, on: str, jobs: int | None, runs: Path | None, again: str) -> Any:
    """A trainer of missing runs as the cells of a sweep, by processes here (`on` local) or jobs on a cluster (slurm).

    `again` is the command that goes on after an interruption.
    """

    def train(missing: Sequence[Any], how: Any) -> None:
        cells = [
            Cell(identity(one.recipe), {"model": one.row.label, "seed": one.recipe.seed}, one.recipe, one.run.folder.absolute())
            for one in missing
        ]
        title = name.replace("/", "-")
        sweep = Sweep(title, Path(f"{title}.yaml"), tuple(cells), {}, (runs_folder(runs) / "sweeps" / title).absolute())
        folder = jobs_folder(sweep)
        executor = Local(folder) if on == "local" else Slurm(folder, sweep.slurm)
        at_once = jobs or (os.cpu_count() or 1) if on == "local" else jobs
        data = how.data_dir.absolute() if how.data_dir is not None else None
        with View(sweep.name) as view:
            outcome = run_sweep(sweep, executor, replace(how, data_dir=data, progress="lines"), jobs=at_once, watch=view)
        if outcome.signal:
            print(f"stopped, every run saved; the same command goes on: {again}")
            raise SystemExit(128 + outcome.signal)
        if outcome.count("done") < len(cells):
            raise ContinuaError(
                f"{len(cells) - outcome.count('done')} of {len(cells)} runs of {name} failed twice; the same command tries them again"
            )

    return train
