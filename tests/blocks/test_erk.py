"""Explicit Runge–Kutta steps: known methods written into them, the dense block they are, and what they cost."""

import pytest
import torch
from torch import Tensor, nn

from continua.blocks import ERKStep, Period, Style, embed_tableau
from continua.errors import ConfigError
from continua.filters import NJet, ScheduledNJet
from continua.ode.tableau import Tableau, find_method

LINEAR = Style(norm="identity", activation="identity")


def textbook_step(tableau: Tableau, rate: Tensor, y: Tensor, h: float) -> Tensor:
    """One explicit Runge–Kutta step of dy/dt = rate · y at every pixel, from the definition."""
    slopes: list[Tensor] = []
    for row in tableau.a:
        inner = y + h * sum((a * z for a, z in zip(row, slopes, strict=False)), torch.zeros_like(y))
        slopes.append(torch.einsum("oc,nchw->nohw", rate, inner))
    return y + h * sum(b * z for b, z in zip(tableau.b, slopes, strict=True))


def naive(step: ERKStep, y: Tensor, use: int = 0, train: bool = True) -> Tensor:
    """The same step as anyone would write it: concatenate, batch norm, activation, convolution."""
    style, parts = step.style, [y]
    statistics = step.statistics[use]
    for index, growth in enumerate(step.growths):
        mean = torch.cat([s.running_mean for s in statistics.parts[: index + 1]]).clone()
        var = torch.cat([s.running_var for s in statistics.parts[: index + 1]]).clone()
        x = nn.functional.batch_norm(torch.cat(parts, 1), mean, var, growth.affine.weight, growth.affine.bias, train, 0.1, style.norm_eps)
        if growth.narrow is not None:
            x = nn.functional.conv2d(torch.relu(x), growth.narrow.filter.weight)
            own = statistics.necks[index]
            mean, var = own.running_mean.clone(), own.running_var.clone()
            x = nn.functional.batch_norm(x, mean, var, growth.neck.weight, growth.neck.bias, train, 0.1, style.norm_eps)
        parts.append(nn.functional.conv2d(torch.relu(x), growth.conv.filter.weight, padding=1))
    groups = torch.cat(parts[1:], 1).split(step.channels, 1)
    return y + sum(groups)


