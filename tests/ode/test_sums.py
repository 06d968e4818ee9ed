"""Sums of a step under autograd: linked ones give what autograd makes of the plain ones, and nothing of a solve outlives it."""

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import continua as ct
from continua.native import can_combine
from continua.ode import sums, with_graph_size
from continua.ode.rate import Rate

SIZE = (4, 8, 24, 24)  # above what the kernels find worth their while
pytestmark = pytest.mark.skipif(not can_combine(torch.empty(SIZE)), reason="the native kernels do not run here")


@pytest.fixture(autouse=True)
def small_states_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "LINKED", 1)


def test_a_state_that_fits_the_cache_is_summed_without_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    y = torch.zeros(64, 256, requires_grad=True)  # handles took twice the time of the sums here
    assert can_combine(y)
    assert not sums.worth_linking(y)
    assert sums.worth_linking(torch.zeros(32, 16, 32, 32, requires_grad=True))


def gradients(y0: Tensor, hidden: Tensor, order: int = 1, **solver: object) -> list[Tensor]:
    """Of y0 and of a tensor that the solve is not told about; of `order` 2, of a penalty on the first ones."""
    y0 = y0.clone().requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y * hidden.reshape(-1, 1, 1)) - t * y

    found = ct.solve(f, y0, 0.0, 1.0, gradient="direct", **solver)
    states = found.y1 if found.ys is None else found.ys
    loss = states.square().sum()
    made = torch.autograd.grad(loss, (y0, hidden), create_graph=order == 2)
    return [loss.detach(), *(torch.autograd.grad(sum(g.square().sum() for g in made), (y0, hidden)) if order == 2 else made)]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "solver",
    [
        dict(method="dopri5", rtol=1e-4, atol=1e-4),
        dict(method="rk4", steps=2),
        dict(method="euler", steps=3),
        dict(method="tsit5", steps=2),
    ],
    ids=lambda solver: solver["method"],
)
def test_linked_sums_have_the_derivatives_of_plain_ones(solver: dict, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    y0, hidden = torch.randn(SIZE, dtype=torch.float64), torch.randn(8, dtype=torch.float64, requires_grad=True)
    linked = gradients(y0, hidden, order, **solver)
    monkeypatch.setattr(sums, "can_combine", lambda x: False)
    plain = gradients(y0, hidden, order, **solver)
    for ours, theirs in zip(linked, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_states_inside_a_step_keep_their_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    y0, hidden = torch.randn(SIZE, dtype=torch.float64), torch.randn(8, dtype=torch.float64, requires_grad=True)
    given = dict(method="dopri5", rtol=1e-4, atol=1e-4, save_at=torch.linspace(0.1, 0.9, 5))
    linked = gradients(y0, hidden, **given)
    monkeypatch.setattr(sums, "can_combine", lambda x: False)
    for ours, theirs in zip(linked, gradients(y0, hidden, **given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_a_graph_serves_two_backward_passes_that_reach_different_parts_of_it() -> None:
    torch.manual_seed(0)
    y0 = torch.randn(SIZE, dtype=torch.float64, requires_grad=True)
    times = torch.tensor([0.5, 1.0])
    ys = ct.solve(lambda t, y: torch.sin(y), y0, 0.0, 1.0, gradient="direct", method="dopri5", save_at=times).ys
    (all_of_it,) = torch.autograd.grad(ys.sum(), y0, retain_graph=True)
    parts = [torch.autograd.grad(y.sum(), y0, retain_graph=True)[0] for y in ys.unbind()]
    torch.testing.assert_close(parts[0] + parts[1], all_of_it)


def test_gradient_sums_are_single_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """rk4: one sum for each stage and one for y0, where autograd would make one pass for each of 10 terms."""
    made: list[int] = []
    whole = sums.weighted_sum
    monkeypatch.setattr(sums, "weighted_sum", lambda base, weights, terms: made.append(len(terms)) or whole(base, weights, terms))
    y0 = torch.randn(SIZE, requires_grad=True)
    y1 = ct.solve(lambda t, y: -y, y0, 0.0, 1.0, gradient="direct", method="rk4", steps=1).y1
    assert made == [1, 1, 1, 4]
    made.clear()
    y1.sum().backward()
    assert sorted(made) == [1, 2, 2, 2, 4]


@pytest.mark.parametrize("f", [lambda t, y: torch.exp(-y), lambda t, y: torch.tanh(y), lambda t, y: torch.relu(y)])
def test_measuring_a_graph_does_not_keep_it(f) -> None:
    y = torch.rand(3, 5, 7, 241, requires_grad=True)

    def alive() -> int:
        gc.collect()
        return sum(type(value) is Tensor and value.shape == y.shape for value in gc.get_objects())

    before = alive()
    k, held = with_graph_size(Rate(f, (y,), True), 0.0, (y,), ())
    assert held == y.nbytes
    torch.testing.assert_close(torch.autograd.grad(k[0].sum(), y, retain_graph=True)[0], torch.autograd.grad(f(0.0, y).sum(), y)[0])
    del k
    assert alive() == before


def test_training_steps_leave_nothing_behind() -> None:
    """Whatever a first adaptive step with checkpoints held is gone afterwards, also of the kernels' own operators."""
    net = ct.create_model("dcn_ode", channels=[8, 8, 8], norm_groups=4)
    images = torch.rand(2, 3, 32, 32)

    def alive() -> int:
        gc.collect()
        return sum(type(value) is Tensor and value.ndim == 4 and value.shape[0] == 2 for value in gc.get_objects())

    net(images).sum().backward()
    before = alive()
    for _ in range(2):
        net(images).sum().backward()
    assert alive() == before


def test_the_operators_hold_no_output_of_theirs() -> None:
    from continua.native import native_conv

    x, taps = torch.rand(2, 8, 9, 9, requires_grad=True), torch.rand(1, 3)
    alpha, cols = torch.rand(1, 8, 8), taps.clone().requires_grad_()
    seen: list[weakref.ref] = []
    with saved_tensors_hooks(lambda value: seen.append(weakref.ref(value)) or value, lambda value: value):
        y = native_conv(x, None, None, alpha, taps, cols, along=taps / taps.norm())
    del y
    gc.collect()
    assert all(ref() is None or ref() is x or ref().numel() <= alpha.numel() for ref in seen)
