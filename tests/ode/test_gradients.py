"""Gradients: exact where they are said to be exact, converging where they are not, and refused where they would be wrong."""

from typing import Any

import pytest
import torch
from fields import MapField, PairField, VectorField
from solves import gradients, loss_of, rand, relative
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from continua import ConfigError
from continua.ode import METHODS, Adjoint, Checkpoint, Event, StepControl, broadcast_time, solve
from continua.ode.gradients.reversible import COUPLING

EXPLICIT = [name for name, tableau in METHODS.items() if tableau.explicit]
F64 = torch.float64


def as_function(field: nn.Module, t0, t1, of=lambda solution: solution.y1, **options):
    """(y0, *parameters) -> y1, or what else is taken `of` a solution, as gradcheck wants it, and the parameters."""
    names = [name for name, _ in field.named_parameters()]

    def end(y0: Tensor, *params: Tensor):
        def f(t: Tensor, y: Tensor) -> Tensor:
            return functional_call(field, dict(zip(names, params, strict=True)), (t, y))

        return of(solve(f, y0, t0, t1, params=params, **options))

    return end, tuple(p.detach().clone().requires_grad_() for p in field.parameters())


# --- exact on given steps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "reversible"])
@pytest.mark.parametrize("method", ["euler", "rk4", "dopri5"])
def test_gradcheck_on_fixed_steps(gradient, method):
    end, params = as_function(VectorField(2, 3), 0.2, 1.0, method=method, steps=3, gradient=gradient)
    assert gradcheck(end, (rand(2, 2).requires_grad_(), *params))


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "reversible"])
def test_gradcheck_on_steps_of_given_lengths(gradient):
    end, params = as_function(VectorField(2, 3), 0.2, 1.0, method="bosh3", steps=[1, 2, 5], gradient=gradient)
    assert gradcheck(end, (rand(2, 2).requires_grad_(), *params))


