"""How each cell of a sweep is, from its run's files, its job and what earlier commands wrote down."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from continua.runs import Run
from continua.train.sweeps.file import Cell, Sweep

TRIALS = 2  # a failed cell is tried once more
State = Literal["missing", "queued", "running", "elsewhere", "stopped", "failed", "done"]
MEANING: dict[State, str] = {
    "missing": "not begun",
    "queued": "waits in the queue",
    "running": "a job trains it",
    "elsewhere": "another command trains it",
    "stopped": "begun; goes on from its checkpoint",
    "failed": "failed, and so did its second try",
    "done": "finished",
}
KEPT = ("job", "on", "failures", "step", "error")


@dataclass
class Status:
    """One cell. `step`: of its last checkpoint when its job was submitted; `failures`: of this command; `said`: by the cluster."""

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


def read_statuses(sweep: Sweep) -> list[Status]:
    """The cells as files tell it; which jobs had been submitted for them is in `job` and `on`."""
    try:
        written = json.loads(_file(sweep).read_text("utf-8"))
    except (OSError, ValueError):
        written = {}
    statuses = []
    for cell in sweep.cells:
        known = written.get(cell.identity, {})
        status = Status(cell, **{key: known[key] for key in KEPT if key in known})
        status.rest()
        statuses.append(status)
    return statuses


def write_statuses(sweep: Sweep, statuses: Sequence[Status]) -> None:
    """What the next command must know. Cells that a file no longer lists are forgotten; their runs stay."""
    data: dict[str, Any] = {
        status.cell.identity: {"name": status.cell.name} | {key: getattr(status, key) for key in KEPT} for status in statuses
    }
    Run(sweep.folder).write_json(_file(sweep), data)


def _file(sweep: Sweep) -> Path:
    return sweep.folder / "cells.json"


def log_of(sweep: Sweep, job: str) -> Path:
    """Where submitit writes what a job says on stderr."""
    return jobs_folder(sweep) / f"{job}_0_log.err"


def jobs_folder(sweep: Sweep) -> Path:
    """Where the jobs of a sweep keep their files."""
    return sweep.folder / "jobs"


def last_words(log: Path) -> str:
    """The error that ended a job: the last line of its traceback, else what Slurm wrote, else the last line there is."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 20_000))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return f"it left no log ({log})"
    own = [line for line in lines if not line.startswith(("srun:", "slurmstepd", "submitit "))]
    starts = [number for number, line in enumerate(own) if line.startswith("Traceback ")]
    if starts:
        return own[-1].removeprefix("continua.errors.").removeprefix("continua.train.loop.")
    slurm = [line for line in lines if line.startswith("slurmstepd")]
    return (slurm or own or [f"it ended without a word (log: {log})"])[-1]
