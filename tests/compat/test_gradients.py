"""Gradients of `odeint` and `odeint_adjoint`: exact by default, the adjoint equation where it is asked for."""

from typing import Any

import pytest
import torch
import torchdiffeq as theirs
from equations import EQUATIONS, Bend, case
from torch import Tensor, nn

import continua.compat.torchdiffeq as ours
from continua import ConfigError, ContinuaWarning
from continua.compat.torchdiffeq.methods import METHODS

EVERY = [name for name in METHODS if name != "scipy_solver"]
T = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("function", [ours.odeint, ours.odeint_adjoint])
def test_gradients_to_the_state_and_the_times_are_those_of_the_solve(function: Any, name: str) -> None:
    problem = case("straight", points=5)
    t = problem.t.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda y0, t: function(problem.f, y0, t, method=name), (problem.y0, t))


@pytest.mark.parametrize("name", [name for name in EVERY if METHODS[name].on_grid])
def test_steps_on_a_grid_have_exact_gradients_to_everything(name: str) -> None:
    """Also between grid points, to the times, and to a tensor that func holds without saying so."""
    weight = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    y0, t = torch.randn(2, dtype=torch.float64, requires_grad=True), T.clone().requires_grad_()

    def states(y0: Tensor, t: Tensor, weight: Tensor) -> Tensor:
        def f(time: Tensor, y: Tensor) -> Tensor:
            return torch.tanh(weight @ y) * torch.cos(3 * time)

        return ours.odeint(f, y0, t, method=name, options={"step_size": 0.23, "interp": "cubic"}, rtol=1e-3, atol=1e-3)

    assert torch.autograd.gradcheck(states, (y0, t, weight))


@pytest.mark.parametrize("name", ["dopri5", "tsit5", "bosh3", "euler", "midpoint", "heun3", "rk4"])
def test_checkpoints_give_the_gradients_of_the_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.ode.gradients.checkpoint.SMALL_GRAPH", 0)  # which a small solve would keep
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    gradients = []
    for function in (ours.odeint, ours.odeint_adjoint):
        t = T.clone().requires_grad_()
        y = function(f, y0, t, method=name, rtol=1e-4, atol=1e-5)
        gradients.append(torch.autograd.grad(y.square().sum(), [y0, t, *f.parameters()]))
    for graph, checkpoints in zip(*gradients, strict=True):
        assert torch.allclose(graph, checkpoints, rtol=1e-11, atol=1e-12)


def test_second_derivatives_are_there_under_both_functions() -> None:
    f, y0 = Bend().double(), torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    penalties = []
    for function in (ours.odeint, ours.odeint_adjoint):
        y = function(f, y0, T, rtol=1e-5, atol=1e-6)
        (slope,) = torch.autograd.grad(y[-1].sum(), y0, create_graph=True)
        penalties.append(torch.autograd.grad(slope.square().sum(), tuple(f.parameters()), allow_unused=True)[0])
    assert penalties[0].abs().max() > 1e-3
    assert torch.allclose(*penalties, rtol=1e-9)


def test_odeint_adjoint_wants_to_know_the_parameters() -> None:
    with pytest.raises(ValueError, match="adjoint_params"):
        ours.odeint_adjoint(lambda t, y: -y, torch.ones(2), torch.tensor([0.0, 1.0]))
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    y = ours.odeint_adjoint(lambda t, y: -weight * y, torch.ones(1, dtype=torch.float64), T, adjoint_params=(weight,))
    y[-1].sum().backward()
    assert weight.grad is not None
    assert float(weight.grad) == pytest.approx(-float(torch.exp(torch.tensor(-2.0))), rel=1e-5)


def test_parameters_that_are_not_named_get_no_gradient_and_those_not_used_get_0() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2).double(), nn.Linear(2, 5).double()

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return torch.tanh(self.used(y))

    f, y0 = Two(), torch.ones(1, 2, dtype=torch.float64)
    for options in ({}, {"adjoint_options": {}}):
        f.zero_grad()
        ours.odeint_adjoint(f, y0, T, rtol=1e-5, atol=1e-6, **options).sum().backward()
        assert f.used.weight.grad is not None
        assert f.idle.weight.grad is not None
        assert not f.idle.weight.grad.any()
    f.zero_grad()
    ours.odeint_adjoint(f, y0.requires_grad_(), T, rtol=1e-5, atol=1e-6, adjoint_params=(f.used.bias,)).sum().backward()
    assert f.used.bias.grad is not None
    assert f.used.weight.grad is None


