"""States of any shape, real and complex, alone and in tuples; tolerances, norms, and inputs that are refused."""

import math
from typing import Any

import pytest
import torch
import torchdiffeq as theirs
from equations import Bend, Turning, case
from torch import Tensor

import continua.compat.torchdiffeq as ours
from continua import ConfigError, ContinuaWarning
from continua.compat.torchdiffeq.methods import METHODS

EVERY = [name for name in METHODS if name != "scipy_solver"]
T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)


def decay(t: Tensor, y: Any) -> Any:
    return -y if isinstance(y, Tensor) else tuple(-part for part in y)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1, 3), (0, 2)])
def test_a_state_may_have_any_shape(name: str, shape: tuple[int, ...]) -> None:
    y0 = torch.full(shape, 2.0, dtype=torch.float64)
    y = ours.odeint(decay, y0, T, method=name, options={"step_size": 0.05} if METHODS[name].on_grid else None, rtol=1e-5, atol=1e-6)
    assert y.shape == (3, *shape)
    assert torch.allclose(y[-1], y0 / math.e, rtol=3e-2)


@pytest.mark.parametrize("name", [*EVERY, "scipy_solver"])
def test_the_parts_of_a_tuple_keep_their_shapes(name: str) -> None:
    y0 = (torch.tensor(1.0, dtype=torch.float64), torch.ones(2, 3, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    y = ours.odeint(decay, y0, T, method=name, options={"step_size": 0.05} if METHODS[name].on_grid else None, rtol=1e-5, atol=1e-6)
    assert isinstance(y, tuple)
    assert [part.shape for part in y] == [(3,), (3, 2, 3), (3, 4)]
    assert all(torch.allclose(part[-1], part[0] / math.e, rtol=3e-2) for part in y)


def test_a_tuple_is_solved_as_torchdiffeq_solves_it() -> None:
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def g(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return f(t, y[0]), (y[0] * y[1]).sum()

    start = (y0, torch.tensor(0.3, dtype=torch.float64, requires_grad=True))
    results = []
    for library in (theirs, ours):
        y = library.odeint(g, start, T, rtol=1e-9, atol=1e-10)
        results.append([*y, *torch.autograd.grad(y[0].sum() + y[1].square().sum(), [*start, *f.parameters()])])
    for expected, result in zip(*results, strict=True):
        assert torch.allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_complex_state_turns(name: str, shape: tuple[int, ...]) -> None:
    y0 = torch.full(shape, 1.0 + 0.5j, dtype=torch.complex128)
    options: dict[str, float] | None = {"step_size": 0.01} if METHODS[name].on_grid else None
    if name == "explicit_adams":  # of order 11 it is not stable here
        options = {"step_size": 0.01, "max_order": 5}
    y = ours.odeint(lambda t, y: 1j * y, y0, T, method=name, options=options, rtol=1e-6, atol=1e-7)
    assert y.dtype == torch.complex128
    assert y.shape == (3, *shape)
    assert torch.allclose(y[-1], y0 * torch.exp(torch.tensor(1j)), rtol=1e-2)


@pytest.mark.parametrize("name", ["dopri5", "rk4", "implicit_adams", "gl4"])
def test_gradients_of_a_complex_state_are_right(name: str) -> None:
    matrix = torch.randn(2, 2, dtype=torch.complex128, requires_grad=True)
    y0 = torch.randn(2, dtype=torch.complex128, requires_grad=True)
    t = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64, requires_grad=True)

    def end(y0: Tensor, matrix: Tensor, t: Tensor) -> Tensor:
        # tolerances that accept everything: the choice of steps must not change while the input does
        options = {"step_size": 0.23} if METHODS[name].on_grid else {"first_step": 0.1}
        tolerances = {"rtol": 1e-3, "atol": 1e-3} if METHODS[name].on_grid else {"rtol": 1e3, "atol": 1e3}
        y = ours.odeint(lambda t, y: matrix @ y * torch.cos(t), y0, t, method=name, options=options, **tolerances)
        return torch.view_as_real(y)

    times = t if METHODS[name].on_grid else t.detach()
    assert torch.autograd.gradcheck(end, (y0, matrix, times))


@pytest.mark.parametrize(("state", "time"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_time_has_a_precision_of_its_own(state: torch.dtype, time: torch.dtype) -> None:
    seen = set()

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.add((t.dtype, t.shape))
        return -y

    y = ours.odeint(f, torch.ones(2, dtype=state), torch.tensor([0.0, 1.0], dtype=time), rtol=1e-4, atol=1e-4)
    assert y.dtype == state
    assert seen == {(state, torch.Size([]))}


def test_what_func_returns_is_broadcast_and_cast_to_the_state() -> None:
    y = ours.odeint(lambda t, y: torch.ones((), dtype=torch.float64), torch.zeros(2, 3), torch.tensor([0.0, 1.0]), method="euler")
    assert torch.equal(y[-1], torch.ones(2, 3))
    with pytest.raises(ConfigError, match="shape"):
        ours.odeint(lambda t, y: torch.ones(5), torch.zeros(2, 3), torch.tensor([0.0, 1.0]), method="euler")
    with pytest.raises(ConfigError, match="tuple of 2"):
        ours.odeint(lambda t, y: y[0], (torch.zeros(2), torch.zeros(3)), torch.tensor([0.0, 1.0]), method="euler")


# --- tolerances and norms ---------------------------------------------------------------------------------------------


def calls(**keywords: Any) -> int:
    problem = case("turning")
    assert isinstance(problem.f, Turning)
    ours.odeint(problem.f, problem.y0, problem.t, **keywords)
    return problem.f.calls


def test_tolerances_of_each_number_choose_the_steps() -> None:
    same = calls(rtol=1e-6, atol=1e-8)
    each = torch.full((10,), 1e-8)
    assert abs(calls(rtol=1e-6, atol=each) - same) <= 6
    loose = each.clone()
    loose[:9] = 1e3
    assert calls(rtol=0.0, atol=loose) < calls(rtol=0.0, atol=each)
    assert calls(rtol=torch.tensor(1e-6), atol=torch.tensor(1e-8)) == calls(rtol=1e-6, atol=each)


def test_one_of_the_two_tolerances_may_be_0() -> None:
    problem = case("turning")
    for tolerances in ({"rtol": 0, "atol": 1e-8}, {"rtol": 1e-8, "atol": 0.0}):
        y = ours.odeint(problem.f, problem.y0, problem.t, **tolerances)
        assert torch.allclose(y, problem.solution, atol=1e-5)


def test_each_tensor_of_a_tuple_may_have_its_tolerance() -> None:
    f = Bend().double()

    def g(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return f(t, y[0]), torch.sin(40 * t) * y[1]

    start = (torch.ones(3, 2, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    counts = {}
    for name, atol in {"both": 1e-9, "first": (1e-9, 1e6), "second": [1e6, torch.tensor(1e-9)]}.items():
        f.calls = 0
        ours.odeint(g, start, T, rtol=(0.0, 0.0), atol=atol)
        counts[name] = f.calls
    assert counts["first"] < counts["second"] <= counts["both"] + 10
    with pytest.raises(ConfigError, match="3 entries for a state of 2"):
        ours.odeint(g, start, T, atol=(1, 2, 3))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind == "adaptive"])
def test_a_stricter_norm_takes_more_steps(name: str) -> None:
    norms = {"largest": lambda y: y.abs().max(), "ten times": lambda y: 10 * y.abs().max()}
    counts = [calls(method=name, options={"norm": norm}, rtol=1e-4, atol=1e-5) for norm in norms.values()]
    assert counts[0] < counts[1]


@pytest.mark.parametrize("start", [torch.tensor(1.0), (torch.tensor(1.0),), (torch.tensor(1.0), torch.ones(2, 2))])
def test_a_norm_sees_the_state_as_the_user_wrote_it(start: Any) -> None:
    shapes = []

    def norm(y: Any) -> Tensor:
        shapes.append(y.shape if isinstance(y, Tensor) else tuple(part.shape for part in y))
        return (y if isinstance(y, Tensor) else y[0]).abs().max()

    ours.odeint(decay, start, torch.tensor([0.0, 1.0]), options={"norm": norm}, rtol=1e-4, atol=1e-4)
    assert set(shapes) == {start.shape if isinstance(start, Tensor) else tuple(part.shape for part in start)}


# --- what is refused, and what is warned of ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y0", "t", "kind", "match"),
    [
        (torch.ones(2), [0.0, 1.0], AssertionError, "t is a list"),
        (torch.ones(2), torch.tensor([0, 1]), TypeError, "floating point"),
        (torch.ones(2), torch.tensor([[0.0, 1.0]]), AssertionError, "one dimensional"),
        (torch.ones(2), torch.tensor([0.0, 1.0, 1.0]), AssertionError, "strictly increasing or decreasing"),
        (torch.ones(2), torch.tensor([0.0, 1.0, 0.5]), AssertionError, "strictly increasing or decreasing"),
        ([torch.ones(2)], torch.tensor([0.0, 1.0]), AssertionError, "y0 is a list"),
        (torch.ones(2, dtype=torch.int64), torch.tensor([0.0, 1.0]), TypeError, "floating point or complex"),
    ],
)
def test_bad_input_is_refused_as_torchdiffeq_refuses_it_and_in_words(y0: Any, t: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match) as error:
        ours.odeint(decay, y0, t)
    assert isinstance(error.value, ConfigError)


def test_tolerances_have_no_gradient() -> None:
    with pytest.raises(AssertionError, match="rtol requires a gradient"):
        ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), rtol=torch.tensor(1e-3, requires_grad=True))


def test_unexpected_options_are_warned_of_and_ignored() -> None:
    for name, option in (("dopri5", "step_size"), ("rk4", "first_step"), ("scipy_solver", "perturb")):
        with pytest.warns(ContinuaWarning, match=f"{name}: unexpected options .*{option}"):
            ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), method=name, options={option: 0.5}, rtol=1e-4, atol=1e-4)


def test_options_that_contradict_each_other_are_refused() -> None:
    both = {"step_size": 0.1, "grid_constructor": lambda f, y0, t: t}
    with pytest.raises(ValueError, match="exclude each other"):
        ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), method="rk4", options=both)
    with pytest.raises(AssertionError, match=r"from t\[0\] to t\[-1\]"):
        ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), method="rk4", options={"grid_constructor": lambda f, y0, t: t * 2})
    with pytest.raises(ValueError, match="interp='quintic'"):
        ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), method="rk4", options={"interp": "quintic"})


def test_too_many_steps_fail_as_an_assertion_and_as_an_error_of_the_solver() -> None:
    from continua import SolverError

    with pytest.raises(AssertionError, match="max_steps") as error:
        ours.odeint(decay, torch.ones(2), torch.tensor([0.0, 1.0]), options={"max_num_steps": 2}, rtol=1e-5, atol=1e-6)
    assert isinstance(error.value, SolverError)
