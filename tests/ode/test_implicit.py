"""Implicit methods: order, stability, what they conserve, their gradients, and how they say that they did not converge."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from continua.errors import ConfigError, SolverError
from continua.ode import Checkpoint, Implicit, SolverConfig, Status, Tableau, solve

METHODS = ["gauss2", "gauss4", "radau3", "radau5"]
ORDERS = {"gauss2": 2, "gauss4": 4, "radau3": 3, "radau5": 5}
LOBATTO = Tableau(  # Lobatto IIIA of order 4: its first stage is explicit, and its matrix singular
    a=[[0, 0, 0], [5 / 24, 1 / 3, -1 / 24], [1 / 6, 2 / 3, 1 / 6]], b=[1 / 6, 2 / 3, 1 / 6], c=[0, 1 / 2, 1], name="lobatto3a"
)
GAMMA = 1 - math.sqrt(1 / 2)
SDIRK = Tableau(a=[[GAMMA], [1 - GAMMA, GAMMA]], b=[1 - GAMMA, GAMMA], c=[GAMMA, 1], name="sdirk2")  # Alexander 1977
FIXED_POINT = dict(solver="fixed_point")


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Net(nn.Module):
    """A smooth field with parameters and explicit time."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 4).double(), nn.Linear(4, width).double()

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(y) + t))


class Stiff(nn.Module):
    """y' = M y with the given eigenvalues, in a turned basis."""

    def __init__(self, eigenvalues: list[float]) -> None:
        super().__init__()
        turn = torch.linalg.qr(double(len(eigenvalues), len(eigenvalues)))[0]
        self.matrix = nn.Parameter(turn @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ turn.T)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return y @ self.matrix.T


def pendulum(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[:, 1], -torch.sin(y[:, 0])], dim=1)


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[:, 1], 100 * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], dim=1)


# --- order and oracles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, LOBATTO, SDIRK], ids=[*METHODS, "lobatto3a", "sdirk2"])
def test_observed_order_is_the_order_of_the_method(method: "str | Tableau") -> None:
    y0 = torch.tensor([[1.2, 0.3], [0.5, -0.8]], dtype=torch.float64)
    exact = solve(pendulum, y0, 0.0, 2.0, method="dopri8", rtol=1e-13, atol=1e-13).y1
    counts = [4, 8]
    errors = [float((solve(pendulum, y0, 0.0, 2.0, method=method, steps=n).y1 - exact).norm()) for n in counts]
    expected = ORDERS[method] if isinstance(method, str) else method.order
    assert abs(math.log2(errors[0] / errors[1]) - expected) < 0.2


def test_radau_follows_scipy_on_a_stiff_oscillator() -> None:
    y0 = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    oracle = solve_ivp(
        lambda t, y: van_der_pol(torch.tensor(t), torch.as_tensor(y)[None])[0].numpy(), (0, 1), [2.0, 0.0], "Radau", rtol=1e-10, atol=1e-12
    )
    found = solve(van_der_pol, y0, 0.0, 1.0, method="radau5", steps=20).y1
    np.testing.assert_allclose(found[0].numpy(), oracle.y[:, -1], rtol=1e-4)


@torch.no_grad()
def test_radau_follows_the_matrix_exponential_where_explicit_steps_explode() -> None:
    field, y0 = Stiff([-1e5, -300.0, -2.0, 0.5]), double(3, 4)
    exact = y0 @ torch.linalg.matrix_exp(field.matrix).T
    assert (solve(field, y0, 0.0, 1.0, method="radau5", steps=20).y1 - exact).norm() < 1e-7 * exact.norm()
    assert solve(field, y0, 0.0, 1.0, method="rk4", steps=20).y1.norm() > 1e20


def test_time_reaches_f_and_runs_backwards() -> None:
    y0 = torch.ones(2, 1, dtype=torch.float64)
    found = solve(lambda t, y: -2 * t * y, y0, 1.0, 0.0, method="gauss4", steps=10).y1
    torch.testing.assert_close(found, math.e * y0, rtol=1e-4, atol=0)


