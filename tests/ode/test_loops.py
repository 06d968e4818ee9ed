"""The step loops alone, with steppers that only pretend: which steps are tried, kept, repeated, and when a loop gives up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from continua import SolverError
from continua.ode import SolverConfig, Status, StepControl
from continua.ode.control import NextStep
from continua.ode.integration import BatchSteps, FixedSteps, Integration
from continua.ode.rate import Rate
from continua.ode.sample import SampleSteps
from continua.ode.stepper import Attempt

F64 = torch.float64


@dataclass
class Pretend:
    """A stepper for dy/dt = 1 whose error, relative to the tolerance, is what a rule of (t, |h|) says."""

    ratio: Callable[[Tensor, Tensor], Tensor]
    order: int = 5
    evaluations: int = 1
    starts_with_rate: bool = True
    tried: list[tuple[list[float], list[float]]] = field(default_factory=list)

    def step(self, rate, t, t_next, y, first) -> Attempt:
        t, h = (torch.as_tensor(x, dtype=F64).expand(len(y[0])) for x in (t, t_next - t))
        self.tried.append((t.tolist(), h.tolist()))
        error = self.ratio(t, h.abs())[:, None]
        return Attempt((y[0] + h[:, None],), [first, first], (error,))

    def next_first(self, attempt):
        return attempt.stages[-1]


def problem(stepper: Pretend, batch: int = 1, t0=0.0, t1=1.0, **options) -> Integration:
    """Tolerances for which the error ratio is the error itself: a state of zeros would be scaled by atol alone."""
    control = {"first_step": 0.1, **options.pop("control", {})}
    config = SolverConfig(rtol=1e-300, atol=1.0, control=control, **options)
    y0 = (torch.zeros(batch, 1, dtype=F64),)
    rate = Rate(lambda t, y: torch.ones_like(y), y0, True)
    return Integration(rate, stepper, config, y0, t0, t1)


def run(loop) -> list:
    return list(loop)


def constant(value: float):
    return lambda t, h: torch.full_like(h, value)


# --- the law of the step ----------------------------------------------------------------------------------------------


@given(st.floats(1e-9, 1e9), st.floats(0.3, 0.99), st.floats(0.05, 0.9), st.floats(1.1, 20), st.integers(2, 8))
def test_the_plain_controller_is_its_formula(ratio, safety, low, high, k):
    choose = NextStep(StepControl(safety=safety, factor_min=low, factor_max=high), k)
    accept = torch.tensor(ratio <= 1)
    found = float(choose(torch.tensor(2.0, dtype=F64), torch.tensor(ratio, dtype=F64), accept))
    factor = safety * ratio ** (-1 / k)
    expected = min(max(factor, 1.0), high) if ratio <= 1 else min(max(factor, low), 1.0)
    assert found == pytest.approx(2 * expected, rel=1e-12)


def test_the_pi_controller_remembers_the_last_accepted_error_and_holds_after_a_rejection():
    choose = NextStep(StepControl(kind="pi"), 5)
    h = torch.tensor(1.0, dtype=F64)

    def ask(ratio: float) -> float:
        error = torch.tensor(ratio, dtype=F64)
        return float(choose(h, error, error <= 1))

    assert ask(0.5) == pytest.approx(0.9 * 0.5 ** (-0.7 / 5))
    assert ask(0.01) == pytest.approx(0.9 * 0.01 ** (-0.7 / 5) * 0.5 ** (0.4 / 5))
    assert ask(4.0) == pytest.approx(0.9 * 4.0 ** (-1 / 5))  # a rejected step: plain
    assert ask(1e-4) == 1.0  # would grow, but the step before was rejected
    assert ask(1e-4) > 1.0


@pytest.mark.parametrize(("ratio", "factor"), [(0.0, 10.0), (nan, 0.2), (float("inf"), 0.2)])
def test_errors_that_are_no_numbers_have_a_factor_too(ratio, factor):
    error = torch.tensor(ratio, dtype=F64)
    assert float(NextStep(StepControl(), 5)(torch.tensor(1.0, dtype=F64), error, error <= 1)) == pytest.approx(factor)


# --- fixed steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t1", [1.0, -0.7])
def test_fixed_steps_are_equal_and_end_on_the_end(t1):
    steps = run(FixedSteps(problem(Pretend(constant(0.0)), t1=t1, steps=7)))
    assert [step.index for step in steps] == list(range(7))
    assert all(after.t == before.t_next for before, after in pairwise(steps))
    assert (steps[0].t, steps[-1].t_next) == (0.0, t1)
    assert all(step.h == pytest.approx(t1 / 7) for step in steps)


@pytest.mark.parametrize("t1", [1.0, -0.7])
def test_steps_of_given_lengths_have_these_shares_of_the_interval(t1):
    loop = FixedSteps(problem(Pretend(constant(0.0)), t1=t1, steps=[1, 2, 5]))
    steps = run(loop)
    assert [step.h / t1 for step in steps] == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert (steps[0].t, steps[-1].t_next) == (0.0, t1)
    assert (loop.stats.accepted, loop.stats.first_step, loop.stats.last_step) == (3, pytest.approx(t1 / 8), pytest.approx(5 * t1 / 8))


# --- one step for the batch -------------------------------------------------------------------------------------------


def test_a_perfect_step_grows_tenfold_and_the_last_is_shortened():
    steps = run(BatchSteps(problem(Pretend(constant(0.0)), t1=20.0)))
    assert [step.h for step in steps] == pytest.approx([0.1, 1.0, 10.0, 8.9])
    assert steps[-1].t_next == 20.0


def test_a_rejected_step_is_tried_again_from_the_same_place():
    stepper = Pretend(lambda t, h: h / 0.03)
    loop = BatchSteps(problem(stepper))
    steps = run(loop)
    assert stepper.tried[0] == ([0.0], [0.1])
    assert stepper.tried[1][0] == [0.0]
    assert loop.stats.rejected >= 1
    assert all(step.h <= 0.03 for step in steps)
    assert float(loop.y[0]) == pytest.approx(1.0)
    assert loop.stats.accepted == len(steps)
    assert loop.stats.accepted + loop.stats.rejected == len(stepper.tried)


def test_the_batch_is_judged_by_its_root_mean_square():
    """One sample at twice the tolerance among three at none: √(4/4) = 1 is just accepted."""
    stepper = Pretend(lambda t, h: torch.tensor([2.0, 0.0, 0.0, 0.0], dtype=F64))
    loop = BatchSteps(problem(stepper, batch=4, control=dict(first_step=1.0)))
    assert len(run(loop)) == 1
    assert loop.stats.rejected == 0


@settings(max_examples=40)
@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e3), st.floats(0.01, 2.0))
def test_a_loop_reaches_any_end_whatever_the_rounding(t0, length, relative):
    """Also when t + h lands on t1 by rounding, which must end the solve and not count as a step without length."""
    t1 = t0 + length
    loop = BatchSteps(problem(Pretend(constant(0.9)), t0=t0, t1=t1, control=dict(first_step=max(relative * length, 1e-12), max_steps=2000)))
    steps = run(loop)
    assert loop.status == (Status.SUCCESS,)
    if steps:
        assert steps[-1].t_next == t1
        assert all(step.t_next != step.t for step in steps)


def test_a_step_that_lands_on_the_end_by_rounding_ends_the_solve():
    t0, t1 = 1e6, 1e6 + 1e-6
    span = t1 - t0
    loop = BatchSteps(problem(Pretend(constant(0.5)), t0=t0, t1=t1, control=dict(first_step=span * (1 - 1e-6))))
    assert len(run(loop)) == 1
    assert loop.status == (Status.SUCCESS,)


# --- giving up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BatchSteps, SampleSteps])
@pytest.mark.parametrize(
    ("rule", "options", "status"),
    [
        (constant(2.0), {}, Status.STEP_UNDERFLOW),
        (constant(nan), {}, Status.STEP_UNDERFLOW),
        (lambda t, h: torch.where(t + h > 1.5, 9.0, 0.1).to(F64), {}, Status.STEP_UNDERFLOW),  # a wall on the way
        (constant(0.9), dict(control=dict(max_steps=3)), Status.MAX_STEPS),
    ],
    ids=["never", "undefined", "wall", "too many"],
)
def test_a_loop_gives_up_in_time(kind, rule, options, status):
    def make(on_failure: str):
        stepper = Pretend(rule)
        return stepper, kind(problem(stepper, t0=1.0, t1=2.0, on_failure=on_failure, **options))

    stepper, loop = make("status")
    run(loop)
    if status is Status.STEP_UNDERFLOW and kind is SampleSteps and not torch.isfinite(rule(torch.zeros(1), torch.ones(1))).all():
        status = Status.NON_FINITE  # nothing but the error tells here: the pretended state stays finite
    assert loop.status == (status,)
    assert len(stepper.tried) < 200
    with pytest.raises(SolverError) as caught:
        run(make("raise")[1])
    assert caught.value.status is status


@pytest.mark.parametrize("kind", [BatchSteps, SampleSteps])
def test_an_undefined_trial_at_time_zero_is_not_halved_for_ever(kind):
    """Around t = 0 floating point could go on to 1e-324."""
    stepper = Pretend(constant(nan))
    run(kind(problem(stepper, on_failure="status")))
    assert len(stepper.tried) < 30


@pytest.mark.parametrize("kind", [BatchSteps, SampleSteps])
def test_an_undefined_rate_of_change_ends_the_solve_at_once(kind):
    stepper = Pretend(constant(nan))
    posed = problem(stepper, batch=3, on_failure="status")
    posed.rate = Rate(lambda t, y: torch.where(torch.arange(len(y))[:, None] == 1, nan, y), posed.y0, True)
    loop = kind(posed)
    run(loop)
    assert len(stepper.tried[0][0]) == 3
    assert loop.status[1] is Status.NON_FINITE
    if kind is BatchSteps:
        assert len(stepper.tried) == 1
    else:
        assert len(stepper.tried[1][0]) == 2  # the others go on without it


# --- steps per sample -------------------------------------------------------------------------------------------------


def test_each_sample_follows_its_own_errors():
    """The limits of the steps of three samples differ tenfold; each arrives alone, and leaves."""
    limits = torch.tensor([1.0, 0.1, 0.01], dtype=F64)
    seen: list[int] = []

    def rule(t: Tensor, h: Tensor) -> Tensor:
        seen.append(len(h))
        return h / limits[-len(h) :]  # the faster ones leave first

    loop = SampleSteps(problem(Pretend(rule), batch=3, control=dict(accept_factor_min=0.2)))
    run(loop)
    assert loop.status == (Status.SUCCESS,) * 3
    assert torch.allclose(loop.y[0], torch.ones(3, 1, dtype=F64))
    assert seen == sorted(seen, reverse=True)
    accepted = loop.stats.accepted.tolist()
    assert accepted[0] < accepted[1] < accepted[2]
    assert 100 <= accepted[2] < 300


def test_a_yielded_step_names_the_rows_it_moved():
    rule = lambda t, h: torch.where(torch.arange(len(h)) == 1, h / 0.05, h / 10)  # noqa: E731
    loop = SampleSteps(problem(Pretend(rule), batch=2))
    first = next(iter(loop))
    assert first.rows.tolist() == [0]  # sample 1 was rejected at 0.1
    assert len(first.y0[0]) == len(first.y1[0]) == 1
