"""Implicit Runge–Kutta steps: what their updating loops converge to, and the clique block they are."""

import pytest
import torch
from torch import Tensor, nn

from continua.blocks import Clique, IRKStep, Style, embed_tableau
from continua.errors import ConfigError
from continua.ode.tableau import Tableau, find_method

LINEAR = Style(norm="identity", activation="identity")
# Mildly stiff: decay rates 1 and 20, and a rotation between.
RATE = torch.tensor([[-1.0, 2.0, 0.0], [-2.0, -1.0, 0.5], [0.0, 0.0, -20.0]], dtype=torch.float64)


def implicit_step(tableau: Tableau, rate: Tensor, y: Tensor, h: float) -> Tensor:
    """One implicit Runge–Kutta step of dy/dt = rate · y, its linear system solved at once."""
    s, n = tableau.stages, len(rate)
    a, b = torch.tensor(tableau.a, dtype=torch.float64), torch.tensor(tableau.b, dtype=torch.float64)
    system = torch.eye(s * n, dtype=torch.float64) - h * torch.kron(a, rate)
    pixels = y.permute(1, 0, 2, 3).reshape(n, -1)
    slopes = torch.linalg.solve(system, (rate @ pixels).repeat(s, 1)).view(s, n, -1)
    return y + h * torch.einsum("s,snp->np", b, slopes).view(n, len(y), *y.shape[2:]).permute(1, 0, 2, 3)


def written(name: str, loops: int, h: float, **options) -> IRKStep:
    step = IRKStep(3, find_method(name).stages, loops=loops, style=LINEAR, **options).double()
    embed_tableau(step, name, RATE, h)
    return step


@pytest.mark.parametrize("order", ["gauss-seidel", "jacobi"])
@pytest.mark.parametrize("name", ["gauss4", "radau3", "radau5"])
@torch.no_grad()
def test_with_the_state_in_the_update_loops_converge_to_the_implicit_solution(name, order):
    h, y = 0.2, torch.randn(2, 3, 2, 2, dtype=torch.float64)  # h times the fastest rate is 4: explicit methods blow up
    exact = implicit_step(find_method(name), RATE, y, h)
    errors = [
        float((written(name, loops, h, order=order, state_in_update=True)(y) - exact).abs().max()) for loops in (0, 1, 5, 20, 60, 120)
    ]
    assert errors[-1] < 1e-9 * float(exact.abs().max())
    assert errors[-1] < 1e-3 * errors[1]


@torch.no_grad()
def test_gauss_seidel_converges_faster_than_jacobi():
    y = torch.randn(1, 3, 1, 1, dtype=torch.float64)
    exact = implicit_step(find_method("gauss4"), RATE, y, 0.2)
    seidel, jacobi = (
        float((written("gauss4", 6, 0.2, order=order, state_in_update=True)(y) - exact).norm()) for order in ("gauss-seidel", "jacobi")
    )
    assert seidel < 0.2 * jacobi


@torch.no_grad()
def test_the_papers_homogeneous_update_forgets_the_state_and_does_not_converge_to_it():
    y = torch.randn(2, 3, 2, 2, dtype=torch.float64)
    exact = implicit_step(find_method("gauss4"), RATE, y, 0.2)
    for loops in (1, 5, 60):
        out = written("gauss4", loops, 0.2)(y)
        assert float((out - exact).abs().max()) > 0.05 * float((exact - y).abs().max())
    torch.testing.assert_close(written("gauss4", 60, 0.2)(y), y)  # all increments have died away


@torch.no_grad()
def test_one_stage_solves_for_itself():
    y = torch.randn(1, 3, 1, 1, dtype=torch.float64)
    step = written("gauss2", 1, 0.2, state_in_update=True)
    torch.testing.assert_close(step(y), implicit_step(find_method("gauss2"), RATE, y, 0.2))
    with pytest.raises(ConfigError, match="nothing to read"):
        IRKStep(3, 1)


