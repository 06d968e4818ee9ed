"""A block that stops: where SciPy's event is, each sample for itself, and as if nothing were there where it never comes."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn
from torch.autograd import gradcheck

from continua import ConfigError
from continua.blocks import ODEBlock
from continua.ode import Event

F64 = torch.float64
TIGHT: dict[str, Any] = dict(method="dopri5", rtol=1e-9, atol=1e-9, control="sample")


class Swirl(nn.Module):
    """dh/dt = tanh(A h) + t on the channels of every pixel."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.matrix = nn.Parameter(torch.randn(3, 3, dtype=F64, generator=draw))

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        rate = torch.tanh(torch.einsum("ij,bjxy->bixy", self.matrix, h))
        return rate + (t if t.ndim == 0 else t.reshape(-1, 1, 1, 1))


def images(count: int = 5, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, 2, 2, dtype=F64, generator=torch.Generator().manual_seed(seed))


def stats_of(block: ODEBlock) -> Any:
    """What the last call cost; it is there."""
    assert block.stats is not None
    return block.stats


def field_matrix(block: ODEBlock) -> Tensor:
    assert isinstance(block.field, Swirl)
    return block.field.matrix


def mean_above(level: float, **options: Any) -> Event:
    return Event(lambda t, h: h.mean((1, 2, 3)) - level, direction=1, **options)


@pytest.mark.parametrize("seed", range(4))
def test_each_image_stops_where_scipy_finds_the_event(seed: int) -> None:
    block, h = ODEBlock(Swirl(seed), 3.0, solver=TIGHT, stop=mean_above(0.8)), images(seed=seed)
    y = block(h)
    stats = stats_of(block)
    matrix = field_matrix(block).detach().numpy()
    for place, start in enumerate(h):

        def rate(t: float, y: np.ndarray) -> np.ndarray:
            return (np.tanh(np.einsum("ij,jxy->ixy", matrix, y.reshape(3, 2, 2))) + t).ravel()

        def event(t: float, y: np.ndarray) -> float:
            return float(y.mean()) - 0.8

        event.terminal, event.direction = True, 1  # pyright: ignore[reportFunctionMemberAccess]
        theirs = solve_ivp(rate, (0.0, 3.0), start.numpy().ravel(), rtol=1e-10, atol=1e-10, events=event)
        assert bool(stats.stopped[place]) == bool(len(theirs.t_events[0]))
        assert float(stats.t_end[place]) == pytest.approx(theirs.t[-1], abs=1e-6)
        np.testing.assert_allclose(y[place].detach().numpy().ravel(), theirs.y[:, -1], atol=1e-6)


@pytest.mark.parametrize("control", ["sample", "batch"])
@pytest.mark.parametrize("grad", [False, True])
def test_a_stop_that_never_comes_changes_no_bit(control: str, grad: bool) -> None:
    solver = TIGHT | dict(rtol=1e-3, atol=1e-3, control=control)
    field, h = Swirl(), images().requires_grad_(grad)
    never = Event(lambda t, h: h.flatten(1).sum(1) * 0 - 1.0 if t.ndim else h.sum() * 0 - 1.0, direction=1)
    plain, stopping = ODEBlock(field, 2.0, solver=solver), ODEBlock(field, 2.0, solver=solver, stop=never)
    with torch.set_grad_enabled(grad):
        ours, expected = stopping(h), plain(h)
    assert torch.equal(ours, expected)
    assert torch.equal(*(torch.as_tensor(stats_of(block).nfe) for block in (stopping, plain)))
    assert not stats_of(stopping).stopped.any()
    if grad:
        assert torch.equal(*(torch.autograd.grad(y.square().sum(), field.matrix)[0] for y in (ours, expected)))


def test_an_image_stops_as_it_would_alone_and_pays_for_itself_only() -> None:
    block, h = ODEBlock(Swirl(), 3.0, solver=TIGHT | dict(rtol=1e-4, atol=1e-4), stop=mean_above(0.8)), images(6)
    together = block(h)
    stats = stats_of(block)
    for place in range(6):
        alone = block(h[place : place + 1])
        torch.testing.assert_close(alone[0], together[place], rtol=1e-9, atol=1e-9)  # a moment is located to 1e-10 of a step
        assert stats_of(block).t_end[0] == pytest.approx(float(stats.t_end[place]), abs=1e-9)
        assert int(stats_of(block).nfe[0]) == int(stats.nfe[place])


