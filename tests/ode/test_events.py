"""Events: found where SciPy finds them, differentiated by the implicit function theorem, each sample for itself."""

import numpy as np
import pytest
import torch
from fields import PairField, VectorField
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from continua import ConfigError, SolverError
from continua.ode import Event, Status, broadcast_time, solve, steady_state

F64 = torch.float64
CLOSE = dict(rtol=1e-9, atol=1e-9)
GRAVITY = 9.81


def falling(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[:, 1], torch.full_like(y[:, 1], -GRAVITY)], 1)


def balls(*heights: float) -> Tensor:
    return torch.tensor([[height, 0.0] for height in heights], dtype=F64)


def height(t: Tensor, y: Tensor) -> Tensor:
    return y[:, 0]


@pytest.mark.parametrize(("kind", "closely"), [(F64, 1e-10), (torch.float32, 8 * torch.finfo(torch.float32).eps)])
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_smooth_crossing_is_found_in_few_looks(control, kind, closely):
    """False position took 34 looks here: one end of its bracket stayed far away."""
    y0, looks = torch.tensor([[3.0], [2.0]], dtype=kind), []

    def level(t: Tensor, y: Tensor) -> Tensor:
        looks.append(t)
        return y[:, 0] - 0.9 if control == "sample" else y[:, 0].min() - 0.9

    given = dict(rtol=1e-6, atol=1e-6, control=control, record_steps=True)
    found = solve(lambda t, y: -y, y0, 0.0, 2.0, event=Event(level, terminal=False), **given)
    log = found.stats.steps
    steps = int(log.accepted.sum())
    crossings = 2 if control == "sample" else 1
    assert len(looks) <= steps + 1 + 12 * crossings
    expected = (y0[:, 0] / 0.9).log().double() if control == "sample" else torch.tensor([2.0 / 0.9], dtype=F64).log()
    order = found.events[0].sample if control == "sample" else torch.tensor([0])
    torch.testing.assert_close(found.events[0].t, expected[order], rtol=0, atol=float(log.h.max()) * closely + 1e-5)


# --- where they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3", "dopri8"])
def test_a_ball_stops_where_it_hits_the_ground(control, method):
    start = balls(1.0, 2.0, 0.5)
    function = height if control == "sample" else lambda t, y: y[:, 0].min()
    before = start.clone()
    solution = solve(falling, start, 0.0, 5.0, method=method, control=control, event=Event(function), **CLOSE)
    fall = (2 * start[:, 0] / GRAVITY).sqrt()
    expected = fall if control == "sample" else fall.min()
    torch.testing.assert_close(solution.t_end, expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(solution.y1[:, 1], -GRAVITY * solution.t_end.expand(3), rtol=0, atol=1e-7)
    assert set(solution.status) == {Status.STOPPED}
    assert solution.success
    assert set(solution.stopped.flatten().tolist()) == {0}
    assert torch.equal(start, before)


@pytest.mark.parametrize("seed", range(25))
def test_events_are_where_scipy_finds_them(seed):
    """Four random problems each: a coupled oscillator and a plane it crosses, in a random direction."""
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(size=(3, 3)) for _ in range(4)]
    matrices = [m - m.T - 0.1 * np.eye(3) for m in matrices]
    normals, starts = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    direction = int(rng.integers(-1, 2))
    theirs = []
    for m, n, y in zip(matrices, normals, starts, strict=True):

        def crossing(t, y, n=n):
            return n @ y - 0.1

        crossing.direction, crossing.terminal = direction, True
        theirs.append(solve_ivp(lambda t, y, m=m: m @ y, (0, 6), y, method="DOP853", events=crossing, rtol=1e-11, atol=1e-11))
    a, n = torch.tensor(np.stack(matrices)), torch.tensor(normals)
    state = (torch.tensor(starts), torch.arange(4, dtype=F64))  # which sample is which belongs to its state

    def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.einsum("bij,bj->bi", a[y[1].round().long()], y[0]), torch.zeros_like(y[1])

    plane = Event(lambda t, y: (n[y[1].round().long()] * y[0]).sum(1) - 0.1, direction=direction)
    ours = solve(f, state, 0.0, 6.0, control=dict(per="sample", max_step=0.1), event=plane, rtol=1e-9, atol=1e-9)
    for index, result in enumerate(theirs):
        if len(result.t_events[0]):
            assert float(ours.t_end[index]) == pytest.approx(float(result.t_events[0][0]), abs=1e-6)
            assert torch.allclose(ours.y1[0][index], torch.tensor(result.y_events[0][0]), atol=1e-6)
        else:
            assert int(ours.stopped[index]) == -1
            assert float(ours.t_end[index]) == 6.0


