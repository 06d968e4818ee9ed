"""Functions of torch.func, forward mode and torch.compile around a solve: the right numbers, or a sentence that says what to do."""

import subprocess
import sys

import pytest
import torch
from fields import VectorField
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, stack_module_state, vmap

from continua import ConfigError
from continua.ode import Event, solve

F64 = torch.float64
HOW = [dict(method="rk4", steps=3), dict(rtol=1e-6, atol=1e-6), dict(rtol=1e-6, atol=1e-6, control="sample", save_at=[0.0, 0.4])]


def outcome(field: nn.Module, params: dict[str, Tensor], y0: Tensor, t1: "float | Tensor" = 1.0, **options) -> Tensor:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return functional_call(field, params, (t, y))

    solution = solve(f, y0, 0.0, t1, params=list(params.values()), **options)
    return solution.y1 if solution.ys is None else solution.y1 + solution.ys[1]


def problem() -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    field = VectorField(2, 3)
    return field, {name: p.detach() for name, p in field.named_parameters()}, torch.randn(2, 2, dtype=F64)


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
@pytest.mark.parametrize("options", HOW, ids=str)
def test_derivatives_of_torch_func_are_those_of_autograd(gradient, options):
    field, params, y0 = problem()
    expected = torch.autograd.functional.jacobian(lambda y: outcome(field, params, y, gradient=gradient, **options), y0)
    for jacobian in (jacrev, jacfwd):
        found = jacobian(lambda y: outcome(field, params, y, gradient=gradient, **options))(y0)
        torch.testing.assert_close(found, expected)
    along = torch.randn_like(y0)
    _, tangent = jvp(lambda y: outcome(field, params, y, gradient=gradient, **options), (y0,), (along,))
    torch.testing.assert_close(tangent, torch.einsum("abcd,cd->ab", expected, along))
    with forward_ad.dual_level():
        dual = outcome(field, params, forward_ad.make_dual(y0, along), gradient=gradient, **options)
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, tangent)
    of_params = grad(lambda p: outcome(field, p, y0, gradient=gradient, **options).sum())(params)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    exact = torch.autograd.grad(outcome(field, leaves, y0, gradient=gradient, **options).sum(), list(leaves.values()))
    for name, value in zip(leaves, exact, strict=True):
        torch.testing.assert_close(of_params[name], value)


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_an_ensemble_by_vmap_with_fixed_steps(gradient):
    fields, y0 = [VectorField(2, 3) for _ in range(3)], torch.randn(2, 2, dtype=F64)
    params, _ = stack_module_state(fields)
    params = {name: value.detach() for name, value in params.items()}
    options = dict(method="rk4", steps=3, gradient=gradient)
    found = vmap(lambda p: outcome(fields[0], p, y0, **options))(params)
    for each, field in zip(found, fields, strict=True):
        torch.testing.assert_close(each, solve(field, y0, 0.0, 1.0, **options).y1)


@pytest.mark.parametrize("options", HOW[1:], ids=str)
def test_vmap_over_an_adaptive_solve_is_refused_with_the_way_out(options):
    field, params, y0 = problem()
    stacked = {name: torch.stack([value, 2 * value]) for name, value in params.items()}
    with pytest.raises(ConfigError, match=r"vmap.*steps=N"):
        vmap(lambda p: outcome(field, p, y0, **options))(stacked)


@pytest.mark.parametrize("options", [dict(gradient="reversible"), dict(gradient="adjoint"), dict(method="gauss4", steps=2)], ids=str)
def test_what_torch_func_cannot_do_is_refused_with_the_way_out(options):
    field, params, y0 = problem()
    for transform in (jacrev, jacfwd):
        with pytest.raises(ConfigError, match=r"torch\.func.*gradient='direct'"):
            transform(lambda y: outcome(field, params, y, **options))(y0)


@pytest.mark.parametrize("options", [dict(method="rk4", steps=3), dict(rtol=1e-10, atol=1e-10)], ids=str)
def test_forward_mode_knows_the_end_time(options):
    field, params, y0 = problem()
    t1 = torch.tensor(0.9, dtype=F64)
    backward = torch.autograd.functional.jacobian(lambda t: outcome(field, params, y0, t, **options), t1)
    _, forward = jvp(lambda t: outcome(field, params, y0, t, **options), (t1,), (torch.ones_like(t1),))
    torch.testing.assert_close(forward, backward)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_the_moment_of_an_event_has_its_derivatives_inside_torch_func(control):
    """y = y0 exp(−t) is at the level after t = log(y0 / level), and stays there."""
    y0, level = torch.tensor([[1.0], [1.5]], dtype=F64), torch.tensor(0.5, dtype=F64)

    def stopped(y: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        event = Event((lambda t, y: y[:, 0] - level) if control == "sample" else lambda t, y: y[0, 0] - level)
        solution = solve(lambda t, y: -y, y, 0.0, 2.0, control=control, event=event, rtol=1e-10, atol=1e-10)
        return solution.t_end, solution.y1[:, 0] if control == "sample" else solution.y1[:1, 0]

    rows = y0[:, 0] if control == "sample" else y0[:1, 0]
    slopes = torch.nn.functional.pad((1 / rows).diag(), (0, len(y0) - len(rows)))
    for jacobian in (jacrev, jacfwd):
        of_t, of_y = jacobian(stopped)(y0, level)
        torch.testing.assert_close(of_t.reshape(slopes.shape), slopes)
        torch.testing.assert_close(of_y.reshape(slopes.shape), torch.zeros_like(slopes))
        of_t, of_y = jacobian(stopped, argnums=1)(y0, level)
        torch.testing.assert_close(of_t.flatten(), -1 / level.expand(len(rows)))
        torch.testing.assert_close(of_y, torch.ones(len(rows), dtype=F64))
    with forward_ad.dual_level():
        t, y = stopped(forward_ad.make_dual(y0, torch.ones_like(y0)), level)
        torch.testing.assert_close(forward_ad.unpack_dual(t).tangent.flatten(), 1 / rows)
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, torch.zeros(len(rows), dtype=F64))
    with pytest.raises(ConfigError, match="vmap cannot choose steps or find events"):
        vmap(lambda y: stopped(y, level)[0])(torch.stack([y0, y0]))


class Solver(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.field, self.options = VectorField(), options

    def forward(self, y: Tensor) -> Tensor:
        return 2 * solve(self.field, y + 1, 0.0, 1.0, **self.options).y1


@pytest.mark.parametrize("options", [{}, dict(control="sample"), dict(method="gauss4", steps=2), dict(method="rk4", steps=2)], ids=str)
def test_torch_compile_leaves_other_solves_outside_the_graph(options):
    torch._dynamo.reset()
    model, y0 = Solver(**options), torch.randn(2, 3, dtype=F64)
    compiled = torch.compile(model, backend="eager")
    params = list(model.parameters())
    found, expected = (torch.autograd.grad(call(y0).square().sum(), params) for call in (compiled, model))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"no part of one graph; leave fullgraph out, .*StepControl\(one_graph=True\)"):
        torch.compile(model, backend="eager", fullgraph=True)(y0)


def test_export_refuses_an_adaptive_solve_in_a_sentence():
    model = Solver().requires_grad_(False)
    with pytest.raises(Exception, match=r"chooses its steps from the data.*switch to explicit fixed steps"):
        torch.export.export(model, (torch.randn(2, 3, dtype=F64),))


def test_a_solve_does_not_import_the_compiler():
    code = "import sys, torch, continua; continua.solve(lambda t, y: -y, torch.ones(1, 1), 0, 1); print('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