# --- the adjoint equation, where it is asked for ----------------------------------------------------------------------


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_adjoint_equation_gives_nearly_the_same(equation: str) -> None:
    gradients = []
    for options in (None, {}):
        problem = case(equation, points=4)
        t = problem.t.clone().requires_grad_()
        y = ours.odeint_adjoint(problem.f, problem.y0, t, rtol=1e-9, atol=1e-11, adjoint_options=options)
        gradients.append(
            torch.autograd.grad((y * torch.arange(4.0).reshape(-1, *[1] * (y.ndim - 1))).sum(), [problem.y0, t, *problem.f.parameters()])
        )
    for exact, adjoint in zip(*gradients, strict=True):
        assert torch.allclose(exact, adjoint, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "keywords", [{"adjoint_options": {"norm": "seminorm"}}, {"adjoint_rtol": 1e-6, "adjoint_atol": 1e-8}, {"adjoint_method": "bosh3"}]
)
def test_the_adjoint_equation_is_solved_as_torchdiffeq_solves_it(keywords: dict[str, Any]) -> None:
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    gradients = []
    for library in (theirs, ours):
        t = T.clone().requires_grad_()
        y = library.odeint_adjoint(f, y0, t, rtol=1e-8, atol=1e-9, **keywords)
        gradients.append(torch.autograd.grad(y.square().sum(), [y0, t, *f.parameters()]))
    for expected, result in zip(*gradients, strict=True):
        assert torch.allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dopri5", "rk4", "implicit_adams", "gl4", "scipy_solver"])
def test_any_method_can_solve_the_adjoint_equation(name: str) -> None:
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    options = {"options": {"step_size": 0.05}} if METHODS[name].on_grid else {}
    exact = torch.autograd.grad(ours.odeint(f, y0, T, rtol=1e-8, atol=1e-9).square().sum(), [y0, *f.parameters()])
    y = ours.odeint_adjoint(f, y0, T, method=name, rtol=1e-8, atol=1e-9, adjoint_rtol=1e-8, **options)
    for expected, result in zip(exact, torch.autograd.grad(y.square().sum(), [y0, *f.parameters()]), strict=True):
        assert torch.allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_the_norm_of_the_adjoint_sees_time_state_adjoint_and_parameters() -> None:
    seen = set()

    def norm(parts: tuple[Tensor, ...]) -> Tensor:
        seen.add(tuple(tuple(part.shape) for part in parts))
        return torch.stack([part.abs().max() for part in parts]).max()

    f = Bend()
    for y0, shapes in ((torch.ones(3, 2), [(3, 2), (3, 2)]), ((torch.ones(3, 2), torch.ones(())), [(3, 2), (), (3, 2), ()])):
        seen.clear()
        parts = tuple(f.parameters())[:1]
        function = f if isinstance(y0, Tensor) else lambda t, y: (f(t, y[0]), y[1])
        keywords = {"adjoint_options": {"norm": norm}, "adjoint_params": parts}
        y = ours.odeint_adjoint(function, y0, torch.tensor([0.0, 1.0]), rtol=1e-4, atol=1e-4, **keywords)
        (y if isinstance(y, Tensor) else y[0]).sum().backward()
        assert seen == {((), *shapes, tuple(parts[0].shape))}


def test_a_seminorm_spares_steps_of_the_backward_solve() -> None:
    f = Bend(width=256)
    counts = []
    for options in ({}, {"norm": "seminorm"}):
        y = ours.odeint_adjoint(f, torch.ones(1, 2), torch.tensor([0.0, 1.0]), rtol=1e-5, atol=1e-5, adjoint_options=options)
        f.calls = 0
        y.sum().backward()
        counts.append(f.calls)
    assert counts[1] <= counts[0]


def test_a_method_of_the_adjoint_wants_its_own_options() -> None:
    with pytest.raises(ValueError, match="adjoint_options"):
        ours.odeint_adjoint(
            Bend(), torch.ones(1, 2), torch.tensor([0.0, 1.0]), method="rk4", options={"step_size": 0.1}, adjoint_method="euler"
        )


def test_a_norm_that_does_not_see_all_parameters_is_warned_of() -> None:
    f = Bend()
    next(f.parameters()).requires_grad_(False)
    with pytest.warns(ContinuaWarning, match="does not require a gradient"):
        ours.odeint_adjoint(
            f,
            torch.ones(1, 2),
            torch.tensor([0.0, 1.0]),
            rtol=1e-3,
            atol=1e-3,
            adjoint_options={"norm": lambda parts: parts[1].abs().max()},
        )


def test_an_error_inside_the_options_of_the_adjoint_is_one_of_ours() -> None:
    y = ours.odeint_adjoint(Bend(), torch.ones(1, 2), torch.tensor([0.0, 1.0]), rtol=1e-3, atol=1e-3, adjoint_method="nonesuch")
    with pytest.raises(ConfigError, match="unknown method"):
        y.sum().backward()