def test_each_sample_may_have_its_own_end_time() -> None:
    ends = torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64)
    found = solve(lambda t, y: -y, torch.ones(3, 2, dtype=torch.float64), 0.0, ends, method="radau5", steps=8).y1
    torch.testing.assert_close(found[:, 0], torch.exp(-ends), rtol=1e-8, atol=0)


def test_states_inside_come_from_the_interpolant() -> None:
    times, y0 = torch.linspace(0, 1, 7, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    solution = solve(lambda t, y: -y, y0, 0.0, 1.0, method="radau5", steps=10, save_at=times, dense=True)
    assert isinstance(solution.ys, Tensor)
    torch.testing.assert_close(solution.ys[:, 0, 0], torch.exp(-times), rtol=1e-5, atol=0)
    torch.testing.assert_close(solution.interpolate(times), solution.ys)


# --- stability and what is conserved ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_stiff_decay_stays_bounded(method: str) -> None:
    y0 = torch.ones(1, 1, dtype=torch.float64)
    found = [solve(lambda t, y: -1e4 * y, y0, 0.0, float(n), method=method, steps=n).y1 for n in (1, 10)]  # h λ = −1e4
    assert all(float(y.abs()) <= 1.0 for y in found)


@pytest.mark.parametrize(("method", "at_infinity"), [("gauss2", -1.0), ("gauss4", 1.0), ("radau3", 0.0), ("radau5", 0.0)])
def test_stiff_decay_is_damped_by_radau_and_kept_by_gauss(method: str, at_infinity: float) -> None:
    y0 = torch.ones(1, 1, dtype=torch.float64)
    found = solve(lambda t, y: -1e6 * y, y0, 0.0, 1.0, method=method, steps=1).y1  # R(z) as z -> −∞
    assert abs(float(found) - at_infinity) < 1e-4


@pytest.mark.parametrize("method", ["gauss2", "gauss4"])
def test_gauss_is_reversible(method: str) -> None:
    y0 = double(3, 2)
    there = solve(pendulum, y0, 0.0, 5.0, method=method, steps=10).y1
    torch.testing.assert_close(solve(pendulum, there, 5.0, 0.0, method=method, steps=10).y1, y0, rtol=1e-9, atol=1e-9)


def test_gauss_keeps_quadratic_invariants_and_radau_does_not() -> None:
    turn = torch.tensor([[0.0, 1.0, -0.5], [-1.0, 0.0, 2.0], [0.5, -2.0, 0.0]], dtype=torch.float64)
    y0 = double(4, 3)
    drift = {
        name: float(
            (solve(lambda t, y: (1 + y[:, :1] ** 2) * (y @ turn), y0, 0.0, 1.0, method=name, steps=6).y1.norm(dim=1) - y0.norm(dim=1))
            .abs()
            .max()
        )
        for name in ("gauss2", "gauss4", "radau3")
    }
    assert drift["gauss2"] < 1e-10
    assert drift["gauss4"] < 1e-10
    assert drift["radau3"] > 1e-4


def test_a_gauss_step_is_symplectic() -> None:
    y0, area = torch.tensor([[1.0, 0.4]], dtype=torch.float64), torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)

    def jacobian(method: str) -> Tensor:
        step = torch.autograd.functional.jacobian(lambda y: solve(pendulum, y, 0.0, 0.8, method=method, steps=1).y1[0], y0)
        return step[:, 0]

    for method in ("gauss2", "gauss4"):
        torch.testing.assert_close(jacobian(method).T @ area @ jacobian(method), area, rtol=0, atol=1e-10)
    assert (jacobian("radau3").T @ area @ jacobian("radau3") - area).abs().max() > 1e-4


