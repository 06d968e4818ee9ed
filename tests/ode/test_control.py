"""Options of the step control: bounds, times to land on, jumps, the PID law, tolerances per component, the first step."""

from math import exp, pi

import pytest
import torch
from fields import PairField, Recorder, VectorField
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from continua import ConfigError
from continua.ode import SolverConfig, StepControl, broadcast_time, find_method, solve
from continua.ode.control import NextStep
from continua.ode.error import first_step, first_step_of_batch
from continua.ode.integration import Integration
from continua.ode.rate import Rate
from continua.ode.stepper import ExplicitStepper

F64 = torch.float64
CONTROLS = ["batch", "sample"]


def ones(*shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.ones(*shape, dtype=dtype)


def accepted_ends(solution, sample: int = 0) -> list[float]:
    log = solution.stats.steps
    rows = log.accepted if log.sample is None else log.accepted & (log.sample == sample)
    return (log.t + log.h)[rows].tolist()


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("t1", [3.0, -3.0])
def test_no_step_is_longer_than_the_longest(control, t1):
    options = dict(per=control, max_step=0.25)
    log = solve(lambda t, y: 0 * y, ones(2, 1), 0.0, t1, control=options, record_steps=True).stats.steps
    assert float(log.h.abs().max()) <= 0.25 + 1e-12
    assert float(log.h.abs()[log.accepted][:-1].max()) == pytest.approx(0.25)


@pytest.mark.parametrize("control", CONTROLS)
def test_the_shortest_step_is_accepted_whatever_its_error(control):
    f = lambda t, y: -300 * (y - torch.cos(broadcast_time(t, y)))  # noqa: E731
    free = solve(f, ones(2, 1), 0.0, 1.0, rtol=1e-8, atol=1e-8, control=control)
    bounded = solve(f, ones(2, 1), 0.0, 1.0, rtol=1e-8, atol=1e-8, control=dict(per=control, min_step=0.004), record_steps=True)
    log = bounded.stats.steps
    assert float(log.h.abs()[log.accepted].min()) >= 0.004 - 1e-12 or float(log.h[-1]) < 0.004
    assert bool((log.error[log.accepted] > 1).any())
    assert int(torch.as_tensor(bounded.stats.accepted).max()) < int(torch.as_tensor(free.stats.accepted).max())


@pytest.mark.parametrize("control", CONTROLS)
def test_the_shortest_step_does_not_hide_an_undefined_state(control):
    f = lambda t, y: torch.where(broadcast_time(t, y) > 0.5, torch.nan, 1.0) * y  # noqa: E731
    solution = solve(f, ones(2, 1), 0.0, 1.0, control=dict(per=control, min_step=0.01), on_failure="status")
    assert not solution.success


@pytest.mark.parametrize("bad", [dict(min_step=0.0), dict(max_step=-1.0), dict(min_step=1.0, max_step=0.5), dict(max_step="x")])
def test_bounds_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match="_step"):
        StepControl(**bad)


# --- times to land on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("ends", [(0.0, 2.0), (2.0, 0.0)])
def test_steps_land_on_the_times_they_are_given(control, ends):
    stops = [1.2345, 0.1, 0.7, 5.0, -1.0]
    solution = solve(VectorField(), torch.randn(3, 3, dtype=F64), *ends, control=dict(per=control, step_at=stops), record_steps=True)
    reached = accepted_ends(solution)
    assert {0.1, 0.7, 1.2345} <= {round(t, 12) for t in reached}
    assert all(min(ends) <= t <= max(ends) for t in reached)


def test_a_stop_leaves_the_next_step_as_long_as_it_was():
    f = lambda t, y: -y  # noqa: E731
    plain = solve(f, ones(1, 1), 0.0, 10.0)
    stopped = solve(f, ones(1, 1), 0.0, 10.0, control=dict(step_at=[1.0, 1.0 + 1e-6]))
    assert stopped.stats.accepted <= plain.stats.accepted + 3


def square_wave(t: Tensor, y: Tensor) -> Tensor:
    """1 and −1 in turn, changing at every multiple of 1/4."""
    return torch.where((4 * broadcast_time(t, y)).floor() % 2 == 0, 1.0, -1.0).to(y.dtype).expand_as(y)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("ends", [(0.0, 1.75), (1.6, 0.1), (0.25, 1.75)])