def naive(step: Clique, y: Tensor) -> list[Tensor]:
    """A clique block in training as anyone would write it, one loop."""

    def convolve(node: nn.Module, parts: list[Tensor], affine: nn.Module, weight: Tensor, neck: nn.Module | None) -> Tensor:
        def normed(x: Tensor, affine: nn.Module) -> Tensor:
            return torch.relu(nn.functional.batch_norm(x, None, None, affine.weight, affine.bias, True, 0.1, step.style.norm_eps))

        x = normed(torch.cat(parts, 1), affine)
        if neck is None:
            return nn.functional.conv2d(x, weight, padding=1)
        return nn.functional.conv2d(normed(nn.functional.conv2d(x, weight), neck), node.wide.filter.weight, padding=1)

    z: list[Tensor] = []
    for i, node in enumerate(step.nodes):
        z.append(convolve(node, [y, *z], node.first, node.conv.filter.weight[:, : step.channels + i * step.growth], node.first_neck))
    old = list(z)
    for i, node in enumerate(step.nodes):
        source = z if step.order == "gauss-seidel" else old
        others = source[:i] + source[i + 1 :]
        weight = node.conv.filter.weight if step.state_in_update else node.conv.filter.weight[:, step.channels :]
        z[i] = convolve(node, [y, *others] if step.state_in_update else others, node.update, weight, node.update_neck)
    return z


@pytest.mark.parametrize("bottleneck", [None, 4])
@pytest.mark.parametrize(("order", "state"), [("gauss-seidel", False), ("jacobi", False), ("gauss-seidel", True)])
@pytest.mark.parametrize("forget", [False, True])
def test_values_and_gradients_are_those_of_the_concatenating_clique(order, state, bottleneck, forget):
    step = Clique(5, 3, 3, order=order, state_in_update=state, bottleneck=bottleneck, style=Style(memory_efficient=forget)).double()
    for p in step.parameters():
        if p.ndim == 1:
            p.data.add_(0.5 * torch.rand_like(p))
    y = torch.randn(4, 5, 5, 4, dtype=torch.float64, requires_grad=True)
    sources = [y, *step.parameters()]
    upstream = [torch.randn(4, 3, 5, 4, dtype=torch.float64) for _ in range(3)]
    expected, increments = naive(step, y), step.increments(y)
    for ours, theirs in zip(increments, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    wanted = torch.autograd.grad(expected, sources, upstream)
    for ours, theirs in zip(torch.autograd.grad(increments, sources, upstream), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_stage_one_and_the_update_share_their_kernels():
    step, k, s = IRKStep(4, 3), 4, 3
    kernels = sum(p.numel() for p in step.parameters() if p.ndim == 4)
    assert kernels == 9 * k * k * s * s  # s(s−1) between stages and s from y_n
    scales = sum(p.numel() for p in step.parameters() if p.ndim == 1)
    assert scales == k * s * (s + 1) + 2 * k * s * (s - 1)
    more = IRKStep(4, 3, loops=4)
    assert sum(p.numel() for p in more.parameters()) == kernels + scales, "more loops have no more weights"


def test_without_loops_it_is_stage_one():
    step, y = IRKStep(3, 3, loops=0), torch.randn(2, 3, 6, 6)
    out = step(y)
    out.square().sum().backward()
    assert out.shape == y.shape
    with pytest.raises(ConfigError, match="never updated"):
        step.nodes[0].renew([y], None)  # pyright: ignore


def test_dependence_has_an_empty_diagonal_only():
    reads = IRKStep(3, 3).dependence()
    assert bool((reads[:, 1:].diagonal() == 0).all())
    assert bool((reads[:, 1:][~torch.eye(3, dtype=torch.bool)] > 0).all())
    step = IRKStep(3, 2, state_in_update=True, style=LINEAR).double()
    embed_tableau(step, "gauss4", RATE, 0.1)
    weight = step.nodes[0].conv.filter.weight.detach()  # pyright: ignore
    torch.testing.assert_close(step.dependence()[0], torch.tensor([float(weight[:, :3].norm()), 0.0, float(weight[:, 3:].norm())]))


def test_mistakes_are_refused():
    for options, said in ((dict(order="random"), "order='random'"), (dict(loops=-1), "loops=-1")):
        with pytest.raises(ConfigError, match=said):
            IRKStep(3, 2, **options)