def test_steps_of_given_lengths_are_single_steps_one_after_the_other():
    field, y = VectorField(2, 3), rand(2, 2)
    whole = solve(field, y, 0.2, 1.0, method="rk4", steps=[1, 2, 5], save_at=[0.5]).y1
    for start, end in ((0.2, 0.3), (0.3, 0.5), (0.5, 1.0)):
        y = solve(field, y, start, end, method="rk4", steps=1).y1
    torch.testing.assert_close(whole, y, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_samples_with_intervals_of_their_own_take_the_same_shares_of_them(control):
    field, y, ends = VectorField(2, 3), rand(2, 2), torch.tensor([1.0, 3.0], dtype=F64)
    both = solve(field, y, 0.0, ends, method="rk4", steps=[1, 3], control=control)
    alone = [solve(field, y[i : i + 1], 0.0, float(ends[i]), method="rk4", steps=[1, 3]).y1 for i in range(2)]
    torch.testing.assert_close(both.y1, torch.cat(alone))
    if control == "sample":
        torch.testing.assert_close(both.stats.last_step, ends * 3 / 4)


def test_an_event_counts_the_steps_of_given_lengths_that_were_begun():
    stop = Event(lambda t, y: y[:, 0] - 0.5, terminal=True)
    end = solve(lambda t, y: torch.ones_like(y), torch.zeros(1, 1, dtype=F64), 0.0, 1.0, method="rk4", steps=[1, 2, 5], event=stop)
    assert end.stats.accepted == 3
    assert float(end.y1) == pytest.approx(0.5)


def test_the_adjoint_goes_back_in_equal_steps_and_says_so():
    field, y0 = VectorField(2, 3), rand(2, 2)
    options: dict[str, Any] = dict(method="rk4", steps=[1, 2, 5])
    with pytest.raises(ConfigError, match=r"adjoint.*equal steps.*Adjoint\(steps=3\)"):
        solve(field, y0, 0.2, 1.0, gradient="adjoint", **options)
    torch.testing.assert_close(
        solve(field, y0, 0.2, 1.0, gradient=Adjoint(steps=3), **options).y1, solve(field, y0, 0.2, 1.0, **options).y1
    )
    with pytest.raises(ConfigError, match=r"leapfrog.*equal steps"):
        solve(field, y0, 0.2, 1.0, method="midpoint", steps=[1, 2], gradient="leapfrog")


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_gradcheck_of_saved_states_on_fixed_steps(gradient):
    field = VectorField(2, 3).requires_grad_(False)
    times = [0.2, 0.35, 0.6, 0.61, 1.0]
    assert gradcheck(lambda y0: solve(field, y0, 0.2, 1.0, steps=3, save_at=times, gradient=gradient).ys, rand(2, 2).requires_grad_())


def replay(f, y0: Tensor, t0: float, sizes: list[float]) -> Tensor:
    """dopri5 over given steps, written out with autograd through every sum."""
    tableau, y, t = METHODS["dopri5"], y0, t0
    for h in sizes:
        stages: list[Tensor] = []
        for row, c in zip(tableau.a, tableau.c, strict=True):
            point = y + h * sum((a * k for a, k in zip(row, stages, strict=False)), torch.zeros_like(y))
            stages.append(f(torch.tensor(t + c * h, dtype=F64), point))
        y = y + h * sum(b * k for b, k in zip(tableau.b, stages, strict=True))
        t += h
    return y


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_an_adaptive_gradient_is_that_of_its_accepted_steps_replayed(gradient):
    field, y0 = VectorField(), 3 * rand(4, 3)
    options = dict(rtol=1e-7, atol=1e-7, record_steps=True, gradient=gradient, control=StepControl(first_step=1.0))
    start = y0.clone().requires_grad_()
    solution = solve(field, start, 0.0, 2.0, **options)
    log = solution.stats.steps
    sizes = log.h[log.accepted].tolist()
    assert solution.stats.rejected > 0  # else the claim says little
    assert gradcheck(lambda y: replay(field, y, 0.0, sizes), start)
    ours = torch.autograd.grad(solution.y1.sin().sum(), (start, *field.parameters()))
    theirs = torch.autograd.grad(replay(field, start, 0.0, sizes).sin().sum(), (start, *field.parameters()))
    assert relative(ours, theirs) < 1e-10


# --- checkpoint equals direct -----------------------------------------------------------------------------------------

TIMES = [0.0, 0.1, 0.1, 0.7, 1.1, 1.5]
ENDS = torch.tensor([1.5, 0.2, 0.9, 0.0, 1.2], dtype=F64)
CASES = {
    "plain": {},
    "every method": dict(method="tsit5"),
    "no FSAL": dict(method="fehlberg45", rtol=1e-5, atol=1e-5),
    "eighth order": dict(method="dopri8"),
    "saved": dict(save_at=TIMES),
    "saved, eighth order": dict(method="dopri8", save_at=TIMES),
    "saved, pi": dict(save_at=TIMES, control=StepControl(kind="pi")),
    "per sample": dict(control="sample"),
    "per sample, no FSAL": dict(control="sample", method="fehlberg45", rtol=1e-5, atol=1e-5),
    "per sample, saved": dict(control="sample", save_at=TIMES),
    "fixed": dict(method="rk4", steps=7, save_at=TIMES),
    "fixed, per sample": dict(method="bosh3", steps=7, control="sample", save_at=TIMES),
}


@pytest.mark.parametrize("segments", [None, 1, 2, 3, "sqrt"])
@pytest.mark.parametrize("case", CASES)
def test_checkpoint_equals_direct(case, segments):
    field, y0 = VectorField(), 3 * rand(5, 3)
    options = {**dict(rtol=1e-6, atol=1e-6), **CASES[case]}
    exact = gradients(field, y0, 0.0, 1.5, gradient="direct", **options)
    assert relative(gradients(field, y0, 0.0, 1.5, gradient=Checkpoint(segments), **options), exact) < 1e-10


@pytest.mark.parametrize("segments", [None, 2, "sqrt"])
@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize("start", [0.0, 0.3])
@pytest.mark.parametrize("steps", [None, 5])
def test_checkpoint_equals_direct_with_an_end_time_per_sample(control, segments, start, steps):
    """Some samples go forwards, some backwards, one (when start is 0) not at all."""
    field, y0 = VectorField(), rand(5, 3)
    times = torch.stack([ENDS * 0 + start, start + (ENDS - start) * 0.3, start + (ENDS - start) * 0.9, ENDS])
    options = dict(rtol=1e-6, atol=1e-6, control=control, save_at=times, steps=steps)
    exact = gradients(field, y0, start, ENDS, gradient="direct", **options)
    assert relative(gradients(field, y0, start, ENDS, gradient=Checkpoint(segments), **options), exact) < 1e-10


@pytest.mark.parametrize("options", [{}, dict(gradient=Checkpoint("sqrt"), save_at=[1.0, 0.4]), dict(control="sample", save_at=[0.4, 0.0])])
def test_checkpoint_equals_direct_for_coupled_states(options):
    field, y0 = PairField(), (rand(4, 3, 2, 2), rand(4, 3))
    direct = {**options, "gradient": "direct"}
    found, exact = (gradients(field, y0, 1.0, 0.0, rtol=1e-6, atol=1e-6, **chosen) for chosen in (options, direct))
    assert relative(found, exact) < 1e-10


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_checkpoint_equals_direct_for_a_convolutional_field_backward_in_time(control):
    field, y0 = MapField(), rand(3, 4, 8, 8)
    found, exact = (gradients(field, y0, 1.0, -0.5, rtol=1e-5, atol=1e-5, control=control, gradient=g) for g in ("checkpoint", "direct"))
    assert relative(found, exact) < 1e-10


@pytest.mark.parametrize("gradient", ["direct", "checkpoint"])
def test_a_loss_on_saved_states_alone_reaches_everything(gradient):
    field, y0 = VectorField(), rand(4, 3).requires_grad_()
    both = []
    for control in ("batch", "sample"):
        solution = solve(field, y0, 0.0, 1.0, save_at=[0.3, 0.8], gradient=gradient, control=control, rtol=1e-9, atol=1e-9)
        both.append(torch.autograd.grad(solution.ys.sin().sum(), (y0, *field.parameters())))
    assert relative(*both) < 1e-6


def test_rejected_steps_leave_no_graph():
    """The direct gradient of an adaptive solve holds as many evaluations of f as accepted steps need."""
    counted = {"forward": 0, "backward": 0}

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            counted["forward"] += 1
            return y.clone()

        @staticmethod
        def backward(ctx, g):
            counted["backward"] += 1
            return g

    y0 = (3 * rand(4, 2)).requires_grad_()
    f = lambda t, y: Counted.apply(torch.stack([y[:, 1], -torch.sin(9 * y[:, 0])], 1))  # noqa: E731
    solution = solve(f, y0, 0.0, 2.0, rtol=1e-6, atol=1e-6, gradient="direct", control=StepControl(first_step=1.0))
    solution.y1.sum().backward()
    assert solution.stats.rejected > 3
    assert counted["forward"] == solution.stats.nfe == 1 + 6 * (solution.stats.accepted + solution.stats.rejected)
    assert counted["backward"] == 6 * solution.stats.accepted


# --- what is kept in memory -------------------------------------------------------------------------------------------


def states_kept(y0: Tensor, **options) -> int:
    """How many tensors of the size of the state a solve keeps for its backward pass."""
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.data_ptr()) if x.shape == y0.shape else None, lambda x: x):
        solve(lambda t, y: torch.sin(y), y0.requires_grad_(), 0.0, 1.0, method="rk4", **options)
    return len(kept)


