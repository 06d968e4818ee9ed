"""States inside the interval, and the promise that f is never evaluated outside of it."""

import pytest
import torch
from fields import PairField, Recorder, VectorField
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from continua import ConfigError
from continua.ode import METHODS, solve

F64 = torch.float64
ADAPTIVE = [name for name, tableau in METHODS.items() if tableau.b_error is not None and tableau.explicit]
times_in = st.floats(-5, 5, width=32)


def circle(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[:, 1], -y[:, 0]], 1)


def circle_at(t: Tensor) -> Tensor:
    return torch.stack([torch.cos(t), -torch.sin(t)], -1)


@settings(max_examples=60)
@given(
    t0=times_in,
    t1=times_in,
    tol=st.floats(1e-10, 1.0),
    method=st.sampled_from(ADAPTIVE),
    control=st.sampled_from(["batch", "sample"]),
    first_step=st.sampled_from([None, 1e-3, 100.0]),
    speed=st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 20.0]),
    fractions=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_f_is_never_evaluated_outside_the_interval(t0, t1, tol, method, control, first_step, speed, fractions):
    field = Recorder(lambda t, y: speed * circle(t, y))
    y0 = torch.tensor([[1.0, 0.0], [0.5, -2.0]], dtype=F64)
    times = sorted(min(max(t0 + x * (t1 - t0), min(t0, t1)), max(t0, t1)) for x in fractions)
    times = times if t1 > t0 else times[::-1]
    options = dict(method=method, control=dict(per=control, first_step=first_step, max_steps=100_000), save_at=times)
    solution = solve(field, y0, t0, t1, rtol=max(tol, 1e-6) if method == "heun" else tol, atol=max(tol, 1e-6), **options)
    assert torch.isfinite(solution.ys).all()
    if field.calls:
        asked = torch.cat([t.reshape(-1) for t in field.times])
        assert min(t0, t1) <= float(asked.min())
        assert float(asked.max()) <= max(t0, t1)


@settings(max_examples=50)
@given(t0=times_in, t1=times_in, steps=st.integers(1, 9), method=st.sampled_from([m for m in METHODS if METHODS[m].explicit]))
def test_fixed_steps_stay_inside_and_end_on_the_end(t0, t1, steps, method):
    field = Recorder(circle)
    solve(field, torch.ones(1, 2, dtype=F64), t0, t1, method=method, steps=steps)
    if field.calls:
        asked = torch.stack(field.times)
        assert min(t0, t1) <= float(asked.min())
        assert float(asked.max()) <= max(t0, t1)


@settings(max_examples=50)
@given(st.floats(-3, 3), st.floats(-3, 3), st.sampled_from(["batch", "sample"]), st.sampled_from([None, 3]))
def test_times_equal_to_an_end_give_the_end_state_exactly(t0, t1, control, steps):
    y0 = torch.tensor([[1.0, 0.0], [0.5, -2.0]], dtype=F64)
    solution = solve(circle, y0, t0, t1, save_at=[t0, t0, t1, t1], control=control, steps=steps, dense=True)
    assert torch.equal(solution.ys[:2], torch.stack([y0, y0]))
    assert torch.equal(solution.ys[2:], torch.stack([solution.y1, solution.y1]))
    assert torch.equal(solution.interpolate(t0), y0)
    assert torch.equal(solution.interpolate(t1), solution.y1)


def test_a_float32_linspace_may_end_on_an_end_time_given_as_a_number():
    y0 = torch.tensor([[1.0, 0.0]])
    for t0, t1 in ((0.1, 0.3), (0.7, 0.1), (0.2, 1.1)):
        solution = solve(circle, y0, t0, t1, save_at=torch.linspace(t0, t1, 4))
        assert torch.equal(solution.ys[0], y0)
        assert torch.equal(solution.ys[-1], solution.y1)