def shaken(step: nn.Module) -> nn.Module:
    """Scales, shifts and statistics away from 1 and 0, so that a mistake in them shows."""
    for tensor in (*step.parameters(), *step.buffers()):
        if tensor.ndim == 1:
            tensor.data.copy_(0.5 + torch.rand_like(tensor))
    return step


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("name", ["euler", "heun", "ralston", "rk4", "rk38"])
@torch.no_grad()
def test_a_step_can_be_a_known_method_to_rounding(name, m):
    tableau, rate = find_method(name), torch.randn(4, 4, dtype=torch.float64)
    step = ERKStep(4 // m, tableau.stages, m, style=LINEAR).double()
    embed_tableau(step, name, rate, 0.3)
    y = torch.randn(2, 4, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(step(y), textbook_step(tableau, rate, y, 0.3), rtol=1e-13, atol=1e-13)
    increments = step.increments(y)
    torch.testing.assert_close(y + sum(increments), step(y))
    torch.testing.assert_close(increments[0], 0.3 * tableau.b[0] * torch.einsum("oc,nchw->nohw", rate, y))


@torch.no_grad()
def test_the_error_of_a_written_method_falls_with_its_order():
    rate = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    y = torch.randn(1, 2, 1, 1, dtype=torch.float64)
    errors = []
    for steps in (4, 8):
        step = ERKStep(2, 4, style=LINEAR, uses=steps).double()
        embed_tableau(step, "rk4", rate, 1 / steps)
        exact = torch.einsum("oc,nchw->nohw", torch.linalg.matrix_exp(rate), y)
        errors.append(float((Period([step])(y) - exact).norm()))
    assert 12 < errors[0] / errors[1] < 20  # 2⁴


@pytest.mark.parametrize(
    ("build", "name", "said"),
    [
        (lambda: ERKStep(2, 2, style=LINEAR), "midpoint", "b_1 = 0.*divides by b_j"),
        (lambda: ERKStep(2, 4, style=LINEAR), "bosh3", "b_4 = 0"),
        (lambda: ERKStep(2, 2, style=LINEAR), "gauss4", "implicit.*IRKStep"),
        (lambda: ERKStep(2, 3, style=LINEAR), "rk4", "4 stages and the step 3"),
        (lambda: ERKStep(3, 4, style=LINEAR), "rk4", "carries 3 channels"),
        (lambda: ERKStep(2, 4), "rk4", "norm='identity'"),
        (lambda: ERKStep(2, 4, style=LINEAR, bottleneck=2), "rk4", "no bottleneck"),
        (lambda: ERKStep(2, 4, style=LINEAR, make_filter=NJet), "rk4", "not into NJet"),
    ],
)
def test_what_the_block_cannot_be_is_refused_with_the_reason(build, name, said):
    with pytest.raises(ConfigError, match=said):
        embed_tableau(build(), name, torch.eye(2), 0.1)


@pytest.mark.parametrize("bottleneck", [None, 5])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("forget", [False, True])
def test_values_gradients_and_statistics_are_those_of_the_concatenating_form(m, bottleneck, forget):
    step = shaken(ERKStep(3, 3, m, bottleneck=bottleneck, style=Style(memory_efficient=forget)).double())
    y = torch.randn(4, 3 * m, 6, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 3 * m, 6, 5, dtype=torch.float64)
    sources = [y, *step.parameters()]
    expected = naive(step, y)
    wanted = torch.autograd.grad(expected, sources, upstream)
    before = step.statistics[0].parts[0].running_mean.clone()
    y_next = step(y)
    torch.testing.assert_close(y_next, expected)
    for ours, theirs in zip(torch.autograd.grad(y_next, sources, upstream), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    moved = step.statistics[0].parts[0].running_mean
    torch.testing.assert_close(moved, 0.9 * before + 0.1 * y.detach().mean((0, 2, 3)))
    step.eval()
    torch.testing.assert_close(step(y), naive(step, y, train=False))
    with torch.no_grad():
        torch.testing.assert_close(step(y), naive(step, y, train=False))


@pytest.mark.parametrize("style", [Style(activation="celu"), Style(norm="group", norm_groups=2), Style(norm="identity", activation="tanh")])
@pytest.mark.parametrize("forget", [False, True])
def test_gradients_hold_for_other_norms_and_activations(style, forget):
    from dataclasses import replace

    step = ERKStep(2, 2, style=replace(style, memory_efficient=forget)).double()
    y = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y, *_: step(y), (y, *step.parameters()), fast_mode=True)


def test_memory_efficient_gives_the_same_numbers_bit_for_bit():
    torch.manual_seed(1)
    plain = ERKStep(4, 4, style=Style(dropout=0.2))
    thrifty = ERKStep(4, 4, style=Style(dropout=0.2, memory_efficient=True))
    thrifty.load_state_dict(plain.state_dict())
    y = torch.randn(3, 4, 8, 8)
    results = []
    for step in (plain, thrifty):
        torch.manual_seed(5)
        out = step(y)
        results.append((out, *torch.autograd.grad(out.square().sum(), list(step.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_memory_efficient_keeps_less_for_the_backward_pass():
    def kept(forget: bool) -> int:
        seen: dict[int, int] = {}

        def remember(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        step, y = ERKStep(4, 7, style=Style(memory_efficient=forget)), torch.randn(2, 4, 16, 16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            out = step(y)
        assert out.requires_grad
        return sum(seen.values())

    assert kept(True) < 0.35 * kept(False)  # 7 maps against 7 + 28


@torch.no_grad()
def test_a_step_taken_twice_shares_weights_and_has_its_own_statistics():
    step = ERKStep(3, 2, uses=2)
    assert sum(p.numel() for p in step.parameters()) == sum(p.numel() for p in ERKStep(3, 2).parameters())
    period, y = Period([step]), torch.randn(4, 3, 4, 4)
    states = period.states(y)
    assert len(states) == 3
    torch.testing.assert_close(states[2], step(step(y, 0), 1))
    first, second = (s.parts[0].running_mean for s in step.statistics)
    assert not torch.allclose(first, second)


def test_dependence_is_the_triangle_of_an_explicit_method():
    reads = ERKStep(3, 4).dependence()
    assert reads.shape == (4, 5)
    assert bool((reads[:, 1:].triu() == 0).all())
    assert bool((reads[:, 0] > 0).all())
    assert bool((reads[:, 1:][torch.ones(4, 4).tril(-1) > 0] > 0).all())
    written = ERKStep(2, 4, style=LINEAR)
    embed_tableau(written, "rk4", torch.eye(2), 0.5)
    rk4 = find_method("rk4")
    expected = torch.tensor([[2**0.5 * 0.5 * rk4.b[i] * rk4.a[i][j] / rk4.b[j] for j in range(4)] for i in range(4)])
    torch.testing.assert_close(written.dependence()[:, 1:], expected)


def test_n_jets_can_be_the_filters_and_moving_ones_are_refused():
    step, y = ERKStep(3, 2, make_filter=NJet), torch.randn(2, 3, 12, 12)
    assert step(y).shape == y.shape
    with pytest.raises(ConfigError, match="have no t"):
        ERKStep(3, 2, make_filter=ScheduledNJet)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ERKStep(0, 2), "growth=0"),
        (lambda: ERKStep(3, 2, bottleneck=0), "bottleneck=0"),
        (lambda: Style(norm="layer"), "norm='layer'"),  # pyright: ignore[reportArgumentType]
        (lambda: Style(dropout=1.0), "dropout=1.0"),
        (lambda: Style(activation="rleu"), "did you mean relu"),
        (lambda: Period([]), "needs time-steps"),
        (lambda: ERKStep(3, 2)(torch.zeros(1, 4, 2, 2)), "maps of 3 channels"),
        (lambda: ERKStep(3, 2)(torch.zeros(1, 3, 1, 1)), "one value per channel"),
    ],
)
def test_impossible_steps_are_refused(build, said):
    with pytest.raises(ConfigError, match=said):
        build()