# --- the iterations ---------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
def test_all_iterations_reach_the_same_stages(method: str) -> None:
    field, y0 = Net(), double(4, 3)
    newton, fixed, difference = (
        solve(field, y0, 0.0, 1.0, method=Implicit(method, **options), steps=4).y1
        for options in ({}, FIXED_POINT, dict(jacobian="difference"))
    )
    torch.testing.assert_close(fixed, newton, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(difference, newton, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("solver", ["newton", "fixed_point"])
def test_a_sample_is_the_same_alone_and_among_others(solver: str) -> None:
    """At a loose tolerance easy samples stop early: one more iteration because of a neighbour would show."""
    y0 = torch.tensor([[0.02, 0.1], [0.5, 0.3], [1.2, -1.0], [0.0, 0.0]], dtype=torch.float64)
    options = dict(method=Implicit("radau5", solver=solver, tol=1e-2), steps=3)
    together = solve(lambda t, y: -(y**3), y0, 0.0, 0.6, **options).y1
    for index in range(len(y0)):
        alone = solve(lambda t, y: -(y**3), y0[index : index + 1], 0.0, 0.6, **options).y1
        torch.testing.assert_close(alone[0], together[index], rtol=1e-13, atol=1e-15)


@torch.no_grad()
def test_a_small_krylov_space_needs_more_iterations_and_gives_the_same() -> None:
    field, y0 = Stiff([-50.0, -20.0, -5.0, -1.0, -0.1]), double(2, 5)
    large, small = (solve(field, y0, 0.0, 1.0, method=Implicit("gauss4", krylov=k), steps=5) for k in (50, 6))
    torch.testing.assert_close(small.y1, large.y1, rtol=1e-9, atol=1e-10)
    assert small.stats.nfe > large.stats.nfe


@torch.no_grad()
def test_states_may_be_tuples_of_any_shape_in_single_precision() -> None:
    conv = nn.Conv2d(2, 2, 3, padding=1)

    def field(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        maps, scale = state
        return torch.tanh(conv(maps)) * scale[:, None, None, None], -scale * maps.mean((1, 2, 3))

    y0 = (torch.randn(3, 2, 5, 5), torch.rand(3))
    found = solve(field, y0, 0.0, 1.0, method="radau5", steps=3)
    expected = solve(field, y0, 0.0, 1.0, method="dopri5", rtol=1e-5, atol=1e-5)
    for part, other, start in zip(found.y1, expected.y1, y0, strict=True):
        assert part.shape == start.shape
        assert part.dtype == torch.float32
        torch.testing.assert_close(part, other, rtol=1e-3, atol=1e-4)


def test_every_call_of_f_is_counted() -> None:
    calls = 0

    def field(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -y + torch.sin(t)

    y0 = double(2, 3).requires_grad_()
    for options in ({}, FIXED_POINT, dict(jacobian="difference")):
        calls = 0
        solution = solve(field, y0, 0.0, 1.0, method=Implicit("gauss4", **options), steps=3)
        assert solution.stats.nfe == calls
        solution.y1.sum().backward()
        assert solution.stats.nfe + solution.stats.nfe_backward == calls


def test_inference_mode_gives_the_same_state() -> None:
    field, y0 = Net(), double(2, 3)
    with torch.no_grad():
        expected = solve(field, y0, 0.0, 1.0, method="radau3", steps=3).y1
    with torch.inference_mode():
        torch.testing.assert_close(solve(field, y0 * 1, 0.0, 1.0, method="radau3", steps=3).y1, expected)


def test_a_field_that_ignores_its_state_is_a_quadrature() -> None:
    y0 = torch.zeros(2, 1, dtype=torch.float64)
    found = solve(lambda t, y: (5 * t**4).expand_as(y), y0, 0.0, 1.0, method="radau5", steps=1).y1
    torch.testing.assert_close(found, torch.ones_like(y0), rtol=1e-12, atol=0)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options"),
    [*((method, {}) for method in (*METHODS, LOBATTO, SDIRK)), ("gauss4", FIXED_POINT)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_gradient_is_that_of_the_steps(method: "str | Tableau", options: dict[str, str]) -> None:
    y0, matrix = double(2, 2).requires_grad_(), double(2, 2).requires_grad_()

    def end(y: Tensor, m: Tensor) -> Tensor:
        field = lambda t, y: torch.tanh(y @ m) * (1 + t)  # noqa: E731
        return solve(field, y, 0.0, 1.0, method=Implicit(method, **options), steps=2, params=[m]).y1

    assert torch.autograd.gradcheck(end, (y0, matrix), fast_mode=True)


def test_gradient_of_a_tuple_state_with_parameters() -> None:
    y0, z0, weight = double(2, 2).requires_grad_(), double(2, 1).requires_grad_(), double(2).requires_grad_()

    def end(y: Tensor, z: Tensor, w: Tensor) -> "tuple[Tensor, ...]":
        field = lambda t, state: (torch.sin(state[0] * w) - state[1], (state[0] ** 2).sum(1, keepdim=True) - state[1])  # noqa: E731
        return solve(field, (y, z), 0.0, 0.5, method="radau3", steps=2, params=[w]).y1

    assert torch.autograd.gradcheck(end, (y0, z0, weight), fast_mode=True)


def gradients(field: nn.Module, y0: Tensor, **keywords: object) -> list[Tensor]:
    start = y0.clone().requires_grad_()
    y1 = solve(field, start, 0.0, 1.0, **keywords).y1
    return list(torch.autograd.grad(y1.square().sum(), [start, *field.parameters()]))


@pytest.mark.parametrize("segments", [1, 2, "sqrt"])
def test_segments_change_nothing(segments: "int | str") -> None:
    field, y0 = Net(), double(3, 3)
    expected = gradients(field, y0, method="gauss4", steps=5)
    for found, wanted in zip(gradients(field, y0, method="gauss4", steps=5, gradient=Checkpoint(segments)), expected, strict=True):
        assert torch.equal(found, wanted)


def test_gradient_of_a_stiff_solve_is_that_of_its_rational_function() -> None:
    field, y0 = Stiff([-1e4, -30.0, -1.0]), double(2, 3)
    found = gradients(field, y0, method="gauss2", steps=3)
    start, h, one = y0.clone().requires_grad_(), 1 / 3, torch.eye(3, dtype=torch.float64)
    y = start
    for _ in range(3):  # R(z) = (1 + z/2) / (1 − z/2)
        y = torch.linalg.solve(one - h / 2 * field.matrix, (y @ (one + h / 2 * field.matrix).T).T).T
    for part, wanted in zip(found, torch.autograd.grad(y.square().sum(), [start, field.matrix]), strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-7, atol=1e-9)


def test_end_time_has_a_gradient() -> None:
    end = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y1 = solve(lambda t, y: -y, torch.ones(1, 1, dtype=torch.float64), 0.0, end, method="radau5", steps=4).y1
    (found,) = torch.autograd.grad(y1.sum(), end)
    torch.testing.assert_close(found, -torch.exp(-end.detach()), rtol=1e-6, atol=0)


class Once(torch.autograd.Function):
    """A cubic whose backward cannot be differentiated again."""

    @staticmethod
    def forward(ctx, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return -(y**3)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor) -> Tensor:
        return -3 * ctx.saved_tensors[0] ** 2 * g


def test_a_field_without_second_derivatives_works_by_differences() -> None:
    def end(y: Tensor, exact: bool) -> Tensor:
        field = (lambda t, y: -(y**3)) if exact else (lambda t, y: Once.apply(y))
        options = dict(jacobian="exact" if exact else "difference")
        return solve(field, y, 0.0, 1.0, method=Implicit("gauss4", **options), steps=3).y1.sum()

    y0 = double(3, 2).requires_grad_()
    (found,), (wanted,) = (torch.autograd.grad(end(y0, exact), y0) for exact in (False, True))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    with pytest.raises(ConfigError, match="jacobian='difference'"):
        solve(lambda t, y: Once.apply(y), y0.detach(), 0.0, 1.0, method="gauss4", steps=3)


# --- failures and refusals --------------------------------------------------------------------------------------------


def stiff_sample(t: Tensor, y: Tensor) -> Tensor:
    return y * torch.tensor([[-1.0], [-500.0], [-2.0]], dtype=y.dtype)


def test_fixed_point_says_that_it_did_not_converge_and_for_which_sample() -> None:
    with pytest.raises(SolverError, match=r"did not converge .* samples \[1\].*newton") as caught:
        solve(stiff_sample, torch.ones(3, 2, dtype=torch.float64), 0.0, 1.0, method=Implicit("radau5", **FIXED_POINT), steps=4)
    assert caught.value.status is Status.NOT_CONVERGED
    assert caught.value.samples == [1]
    assert caught.value.t == 0.0


def test_status_keeps_the_last_good_state_and_its_gradient() -> None:
    field = lambda t, y: -(1 + 200 * (t > 0.5)) * y  # noqa: E731
    options = dict(method=Implicit("gauss2", **FIXED_POINT), steps=4)
    y0 = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    solution = solve(field, y0, 0.0, 1.0, on_failure="status", **options)
    assert solution.status == (Status.NOT_CONVERGED,) * 2
    assert solution.stats.accepted == 2
    halfway = (0.875 / 1.125) ** 2  # two steps of the implicit midpoint rule
    torch.testing.assert_close(solution.y1, torch.full_like(y0, halfway))
    (found,) = torch.autograd.grad(solution.y1.sum(), y0)
    torch.testing.assert_close(found, torch.full_like(y0, halfway))


def test_a_rate_that_is_not_finite_is_called_that() -> None:
    y0 = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    with pytest.raises(SolverError, match=r"not a number .* samples \[1\]"):
        solve(lambda t, y: torch.sqrt(y), y0, 0.0, 1.0, method="gauss2", steps=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(max_iteration=3), "did you mean max_iterations"),
        (dict(solver="broyden"), "'newton', 'fixed_point'"),
        (dict(tol=0.0), "between 0 and 1"),
        (dict(max_iterations=0), "max_iterations=0"),
        (dict(krylov=2.5), "krylov=2.5"),
        (dict(jacobian="none"), "'exact', 'difference'"),
        (dict(tableau="rk4"), "rk4 is explicit"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SolverConfig(method={"tableau": "gauss2", **options}, steps=1)


@pytest.mark.parametrize("gradient", ["direct", "reversible", "adjoint"])
def test_other_gradients_are_refused(gradient: str) -> None:
    with pytest.raises(ConfigError, match="implicit function theorem"):
        SolverConfig(method="radau5", steps=2, gradient=gradient)


@torch.no_grad()
def test_a_diagonally_implicit_tableau_of_ones_own_chooses_its_steps() -> None:
    embedded = Tableau(a=[[GAMMA], [1 - GAMMA, GAMMA]], b=[1 - GAMMA, GAMMA], c=[GAMMA, 1], b_error=[-GAMMA, GAMMA])
    y0 = torch.ones(2, 1, dtype=torch.float64)
    solution = solve(lambda t, y: -50 * (y - torch.cos(t)), y0, 0.0, 1.0, method=embedded, rtol=1e-4, atol=1e-4)
    exact = (2500 * math.cos(1.0) + 50 * math.sin(1.0)) / 2501
    torch.testing.assert_close(solution.y1, torch.full_like(y0, exact), rtol=0, atol=1e-3)
    with pytest.raises(ConfigError, match="give steps=N"):
        SolverConfig(method=replace(embedded, b_error=None))


@pytest.mark.parametrize("method", ["gauss2", "radau3"])
def test_states_inside_have_their_gradients(method: str) -> None:
    def states(y0: Tensor) -> Tensor:
        chosen = Implicit(method, tol=1e-13)
        ys = solve(lambda t, y: torch.sin(3 * y) + t, y0, 0.0, 1.0, method=chosen, steps=2, save_at=[0.2, 0.5, 0.8]).ys
        assert isinstance(ys, Tensor)
        return ys

    assert torch.autograd.gradcheck(states, (double(2, 1).requires_grad_(),))
