"""Edges of the solver: a change of one sign or one number there is noticed."""

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode import METHODS, Checkpoint, Implicit, SolverConfig, Status, StepControl, solve
from continua.ode.gradients.reversible import ReversibleStepper
from continua.ode.implicit.diagonal import _arrived, _Goal, _promising
from continua.ode.solution import failure

F64 = torch.float64


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


# --- configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gradient", "fits"), [("direct", True), ("reversible", False)])
def test_a_gradient_that_no_graph_can_hold_says_what_to_take_instead(gradient: str, fits: bool) -> None:
    reason = SolverConfig(method="rk4", steps=4, gradient=gradient).why_not_one_graph()
    assert (reason is None) == fits
    assert reason is None or "net.with_solver(method='rk4', steps=4, gradient='direct')" in reason


@pytest.mark.parametrize("rtol", [1e-3, (1e-3, 2e-3), torch.tensor([1e-3, 2e-3], dtype=F64)])
def test_loosened_tolerances_are_so_many_times_as_large(rtol: Any) -> None:
    loose = SolverConfig(method="dopri5", rtol=rtol, atol=1e-6).loosened(10.0)
    assert torch.as_tensor(loose.rtol).tolist() == pytest.approx((10 * torch.as_tensor(rtol, dtype=F64)).tolist())
    assert loose.atol == pytest.approx(1e-5)


@pytest.mark.parametrize("options", [{}, {"tol": 1e-6}, {"solver": "fixed_point"}, {"solver": "fixed_point", "krylov": 7}])
def test_an_implicit_method_is_written_down_by_name_alone_or_with_its_options_and_read_again(options: dict[str, Any]) -> None:
    method = Implicit("radau5", **options)
    plain = method.plain()
    assert plain == ({"tableau": "radau5", **options} if options else "radau5")
    assert Implicit(**(plain if isinstance(plain, dict) else {"tableau": plain})) == method


def test_the_numbers_of_an_implicit_method_are_that_method() -> None:
    y0 = torch.tensor([[1.0, -0.5]], dtype=F64)
    named, numbers = (
        solve(lambda t, y: torch.sin(y) - t, y0, 0.0, 1.0, method=Implicit(tableau), steps=3).y1
        for tableau in ("radau5", METHODS["radau5"].plain())
    )
    assert torch.equal(named, numbers)


# --- on the way -----------------------------------------------------------------------------------------------------------


def test_an_iteration_is_worth_going_on_with_when_what_is_left_at_its_end_is_little() -> None:
    """After iterations 0 and 1 of 4, two are left: a correction of 1 at speed s leaves s² / (1 − s), a geometric series."""
    speed = torch.tensor([0.5, 0.6, 0.7, 1.0, 0.1])
    goal = _Goal(None, 0.95, 4, patient=False)
    size = torch.tensor([1.0, 1.0, 1.0, 0.0, inf])
    assert _promising(size, speed, goal, 1).tolist() == [True, True, False, False, False]  # 0.5, 0.9, 1.63
    patient = _Goal(None, 0.95, 4, patient=True)
    assert _promising(size, speed, patient, 1).tolist() == [True, True, True, False, False]
    assert _promising(size, None, goal, 1).tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(("count", "shown"), [(1, "[0]"), (8, "[0, 1, 2, 3, 4, 5, 6, 7]"), (9, "[0, 1, 2, 3, 4, 5, 6, 7, … (9 in all)]")])
def test_eight_samples_that_failed_are_named_and_more_are_counted(count: int, shown: str) -> None:
    error = failure(Status.NON_FINITE, 0.5, 0.1, 1.0, list(range(count)))
    assert f"samples {shown})" in str(error)
    assert error.samples == list(range(count))


@pytest.mark.parametrize("batch", [1, 2])
def test_fixed_steps_that_leave_the_numbers_give_back_the_last_good_state(batch: int) -> None:
    y0 = torch.full((batch, 1), 10.0, dtype=F64)
    found = solve(lambda t, y: torch.where(t > 0.6, y * inf, -y), y0, 0.0, 1.0, method="euler", steps=4, on_failure="status")
    assert found.status == (Status.NON_FINITE,) * batch
    torch.testing.assert_close(found.y1, y0 * 0.75**3)


def test_evaluations_behind_a_jump_are_counted_for_the_samples_that_jump() -> None:
    seen = torch.zeros(3, dtype=torch.long)

    def field(t: Tensor, y: Tensor) -> Tensor:
        seen[y[:, 0].long()] += 1  # the first number of a sample is its own and stays
        rate = torch.where(t > 0.5, 3.0, -1.0)[:, None] * y
        return torch.cat([torch.zeros_like(y[:, :1]), rate[:, 1:]], dim=1)

    y0 = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], dtype=F64)
    control = StepControl(per="sample", jump_at=[0.5])
    found = solve(field, y0, 0.0, torch.tensor([0.3, 0.9, 1.0]), method="dopri5", rtol=1e-6, atol=1e-8, control=control)
    assert found.stats.nfe.tolist() == seen.tolist()


def test_a_reversible_solve_of_several_parts_chooses_its_steps() -> None:
    y0 = (torch.ones(2, 1, dtype=F64), torch.zeros(2, 1, dtype=F64))
    found = solve(lambda t, y: (-y[1], y[0]), y0, 0.0, 1.0, method="dopri5", rtol=1e-8, atol=1e-10, gradient="reversible").y1
    for part, value in zip(found, (torch.cos, torch.sin), strict=True):
        torch.testing.assert_close(part, value(torch.ones(2, 1, dtype=F64)), rtol=0, atol=1e-6)


# --- backwards ------------------------------------------------------------------------------------------------------------


class Told(torch.nn.Module):
    """dy/dt = a y, and what it was told of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.told = torch.nn.Parameter(torch.tensor(0.5, dtype=F64)), list[tuple[int, bool]]()

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.a * y

    def on_step(self, index: int, recomputing: bool) -> None:
        self.told.append((index, recomputing))


@pytest.mark.parametrize("again", [False, True])
def test_a_field_is_told_that_steps_are_taken_again_also_for_second_derivatives(again: bool) -> None:
    field = Told()
    y1 = solve(field, torch.ones(1, 1, dtype=F64), 0.0, 1.0, method="rk4", steps=3, gradient=Checkpoint(direct_below=0)).y1
    assert {recomputing for _, recomputing in field.told} == {False}
    field.told.clear()
    torch.autograd.grad(y1.sum(), field.a, create_graph=again)
    assert {index for index, _ in field.told} == {0, 1, 2}
    assert {recomputing for _, recomputing in field.told} == {True}