def test_jumps_are_never_stepped_over(control, dtype, ends):
    """dy/dt is constant between jumps: with them declared every step is exact, and f is never asked at a jump inside."""
    jumps = [k / 4 for k in range(9)]
    field = Recorder(square_wave)
    options = dict(rtol=1e-5, atol=1e-5, control=dict(per=control, jump_at=jumps))
    solution = solve(field, ones(2, 1, dtype=dtype), *ends, **options)
    wave = lambda t: 0.25 - abs(t % 0.5 - 0.25)  # noqa: E731 - the integral of the square wave
    expected = 1.0 + wave(ends[1]) - wave(ends[0])
    assert float(solution.y1[0]) == pytest.approx(expected, abs=2e-6 if dtype == torch.float32 else 1e-12)
    assert int(torch.as_tensor(solution.stats.rejected).max()) == 0
    asked = torch.cat([t.flatten() for t in field.times])
    inside = [jump for jump in jumps if min(ends) < jump < max(ends) or jump == ends[1]]
    assert not any(bool((asked == jump).any()) for jump in inside)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_gradients_and_asked_times_go_over_jumps(control, gradient):
    rate = torch.tensor(0.7, dtype=F64, requires_grad=True)
    f = lambda t, y: -rate * square_wave(t, y) * y  # noqa: E731
    y0, times = ones(2, 1).requires_grad_(), [0.0, 0.25, 0.3, 0.5, 0.75]
    solution = solve(f, y0, 0.0, 0.75, control=dict(per=control, jump_at=times), save_at=times, rtol=1e-9, atol=1e-9, gradient=gradient,
                     params=[rate], dense=True)  # fmt: skip
    area = torch.tensor([0.0, 0.25, 0.2, 0.0, 0.25], dtype=F64)
    exact = torch.exp(-rate * area)[:, None, None].expand(5, 2, 1)
    torch.testing.assert_close(solution.ys, exact, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(solution.interpolate(times), exact, rtol=1e-7, atol=1e-9)
    found = torch.autograd.grad(solution.ys.sum(), (rate, y0))
    expected = torch.autograd.grad((y0 * exact).sum(), (rate, y0))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_samples_with_their_own_ends_have_the_same_jumps():
    t1 = torch.tensor([0.6, -0.3, 1.1], dtype=F64)
    f = lambda t, y: torch.where(broadcast_time(t, y) > 0.5, 1.0, 0.0).to(y.dtype) * ones(*y.shape)  # noqa: E731
    y1 = solve(f, 0 * ones(3, 1), 0.0, t1, control=dict(per="sample", jump_at=[0.5, -0.1]), rtol=1e-9, atol=1e-9).y1
    torch.testing.assert_close(y1[:, 0], (t1 - 0.5).clamp(min=0.0), rtol=1e-9, atol=1e-12)
    with pytest.raises(ConfigError, match="jump_at"):
        solve(f, ones(3, 1), 0.0, t1, control=dict(jump_at=[0.5]))


@pytest.mark.parametrize(
    "bad", [dict(jump_at=["x"]), dict(step_at=3), dict(step_at=[float("nan")]), dict(jump_at=torch.ones(1).requires_grad_())]
)
def test_times_that_are_no_times_are_refused(bad):
    with pytest.raises(ConfigError, match="_at"):
        StepControl(**bad)


def test_fixed_steps_land_where_they_land():
    with pytest.raises(ConfigError, match="step_at"):
        SolverConfig(steps=4, control=dict(step_at=[0.5]))


def test_the_options_survive_being_written_down():
    control = StepControl(kind="pid", min_step=1e-3, max_step=0.5, step_at=[0.5, 0.25], jump_at=torch.tensor([0.75]), safety=0.8)
    config = SolverConfig(control=control, rtol=[1e-3, 1e-5], atol=torch.tensor([1e-6]))
    assert SolverConfig.of(config.plain()) == config
    assert config.plain()["control"]["step_at"] == (0.25, 0.5)
    assert config != SolverConfig(control=control, rtol=[1e-3, 1e-4], atol=torch.tensor([1e-6]))
    assert "rtol=1e-05 … 0.001" in config.tolerances


# --- the PID law ------------------------------------------------------------------------------------------------------


def test_the_pid_law_is_its_formula():
    choose, h = NextStep(StepControl(kind="pid"), 5), torch.tensor(1.0, dtype=F64)
    errors = [0.5, 0.3, 0.1]
    for error in errors:
        ratio = torch.tensor(error, dtype=F64)
        found = float(choose(h, ratio, ratio <= 1))
    factor = 0.9 * errors[2] ** (-0.75 / 5) * errors[1] ** (0.5 / 5) * errors[0] ** (-0.05 / 5)
    assert found == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    "options", [{}, dict(kind="pi"), dict(kind="pid", min_step=0.05, max_step=0.6), dict(alpha=90.0, beta=-70.0)], ids=str
)
def test_the_law_in_numbers_is_the_law_in_tensors(options):
    numbers, tensors = (NextStep(StepControl(**options), 5, unit=2.0) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    ratios = [*(10.0 ** (6 * torch.rand(60, generator=generator, dtype=F64) - 4)).tolist(), 0.0, float("inf"), 0.9, float("nan"), 1.0, 3.0]
    for ratio in ratios:
        h, r = torch.tensor(-0.3, dtype=F64), torch.tensor(ratio, dtype=F64)
        accept = tensors.accepts(float(h), r)
        assert numbers.accepts_of_batch(-0.3, ratio) == bool(accept)
        torch.testing.assert_close(numbers.of_batch(-0.3, ratio, bool(accept)), float(tensors(h, r, accept)), rtol=1e-14, atol=0)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (2.0, -1.0), (0.0, 1e-5)])