@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize(("direction", "expected"), [(0, [1, 2, 3]), (1, [2]), (-1, [1, 3])])
def test_recorded_events_are_all_there_and_change_nothing(control, direction, expected):
    f = lambda t, y: torch.stack([y[:, 1], -(torch.pi**2) * y[:, 0]], 1)  # noqa: E731 - sin(π t), zero at whole numbers
    y0 = torch.tensor([[0.0, torch.pi]], dtype=F64)
    function = height if control == "sample" else lambda t, y: y[0, 0]
    event = Event(function, direction=direction, terminal=False)
    plain, watched = (solve(f, y0, 0.0, 3.5, control=control, **CLOSE, **extra) for extra in ({}, dict(event=event)))
    assert torch.equal(plain.y1, watched.y1)
    assert torch.equal(torch.as_tensor(plain.stats.nfe), torch.as_tensor(watched.stats.nfe))
    (log,) = watched.events
    torch.testing.assert_close(log.t, torch.tensor(expected, dtype=F64), rtol=0, atol=1e-7)
    assert log.y.shape == ((len(expected), 2) if control == "sample" else (len(expected), 1, 2))
    assert float(log.y[..., 0].abs().max()) < 1e-6
    assert float(watched.t_end) == 3.5
    assert int(watched.stopped) == -1


def test_the_first_of_several_events_stops_and_later_ones_are_not_noted():
    events = [Event(lambda t, y: t - 0.7, terminal=False), Event(lambda t, y: y[0, 0] - 0.6), Event(lambda t, y: y[0, 0] - 0.55)]
    for extra in ({}, dict(control=dict(first_step=3.0), rtol=1.0, atol=10.0)):  # a step that crosses all of them
        solution = solve(lambda t, y: -y, torch.ones(1, 1, dtype=F64), 0.0, 3.0, event=events, **{**CLOSE, **extra})
        assert int(solution.stopped) == 1
        assert len(solution.events[0].t) == 0
        assert len(solution.events[1].t) == 1
        assert len(solution.events[2].t) == 0


def test_a_solve_backwards_in_time_has_events():
    solution = solve(lambda t, y: y, torch.ones(1, 1, dtype=F64), 0.0, -3.0, event=Event(lambda t, y: y[0, 0] - 0.5), **CLOSE)
    assert float(solution.t_end) == pytest.approx(np.log(0.5), abs=1e-8)


def test_fixed_steps_stop_at_events_too():
    solution = solve(
        lambda t, y: -y, torch.ones(1, 1, dtype=F64), 0.0, 3.0, method="rk4", steps=30, event=Event(lambda t, y: y[0, 0] - 0.5)
    )
    assert float(solution.t_end) == pytest.approx(np.log(2), abs=1e-5)
    assert solution.stats.accepted == 7
    assert solution.stats.nfe > 0


def test_times_asked_for_after_the_stop_are_nan():
    solution = solve(lambda t, y: -y, torch.ones(1, 1, dtype=F64), 0.0, 3.0, event=Event(lambda t, y: y[0, 0] - 0.5), save_at=[0.5, 2.0])
    assert torch.isfinite(solution.ys[0]).all()
    assert torch.isnan(solution.ys[1]).all()


def test_a_start_on_the_event_is_no_crossing():
    solution = solve(falling, balls(0.0), 0.0, 1.0, control="sample", event=Event(height))
    assert int(solution.stopped) == -1


# --- each sample for itself -------------------------------------------------------------------------------------------