def test_memory_follows_the_table_of_gradients():
    for steps in (4, 16, 64):
        assert states_kept(rand(5, 7), steps=steps) == steps
        assert states_kept(rand(5, 7), steps=steps, gradient=Checkpoint(1)) == 1
        assert states_kept(rand(5, 7), steps=steps, gradient=Checkpoint(3)) <= 3
        assert states_kept(rand(5, 7), steps=steps, gradient=Checkpoint("sqrt")) <= 2 * steps**0.5
        assert states_kept(rand(5, 7), steps=steps, gradient="reversible") == 2
        assert states_kept(rand(5, 7), steps=steps, gradient="adjoint") == 1
        assert states_kept(rand(5, 7), steps=steps, gradient="direct") >= 4 * steps


# --- reversible -------------------------------------------------------------------------------------------------------


def increment(f, tableau, t: float, h: float, y: Tensor) -> Tensor:
    """Ψ_h(t, y): what one step of an explicit method adds."""
    stages: list[Tensor] = []
    for row, c in zip(tableau.a, tableau.c, strict=True):
        point = y + h * sum((a * k for a, k in zip(row, stages, strict=False)), torch.zeros_like(y))
        stages.append(f(torch.tensor(t + c * h, dtype=y.dtype), point))
    return h * sum(b * k for b, k in zip(tableau.b, stages, strict=True))