@pytest.mark.parametrize("rate", [0.0, 1e-9, 3.0, 1e6, float("inf"), float("nan")])
def test_the_first_step_in_numbers_is_the_one_in_tensors(ends, rate):
    y0 = (torch.tensor([[1.0, -2.0]], dtype=F64), torch.tensor([[1e-3]], dtype=F64))
    config, stepper = SolverConfig(rtol=1e-4, atol=1e-6), ExplicitStepper(find_method("dopri5"))
    sizes = []
    for find in (first_step_of_batch, lambda whole, first: float(first_step(whole, first, per_sample=False))):
        f = Rate(lambda t, y: (rate * torch.cos(y[0]) * (1 + t), -y[1]), y0, single=False)
        whole = Integration(f, stepper, config, y0, *ends, unit=2.0)
        sizes.append(find(whole, f(ends[0], y0)))
    torch.testing.assert_close(*sizes, rtol=1e-13, atol=0)


@pytest.mark.parametrize("control", CONTROLS)
def test_pid_solves_as_well_as_the_others(control):
    f = lambda t, y: torch.stack([y[:, 1], 20 * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)  # noqa: E731
    y0, close = torch.tensor([[2.0, 0.0]], dtype=F64), dict(rtol=1e-7, atol=1e-7)
    exact = solve(f, y0, 0.0, 5.0, method="dopri8", rtol=1e-12, atol=1e-12).y1
    costs = {}
    for kind in ("i", "pi", "pid"):
        solution = solve(f, y0, 0.0, 5.0, control=dict(per=control, kind=kind), **close)
        torch.testing.assert_close(solution.y1, exact, rtol=1e-4, atol=1e-4)
        costs[kind] = int(torch.as_tensor(solution.stats.nfe).max())
    assert costs["pid"] < 1.2 * costs["i"]


# --- tolerances per component -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", CONTROLS)
def test_equal_tolerances_per_component_are_one_tolerance(control):
    field, y0 = VectorField().requires_grad_(False), torch.randn(4, 3, dtype=F64)
    one = solve(field, y0, 0.0, 2.0, rtol=1e-5, atol=1e-6, control=control)
    many = solve(field, y0, 0.0, 2.0, rtol=torch.full((3,), 1e-5, dtype=F64), atol=[1e-6] * 3, control=control)
    torch.testing.assert_close(one.y1, many.y1, rtol=1e-12, atol=1e-14)
    assert torch.equal(torch.as_tensor(one.stats.nfe), torch.as_tensor(many.stats.nfe))


def test_a_loose_component_costs_little():
    rates = torch.tensor([1.0, 40.0], dtype=F64)
    f = lambda t, y: (torch.cos(rates * t) * rates).expand_as(y)  # noqa: E731
    strict = solve(f, ones(1, 2), 0.0, 3.0, rtol=0, atol=1e-8)
    loose = solve(f, ones(1, 2), 0.0, 3.0, rtol=0, atol=torch.tensor([1e-8, 10.0]))
    assert loose.stats.nfe < strict.stats.nfe / 3
    assert float((strict.y1 - 1 - torch.sin(3 * rates)).abs().max()) < 1e-6


def test_a_coupled_state_has_tolerances_for_each_part():
    field, y0 = PairField(), (torch.randn(2, 3, 2, 2, dtype=F64), torch.randn(2, 3, dtype=F64))
    one = solve(field, y0, 0.0, 1.0, rtol=1e-6, atol=1e-6)
    tensor = torch.full((3, 1, 1), 1e-6, dtype=F64)
    for gradient in ("checkpoint", "adjoint"):
        parts = solve(field, y0, 0.0, 1.0, rtol=(tensor, 1e-6), atol=(1e-6, torch.full((3,), 1e-6)), gradient=gradient)
        torch.testing.assert_close(parts.y1[0], one.y1[0])
        parts.y1[1].sum().backward()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(rtol=torch.ones(4)), "broadcast"),
        (dict(rtol=(1e-3, 1e-3)), "parts of y0"),
        (dict(atol=torch.zeros(3)), "atol"),
        (dict(atol=0.0), "atol"),
        (dict(rtol=torch.tensor([1e-3, -1.0, 1e-3])), "rtol"),
        (dict(rtol="x"), "rtol"),
        (dict(rtol=torch.ones(2, 1), control="sample"), "between samples"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tolerances_that_do_not_fit_are_refused(bad, message):
    with pytest.raises(ConfigError, match=message):
        solve(lambda t, y: -y, ones(2, 3), 0.0, 1.0, **bad)


def test_a_relative_tolerance_may_be_nothing_and_any_may_be_huge():
    y1 = solve(lambda t, y: -y, ones(1, 1), 0.0, 1.0, rtol=0, atol=1e-8).y1
    assert float(y1) == pytest.approx(exp(-1), abs=1e-7)
    for control in CONTROLS:
        for huge in (dict(rtol=1e300), dict(atol=1e300), dict(rtol=1e300, atol=1e300)):
            assert torch.isfinite(solve(lambda t, y: -y, ones(2, 2, dtype=torch.float32), 0.0, 1.0, control=control, **huge).y1).all()


# --- the first step ---------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 20.0), st.floats(0.1, 2.0))
@settings(max_examples=12)
def test_equal_ends_as_a_tensor_take_the_steps_of_the_number(length, rate):
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.sin(rate * broadcast_time(t, y)) - 0.1 * y

    y0 = ones(2, 1)
    number = solve(f, y0, 0.0, length).stats
    assert solve(f, y0, 0.0, torch.full((2,), length, dtype=F64)).stats.nfe == number.nfe
    each = solve(f, y0, 0.0, torch.full((2,), length, dtype=F64), control="sample").stats
    assert each.nfe.tolist() == solve(f, y0, 0.0, length, control="sample").stats.nfe.tolist() == [number.nfe] * 2


def test_a_given_first_step_is_in_units_of_t_also_with_ends_per_sample():
    f = lambda t, y: 0 * y  # noqa: E731
    stats = solve(f, ones(2, 1), 0.0, torch.tensor([4.0, 2.0], dtype=F64), control=dict(first_step=0.5, factor_max=1.0001)).stats
    assert stats.first_step == pytest.approx(0.5 / 4)  # as a fraction of the interval, as the statistics say


def test_the_evaluations_that_choose_the_first_step_are_counted():
    for control in CONTROLS:
        for first in (None, 0.1):
            field = Recorder(lambda t, y: torch.cos(pi * broadcast_time(t, y)) * ones(*y.shape))
            nfe = solve(field, ones(1, 1), 0.0, 1.0, control=dict(per=control, first_step=first)).stats.nfe
            assert int(torch.as_tensor(nfe).max()) == len(field.times)