def test_who_is_past_the_stop_does_not_start() -> None:
    block, h = ODEBlock(Swirl(), 3.0, solver=TIGHT, stop=mean_above(0.8)), images(4)
    h[1] += 2.0
    y, stats = block(h), stats_of(block)
    assert torch.equal(y[1], h[1])
    assert (float(stats.t_end[1]), int(stats.nfe[1]), bool(stats.stopped[1])) == (0.0, 0, True)
    assert (stats.nfe[torch.tensor([0, 2, 3])] > 0).all()
    everyone = block(h + 5.0)
    assert torch.equal(everyone, h + 5.0)
    assert not stats_of(block).t_end.any()
    assert stats_of(block).stopped.all()


def stopping_block(gradient: str) -> tuple[ODEBlock, Tensor]:
    """Two samples: one stops on the way, one is past the stop from the start."""
    block = ODEBlock(Swirl(), 2.0, solver=TIGHT | dict(gradient=gradient, rtol=1e-7, atol=1e-7), stop=mean_above(0.5))
    h = images(2)[:, :, :1, :1].clone()
    h[1] += 2.0
    return block, h


def test_the_state_where_it_stopped_passes_gradcheck() -> None:
    block, h = stopping_block("direct")

    def stopped(h: Tensor, matrix: Tensor) -> Tensor:
        return torch.func.functional_call(block, {"field.matrix": matrix}, (h,))

    assert gradcheck(stopped, (h.requires_grad_(), field_matrix(block).detach().clone().requires_grad_()), atol=1e-4)
    assert stats_of(block).stopped.all()


def test_checkpointed_gradients_of_a_stop_are_the_direct_ones() -> None:
    found = []
    for gradient in ("direct", "checkpoint"):
        block, h = stopping_block(gradient)
        loss = block(h.requires_grad_()).square().sum()
        found.append(torch.autograd.grad(loss, (h, field_matrix(block))))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_the_interpolant_saves_the_evaluations_of_a_last_step() -> None:
    solver, h = TIGHT | dict(rtol=1e-5, atol=1e-5), images()
    exact, read = (ODEBlock(Swirl(), 3.0, solver=solver, stop=mean_above(0.8, interpolated=choice)) for choice in (False, True))
    with torch.no_grad():
        a, b = exact(h), read(h)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    stats = stats_of(read)
    on_the_way = stats.stopped & (stats.t_end > 0)
    assert on_the_way.any()
    assert torch.equal(stats_of(exact).nfe - stats.nfe, 6 * on_the_way)
    read(h.requires_grad_())  # where gradients may be taken, the step is taken again
    assert torch.equal(stats_of(read).nfe, stats_of(exact).nfe)


def test_augmented_channels_are_no_business_of_the_stop() -> None:
    class Wide(Swirl):
        def forward(self, t: Tensor, h: Tensor) -> Tensor:
            return torch.cat([super().forward(t, h[:, :3]), torch.ones_like(h[:, 3:])], 1)

    h = images()
    plain, wide = (
        ODEBlock(Swirl(), 3.0, solver=TIGHT, stop=mean_above(0.8)),
        ODEBlock(Wide(), 3.0, solver=TIGHT, augment=2, stop=mean_above(0.8)),
    )
    torch.testing.assert_close(wide(h), plain(h), rtol=0, atol=1e-6)


@pytest.mark.parametrize("bad", [3, Event(lambda t, h: h, terminal=False)], ids=["no event", "an event that is only recorded"])
def test_what_is_no_stop_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="terminal"):
        ODEBlock(Swirl(), stop=bad)


def test_energies_of_a_part_of_the_way_are_refused() -> None:
    block = ODEBlock(Swirl(), solver=TIGHT, stop=mean_above(0.8)).train()
    block.track_energies("kinetic")
    with pytest.raises(ConfigError, match="without a stop"):
        block(images())
