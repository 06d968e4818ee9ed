"""Every method of torchdiffeq, by its name: solutions, both ways in time, and the numbers that torchdiffeq itself gives."""

from typing import Any

import pytest
import torch
import torchdiffeq as theirs
from equations import EQUATIONS, Bend, case, relative_error
from torch import Tensor

import continua.compat.torchdiffeq as ours
from continua import ConfigError
from continua.compat.torchdiffeq.adams import adams_weights
from continua.compat.torchdiffeq.methods import METHODS

ADAPTIVE = [name for name, method in METHODS.items() if method.kind == "adaptive"]
ON_GRID = [name for name, method in METHODS.items() if method.on_grid]
SHARED = sorted(set(ON_GRID) & {"euler", "midpoint", "heun2", "heun3", "rk4", "explicit_adams", "implicit_adams", "fixed_adams"})
GRIDS: list[dict[str, Any]] = [
    {},
    {"step_size": 0.1},
    {"step_size": 0.07},
    {"step_size": 0.07, "interp": "cubic"},
    {"step_size": 0.09, "perturb": True},
    {"grid_constructor": lambda f, y0, t: t[0] + (t[-1] - t[0]) * torch.linspace(0, 1, 8, dtype=t.dtype) ** 2},
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_follows_a_straight_line(name: str, reverse: bool, dtype: torch.dtype) -> None:
    problem = case("straight", dtype, reverse)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {}
    y = ours.odeint(problem.f, problem.y0, problem.t, method=name, **tolerance)
    assert y.shape == problem.solution.shape
    assert relative_error(problem.solution, y) < 3e-4


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("name", [*ADAPTIVE, "scipy_solver"])
def test_an_adaptive_method_keeps_to_its_tolerance(name: str, equation: str, reverse: bool) -> None:
    problem = case(equation, reverse=reverse)
    y = ours.odeint(problem.f, problem.y0, problem.t, method=name, rtol=1e-6, atol=1e-7)
    assert float((problem.solution - y).abs().max() / problem.solution.abs().max()) < 2e-4


@pytest.mark.parametrize("times", [[0.0, 0.3, 1.0], [1.0, 0.2, -0.5]])
@pytest.mark.parametrize("options", GRIDS, ids=lambda options: "-".join(map(str, options)) or "times")
@pytest.mark.parametrize("name", SHARED)
def test_steps_on_a_grid_are_those_of_torchdiffeq(name: str, options: dict[str, Any], times: list[float]) -> None:
    """To the last bits, and so are their gradients: to the state, the weights and the times."""
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    results = []
    for library in (theirs, ours):
        t = torch.tensor(times, dtype=torch.float64, requires_grad=True)
        y = library.odeint(f, y0, t, rtol=1e-6, atol=1e-8, method=name, options=options)
        results.append([y, *torch.autograd.grad(y.square().sum(), [y0, t, *f.parameters()])])
    for expected, result in zip(*results, strict=True):
        assert torch.allclose(result, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in ADAPTIVE if name != "tsit5"])
def test_adaptive_solutions_agree_with_torchdiffeq(name: str) -> None:
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0, 2, 5, dtype=torch.float64)
    results = []
    for library in (theirs, ours):
        y = library.odeint(f, y0, t, rtol=1e-8, atol=1e-9, method=name)
        results.append([y, *torch.autograd.grad(y.square().sum(), [y0, *f.parameters()])])
    for expected, result in zip(*results, strict=True):
        # torchdiffeq's interpolants of these two are right to about 4e-6 here, ours to 7e-8
        assert torch.allclose(result, expected, atol=2e-4 if name in ("dopri8", "bosh3") else 2e-5)


def test_the_end_is_a_step_of_its_own_and_not_interpolated() -> None:
    """torchdiffeq steps past the last time and interpolates back; here f is never asked about later times, and the end is exact."""
    f, y0, t = Bend().double(), torch.randn(3, 2, dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    asked = []

    def g(time: Tensor, y: Tensor) -> Tensor:
        asked.append(float(time.detach()))
        return f(time, y)

    truth = theirs.odeint(f, y0, t, rtol=1e-12, atol=1e-13)[-1]
    errors = [
        float((library.odeint(g, y0, t, method="dopri8", rtol=1e-7, atol=1e-8)[-1] - truth).abs().max()) for library in (theirs, ours)
    ]
    assert errors[1] < 0.01 * errors[0]
    asked.clear()
    ours.odeint(g, y0, t, method="dopri8", rtol=1e-7, atol=1e-8)
    assert max(asked) == 2.0


@pytest.mark.parametrize(("name", "order"), [("implicit_euler", 1), ("trapezoid", 2), ("sdirk2", 2), ("trbdf2", 2), ("gl4", 4), ("gl6", 6)])
def test_an_implicit_method_has_its_order(name: str, order: int) -> None:
    problem = case("turning", points=2)
    errors = []
    for steps in (8, 16):
        y = ours.odeint(problem.f, problem.y0, problem.t, method=name, options={"step_size": 7 / steps})
        errors.append(float((y[-1] - problem.solution[-1]).detach().norm()))
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.25)


@pytest.mark.parametrize("name", ["implicit_euler", "trapezoid", "radauIIA5", "trbdf2"])
def test_an_implicit_method_takes_long_steps_on_a_stiff_equation(name: str) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return -1000 * (y - torch.cos(t))

    y0, t = torch.ones(3, dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert (ours.odeint(f, y0, t, method=name, options={"step_size": 0.05})[-1] - torch.cos(t[-1])).abs().max() < 2e-2
    assert ours.odeint(f, y0, t, method="rk4", options={"step_size": 0.05})[-1].abs().max() > 1e6


@pytest.mark.parametrize("solver", ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"])
def test_scipy_solves_by_any_of_its_methods(solver: str) -> None:
    problem = case("swinging", reverse=True)
    y = ours.odeint(problem.f, problem.y0, problem.t, method="scipy_solver", options={"solver": solver})
    assert relative_error(problem.solution, y) < 1e-3


def test_weights_of_adams_methods_are_those_of_the_textbooks() -> None:
    assert adams_weights(0, 4) == pytest.approx([55 / 24, -59 / 24, 37 / 24, -9 / 24], rel=1e-15)
    assert adams_weights(1, 4) == pytest.approx([9 / 24, 19 / 24, -5 / 24, 1 / 24], rel=1e-15)


@pytest.mark.parametrize("name", ["explicit_adams", "implicit_adams"])
def test_adams_methods_of_low_order_converge_as_they_should(name: str) -> None:
    problem = case("turning", points=2)
    errors = []
    for steps in (64, 128):
        options = {"step_size": 7 / steps, "max_order": 5}
        y = ours.odeint(problem.f, problem.y0, problem.t, method=name, options=options)
        errors.append(float((y[-1] - problem.solution[-1]).detach().norm()))
    assert errors[0] / errors[1] > 12


def test_one_time_is_the_start_and_nothing_else() -> None:
    y0 = torch.randn(2, 3)
    for name in METHODS:
        assert torch.equal(ours.odeint(lambda t, y: -y, y0, torch.tensor([1.0]), method=name), y0[None])


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="did you mean dopri"):
        ours.odeint(lambda t, y: y, torch.ones(1), torch.tensor([0.0, 1.0]), method="dopri4")
    with pytest.raises(ConfigError):
        ours.odeint(lambda t, y: y, torch.ones(1), torch.tensor([0.0, 1.0]), method="dopri4")
