"""A cell of a sweep: one run, and what its files say about it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from continua.train.checkpoint import checkpoints
from continua.train.recipe import Recipe
from continua.train.run import Run


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
            found = json.loads(line)
        except ValueError:
            continue
        if found.get("event") == "epoch":
            return found
    return None