def two_state_scheme(f, method: str, y0: Tensor, t0: float, t1: float, steps: int) -> list[tuple[Tensor, Tensor]]:
    """McCallum & Foster (2024), written down from its two equations."""
    tableau, h = METHODS[method], (t1 - t0) / steps
    y, z, states = y0, y0, [(y0, y0)]
    for n in range(steps):
        t = t0 + n * h
        y = COUPLING * y + (1 - COUPLING) * z + increment(f, tableau, t, h, z)
        z = z - increment(f, tableau, t + h, -h, y)
        states.append((y, z))
    return states


@pytest.mark.parametrize("method", EXPLICIT)
def test_reversible_equals_the_direct_gradient_of_its_own_scheme(method):
    field, y0 = VectorField(), rand(4, 3).requires_grad_()
    expected = two_state_scheme(field, method, y0, 0.3, 1.5, 6)[-1][0]
    solution = solve(field, y0, 0.3, 1.5, method=method, steps=6, gradient="reversible")
    assert torch.allclose(solution.y1, expected, rtol=1e-12, atol=1e-13)
    inputs = (y0, *field.parameters())
    assert relative(torch.autograd.grad(solution.y1.sin().sum(), inputs), torch.autograd.grad(expected.sin().sum(), inputs)) < 1e-10


def test_reversible_converges_to_the_solution_with_the_order_of_its_base_method():
    field, y0 = VectorField().requires_grad_(False), rand(4, 3)
    exact = solve(field, y0, 0.0, 1.0, rtol=1e-12, atol=1e-12).y1
    errors = [float((solve(field, y0, 0.0, 1.0, method="rk4", steps=n, gradient="reversible").y1 - exact).norm()) for n in (10, 40)]
    assert errors[1] < errors[0] / 4**3.7


@pytest.mark.parametrize(("precision", "bound"), [(torch.float64, 1e-14), (torch.float32, 5e-6)])
def test_reversible_rebuilds_its_states_over_64_steps(precision, bound):
    """The largest drift of any of the 128 states y and z, relative: 2.4e-16 in float64 and 1.3e-7 in float32 when measured."""
    field, y0 = MapField(dtype=precision), torch.randn(4, 4, 8, 8, dtype=precision)
    seen: list[Tensor] = []
    field.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[1].detach().clone()))
    solution = solve(field, y0.requires_grad_(), 0.0, 2.0, method="rk4", steps=64, gradient="reversible")
    # Four stages from z_n, then four back from y_(n+1); backward asks for the same two states, last step first.
    forward, _ = [(seen[8 * n], seen[8 * n + 4]) for n in range(64)], seen.clear()
    solution.y1.sum().backward()
    backward = [(seen[8 * n + 4], seen[8 * n]) for n in reversed(range(64))]
    pairs = [pair for states in zip(forward, backward, strict=True) for pair in zip(*states, strict=True)]
    drift = max(float((rebuilt - state).norm() / state.norm()) for state, rebuilt in pairs)
    assert 0 < drift < bound


def test_reversible_runs_adaptively_and_close_to_direct():
    field, y0 = VectorField(), 3 * rand(4, 3)
    options = dict(rtol=1e-8, atol=1e-8)
    assert relative(*(gradients(field, y0, 0.0, 1.5, gradient=g, **options) for g in ("reversible", "direct"))) < 1e-6


# --- adjoint ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, dict(save_at=[0.0, 0.4, 1.5]), dict(gradient=Adjoint(norm="full"))])
def test_the_adjoint_converges_to_the_exact_gradient(options):
    field, y0 = VectorField(), 2 * rand(4, 3)
    plain = {key: value for key, value in options.items() if key != "gradient"}
    exact = gradients(field, y0, 0.0, 1.5, rtol=1e-11, atol=1e-11, **plain)
    distances = [
        relative(gradients(field, y0, 0.0, 1.5, rtol=t, atol=t, **{"gradient": "adjoint", **options}), exact) for t in (1e-3, 1e-6, 1e-9)
    ]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-7


