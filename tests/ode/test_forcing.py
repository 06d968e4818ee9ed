"""Driven fields: u(t) is what it is said to be, has gradients, and its jumps are hit, never stepped over."""

from math import exp

import pytest
import torch
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor, nn
from torch.autograd import gradcheck

from continua import ConfigError
from continua.ode import Forcing, broadcast_time, solve

F64 = torch.float64
TIMES = torch.tensor([0.0, 0.3, 0.5, 1.1, 1.2], dtype=F64)


def values(*shape: int) -> Tensor:
    return torch.randn(len(TIMES), *shape, dtype=F64)


@pytest.mark.parametrize("interpolation", ["linear", "cubic", "previous"])
def test_u_passes_through_its_values_and_is_constant_outside(interpolation):
    given = values(3)
    u = Forcing(given, TIMES, interpolation)
    for time, value in zip(TIMES, given, strict=True):
        torch.testing.assert_close(u(time), value)
    torch.testing.assert_close(u(torch.tensor(-1.0, dtype=F64)), given[0])
    torch.testing.assert_close(u(torch.tensor(9.0, dtype=F64)), given[-1])
    torch.testing.assert_close(u(TIMES + 1e-9), torch.stack([u(time) for time in TIMES + 1e-9]))  # a time per sample


def test_u_between_its_times_is_the_line_the_held_value_or_hermites_cubic():
    given, t = values(), torch.linspace(0.01, 1.19, 57, dtype=F64)
    index = torch.searchsorted(TIMES, t) - 1
    share = (t - TIMES[index]) / (TIMES[index + 1] - TIMES[index])
    torch.testing.assert_close(Forcing(given, TIMES, "previous")(t), given[index])
    torch.testing.assert_close(Forcing(given, TIMES)(t), given[index] * (1 - share) + given[index + 1] * share)
    gaps, rises = TIMES.diff(), given.diff() / TIMES.diff()
    inner = (rises[:-1] * gaps[1:] + rises[1:] * gaps[:-1]) / (gaps[:-1] + gaps[1:])
    spline = CubicHermiteSpline(TIMES, given, torch.cat([rises[:1], inner, rises[-1:]]))
    torch.testing.assert_close(Forcing(given, TIMES, "cubic")(t), torch.tensor(spline(t)))


