"""GMRES for a batch: each row solves its own system, to its own target, whoever its neighbours are."""

import torch
from torch import Tensor

from continua.ode.implicit.krylov import Operator, gmres


def of(matrices: Tensor) -> Operator:
    return lambda x: torch.einsum("bij,bj->bi", matrices, x)


def systems(rows: int = 5, size: int = 7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    return torch.eye(size).double() + 0.3 * torch.randn(rows, size, size).double(), torch.randn(rows, size).double()


def targets(b: Tensor, value: float) -> Tensor:
    return torch.full((len(b),), value, dtype=b.dtype)


def test_solution_is_that_of_a_direct_solver() -> None:
    matrices, b = systems()
    x, rest = gmres(of(matrices), b, targets(b, 1e-13), 50)
    torch.testing.assert_close(x, torch.linalg.solve(matrices, b))
    assert bool((rest <= 1e-13).all())


def test_reported_residual_is_the_residual_also_when_the_space_is_too_small() -> None:
    matrices, b = systems()
    x, rest = gmres(of(matrices), b, targets(b, 0.0), 4)
    torch.testing.assert_close((of(matrices)(x) - b).norm(dim=1), rest)
    assert bool((rest > 1e-6).all())


def test_residual_is_the_least_of_the_krylov_space() -> None:
    matrices, b = systems(rows=1)
    _, rest = gmres(of(matrices), b, targets(b, 0.0), 3)
    images, direction = [], b
    for _ in range(3):  # A b, A² b, A³ b: what A makes of the space
        direction = of(matrices)(direction)
        images.append(direction[0])
    basis = torch.linalg.qr(torch.stack(images, dim=1))[0]
    torch.testing.assert_close(rest[0], (b[0] - basis @ (basis.T @ b[0])).norm())


def test_a_row_stops_at_its_own_target_whoever_its_neighbours_are() -> None:
    matrices, b = systems()
    matrices[2] = torch.eye(7)  # done after one product
    b[3] = 0.0  # done before any
    limits = torch.tensor([1e-1, 1e-12, 1e-12, 1e-12, 1e-4], dtype=b.dtype)
    together, rest = gmres(of(matrices), b, limits, 50)
    assert bool((rest <= limits).all())
    assert float(rest[0]) > 1e-6  # it did not go on with the others
    for row in range(5):
        alone, _ = gmres(of(matrices[row : row + 1]), b[row : row + 1], limits[row : row + 1], 50)
        torch.testing.assert_close(alone[0], together[row], rtol=1e-12, atol=1e-14)


def test_a_singular_or_undefined_row_leaves_the_others_alone() -> None:
    matrices, b = systems()
    matrices[0], b[1] = 0.0, torch.nan
    x, rest = gmres(of(matrices), b, targets(b, 1e-12), 50)
    torch.testing.assert_close(x[2:], torch.linalg.solve(matrices[2:], b[2:]))
    torch.testing.assert_close(rest[0], b[0].norm())
    assert not bool(rest[1] <= 1e-12)