def test_the_adjoint_takes_options_of_its_own():
    field, y0 = VectorField(), rand(4, 3).requires_grad_()
    counts = []
    for gradient in (Adjoint(), Adjoint(rtol=1e-9, atol=1e-9), Adjoint(method="rk4", steps=20)):
        solution = solve(field, y0, 0.0, 1.0, gradient=gradient)
        solution.y1.sum().backward()
        counts.append(solution.stats.nfe_backward)
    assert counts[0] < counts[1]
    assert counts[2] == 80
    with pytest.raises(ConfigError, match="norm"):
        solve(field, y0, 0.0, 1.0, gradient=dict(kind="adjoint", norm="max"))
    with pytest.raises(ConfigError, match="known"):
        solve(field, y0, 0.0, 1.0, gradient=dict(kind="adjoint", tolerance=1))


# --- t0 and t1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "reversible", "adjoint"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_end_times_have_gradients(gradient, per_sample):
    field, y0 = VectorField(), rand(3, 3)
    t0 = torch.tensor([0.1, 0.0, 0.2] if per_sample else 0.1, dtype=F64)
    t1 = torch.tensor([0.7, 1.3, -0.4] if per_sample else 1.3, dtype=F64)
    # A method far more accurate than the finite differences it is compared with.
    options = dict(method="dopri8", steps=24, gradient=gradient)

    def loss(t0: Tensor, t1: Tensor) -> Tensor:
        return loss_of(solve(field, y0, t0, t1, **options))

    start, end = t0.clone().requires_grad_(), t1.clone().requires_grad_()
    found = torch.autograd.grad(loss(start, end), (start, end))
    step = 1e-4
    for which, gradient_found in enumerate(found):
        assert gradient_found.shape == t0.shape
        for i in range(t0.numel()):
            shift = torch.zeros(t0.numel(), dtype=F64)
            shift[i] = step
            shift = shift.reshape(t0.shape)
            with torch.no_grad():
                pairs = [(t0 + s * shift, t1) if which == 0 else (t0, t1 + s * shift) for s in (1, -1)]
                difference = (loss(*pairs[0]) - loss(*pairs[1])) / (2 * step)
            assert float(gradient_found.reshape(-1)[i]) == pytest.approx(float(difference), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_dy1_dt1_is_the_field_at_the_end(control):
    field, y0 = VectorField().requires_grad_(False), rand(3, 3)
    t1 = torch.tensor([0.7, 1.3, 0.0], dtype=F64, requires_grad=True)
    y1 = solve(field, y0, 0.0, t1, control=control).y1
    (found,) = torch.autograd.grad(y1.sum(), t1)
    assert torch.allclose(found, field(t1, y1).sum(1), rtol=1e-12)


@pytest.mark.parametrize("end", [torch.zeros((), dtype=F64), torch.zeros(3, dtype=F64)])
def test_an_interval_of_no_length_has_gradients_too(end):
    field, y0 = VectorField(), rand(3, 3).requires_grad_()
    end = end.clone().requires_grad_()
    y1 = solve(field, y0, 0.0, end).y1
    of_y0, of_end = torch.autograd.grad(y1.sum(), (y0, end))
    assert torch.equal(of_y0, torch.ones_like(y0))
    assert torch.allclose(of_end.sum(), field(end, y0).sum())


# --- higher order, closures, refusals ---------------------------------------------------------------------------------


def test_direct_can_be_differentiated_twice():
    end, params = as_function(VectorField(2, 3), 0.0, 0.8, method="rk4", steps=2, gradient="direct")
    assert gradgradcheck(end, (rand(2, 2).requires_grad_(), *params))


@pytest.mark.parametrize("gradient", ["checkpoint", "reversible", "adjoint"])
@pytest.mark.parametrize("grown", [False, True])
def test_a_closure_gets_gradients_for_the_tensors_it_names(gradient, grown):
    """Leaves, or tensors computed from leaves outside the solve."""
    rates, y0 = rand(3).requires_grad_(), rand(2, 3)
    used = rates.exp() if grown else rates
    y1 = solve(lambda t, y: -used * y, y0, 0.0, 1.0, rtol=1e-10, atol=1e-10, gradient=gradient, params=[used]).y1
    (found,) = torch.autograd.grad(y1.sum(), rates)
    slope = rates.exp() if grown else torch.ones(3, dtype=F64)
    exact = -(y0 * torch.exp(-used)).sum(0) * slope
    assert torch.allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("gradient", ["checkpoint", "reversible", "adjoint"])
def test_hidden_tensors_are_refused_and_direct_finds_them(gradient):
    rates, y0 = rand(3).requires_grad_(), rand(2, 3).requires_grad_()
    f = lambda t, y: -rates * y  # noqa: E731
    with pytest.raises(ConfigError, match=r"1 tensor.*shapes \(3,\).*params="):
        solve(f, y0, 0.0, 1.0, gradient=gradient)
    solve(f, y0, 0.0, 1.0, gradient="direct").y1.sum().backward()
    assert rates.grad is not None
    with torch.no_grad():
        assert torch.isfinite(solve(f, y0, 0.0, 1.0, gradient=gradient).y1).all()


@pytest.mark.parametrize("gradient", ["checkpoint", "reversible", "adjoint"])
def test_dropout_inside_the_field_is_refused(gradient):
    field = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    y0 = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(ConfigError, match="random numbers"):
        solve(lambda t, y: field(y), y0, 0.0, 1.0, gradient=gradient, params=list(field.parameters()))
    field.eval()
    assert torch.isfinite(solve(lambda t, y: field(y), y0, 0.0, 1.0, gradient=gradient, params=list(field.parameters())).y1).all()


def test_a_frozen_module_still_passes_gradients_to_its_input():
    field, y0 = VectorField().requires_grad_(False), rand(2, 3).requires_grad_()
    found, exact = (torch.autograd.grad(solve(field, y0, 0.0, 1.0, steps=4, gradient=g).y1.sum(), y0)[0] for g in ("checkpoint", "direct"))
    assert torch.allclose(found, exact, rtol=1e-12)


def test_parameters_learn_when_the_input_needs_no_gradient():
    field, y0 = VectorField(), rand(2, 3)
    solve(field, y0, 0.0, 1.0).y1.sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in field.parameters())