@pytest.mark.parametrize("interpolation", ["linear", "cubic", "previous"])
@pytest.mark.parametrize("shared", [True, False])
def test_values_get_gradients(interpolation, shared):
    t = torch.tensor([0.1, 0.7], dtype=F64)
    sample = None if shared else torch.tensor([1, 0])
    given = (values(2) if shared else values(2, 2)).requires_grad_()
    assert gradcheck(lambda v: Forcing(v, TIMES, interpolation)(t, sample), (given,))
    assert gradcheck(lambda v: Forcing(v, TIMES, interpolation)(t[0], sample), (given,))


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_driven_leak_has_the_gradients_of_its_closed_form(gradient, control):
    """dy/dt = u − y with u held: y1 = Σ u_i (e^(−(T − t_{i+1})) − e^(−(T − t_i)))."""
    given = values(2).requires_grad_()
    u = Forcing(given, TIMES, "previous")
    y0 = torch.zeros(3, 2, dtype=F64)
    options = dict(control=dict(per=control, jump_at=u.jumps), gradient=gradient, rtol=1e-10, atol=1e-10, params=[given])
    y1 = solve(lambda t, y: u(t).expand_as(y) - y, y0, 0.0, 1.2, **options).y1
    edges = torch.exp(-(1.2 - TIMES))
    exact = (given[:-1] * edges.diff()[:, None]).sum(0).expand(3, 2)
    torch.testing.assert_close(y1, exact, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(torch.autograd.grad(y1.sum(), given)[0], torch.autograd.grad(exact.sum(), given)[0], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_a_movie_of_50_hz_is_never_stepped_over(control):
    """A leak driven by 50 frames of a second, one of them bright: at a loose tolerance it is seen with jump_at, and not without."""
    frames = torch.zeros(51, dtype=torch.float32)
    frames[31] = 1.0
    u = Forcing(frames, torch.arange(51) / 50, "previous")
    f = lambda t, y: broadcast_time(u(t), y) * torch.ones_like(y) - 0.1 * y  # noqa: E731
    left, exact = exp(-0.1 / 50), 0.0
    for brightness in frames[:50].tolist():
        exact = exact * left + brightness * (1 - left) / 0.1
    seen = solve(f, torch.zeros(2, 1), 0.0, 1.0, control=dict(per=control, jump_at=u.jumps))
    blind = solve(f, torch.zeros(2, 1), 0.0, 1.0, control=control)
    assert float((seen.y1 - exact).abs().max()) < 1e-6
    assert float((blind.y1 - exact).abs().max()) > 1e-3  # else the claim says little
    assert int(torch.as_tensor(seen.stats.rejected).max()) == 0
    joined = Forcing(frames, torch.arange(51) / 50)
    g = lambda t, y: broadcast_time(joined(t), y) * torch.ones_like(y) - 0.1 * y  # noqa: E731
    bent = solve(g, torch.zeros(2, 1), 0.0, 1.0, control=dict(per=control, step_at=joined.knots))
    assert float((bent.y1 - exact).abs().max()) < 1e-3


def test_each_sample_has_its_own_movie():
    given = values(4, 2)
    u, y0 = Forcing(given, TIMES, "previous"), (torch.zeros(4, 2, dtype=F64), torch.arange(4, dtype=F64))
    f = lambda t, y: (u(t, y[1].round().long()) - y[0], torch.zeros_like(y[1]))  # noqa: E731
    ends = torch.tensor([1.2, 0.4, 0.9, 1.0], dtype=F64)
    together = solve(f, y0, 0.0, ends, control=dict(per="sample", jump_at=u.jumps), rtol=1e-9, atol=1e-9).y1[0]
    for index in range(4):
        one = Forcing(given[:, index], TIMES, "previous")
        alone = solve(
            lambda t, y, one=one: one(t) - y, y0[0][:1], 0.0, float(ends[index]), control=dict(jump_at=one.jumps), rtol=1e-9, atol=1e-9
        )
        torch.testing.assert_close(together[index], alone.y1[0], rtol=1e-7, atol=1e-8)


def test_a_forcing_is_part_of_the_module_that_owns_it():
    class Driven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u = Forcing(nn.Parameter(values(2)), TIMES)

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return self.u(t) - y

    field = Driven()
    assert set(dict(field.named_parameters())) == {"u.values"}
    solve(field, torch.zeros(3, 2, dtype=F64), 0.0, 1.0).y1.sum().backward()
    assert float(field.u.values.grad.abs().sum()) > 0
    assert field.float().u.times.dtype == F64  # its times are not rounded


@pytest.mark.parametrize(
    ("given", "times", "options", "message"),
    [
        (torch.ones(3), [0, 1], {}, "shape"),
        (torch.ones(1), [0], {}, "at least two"),
        (torch.ones(2), [1, 0], {}, "rising"),
        (torch.ones(2), [0, float("inf")], {}, "finite"),
        (torch.ones(2, dtype=torch.int64), [0, 1], {}, "int64"),
        (torch.ones(2), [0, 1], dict(interpolation="next"), "'previous'"),
    ],
)
def test_what_makes_no_movie_is_refused(given, times, options, message):
    with pytest.raises(ConfigError, match=message):
        Forcing(given, times, **options)


def test_one_movie_per_sample_at_a_time_per_sample_is_told_to_name_the_sample():
    u = Forcing(torch.rand(5, 2, 3), torch.arange(5.0))
    with pytest.raises(ConfigError, match=r"returned shape \(2, 2, 3\) for a state of shape \(2, 3\).*u\(t, sample\)"):
        solve(lambda t, y: u(t) - y, torch.zeros(2, 3), 0.0, 1.0, control="sample")
    shared = Forcing(torch.rand(5, 3), torch.arange(5.0))  # one row per sample
    assert solve(lambda t, y: shared(t) - y, torch.zeros(2, 3), 0.0, 1.0, control="sample").y1.shape == (2, 3)
