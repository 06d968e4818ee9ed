"""Running sums of one epoch, over all ranks, from which its metrics line is made."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class EpochSums:
    """What has been seen of the epoch so far; part of every checkpoint, so that a resumed epoch reports the same numbers."""

    images: int = 0
    loss: float = 0.0
    correct: float = 0.0
    penalty: float = 0.0
    batches: int = 0
    skipped: int = 0
    gradient_norm: float = 0.0
    nfe: list[float] = field(default_factory=list)
    nfe_backward: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)

    def add_costs(self, name: str, costs: Sequence[float]) -> None:
        sums = getattr(self, name) or [0.0] * len(costs)
        setattr(self, name, [total + cost for total, cost in zip(sums, costs, strict=True)])

    def mean(self, name: str) -> "float | None":
        return getattr(self, name) / self.images if self.images else None

    def per_batch(self, name: str) -> list[float]:
        return [round(total / max(1, self.batches), 3) for total in getattr(self, name)]

    def state(self) -> dict[str, Any]:
        return asdict(self)


def costs(stats: Sequence[Any], name: str) -> list[float]:
    """A statistic of each block's last solve, its mean over samples where each has its own; 0 for blocks without a solver."""
    return [_number(getattr(block, name)) if block is not None else 0.0 for block in stats]


def _number(value: Any) -> float:
    return float(value.double().mean()) if isinstance(value, Tensor) else float(value)