def test_a_bound_method_finds_the_parameters_of_its_module():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(0.5, dtype=F64))

        def flow(self, t: Tensor, y: Tensor) -> Tensor:
            return -self.rate * y * broadcast_time(t, y)

    model = Model()
    solve(model.flow, rand(2, 3), 0.0, 1.0).y1.sum().backward()
    assert model.rate.grad is not None


def test_an_unused_parameter_gets_no_gradient_and_stops_nothing():
    field = VectorField()
    field.spare = nn.Parameter(rand(3))
    solve(field, rand(2, 3), 0.0, 1.0).y1.sum().backward()
    assert field.spare.grad is None
    assert field.in_time.grad is not None


def test_reversible_keeps_no_steps_for_an_interpolant():
    with pytest.raises(ConfigError, match="reversible"):
        solve(VectorField(), rand(2, 3), 0.0, 1.0, gradient="reversible", dense=True)


# Steps that no error chooses, so that finite differences see the same ones; rows that leave at different times.
BY_ITSELF = dict(control=StepControl("sample", first_step=0.3, max_step=0.3), rtol=1e3, atol=1e3)


@pytest.mark.parametrize(
    "options",
    [
        dict(t1=1.3, steps=3, method="rk4"),
        dict(t1=1.3, steps=3),
        dict(t1=1.3, **BY_ITSELF),
        dict(t1=torch.tensor([1.3, 0.7], dtype=F64), save_at=torch.tensor([[0.0, 0.4, 1.3], [0.1, 0.6, 0.7]], dtype=F64).T, **BY_ITSELF),
        dict(t1=torch.tensor([1.3, 0.7], dtype=F64), steps=3, save_at=torch.tensor([[0.0, 0.4, 1.3], [0.1, 0.6, 0.7]], dtype=F64).T),
    ],
    ids=["rk4", "dopri5", "per sample", "per sample, ends apart", "batch, ends apart"],
)
def test_reversible_passes_gradcheck_at_asked_times(options):
    field, y0 = VectorField(2, 3), rand(2, 2).requires_grad_()
    options = dict(save_at=torch.tensor([0.0, 0.4, 0.5, 1.3], dtype=F64)) | options
    both = dict(gradient="reversible", of=lambda solution: (solution.y1, solution.ys))
    end, params = as_function(field, 0.0, options.pop("t1"), **both, **options)
    assert gradcheck(end, (y0, *params))


