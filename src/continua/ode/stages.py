"""The stage equations of one implicit step.

    k_i = f(t + c_i h, Y_i),        Y_i = y + h Σ_j a_ij k_j

Unknowns of all stages are one tensor (batch, stage, n): linear algebra does not care how a state is shaped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from continua.ode.rate import Rate
from continua.ode.solution import State
from continua.ode.stepper import Time, stage_time
from continua.ode.tableau import Tableau


class StageEquations:
    """f at the stages of the step from t to t_next that starts at y."""

    def __init__(self, rate: Rate, tableau: Tableau, t: Time, t_next: Time, y: State) -> None:
        self.rate, self.h = rate, float(t_next - t)
        self.times = [stage_time(t, t_next, self.h, c) for c in tableau.c]
        self._like = y
        self._widths = [part[0].numel() for part in y]
        self._dtype = torch.float64 if any(part.dtype == torch.float64 for part in y) else torch.float32
        self.y = self.pack_one(y)
        self.a = self.y.new_tensor(tableau.a)
        self.b = self.y.new_tensor(tableau.b)

    def pack_one(self, state: State) -> Tensor:
        """One row per sample, (batch, n)."""
        return torch.cat([part.reshape(len(part), -1).to(self._dtype) for part in state], dim=1)

    def pack(self, states: Sequence[State]) -> Tensor:
        return torch.stack([self.pack_one(state) for state in states], dim=1)

    def unpack(self, stages: Tensor) -> list[State]:
        return [self._unpack_one(rows) for rows in stages.unbind(1)]

    def _unpack_one(self, rows: Tensor) -> State:
        pieces = zip(rows.split(self._widths, dim=1), self._like, strict=True)
        return tuple(piece.reshape(part.shape).to(part.dtype) for piece, part in pieces)

    def points(self, k: Tensor) -> list[State]:
        """Y_i of every stage."""
        return self.unpack(self.y[:, None] + self.h * mix(self.a, k))

    def rates(self, points: list[State]) -> Tensor:
        """f(t + c_i h, Y_i) of every stage."""
        return self.pack([self.rate(time, point) for time, point in zip(self.times, points, strict=True)])


def mix(a: Tensor, stages: Tensor) -> Tensor:
    """Σ_j a_ij k_j"""
    return torch.einsum("ij,bjn->bin", a, stages)
