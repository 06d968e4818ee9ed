"""Derivatives with respect to times: of the steps taken where gradients are exact, of the flow elsewhere."""

import pytest
import torch
from fields import PairField, VectorField
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from continua.ode import solve

F64 = torch.float64
EXACT = ["direct", "checkpoint", "reversible"]


def time(*values: float) -> Tensor:
    return torch.tensor(values if len(values) > 1 else values[0], dtype=F64, requires_grad=True)


def test_two_midpoint_steps_have_the_end_time_derivative_of_two_midpoint_steps():
    """Far from that of the flow, f(t1, y1)."""
    f = lambda t, y: torch.sin(3 * y) + torch.cos(2 * t)  # noqa: E731
    y0 = torch.tensor([[0.7]], dtype=F64)
    for gradient in ("direct", "checkpoint"):
        t1 = time(3.0)
        y1 = solve(f, y0, 0.0, t1, method="midpoint", steps=2, gradient=gradient).y1
        (found,) = torch.autograd.grad(y1.sum(), t1)
        ends = [float(solve(f, y0, 0.0, 3.0 + d, method="midpoint", steps=2).y1) for d in (1e-6, -1e-6)]
        assert float(found) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-7)


@pytest.mark.parametrize("gradient", EXACT)
@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "dopri5"])
@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize("each", [False, True])
def test_fixed_steps_are_functions_of_both_ends(gradient, method, control, each):
    field, y0 = VectorField(2, 3).requires_grad_(False), torch.randn(2, 2, dtype=F64)
    t0, t1 = (time(0.1, 0.3), time(1.4, -0.8)) if each else (time(0.1), time(1.4))
    assert gradcheck(lambda a, b: solve(field, y0, a, b, method=method, steps=2, control=control, gradient=gradient).y1, (t0, t1))
    assert gradcheck(lambda b: solve(field, y0, 0.2, b, method=method, steps=2, control=control, gradient=gradient).y1, (t1,))


@pytest.mark.parametrize("gradient", EXACT)
def test_states_inside_fixed_steps_are_functions_of_both_ends_and_of_their_times(gradient):
    field, y0 = VectorField(2, 3).requires_grad_(False), torch.randn(2, 2, dtype=F64, requires_grad=True)
    times = time(0.25, 0.6, 1.3)

    def saved(y0: Tensor, t0: Tensor, t1: Tensor, times: Tensor) -> Tensor:
        return solve(field, y0, t0, t1, method="rk4", steps=2, save_at=times, gradient=gradient).ys

    assert gradcheck(saved, (y0, time(0.1), time(1.4), times))
    if gradient != "reversible":
        assert gradgradcheck(saved, (y0, time(0.1), time(1.4), times))


def test_an_implicit_step_is_a_function_of_its_ends():
    field, y0 = VectorField(2, 3).requires_grad_(False), torch.randn(2, 2, dtype=F64)
    assert gradcheck(lambda a, b: solve(field, y0, a, b, method="gauss4", steps=2).y1, (time(0.1), time(1.4)))


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
@pytest.mark.parametrize(
    ("t1", "options"),
    [
        (1.4, dict(rtol=1e-5, atol=1e-5)),
        (1.4, dict(rtol=1e-5, atol=1e-5, control="sample")),
        (torch.tensor([1.4, 1.5], dtype=F64), dict(rtol=1e-5, atol=1e-5)),
        (1.4, dict(method="dopri5", steps=3)),
        (1.4, dict(method="bosh3", steps=3, control="sample")),
    ],
)
def test_asked_times_have_the_gradient_of_the_interpolant(gradient, t1, options):
    field, y0 = VectorField(2, 3), torch.randn(2, 2, dtype=F64)
    assert gradcheck(lambda at: solve(field, y0, 0.1, t1, save_at=at, gradient=gradient, **options).ys, (time(0.3, 0.31, 0.9, 1.2),))


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "adjoint"])
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_asked_times_at_the_ends_have_the_field_for_gradient(gradient, control):
    if gradient == "adjoint" and control == "sample":
        pytest.skip("refused")
    field, y0 = VectorField(), torch.randn(3, 3, dtype=F64, requires_grad=True)
    times = time(0.2, 0.7, 1.5)
    solution = solve(field, y0, 0.2, 1.5, rtol=1e-9, atol=1e-9, save_at=times, gradient=gradient, control=control)
    of_times, of_y0 = torch.autograd.grad(solution.ys.sum(), (times, y0))
    slopes = torch.stack([field(t, y).sum() for t, y in zip(times, solution.ys, strict=True)])
    torch.testing.assert_close(of_times, slopes, rtol=1e-5, atol=1e-7)
    still = solve(field, y0, 0.2, 1.5, rtol=1e-9, atol=1e-9, save_at=times.detach(), gradient=gradient, control=control)
    assert torch.equal(still.ys, solution.ys)
    torch.testing.assert_close(of_y0, torch.autograd.grad(still.ys.sum(), y0)[0])


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_asked_times_per_sample_have_gradients(gradient):
    field, y0 = VectorField(2, 3), torch.randn(2, 2, dtype=F64)
    times = torch.tensor([[0.2, 0.3], [0.5, 1.1]], dtype=F64, requires_grad=True)
    ends = torch.tensor([0.9, 1.3], dtype=F64)
    for control in ("batch", "sample"):
        assert gradcheck(lambda at, c=control: solve(field, y0, 0.1, ends, save_at=at, gradient=gradient, control=c).ys, (times,))


def test_a_coupled_state_has_gradients_of_asked_times():
    field, y0 = PairField(), (torch.randn(2, 3, 2, 2, dtype=F64), torch.randn(2, 3, dtype=F64))
    assert gradcheck(lambda at: solve(field, y0, 0.0, 1.0, save_at=at).ys, (time(0.3, 0.8),))


def test_statistics_of_fixed_steps_do_not_tell_whether_times_are_differentiated():
    field, y0 = VectorField(), torch.randn(3, 3, dtype=F64)
    for control in ("batch", "sample"):
        plain, moving = (
            solve(field, y0, 0.5, end, method="rk4", steps=4, control=control, record_steps=True).stats for end in (2.5, time(2.5))
        )
        assert torch.equal(torch.as_tensor(plain.nfe), torch.as_tensor(moving.nfe))
        assert torch.allclose(torch.as_tensor(plain.first_step).double(), torch.as_tensor(moving.first_step).double())
        assert torch.allclose(plain.steps.t, moving.steps.t)
        assert torch.allclose(plain.steps.h, moving.steps.h)
        assert (plain.steps.sample is None) == (moving.steps.sample is None)