@pytest.mark.parametrize("method", ADAPTIVE)
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_saved_states_are_as_accurate_as_the_steps(method, control):
    times = torch.linspace(0, 6, 25, dtype=F64)
    y0 = circle_at(torch.zeros(2, dtype=F64))
    tol = 1e-4 if METHODS[method].order < 3 else 1e-6
    solution = solve(circle, y0, 0.0, 6.0, method=method, control=control, rtol=tol, atol=tol, save_at=times)
    assert solution.ys.shape == (25, 2, 2)
    assert torch.equal(solution.ts, times)
    assert float((solution.ys - circle_at(times)[:, None]).abs().max()) < 60 * tol


@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize("t1", [2.0, -2.0])
def test_interpolate_agrees_with_save_at_in_any_order_and_form(control, t1):
    y0, times = torch.randn(3, 2, dtype=F64), torch.linspace(0, t1, 7, dtype=F64)
    solution = solve(circle, y0, 0.0, t1, control=control, save_at=times, dense=True)
    mixed = torch.randperm(7)
    assert torch.allclose(solution.interpolate(times[mixed]), solution.ys[mixed], rtol=1e-12)
    assert torch.allclose(solution.interpolate([float(times[2]), float(times[4])]), solution.ys[[2, 4]], rtol=1e-12)
    assert torch.allclose(solution.interpolate(float(times[3])), solution.ys[3], rtol=1e-12)
    assert solution.interpolate(times[3]).shape == y0.shape


def test_asking_for_states_does_not_change_the_steps():
    y0 = torch.randn(3, 2, dtype=F64)
    for method in ("dopri5", "tsit5", "bosh3"):
        plain, saved = (solve(circle, y0, 0.0, 2.0, method=method, save_at=times) for times in (None, [0.1, 1.0]))
        assert torch.equal(plain.y1, saved.y1)
        assert plain.stats.nfe == saved.stats.nfe


def test_coupled_states_are_saved_in_the_form_of_the_input():
    field, y0 = PairField().requires_grad_(False), (torch.randn(2, 3, 2, 2, dtype=F64), torch.randn(2, 3, dtype=F64))
    for control in ("batch", "sample"):
        solution = solve(field, y0, 0.0, 1.0, save_at=[0.2, 1.0], dense=True, control=control)
        assert [tuple(part.shape) for part in solution.ys] == [(2, 2, 3, 2, 2), (2, 2, 3)]
        assert torch.equal(solution.ys[1][-1], solution.y1[1])
        assert all(torch.allclose(a, b[0]) for a, b in zip(solution.interpolate(0.2), solution.ys, strict=True))


def test_interpolate_is_differentiable_under_direct():
    field, y0 = VectorField(), torch.randn(2, 3, dtype=F64, requires_grad=True)
    options = dict(gradient="direct", steps=4)
    dense = solve(field, y0, 0.0, 1.0, dense=True, **options).interpolate(0.37)
    saved = solve(field, y0, 0.0, 1.0, save_at=[0.37], **options).ys[0]
    pair = [torch.autograd.grad(state.sum(), y0)[0] for state in (dense, saved)]
    assert torch.allclose(*pair, rtol=1e-12)


def test_interpolate_without_dense_says_what_to_do():
    solution = solve(circle, torch.ones(1, 2), 0.0, 1.0)
    with pytest.raises(ConfigError, match="dense=True"):
        solution.interpolate(0.5)


@pytest.mark.parametrize("t", [-0.1, 1.1])
def test_interpolate_refuses_times_outside(t):
    solution = solve(circle, torch.ones(1, 2), 0.0, 1.0, dense=True)
    with pytest.raises(ConfigError, match="outside the solved interval"):
        solution.interpolate(t)


def test_dense_states_join_smoothly_between_steps():
    """A piecewise curve whose value and slope match on both sides of every step."""
    y0 = torch.randn(1, 2, dtype=F64)
    for method in ("dopri5", "tsit5", "bosh3", "rk4", "fehlberg45", "dopri8"):
        solution = solve(circle, y0, 0.0, 3.0, method=method, steps=6, dense=True)
        eps = 1e-5
        for joint in (0.5, 1.5, 2.5):
            before, at, after = (solution.interpolate(joint + d) for d in (-eps, 0.0, eps))
            assert torch.allclose(at, before, atol=1e-4)
            assert torch.allclose((at - before) / eps, (after - at) / eps, atol=1e-4), method
