"""Gradients of gradients: those of the steps taken, or refused in a sentence; never silently absent."""

import pytest
import torch
from fields import PairField, VectorField
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.func import functional_call

from continua import ConfigError
from continua.ode import Adjoint, Checkpoint, Direct, Gradient, solve

F64 = torch.float64
TIMES = [0.0, 0.3, 0.8, 1.0]


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64)


def penalty(gradient: str | Gradient, inputs_too: bool = False, **options) -> tuple[Tensor, ...]:
    """The gradient of a loss plus the square of its gradient: what a gradient penalty trains with."""
    torch.manual_seed(3)
    field, y0 = VectorField(), rand(4, 3).requires_grad_()
    start = y0 * field.in_time.mean() if inputs_too else y0  # a state that is itself a function of a parameter
    solution = solve(field, start, 0.0, 1.0, gradient=gradient, **options)
    loss = solution.y1.square().sum() + (0.0 if solution.ys is None else solution.ys.sin().sum())
    of_y0, *of_params = torch.autograd.grad(loss, (y0, *field.parameters()), create_graph=True)
    total = loss + of_y0.square().sum() + sum(part.square().sum() for part in of_params)
    return torch.autograd.grad(total, (y0, *field.parameters()))


@pytest.mark.parametrize("segments", [None, 2, "sqrt"])
@pytest.mark.parametrize(
    "options",
    [
        dict(method="rk4", steps=3),
        dict(rtol=1e-6, atol=1e-6),
        dict(rtol=1e-6, atol=1e-6, save_at=TIMES),
        dict(rtol=1e-6, atol=1e-6, control="sample", save_at=TIMES),
        dict(method="rk4", steps=3, inputs_too=True),
    ],
    ids=str,
)
def test_a_gradient_penalty_trains_alike_under_checkpoint_and_direct(options, segments):
    found, exact = penalty(Checkpoint(segments), **options), penalty("direct", **options)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_checkpoint_passes_gradgradcheck():
    field = VectorField(2, 3)
    names = [name for name, _ in field.named_parameters()]

    def end(y0: Tensor, *params: Tensor) -> Tensor:
        f = lambda t, y: functional_call(field, dict(zip(names, params, strict=True)), (t, y))  # noqa: E731
        return solve(f, y0, 0.0, 0.8, method="rk4", steps=2, params=params).y1

    params = tuple(p.detach().clone().requires_grad_() for p in field.parameters())
    assert gradgradcheck(end, (rand(2, 2).requires_grad_(), *params))


def test_a_coupled_state_can_be_differentiated_twice():
    second = []
    for gradient in ("checkpoint", "direct"):
        torch.manual_seed(0)
        field, y0 = PairField(), (rand(2, 3, 2, 2).requires_grad_(), rand(2, 3).requires_grad_())
        y1 = solve(field, y0, 0.0, 1.0, steps=3, gradient=gradient).y1
        first = torch.autograd.grad(y1[0].square().sum(), y0, create_graph=True)  # y1[1] has no cotangent
        second.append(torch.autograd.grad(first[1].square().sum() + first[0].sin().sum(), (*y0, *field.parameters())))
    for a, b in zip(*second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_graph_of_the_gradient_that_nobody_uses_changes_nothing():
    field, y0 = VectorField(), rand(4, 3).requires_grad_()
    loss = solve(field, y0, 0.0, 1.0).y1.square().sum()
    with_graph, without = (torch.autograd.grad(loss, (y0, *field.parameters()), create_graph=c, retain_graph=True) for c in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(with_graph, without, strict=True))


@pytest.mark.parametrize("gradient", ["reversible", "adjoint", Adjoint(rtol=1e-6)], ids=str)
@pytest.mark.parametrize("of", ["y0", "params", "both"])
def test_the_others_refuse_where_a_second_derivative_is_asked_for(gradient, of):
    """Also by autograd.grad, which visits only what leads to its inputs; and not before."""
    field, y0 = VectorField(), rand(2, 3).requires_grad_(of != "params")
    field.requires_grad_(of != "y0")
    inputs = [tensor for tensor in (y0, *field.parameters()) if tensor.requires_grad]
    y1 = solve(field, y0, 0.0, 1.0, method="rk4", steps=2, gradient=gradient).y1
    first = torch.autograd.grad(y1.sum(), inputs, create_graph=True)
    with pytest.raises(ConfigError, match=r"has no second derivatives; use gradient='checkpoint' or 'direct'"):
        torch.autograd.grad(sum(part.square().sum() for part in first), inputs, allow_unused=True)


def test_implicit_steps_refuse_second_derivatives():
    field, y0 = VectorField(), rand(2, 3).requires_grad_()
    y1 = solve(field, y0, 0.0, 1.0, method="gauss4", steps=2).y1
    (first,) = torch.autograd.grad(y1.square().sum(), y0, create_graph=True)
    with pytest.raises(ConfigError, match="an implicit method has no second derivatives; use an explicit one, such as dopri5"):
        torch.autograd.grad(first.square().sum(), y0)


def test_third_derivatives_are_for_direct():
    field, y0 = VectorField(), rand(2, 3).requires_grad_()
    for gradient in (Direct(), Checkpoint()):
        (first,) = torch.autograd.grad(solve(field, y0, 0.0, 1.0, steps=2, gradient=gradient).y1.sin().sum(), y0, create_graph=True)
        if isinstance(gradient, Direct):
            (second,) = torch.autograd.grad(first.square().sum(), y0, create_graph=True)
            assert torch.autograd.grad(second.square().sum(), y0)[0].abs().sum() > 0
        else:
            with pytest.raises(ConfigError, match=r"twice.*'direct'"):
                torch.autograd.grad(first.square().sum(), y0, create_graph=True)


@pytest.mark.parametrize("gradient", ["checkpoint", "direct"])
def test_an_adaptive_end_time_has_its_mixed_second_derivative(gradient):
    t1, w = (torch.tensor(value, dtype=F64, requires_grad=True) for value in (0.7, 1.3))
    f = lambda t, y: w * torch.sin(y) + t**2  # noqa: E731
    y1 = solve(f, torch.tensor([[0.5]], dtype=F64), 0.0, t1, rtol=1e-11, atol=1e-11, gradient=gradient, params=[w]).y1.sum()
    first, of_w = torch.autograd.grad(y1, (t1, w), create_graph=True)
    again, mixed = torch.autograd.grad(first, (t1, w))
    slope = w * torch.cos(y1)
    torch.testing.assert_close(again, 2 * t1 + slope * first)
    torch.testing.assert_close(mixed, torch.sin(y1) + slope * of_w)
