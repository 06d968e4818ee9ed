"""GMRES for a batch of linear systems: every inner product is over one sample, so that samples do not influence each other."""

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]  # (batch, n) -> (batch, n), linear, each row for itself


def gmres(operator: Operator, b: Tensor, target: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """x of A x = b with ‖b − A x‖ ≤ `target`, one system per row and one target each, and the norms ‖b − A x‖ that were reached.

    Saad & Schultz 1986: x minimises the residual over the Krylov space of b, found by Arnoldi's process and Givens rotations. A row
    that has reached its target keeps its solution while the others go on; `dimension` ends the search for all.
    """
    rows, size = len(b), min(dimension, b.shape[1])
    rest = torch.linalg.vector_norm(b, dim=1)  # of the rotated right-hand side: its size is that of the residual
    target = torch.maximum(target, 4 * torch.finfo(b.dtype).eps * rest)  # arithmetic allows no more
    going = rest > target
    basis = b.new_zeros(rows, size + 1, b.shape[1])
    basis[:, 0] = _unit(b, rest)
    turn = torch.eye(size + 1, dtype=b.dtype, device=b.device).repeat(rows, 1, 1)  # the product of all rotations
    # Rows that are done get columns of the identity and zeros on the right, which leaves their solution alone.
    triangle, right = turn[:, :size, :size].clone(), b.new_zeros(rows, size)
    for j in range(size):
        if not bool(going.any()):
            break
        column, basis[:, j + 1] = _orthogonalise(operator(basis[:, j]), basis[:, : j + 1])
        column = torch.einsum("bij,bj->bi", turn[:, : j + 2, : j + 2], column)
        radius = torch.hypot(column[:, j], column[:, j + 1])
        going = going & (radius > 0)  # 0: A is singular here, and x as good as it gets
        cos, sin = torch.where(going, column[:, j] / radius, 1.0), torch.where(going, column[:, j + 1] / radius, 0.0)
        upper, lower = turn[:, j].clone(), turn[:, j + 1].clone()
        turn[:, j], turn[:, j + 1] = _rotate(upper, lower, cos[:, None], sin[:, None])
        triangle[:, :j, j] = torch.where(going[:, None], column[:, :j], 0.0)
        triangle[:, j, j] = torch.where(going, radius, 1.0)
        right[:, j] = torch.where(going, cos * rest, 0.0)
        rest = torch.where(going, -sin * rest, rest)
        going = going & (rest.abs() > target)
    weights = torch.linalg.solve_triangular(triangle, right[:, :, None], upper=True)
    return torch.einsum("bjn,bj->bn", basis[:, :size], weights[:, :, 0]), rest.abs()


def gmres_restarted(operator: Operator, b: Tensor, share: float, dimension: int, restarts: int) -> tuple[Tensor, Tensor]:
    """x of A x = b up to a share of ‖b‖, restarted where the Krylov space was too small; and the rows for which that did not help."""
    target = max(share, 4 * torch.finfo(b.dtype).eps) * torch.linalg.vector_norm(b, dim=1)
    x, residual = torch.zeros_like(b), b
    under_way = torch.ones(len(b), dtype=torch.bool, device=b.device)
    for _ in range(restarts):
        correction, undone = gmres(operator, residual, target, dimension)
        x = x + correction
        under_way = under_way & ~(undone <= target)
        if not bool(under_way.any()):
            break
        residual = torch.where(under_way[:, None], b - operator(x), 0.0)
    return x, under_way


def _rotate(upper: Tensor, lower: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return cos * upper + sin * lower, cos * lower - sin * upper


def _orthogonalise(w: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients of w in the basis followed by the length of what is left, and its direction. Gram–Schmidt, twice for accuracy."""
    column = torch.zeros_like(basis[:, :, 0])
    for _ in range(2):
        part = torch.einsum("bjn,bn->bj", basis, w)
        w = w - torch.einsum("bjn,bj->bn", basis, part)
        column = column + part
    length = torch.linalg.vector_norm(w, dim=1)
    return torch.cat([column, length[:, None]], dim=1), _unit(w, length)


def _unit(rows: Tensor, lengths: Tensor) -> Tensor:
    return rows / torch.where(lengths > 0, lengths, 1.0)[:, None]
