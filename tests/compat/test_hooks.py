"""Callbacks, perturbed ends, bounds of steps, times to land on, and the end at an event."""

from typing import Any

import pytest
import torch
import torchdiffeq as theirs
from equations import Bend, case, relative_error
from torch import Tensor

import continua.compat.torchdiffeq as ours
from continua import ContinuaWarning
from continua.compat.torchdiffeq.methods import METHODS

ADAPTIVE = [name for name, method in METHODS.items() if method.kind == "adaptive"]
ON_GRID = [name for name, method in METHODS.items() if method.on_grid]
T = torch.tensor([0.0, 1.0], dtype=torch.float64)


class Watched(Bend):
    """A field that notes what its callbacks are told."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.double()
        self.told: list[tuple[str, float, float]] = []
        for name in names:
            setattr(self, name, self._note(name))

    def _note(self, name: str) -> Any:
        def callback(t0: Tensor, y0: Tensor, dt: Tensor) -> None:
            assert isinstance(y0, tuple) or y0.shape == (3, 2)
            self.told.append((name, float(t0), float(dt)))

        return callback

    def count(self, name: str) -> int:
        return sum(told == name for told, _, _ in self.told)


CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")


@pytest.mark.parametrize("function", [ours.odeint, ours.odeint_adjoint])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_every_tried_step_is_told_of_and_what_became_of_it(name: str, function: Any) -> None:
    f = Watched(*CALLBACKS)
    tolerance = 1e-10 if name == "dopri8" else 1e-6
    function(f, torch.randn(3, 2, dtype=torch.float64), T, method=name, rtol=tolerance, atol=tolerance, options={"first_step": 0.9})
    step, accept, reject = (f.count(name) for name in CALLBACKS)
    assert step == accept + reject
    assert reject > 0
    assert f.told[0] == ("callback_step", 0.0, pytest.approx(0.9))
    assert sum(dt for name, _, dt in f.told if name == "callback_accept_step") == pytest.approx(1.0)
    tried = [told[1:] for told in f.told if told[0] == "callback_step"]
    assert tried == [told[1:] for told in f.told if told[0] != "callback_step"]


@pytest.mark.parametrize("times", [[0.0, 1.0], [1.0, 0.0]])
@pytest.mark.parametrize("name", ON_GRID)
def test_a_step_on_a_grid_is_told_of_before_it_is_taken(name: str, times: list[float]) -> None:
    f = Watched("callback_step")
    ours.odeint(
        f, torch.randn(3, 2, dtype=torch.float64), torch.tensor(times, dtype=torch.float64), method=name, options={"step_size": 0.1}
    )
    starts = [time for _, time, _ in f.told]
    assert starts == pytest.approx([times[0] + 0.1 * i * (1 if times[1] > times[0] else -1) for i in range(10)])
    assert [dt for _, _, dt in f.told] == pytest.approx([0.1] * 10)


@pytest.mark.parametrize("name", ["dopri5", "rk4", "explicit_adams", "trapezoid"])
def test_callbacks_of_the_adjoint_are_told_of_the_backward_solve(name: str) -> None:
    names = [f"{callback}_adjoint" for callback in CALLBACKS[: 3 if name == "dopri5" else 1]]
    f, y0 = Watched(*names), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    options = {"options": {"step_size": 0.1}} if METHODS[name].on_grid else {}
    y = ours.odeint_adjoint(f, y0, T, method=name, rtol=1e-6, atol=1e-7, **options)
    assert not f.told
    y.sum().backward()
    assert f.told[0][1] == 1.0
    assert f.count("callback_step_adjoint") == (
        10 if options else f.count("callback_accept_step_adjoint") + f.count("callback_reject_step_adjoint")
    )


def test_callbacks_that_a_method_cannot_make_are_warned_of() -> None:
    for name, callbacks in (("rk4", CALLBACKS[1:]), ("scipy_solver", CALLBACKS)):
        for callback in callbacks:
            with pytest.warns(ContinuaWarning, match=f"{name}.*{callback}"):
                ours.odeint(Watched(callback), torch.ones(3, 2, dtype=torch.float64), T, method=name)


@pytest.mark.parametrize("function", [ours.odeint, ours.odeint_adjoint])
@pytest.mark.parametrize("name", ON_GRID)
def test_perturbed_steps_leave_the_grid_points_alone(name: str, function: Any, dtype: torch.dtype) -> None:
    asked: list[float] = []

    def f(t: Tensor, y: Tensor) -> Tensor:
        asked.append(float(t))
        return -y

    keywords = {"adjoint_params": ()} if function is ours.odeint_adjoint else {}
    y0 = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    y = function(f, y0, torch.tensor([0.0, 1.0]), method=name, options={"step_size": 0.5, "perturb": True}, **keywords)
    y.sum().backward()
    assert not {0.0, 0.5, 1.0} & set(asked)
    plain = function(f, y0, torch.tensor([0.0, 1.0]), method=name, options={"step_size": 0.5}, **keywords)
    assert torch.allclose(y, plain, rtol=1e-5)


def test_a_grid_of_ones_own_is_followed_both_ways() -> None:
    y0 = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for t in (T, T.flip(0)):

        def grid(f: Any, y0: Tensor, t: Tensor) -> Tensor:
            assert y0.shape == ()
            return torch.linspace(float(t[0]), float(t[1]), 11, dtype=t.dtype)

        y = ours.odeint_adjoint(lambda t, y: y, y0, t, method="euler", options={"grid_constructor": grid}, adjoint_params=())
        factor = 1 + 0.1 * float(t[1] - t[0])
        assert float(y[1].detach()) == pytest.approx(factor**10)
        (gradient,) = torch.autograd.grad(y[1], y0)
        assert float(gradient) == pytest.approx(factor**10)


# --- bounds of steps, and times to land on ----------------------------------------------------------------------------


def test_the_shortest_and_the_longest_step_are_kept() -> None:
    for options, least, most in (
        ({"max_step": 0.05}, 0.0, 0.05),
        ({"min_step": 0.2}, 0.2, 1.0),
        ({"min_step": 0, "max_step": float("inf")}, 0.0, 1.0),
    ):
        f = Watched("callback_accept_step")
        ours.odeint(f, torch.randn(3, 2, dtype=torch.float64), T, rtol=1e-9, atol=1e-10, options=options)
        steps = [dt for _, _, dt in f.told]
        assert max(steps) <= most * (1 + 1e-9)
        assert min(steps[:-1]) >= least * (1 - 1e-9)  # the last one ends at the end


def test_a_step_ends_at_every_time_that_was_named() -> None:
    for name, times in (("step_t", [0.123, 0.7]), ("jump_t", [0.456])):
        f = Watched("callback_accept_step")
        ours.odeint(
            f, torch.randn(3, 2, dtype=torch.float64), T, rtol=1e-4, atol=1e-5, options={name: torch.tensor(times, dtype=torch.float64)}
        )
        ends = [t + dt for _, t, dt in f.told]
        assert all(min(abs(end - time) for end in ends) < 1e-12 for time in times)
    both = {"step_t": torch.tensor([0.5]), "jump_t": torch.tensor([0.5])}
    with pytest.raises(ValueError, match="times in common"):
        ours.odeint(Bend(), torch.ones(1, 2), T, options=both)


class Jump(torch.nn.Module):
    """f changes at t = 0.5 without notice."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return -0.5 * y if t < 0.5 else y**2


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", [ours.odeint, ours.odeint_adjoint])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_a_declared_jump_spares_evaluations_both_ways(name: str, function: Any, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.ode.gradients.checkpoint.SMALL_GRAPH", 0)  # else backward evaluates nothing at all
    t = T.flip(0) if reverse else T
    end = torch.exp(torch.tensor(-0.25, dtype=torch.float64))
    truth = 1 / (1 / end - 0.5) if not reverse else None
    counts = []
    for options in ({}, {"jump_t": torch.tensor([0.5])}):
        f, y0 = Jump(), torch.ones(1, dtype=torch.float64, requires_grad=True)
        y = function(f, y0, t, rtol=1e-6, atol=1e-7, method=name, options=options)
        forward, f.calls = f.calls, 0
        y.sum().backward()
        counts.append((forward, f.calls))
    assert counts[1][0] < counts[0][0]
    if function is ours.odeint_adjoint:
        assert counts[1][1] < counts[0][1]
    if truth is not None:
        assert float(y[-1].detach()) == pytest.approx(float(truth), rel=1e-4)


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("equation", ["straight", "swinging"])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "scipy_solver"])
def test_a_solve_ends_where_a_function_crosses_zero(name: str, equation: str, reverse: bool) -> None:
    problem = case(equation, reverse=reverse)
    target = problem.solution[2]
    options = (
        {"step_size": 0.05, "interp": "cubic", "max_order": 6} if METHODS[name].kind == "adams" else {"step_size": 0.05, "interp": "cubic"}
    )
    options = options if METHODS[name].on_grid else {}
    event_t, y = ours.odeint(problem.f, problem.y0, problem.t[:2], event_fn=lambda t, y: y - target, method=name, options=options)
    tolerance = 5e-2 if name in ("euler", "implicit_euler") else 2e-3
    assert y.shape == (2,)
    assert relative_error(target, y[-1]) < tolerance
    assert relative_error(problem.t[2], event_t) < tolerance
    assert not event_t.requires_grad


