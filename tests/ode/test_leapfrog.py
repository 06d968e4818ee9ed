"""The asynchronous leapfrog: the exact gradient of its own steps, second order, one evaluation a step, nothing kept."""

import pytest
import torch
from fields import PairField, VectorField
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from continua import ConfigError
from continua.ode import SolverConfig, solve

F64 = torch.float64


def written_out(f, y: Tensor, t0: Tensor, t1: Tensor, steps: int) -> Tensor:
    """The scheme as in the paper, under autograd."""
    h = (t1 - t0) / steps
    v = f(t0, y)
    for n in range(steps):
        z = y + h / 2 * v
        v = 2 * f(t0 + (n + 0.5) * h, z) - v
        y = z + h / 2 * v
    return y


@pytest.mark.parametrize("ends", [(0.2, 1.7), (1.7, 0.2)], ids=["forwards", "backwards"])
def test_it_has_the_gradient_of_its_steps_written_out(ends):
    field, y0 = VectorField(), torch.randn(4, 3, dtype=F64, requires_grad=True)
    t0, t1 = (torch.tensor(end, dtype=F64, requires_grad=True) for end in ends)
    leaves = [y0, t0, t1, *field.parameters()]
    found = solve(field, y0, t0, t1, method="midpoint", steps=5, gradient="leapfrog")
    expected = written_out(field, y0, t0, t1, 5)
    torch.testing.assert_close(found.y1, expected)
    for a, b in zip(*(torch.autograd.grad(y.pow(3).sum(), leaves) for y in (found.y1, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_step_is_one_evaluation_forwards_and_one_backwards():
    field, y0 = VectorField(), torch.randn(4, 3, dtype=F64)
    calls = []
    field.register_forward_pre_hook(lambda *_: calls.append(1))
    solution = solve(field, y0, 0.0, 1.0, method="midpoint", steps=8, gradient="leapfrog")
    assert solution.stats.nfe == len(calls) == 9  # and the rate at the start
    solution.y1.sum().backward()
    assert solution.stats.nfe_backward == 9
    assert len(calls) == 18
    with torch.no_grad():
        assert torch.equal(solve(field, y0, 0.0, 1.0, method="midpoint", steps=8, gradient="leapfrog").y1, solution.y1)


def test_errors_fall_with_the_square_of_the_step():
    y0 = torch.tensor([[1.0, 0.0]], dtype=F64)
    exact = torch.tensor([[torch.tensor(2.0).cos(), -torch.tensor(2.0).sin()]], dtype=F64)
    turn = lambda t, y: torch.stack([y[:, 1], -y[:, 0]], 1)  # noqa: E731
    errors = [float((solve(turn, y0, 0.0, 2.0, method="midpoint", steps=n, gradient="leapfrog").y1 - exact).norm()) for n in (40, 80, 160)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.05)


def test_what_is_kept_for_backward_does_not_grow_with_the_steps():
    field, y0 = VectorField(), torch.randn(64, 3, dtype=F64, requires_grad=True)

    def kept(steps: int) -> int:
        sizes: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            solve(field, y0, 0.0, 1.0, method="midpoint", steps=steps, gradient="leapfrog")
        return sum(sizes.values())

    assert kept(64) == kept(4)


def test_states_are_rebuilt_over_many_steps():
    field, y0 = VectorField(), torch.randn(4, 3, dtype=F64, requires_grad=True)
    t0, t1 = torch.tensor(0.0, dtype=F64), torch.tensor(1.0, dtype=F64)
    found, expected = solve(field, y0, 0.0, 1.0, method="midpoint", steps=500, gradient="leapfrog").y1, written_out(field, y0, t0, t1, 500)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), [y0, *field.parameters()]) for y in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_a_coupled_state_and_ends_per_sample():
    field, t1 = PairField(), torch.tensor([0.5, 1.0], dtype=F64)
    y0 = (torch.randn(2, 3, 2, 2, dtype=F64, requires_grad=True), torch.randn(2, 3, dtype=F64, requires_grad=True))
    leaves = [*y0, *field.parameters()]
    many, fine = (
        solve(field, y0, 0.0, t1, method=method, steps=100, gradient=gradient)
        for method, gradient in (("midpoint", "leapfrog"), ("rk4", "direct"))
    )
    for a, b in zip(*(torch.autograd.grad(sol.y1[0].sum() + sol.y1[1].sum(), leaves) for sol in (many, fine)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_it_is_written_down_like_the_others():
    config = SolverConfig(method="midpoint", steps=3, gradient="leapfrog")
    assert config.plain() == dict(method="midpoint", steps=3, gradient="leapfrog")
    assert SolverConfig.of(config.plain()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(method="dopri5", steps=3), "give method='midpoint' and steps=N"),
        (dict(method="dopri5"), "give method='midpoint' and steps=N"),
        (dict(control="sample"), "cannot be combined with control='sample'"),
        (dict(save_at=[0.5]), "no states between steps"),
        (dict(dense=True), "no states between steps"),
    ],
    ids=str,
)
def test_what_it_does_not_have_is_refused(options, message):
    given = options if "method" in options else dict(method="midpoint", steps=3, **options)
    with pytest.raises(ConfigError, match=message):
        solve(VectorField(), torch.ones(2, 3, dtype=F64), 0.0, 1.0, gradient="leapfrog", **given)


def test_second_derivatives_are_refused():
    y0 = torch.ones(2, 3, dtype=F64, requires_grad=True)
    y1 = solve(VectorField(), y0, 0.0, 1.0, method="midpoint", steps=3, gradient="leapfrog").y1
    (g,) = torch.autograd.grad(y1.sum(), y0, create_graph=True)
    with pytest.raises(ConfigError, match="no second derivatives"):
        g.square().sum().backward()
