"""Steps per sample: nobody sees their neighbours, those who have arrived cost nothing more."""

import pytest
import torch
from fields import MapField, Recorder, VectorField
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from continua import ConfigError
from continua.ode import broadcast_time, solve

F64 = torch.float64


def swing(t: Tensor, y: Tensor) -> Tensor:
    """Pendulums (angle, speed, frequency): each sample brings its own stiffness along. Elementwise, so rows cannot mix."""
    angle, speed, frequency = y.unbind(1)
    return torch.stack([speed, -(frequency**2) * torch.sin(angle) * (1 + 0.2 * torch.sin(t)), torch.zeros_like(speed)], 1)


def pendulums(batch: int, spread: float = 1.2) -> Tensor:
    return torch.cat([torch.randn(batch, 2), torch.logspace(0, spread, batch)[torch.randperm(batch), None]], 1).double()


# --- independence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "fehlberg45", "bosh3"])
@pytest.mark.parametrize("kind", ["i", "pi"])
def test_a_sample_alone_and_among_64_others_is_the_same_to_the_bit(method, kind):
    y0 = pendulums(65)
    options = dict(method=method, control=dict(per="sample", kind=kind), rtol=1e-4, atol=1e-4, save_at=[0.5, 1.9])
    together = solve(swing, y0, 0.0, 2.0, **options)
    assert len(together.stats.accepted.unique()) > 5
    for row in (0, 17, 64):
        alone = solve(swing, y0[row : row + 1], 0.0, 2.0, **options)
        assert torch.equal(alone.y1[0], together.y1[row])
        assert torch.equal(alone.ys[:, 0], together.ys[:, row])
        for count in ("nfe", "accepted", "rejected", "first_step", "last_step"):
            assert torch.equal(getattr(alone.stats, count)[0], getattr(together.stats, count)[row]), count


def test_a_map_alone_and_among_64_others_is_the_same_to_rounding():
    """Convolutions may sum in another order for another batch size: same steps, results to rounding."""
    field, y0 = MapField().requires_grad_(False), torch.randn(65, 4, 8, 8, dtype=F64) * torch.logspace(-1, 1, 65)[:, None, None, None]
    options = dict(control="sample", rtol=1e-5, atol=1e-5)
    together = solve(field, y0, 0.0, 1.0, **options)
    assert len(together.stats.accepted.unique()) > 1
    for row in (0, 30, 64):
        alone = solve(field, y0[row : row + 1], 0.0, 1.0, **options)
        assert torch.allclose(alone.y1[0], together.y1[row], rtol=1e-11, atol=1e-11)
        assert alone.stats.accepted[0] == together.stats.accepted[row]
        assert alone.stats.rejected[0] == together.stats.rejected[row]


def test_gradients_of_a_sample_do_not_depend_on_its_neighbours():
    y0 = pendulums(8)

    def gradient(rows: Tensor) -> Tensor:
        rows = rows.clone().requires_grad_()
        return torch.autograd.grad(solve(swing, rows, 0.0, 2.0, control="sample").y1.sin().sum(), rows)[0]

    assert torch.allclose(gradient(y0)[3:4], gradient(y0[3:4]), rtol=1e-12)


def test_a_batch_of_one_takes_the_same_steps_under_both_controls():
    y0 = pendulums(1)
    batch, sample = (solve(swing, y0, 0.0, 2.0, control=control, rtol=1e-6, atol=1e-6) for control in ("batch", "sample"))
    assert torch.allclose(batch.y1, sample.y1, rtol=1e-12)
    assert (batch.stats.nfe, batch.stats.accepted) == (int(sample.stats.nfe), int(sample.stats.accepted))


@settings(max_examples=25)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6), st.floats(-1, 1), st.sampled_from([1e-3, 1e-6]))
def test_any_end_times_give_each_sample_what_it_would_get_alone(ends, start, tol):
    torch.manual_seed(0)
    y0, t1 = pendulums(len(ends), 0.5), torch.tensor(ends, dtype=F64)
    together = solve(swing, y0, start, t1, control="sample", rtol=tol, atol=tol)
    row = len(ends) - 1
    alone = solve(swing, y0[row:], start, ends[row], control="sample", rtol=tol, atol=tol)
    assert torch.equal(together.y1[row], alone.y1[0])
    assert int(together.stats.nfe[row]) == int(alone.stats.nfe[0]) or ends[row] == start
    still = t1 == start
    assert torch.equal(together.y1[still], y0[still])


# --- those who have arrived leave -------------------------------------------------------------------------------------


def test_f_sees_only_the_samples_still_under_way():
    y0 = pendulums(16)
    field = Recorder(swing)
    stats = solve(field, y0, 0.0, 2.0, control="sample").stats
    tried = stats.accepted + stats.rejected
    assert torch.equal(stats.nfe, 2 + 6 * tried)
    assert sum(field.rows) == int(stats.nfe.sum())  # not one evaluation of a sample that is not counted as its own
    assert field.rows == sorted(field.rows, reverse=True)
    assert field.rows[-1] == int((tried == tried.max()).sum())
    assert all(t.shape == (rows,) for t, rows in zip(field.times, field.rows, strict=True))


def test_per_sample_control_costs_less_than_batch_control_when_stiffness_differs():
    y0 = pendulums(32, spread=1.0)
    each, shared = (solve(swing, y0, 0.0, 3.0, control=control, rtol=1e-5, atol=1e-5).stats for control in ("sample", "batch"))
    assert int(each.nfe.sum()) < 0.7 * shared.nfe * 32