def test_reversible_solves_a_sample_as_if_it_were_alone():
    field, y0 = VectorField(), rand(3, 3) * torch.tensor([[1.0], [5.0], [20.0]], dtype=F64)
    options = dict(control="sample", gradient="reversible", rtol=1e-7, atol=1e-7, save_at=[0.3, 4.0])
    together = solve(field, y0, 0.0, 4.0, **options)
    assert len(set(together.stats.accepted.tolist())) > 1
    for row in range(3):
        alone = solve(field, y0[row : row + 1], 0.0, 4.0, **options)
        assert torch.allclose(alone.ys, together.ys[:, row : row + 1], rtol=1e-12)
        assert (alone.stats.nfe, alone.stats.accepted) == (together.stats.nfe[row], together.stats.accepted[row])
    exact = gradients(field, y0, 0.0, 4.0, **{**options, "gradient": "checkpoint"})
    assert relative(gradients(field, y0, 0.0, 4.0, **options), exact) < 1e-4


def test_reversible_gives_saved_states_where_no_gradient_is_asked():
    field, y0, times = VectorField().requires_grad_(False), rand(2, 3), [0.0, 0.4, 1.0]
    for options in ({}, dict(t1=torch.tensor([1.0, 0.4], dtype=F64), save_at=[0.0, 0.2, 0.4])):
        chosen = {**dict(t1=1.0, save_at=times), **options}
        close = dict(rtol=1e-9, atol=1e-9)
        found, expected = (solve(field, y0, 0.0, gradient=g, **chosen, **close) for g in ("reversible", "checkpoint"))
        assert torch.allclose(found.ys, expected.ys, atol=1e-7)


# --- the cost of backward ---------------------------------------------------------------------------------------------


def test_backward_evaluations_are_counted():
    field, y0 = VectorField(), rand(4, 3)

    def backward(**options):
        solution = solve(field, y0, 0.0, 1.0, **options)
        solution.y1.sum().backward()
        return solution.stats

    assert backward(steps=10).nfe_backward == 60  # six stages of dopri5 reach y1
    assert backward(steps=10, gradient=Checkpoint(2)).nfe_backward == 60 + 2 * 4 * 6  # and all but the last step of each segment once more
    assert backward(method="rk4", steps=10, gradient="reversible").nfe_backward == 80
    assert backward(steps=10, gradient="direct").nfe_backward == 0  # autograd evaluates nothing again
    adaptive = backward(rtol=1e-6, atol=1e-6)
    assert adaptive.nfe_backward == 6 * adaptive.accepted
    each = backward(control="sample", rtol=1e-6, atol=1e-6)
    assert torch.equal(each.nfe_backward, 6 * each.accepted)


def test_the_end_time_has_the_right_second_derivatives_under_direct():
    t1, w = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, 1.3))
    y0 = torch.tensor([[0.5]], dtype=torch.float64)

    def f(t, y):
        return w * torch.sin(y) + t**2

    # Fixed steps are functions of t1: those of a method whose error is nothing against what is compared.
    y1 = solve(f, y0, 0.0, t1, method="dopri8", steps=8, gradient="direct", params=[w]).y1.sum()
    first, of_w = torch.autograd.grad(y1, (t1, w), create_graph=True)
    again, mixed = torch.autograd.grad(first, (t1, w))
    # dy1/dt1 = f, d²y1/dt1² = ∂f/∂t + ∂f/∂y f, d²y1/dt1 dw = ∂f/∂w + ∂f/∂y dy1/dw
    slope = w * torch.cos(y1)
    torch.testing.assert_close(first, w * torch.sin(y1) + t1**2)
    torch.testing.assert_close(again, 2 * t1 + slope * first)
    torch.testing.assert_close(mixed, torch.sin(y1) + slope * of_w)
