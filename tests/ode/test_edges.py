"""Edges of the solver: a change of one sign or one number there is noticed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode import METHODS, SolverConfig, solve
from continua.ode.gradients.reversible import ReversibleStepper
from continua.ode.implicit.diagonal import _arrived


@pytest.mark.parametrize("zero", [0, 0.0, torch.tensor([1e-3, 0.0])])
def test_a_relative_tolerance_may_be_zero_and_an_absolute_one_may_not(zero: object) -> None:
    assert SolverConfig(method="dopri5", rtol=zero, atol=1e-6).rtol is not None
    with pytest.raises(ConfigError, match=r"atol=.*a finite number above 0"):
        SolverConfig(method="dopri5", rtol=1e-3, atol=zero)


def test_tolerances_are_shown_as_a_range() -> None:
    config = SolverConfig(method="dopri5", rtol=torch.tensor([1e-3, 1e-6]), atol=1e-6)
    assert config.tolerances == "rtol=1e-06 … 0.001, atol=1e-06"


@pytest.mark.parametrize("method", ["radau5", "gauss4"])
def test_states_inside_a_long_implicit_step_have_the_gradient_of_finite_differences(method: str) -> None:
    matrix = (torch.eye(2, dtype=torch.float64) * -0.7 + 0.2).requires_grad_()
    y0 = torch.tensor([[0.5, -0.3], [0.2, 0.9]], dtype=torch.float64, requires_grad=True)

    def inside(y: Tensor, m: Tensor) -> Tensor:
        found = solve(lambda t, y: torch.tanh(y @ m) * (1 + t), y, 0.0, 1.5, method=method, steps=2, save_at=[0.2, 0.9], params=[m]).ys
        assert isinstance(found, Tensor)
        return found

    assert torch.autograd.gradcheck(inside, (y0, matrix))


@pytest.mark.parametrize("options", [{"method": "radau5", "steps": 40}, {"method": "kvaerno5", "rtol": 1e-6, "atol": 1e-8}])
def test_a_batch_of_one_is_solved_implicitly_too(options: dict[str, Any]) -> None:
    y0 = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    found = solve(lambda t, y: -5.0 * y, y0, 0.0, 1.0, **options).y1
    torch.testing.assert_close(found, y0 * torch.exp(torch.tensor(-5.0, dtype=torch.float64)), rtol=0, atol=1e-6)


def test_iterations_have_arrived_when_the_rest_of_a_geometric_series_is_little() -> None:
    size, speed = torch.tensor([1.0, 1.0, 1.0, 0.0, 1e-9]), torch.tensor([0.5, 0.4, 1.0, 2.0, 1.5])
    assert _arrived(size, speed, 0.9).tolist() == [False, True, False, True, False]  # 0.5 ≤ 0.45, 0.4 ≤ 0.54
    assert _arrived(size, None, 0.9).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("name", ["rk4", "dopri5", "bosh3", "euler"])
def test_a_reversible_step_says_how_often_it_evaluates(name: str) -> None:
    calls: list[Tensor] = []

    def field(t: Tensor, y: Tensor) -> Tensor:
        calls.append(t)
        return -y

    solve(field, torch.ones(1, 1, dtype=torch.float64), 0.0, 1.0, method=name, steps=3, gradient="reversible")
    each = ReversibleStepper(METHODS[name]).evaluations
    assert len(calls) == 3 * (each + 1)  # beside the rate at its start