def test_samples_without_way_to_go_are_not_computed():
    field = Recorder(swing)
    solution = solve(field, pendulums(3), 0.0, torch.tensor([0.0, 1.0, 0.0], dtype=F64), control="sample")
    assert solution.stats.accepted.tolist()[::2] == [0, 0]
    assert set(field.rows[2:]) == {1}


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_t1_equal_to_t0_returns_the_input_in_no_steps(control):
    y0, field = pendulums(3), Recorder(swing)
    for t1 in (0.5, torch.full((3,), 0.5)):
        solution = solve(field, y0, 0.5, t1, control=control, save_at=[0.5], dense=True)
        assert torch.equal(solution.y1, y0)
        assert torch.equal(solution.ys[0], y0)
        assert torch.equal(solution.interpolate(0.5), y0)
        assert torch.as_tensor(solution.stats.nfe).sum() == 0
    assert field.calls == 0


# --- an end time per sample -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize("options", [dict(rtol=1e-9, atol=1e-9), dict(method="rk4", steps=200)])
def test_end_times_per_sample_agree_with_separate_solves(control, options):
    field, y0 = VectorField().requires_grad_(False), torch.randn(4, 3, dtype=F64)
    t0, t1 = torch.tensor([0.0, 0.5, 0.2, 1.0], dtype=F64), torch.tensor([1.0, -0.5, 0.2, 1.7], dtype=F64)
    together = solve(field, y0, t0, t1, control=control, **options).y1
    for row in range(4):
        alone = solve(field, y0[row : row + 1], float(t0[row]), float(t1[row]), **options).y1
        assert torch.allclose(together[row], alone[0], atol=1e-7)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_saved_states_per_sample_agree_with_separate_solves(control):
    field, y0 = VectorField().requires_grad_(False), torch.randn(3, 3, dtype=F64)
    t1 = torch.tensor([1.0, -0.5, 2.0], dtype=F64)
    times = t1 * torch.tensor([[0.0], [0.25], [0.5], [1.0]], dtype=F64)
    together = solve(field, y0, 0.0, t1, control=control, save_at=times, rtol=1e-9, atol=1e-9, dense=True)
    for row in range(3):
        alone = solve(field, y0[row : row + 1], 0.0, float(t1[row]), save_at=times[:, row], rtol=1e-9, atol=1e-9)
        assert torch.allclose(together.ys[:, row], alone.ys[:, 0], atol=1e-7)
    assert torch.equal(together.ys[-1], together.y1)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_interpolate_speaks_of_time_also_when_intervals_differ(control):
    field, y0 = VectorField().requires_grad_(False), torch.randn(2, 3, dtype=F64)
    t1 = torch.tensor([1.0, 2.0], dtype=F64)
    solution = solve(field, y0, 0.0, t1, control=control, dense=True, save_at=[0.3, 0.9], rtol=1e-9, atol=1e-9)
    assert torch.allclose(solution.interpolate([0.3, 0.9]), solution.ys, atol=1e-10)
    with pytest.raises(ConfigError, match="outside"):
        solution.interpolate(1.5)  # past the end of the first sample


def test_shared_save_times_must_lie_in_every_interval():
    with pytest.raises(ConfigError, match=r"t = 0\.9, outside"):
        solve(swing, pendulums(2), 0.0, torch.tensor([1.0, 0.8]), save_at=[0.5, 0.9])


# --- what a field is given --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "t1", "shape"),
    [
        ({}, 1.0, ()),
        (dict(steps=2), 1.0, ()),
        ({}, torch.tensor([1.0, 2.0]), (2,)),
        (dict(steps=2), torch.tensor([1.0, 2.0]), (2,)),
        (dict(control=dict(per="sample", first_step=5.0), rtol=9.0), 1.0, (2,)),
        (dict(control="sample", steps=2), 1.0, (2,)),
    ],
)
def test_time_is_one_number_when_shared_and_one_per_sample_when_not(options, t1, shape):
    field = Recorder(lambda t, y: -y * broadcast_time(t, y))
    solve(field, torch.ones(2, 3, 1), 0.0, t1, **options)
    assert {tuple(t.shape) for t in field.times} == {shape}


def test_broadcast_time_reaches_over_every_dimension_but_the_batch():
    assert broadcast_time(torch.tensor(2.0), torch.ones(3, 4, 5)).shape == ()
    assert (broadcast_time(torch.arange(3.0), torch.ones(3, 4, 5)) * torch.ones(3, 4, 5))[2].eq(2).all()


def test_a_gradient_that_needs_one_clock_is_refused_per_sample():
    with pytest.raises(ConfigError, match="control='sample'"):
        solve(swing, pendulums(2), 0.0, 1.0, control="sample", gradient="adjoint")


def test_recorded_steps_name_their_sample():
    y0 = pendulums(5)
    solution = solve(swing, y0, 0.0, 2.0, control="sample", record_steps=True)
    log = solution.stats.steps
    for row in range(5):
        mine = log.sample == row
        kept = mine & log.accepted
        assert int(kept.sum()) == int(solution.stats.accepted[row])
        assert int(mine.sum()) == int(solution.stats.accepted[row] + solution.stats.rejected[row])
        assert float(log.h[kept].sum()) == pytest.approx(2.0)
        assert bool((log.error[kept] <= 1).all())
        assert bool((log.error[mine & ~log.accepted] > 1).all())