def fall(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return y[1], -torch.ones_like(y[1]) * 9.81


@pytest.mark.parametrize("function", [ours.odeint, ours.odeint_adjoint])
@pytest.mark.parametrize("name", ["dopri5", "rk4"])
def test_when_a_ball_lands_has_the_right_gradient(name: str, function: Any) -> None:
    height, speed = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (2.0, 1.5))
    options = {"step_size": 0.1, "interp": "cubic"} if name == "rk4" else None
    keywords = {"adjoint_params": ()} if function is ours.odeint_adjoint else {}

    def land(height: Tensor, speed: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        event_t, (h, v) = ours.odeint_event(
            fall,
            (height, speed),
            start,
            event_fn=lambda t, y: y[0],
            odeint_interface=function,
            method=name,
            options=options,
            atol=1e-12,
            **keywords,
        )
        return event_t, h[-1], v[-1]

    start = torch.tensor(0.25, dtype=torch.float64, requires_grad=True)
    event_t, h, _ = land(height, speed, start)
    assert float((event_t - start).detach()) == pytest.approx((1.5 + (1.5**2 + 2 * 9.81 * 2) ** 0.5) / 9.81, rel=1e-8)
    assert abs(float(h.detach())) < 1e-7
    assert torch.autograd.gradcheck(land, (height, speed, start), atol=1e-4)


def test_events_of_torchdiffeq_and_ours_agree_with_gradients_to_the_guard() -> None:
    f, y0 = Bend().double(), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    results = []
    for library in (theirs, ours):
        event_t, y = library.odeint_event(f, y0, torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, y: t + y.square().sum() - 6.0)
        results.append([event_t, y, *torch.autograd.grad(event_t + y.square().sum(), [y0, *f.parameters()])])
    for expected, result in zip(*results, strict=True):
        assert torch.allclose(result, expected, atol=1e-5)


def test_the_first_of_several_events_ends_the_solve() -> None:
    def either(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([3.0 - y[0], y[1] - 1.5])

    event_t, _ = ours.odeint(lambda t, y: torch.ones_like(y), torch.zeros(2), T.float(), event_fn=either, rtol=1e-5, atol=1e-6)
    assert float(event_t) == pytest.approx(1.5, abs=1e-5)


def test_time_may_run_backwards_to_an_event() -> None:
    event_t, y = ours.odeint_event(
        lambda t, y: y, torch.ones(1, dtype=torch.float64), T[0], event_fn=lambda t, y: y - 0.5, reverse_time=True
    )
    assert float(event_t) == pytest.approx(-float(torch.log(torch.tensor(2.0))), abs=1e-6)
    assert float(y[-1]) == pytest.approx(0.5, abs=1e-6)


def test_an_event_of_a_fixed_step_needs_the_step_and_two_times() -> None:
    with pytest.raises(AssertionError, match="step_size"):
        ours.odeint(lambda t, y: y, torch.ones(1), T, method="rk4", event_fn=lambda t, y: y - 2)
    with pytest.raises(ValueError, match="an event needs two"):
        ours.odeint(lambda t, y: y, torch.ones(1), torch.tensor([0.0, 1.0, 2.0]), event_fn=lambda t, y: y - 2)
    with pytest.raises(RuntimeError, match="no event"):
        ours.odeint(lambda t, y: -y, torch.ones(1), T, method="euler", options={"step_size": 1e-3}, event_fn=lambda t, y: y + 1)


def test_a_solution_between_two_times_is_a_function() -> None:
    problem = case("swinging", points=2)
    dense = ours.odeint_dense(problem.f, problem.y0.detach(), problem.t[0], problem.t[1], rtol=1e-8, atol=1e-9)
    t = torch.tensor([2.0, 5.5], dtype=torch.float64)
    expected = problem.f.solution(t)  # pyright: ignore[reportCallIssue]
    assert torch.allclose(dense(t), expected, rtol=1e-5)
    assert torch.allclose(dense(t[0]), expected[0], rtol=1e-5)
