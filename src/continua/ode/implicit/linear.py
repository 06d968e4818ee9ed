"""The linear systems of a diagonally implicit stage, (I − hγ J) d = r, for every sample of a batch.

Small states: J as a matrix, factorised. Large ones: products with J only, by GMRES, in units of the tolerance, so that components of
different size count alike. An old J does: it slows Newton's iteration down and leaves its solution as it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from continua.ode.implicit.jacobian import Differences, Linearised, Packing
from continua.ode.implicit.krylov import gmres, gmres_restarted
from continua.ode.implicit.options import Implicit
from continua.ode.rate import Rate
from continua.ode.solution import State, Time

LARGEST_DENSE = 100  # numbers in the state of a sample
LINEAR_SHARE = 0.05  # of its right side: what a linear solve inside Newton's iteration may leave undone


def column(time: Time, like: Tensor) -> "float | Tensor":
    """A number for the batch as it is; one per sample as (batch, 1)."""
    return time.to(like.dtype)[:, None] if isinstance(time, Tensor) and time.ndim else float(time)


def is_dense(options: Implicit, width: int) -> bool:
    """Whether the Jacobians of samples with so many numbers are to be matrices."""
    return width <= LARGEST_DENSE if options.linear == "auto" else options.linear == "dense"


@dataclass
class Jacobian:
    """∂f/∂y of every sample at one point: a matrix, or what multiplies with it."""

    matrix: Tensor | None
    field: "Linearised | Differences | None"
    rows: int  # of the batch that it belongs to
    fresh: bool = True  # taken in the step in which it is used

    @staticmethod
    @torch.no_grad()
    def at(options: Implicit, rate: Rate, t: Time, y: State) -> "Jacobian":
        packing = Packing(rate, [t], y)
        field = Differences(packing, [y]) if options.jacobian == "difference" else Linearised(packing, [y])
        if is_dense(options, packing.width):
            return Jacobian(field.matrix(), None, len(y[0]))
        return Jacobian(None, field, len(y[0]))


class StageSystem:
    """I − hγ J, ready to be solved."""

    def __init__(self, jacobian: Jacobian, factor: "float | Tensor", krylov: int) -> None:
        self.jacobian, self.factor, self.krylov = jacobian, factor, krylov
        if jacobian.matrix is not None:
            self._factors = torch.linalg.lu_factor_ex(_shifted(jacobian.matrix, factor))

    def solve(self, right: Tensor, scale: Tensor, enough: float) -> Tensor:
        """d of (I − hγ J) d = r; by GMRES to a share of r, or to `enough` in units of `scale`."""
        if self.jacobian.field is None:
            # A singular matrix gives infinite numbers, which the iteration takes for what they are.
            return torch.linalg.lu_solve(self._factors.LU, self._factors.pivots, right[:, :, None])[:, :, 0]
        field = self.jacobian.field

        def operator(rows: Tensor) -> Tensor:
            return rows - self.factor * field.push((rows * scale)[:, None])[:, 0] / scale

        scaled = right / scale
        target = (LINEAR_SHARE * torch.linalg.vector_norm(scaled, dim=1)).clamp(min=enough * right.shape[1] ** 0.5)
        return gmres(operator, scaled, target, self.krylov)[0] * scale


def solve_transposed(
    options: Implicit, linearised: Linearised, factor: "float | Tensor", right: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """l of (I − hγ Jᵀ) l = r, and the samples for which there is none."""
    if is_dense(options, right.shape[1]):
        rows = torch.linalg.solve_ex(_shifted(linearised.matrix(), factor).mT, right[:, :, None]).result[:, :, 0]
        return rows, ~torch.isfinite(rows).all(1)

    def operator(rows: Tensor) -> Tensor:
        return rows - factor * linearised.pull(rows[:, None])[:, 0]

    return gmres_restarted(operator, right, share, options.krylov, int(options.max_iterations or 1))


def _shifted(matrix: Tensor, factor: "float | Tensor") -> Tensor:
    factor = factor[:, :, None] if isinstance(factor, Tensor) else factor
    return torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device) - factor * matrix