def test_a_sample_stops_as_it_would_alone():
    field = VectorField().requires_grad_(False)
    y0 = 2 * torch.randn(6, 3, dtype=F64)
    event = Event(lambda t, y: y[:, 0] - 0.2 * torch.cos(3 * t))
    together = solve(field, y0, 0.0, 3.0, control="sample", event=event, rtol=1e-6, atol=1e-6)
    assert 0 < int((together.stopped >= 0).sum()) < 6  # else the claim says little
    for index in range(6):
        alone = solve(field, y0[index : index + 1], 0.0, 3.0, control="sample", event=event, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(alone.t_end[0], together.t_end[index], rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(alone.y1[0], together.y1[index], rtol=1e-9, atol=1e-10)


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "adjoint", "reversible"])
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_moment_and_state_pass_gradcheck(gradient, control):
    if control == "sample" and gradient == "adjoint":
        pytest.skip("refused")
    level = torch.tensor(0.1, dtype=F64, requires_grad=True)
    start = balls(1.0, 2.0).requires_grad_()

    def stopped(start: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        function = (lambda t, y: y[:, 0] - level) if control == "sample" else lambda t, y: y[0, 0] - level
        solution = solve(falling, start, 0.0, 5.0, control=control, gradient=gradient, event=Event(function), rtol=1e-10, atol=1e-10)
        return solution.t_end, solution.y1

    assert gradcheck(stopped, (start, level), atol=1e-4)


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_a_network_is_differentiated_through_its_stopping_time(gradient):
    field, y0 = VectorField(2, 3), torch.tensor([[1.0, -0.5], [0.7, 0.3]], dtype=F64, requires_grad=True)

    def stopped(y0: Tensor) -> tuple[Tensor, Tensor]:
        event = Event(lambda t, y: t - 0.3 - 0.1 * torch.sin(y[:, 0]) * y[:, 1])
        solution = solve(field, y0, 0.0, 3.0, control="sample", gradient=gradient, event=event, rtol=1e-11, atol=1e-11)
        assert solution.stopped.tolist() == [0, 0]
        return solution.t_end, solution.y1

    assert gradcheck(stopped, (y0,), atol=1e-4)
    assert gradgradcheck(stopped, (y0,), atol=1e-3, rtol=1e-2)


def test_a_coupled_state_has_events_with_gradients():
    field, y0 = PairField(), (torch.randn(2, 3, 2, 2, dtype=F64), torch.randn(2, 3, dtype=F64, requires_grad=True))
    solution = solve(field, y0, 0.0, 2.0, event=Event(lambda t, y: t + 0.01 * y[1].sum() - 0.8))
    solution.t_end.backward()
    assert y0[1].grad is not None
    assert float(y0[1].grad.abs().sum()) > 0


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_the_end_time_keeps_its_gradient_where_no_event_came(control):
    start, t1 = balls(1.0, 100.0), torch.tensor(2.0, dtype=F64, requires_grad=True)
    function = height if control == "sample" else lambda t, y: y[1, 0]
    solution = solve(falling, start, 0.0, t1, control=control, event=Event(function), **CLOSE)
    assert solution.stopped.flatten().tolist() == ([0, -1] if control == "sample" else [-1])
    (slope,) = torch.autograd.grad(solution.y1[1, 0], t1, retain_graph=True)
    assert float(slope) == pytest.approx(-2 * GRAVITY)
    assert torch.autograd.grad(solution.t_end.sum(), t1)[0] == 1


# --- ready made, refused, unused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_steady_state_is_where_hardly_anything_changes(control):
    rates = torch.tensor([[1.0], [3.0]], dtype=F64)
    y0 = (torch.ones(2, 1, dtype=F64), rates)
    f = lambda t, y: (-y[1] * y[0], torch.zeros_like(y[1]))  # noqa: E731
    solution = solve(f, y0, 0.0, 50.0, control=control, event=steady_state(1e-3), **CLOSE)
    left = solution.y1[1] * solution.y1[0]
    speed = left.abs()[:, 0] if control == "sample" else left.square().mean().sqrt()
    torch.testing.assert_close(speed, torch.full_like(speed, 1e-3), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(event=Event(lambda t, y: y)), "one number for the whole batch"),
        (dict(event=Event(lambda t, y: y[0, 0]), control="sample"), "one number per sample"),
        (dict(event=Event(lambda t, y: 1.0)), "returned a float"),
        (dict(event=lambda t, y: y), "Event"),
        (dict(event=Event(lambda t, y: y[0, 0]), t1=torch.ones(2)), "one interval.*use control='sample'"),
        (dict(event=Event(lambda t, y: y[:, 0]), control="sample", method="rk4", steps=9), "adaptive steps, and steps=9 are fixed"),
        (dict(event=Event(lambda t, y: y[0, 0]), steps=9, t1=torch.ones((), requires_grad=True)), "need no gradients: leave steps out"),
        (
            dict(event=Event(lambda t, y: y[:, 0] < 0.5), control="sample"),
            r"returned bools; .* crosses zero .* y\[:, 0\] for y\[:, 0\] < 0",
        ),
        (dict(event=Event(lambda t, y: y[0, 0] < 0.5)), "returned bools"),
        (dict(event=Event(lambda t, y: (y[:, 0] - 5).sqrt()), control="sample"), r"NaN\) at t = 0 for 2 of 2 samples"),
        (dict(event=Event(lambda t, y: (y[:, 0] - 0.5).log().min() - 9)), r"NaN\) at t = 1, where the state is finite"),  # on the way
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_watched_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        solve(lambda t, y: -y, torch.ones(2, 1), 0.0, **{"t1": 1.0, **options})


@pytest.mark.parametrize("bad", [dict(function=1), dict(function=height, direction=2)])
def test_an_event_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ConfigError, match="Event"):
        Event(**bad)


def test_the_time_of_an_event_is_that_of_f():
    seen: set[torch.dtype] = set()

    def function(t: Tensor, y: Tensor) -> Tensor:
        seen.add(t.dtype)
        return broadcast_time(t, y)[:, 0] - 0.5

    solve(lambda t, y: -y, torch.ones(2, 1), 0.0, 1.0, control="sample", event=Event(function))
    assert seen == {torch.float32}


@pytest.mark.parametrize("event", [Event(lambda t, y: y.min() - 9.0), steady_state(1e-9)], ids=["of the state", "of f"])
def test_an_event_of_an_undefined_state_leaves_the_word_to_the_solve(event):
    """NaN follows NaN: what failed is the solve."""
    for options in ({}, dict(steps=5)):
        with pytest.raises(SolverError) as caught:
            solve(lambda t, y: torch.where(y > 2, torch.nan, torch.ones_like(y)), torch.ones(2, 1), 0.0, 3.0, event=event, **options)
        assert caught.value.status is Status.NON_FINITE
