"""The learning rate: a pure function of how far the training has come, but for the plateau, which remembers."""

from dataclasses import asdict, dataclass
from math import cos, inf, pi
from typing import Any

from continua.train.recipe import Schedule


def lr_factor(schedule: Schedule, progress: float, epochs: int, step: float, drops: int = 0) -> float:
    """What `optimiser.lr` is multiplied by in the step from `progress` to `progress + step` (in epochs). `drops`: of the plateau."""
    if progress + step <= schedule.warmup:
        return (progress + step) / schedule.warmup  # the first step moves already, the last of the warm-up is at the full rate
    if schedule.kind == "multistep":
        return schedule.factor ** sum(progress >= milestone for milestone in schedule.milestones)
    if schedule.kind == "step":
        return schedule.factor ** int(progress / schedule.every)
    if schedule.kind == "cosine":
        done = (progress - schedule.warmup) / (epochs - schedule.warmup)
        return schedule.final + (1 - schedule.final) * (1 + cos(pi * min(max(done, 0.0), 1.0))) / 2
    return schedule.factor**drops if schedule.kind == "plateau" else 1.0


@dataclass
class Plateau:
    """Counts epochs without a better score (accuracy, or minus the error); after more than `patience` of them the rate drops once more."""

    best: float = -inf
    bad: int = 0
    drops: int = 0

    def see(self, accuracy: float, schedule: Schedule) -> None:
        if self.best == -inf or accuracy > self.best + schedule.threshold * abs(self.best):
            self.best, self.bad = accuracy, 0
            return
        self.bad += 1
        if self.bad > schedule.patience:
            self.bad, self.drops = 0, self.drops + 1

    def state(self) -> dict[str, Any]:
        return asdict(self)
