"""The surroundings of a solve: contexts of PyTorch, number types, what a field is told, memory, compilation, export."""

import gc
import warnings
import weakref

import pytest
import torch
from fields import MapField, Recorder, VectorField
from torch import Tensor, nn

from continua import ContinuaWarning
from continua.ode import Checkpoint, SolverConfig, Stats, StepControl, broadcast_time, solve, solve_with, solving

F64 = torch.float64
GRADIENTS = ["direct", "checkpoint", "reversible", "adjoint"]


# --- what a field is told ---------------------------------------------------------------------------------------------


class PerStep(nn.Module):
    """A field with weights per step, as BatchNorm per step has, that notes under which step each evaluation came."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.linspace(-1, 1, steps, dtype=F64))
        self.told: tuple[int, bool] | None = None
        self.seen: list[tuple[int, bool]] = []

    def on_step(self, index: int, recomputing: bool) -> None:
        self.told = (index, recomputing)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        assert self.told is not None, "f was evaluated before it was told the step"
        self.seen.append(self.told)
        return self.rates[self.told[0]] * y


@pytest.mark.parametrize("gradient", ["direct", "checkpoint", "reversible"])
def test_a_field_is_told_its_step_and_whether_it_repeats(gradient):
    """Each new evaluation comes once with recomputing=False: statistics are updated once, also in a second solve."""
    field, y0 = PerStep(4), torch.ones(2, 1, dtype=F64)
    for _ in range(2):
        field.seen.clear()
        solution = solve(field, y0, 0.0, 1.0, method="euler", steps=4, gradient=gradient)
        each = 2 if gradient == "reversible" else 1
        assert field.seen == [(index, False) for index in range(4) for _ in range(each)]
        field.seen.clear()
        solution.y1.sum().backward()
        assert field.seen == ([] if gradient == "direct" else [(index, True) for index in reversed(range(4)) for _ in range(each)])


@pytest.mark.parametrize("options", [{}, dict(gradient=Checkpoint(1)), dict(gradient=Checkpoint("sqrt"))])
def test_gradients_are_right_when_the_field_changes_from_step_to_step(options):
    field, y0 = PerStep(6), torch.ones(2, 1, dtype=F64)
    found = []
    for chosen in (options, dict(gradient="direct")):
        y1 = solve(field, y0, 0.0, 1.0, method="rk4", steps=6, **chosen).y1
        found.append(torch.autograd.grad(y1.sum(), field.rates)[0])
    assert torch.allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_adaptive_solves_tell_the_step_too(control):
    field, y0 = PerStep(50), torch.ones(2, 1, dtype=F64)
    nn.init.constant_(field.rates, -1.0)
    solve(field, y0, 0.0, 1.0, control=control, rtol=1e-8, atol=1e-8).y1.sum().backward()
    told = [index for index, again in field.seen if not again]
    assert told == sorted(told)
    assert told[0] == 0
    assert {again for _, again in field.seen} == {False, True}


def test_on_step_reaches_a_field_whose_samples_have_their_own_interval():
    field = PerStep(2)
    solve(field, torch.ones(2, 1, dtype=F64), 0.0, torch.tensor([1.0, 2.0]), method="euler", steps=2)
    assert field.seen == [(0, False), (1, False)]


# --- contexts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_graph_is_made_where_none_is_wanted(context, gradient):
    field, y0 = VectorField(), torch.randn(2, 3, dtype=F64, requires_grad=True)
    with context():
        plain = solve(field, y0, 0.0, 1.0, gradient=gradient)
    assert not plain.y1.requires_grad
    assert torch.allclose(plain.y1, solve(field, y0, 0.0, 1.0, gradient=gradient).y1.detach(), rtol=1e-12)


def test_states_per_sample_and_saved_states_work_in_inference_mode():
    field, y0 = VectorField(), torch.randn(4, 3, dtype=F64)
    with torch.inference_mode():
        solution = solve(field, y0, 0.0, torch.tensor([1.0, 0.5, 0.1, 2.0]), control="sample", save_at=[0.0, 0.05], dense=True)
        assert torch.isfinite(solution.interpolate(0.1)).all()


@pytest.mark.needs("bfloat16")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_autocast_of_the_forward_pass_rules_the_backward_pass(gradient):
    """Whatever surrounds backward(): the field computes in bfloat16 both ways, or in neither."""
    seen: list[torch.dtype] = []

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            out = self.linear(y)
            seen.append(out.dtype)
            return out

    field, y0 = Field(), torch.randn(4, 3)
    for enabled, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        seen.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            solution = solve(field, y0, 0.0, 1.0, method="rk4", steps=2, gradient=gradient)
        assert solution.y1.dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not enabled):
            solution.y1.sum().backward()
        assert set(seen) == {dtype}
        assert all(p.grad.dtype == torch.float32 for p in field.parameters())
        assert gradient == "direct" or len(seen) > 8  # backward did evaluate


@pytest.mark.parametrize(
    ("precision", "clock"), [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float32), (F64, F64)]
)
def test_time_stays_wide_whatever_the_state(precision, clock):
    for options in (dict(rtol=0.05, atol=0.05), dict(control="sample", rtol=0.05, atol=0.05), dict(steps=3, save_at=[0.3, 1.0])):
        field = Recorder(lambda t, y: -y * torch.cos(broadcast_time(t, y)).to(y.dtype))
        y0 = torch.ones(3, 4, dtype=precision)
        solution = solve(field, y0, 0.0, 1.0, **options)
        assert field.dtypes == {(clock, precision)}
        assert solution.y1.dtype == precision
        assert float(solution.y1.float().mean()) == pytest.approx(0.431, abs=0.02)  # exp(−sin 1)


def test_the_default_dtype_does_not_reach_time_and_step_control():
    field, y0 = VectorField().requires_grad_(False), torch.randn(3, 3, dtype=F64)
    options = dict(rtol=1e-7, atol=1e-7, save_at=[0.3, 1.0])
    for control in ("batch", "sample"):
        usual = solve(field, y0, 0.1, 1.0, control=StepControl(control, "pi"), **options)
        torch.set_default_dtype(torch.bfloat16)
        try:
            narrow = solve(field, y0, 0.1, 1.0, control=StepControl(control, "pi"), **options)
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(usual.ys, narrow.ys)


@pytest.mark.needs("bfloat16")
def test_gradients_in_bfloat16_point_the_way_of_those_in_float32():
    narrow, wide = MapField(dtype=torch.bfloat16), MapField(dtype=torch.float32)
    wide.load_state_dict(narrow.state_dict())
    y0 = torch.randn(4, 4, 8, 8)
    found = []
    for field, dtype in ((narrow, torch.bfloat16), (wide, torch.float32)):
        start = y0.to(dtype).requires_grad_()
        found.append(torch.autograd.grad(solve(field, start, 0.0, 1.0, method="rk4", steps=4).y1.square().sum(), start)[0].float())
    assert float(nn.functional.cosine_similarity(found[0].flatten(), found[1].flatten(), dim=0)) > 0.99


def test_tolerances_below_the_noise_are_warned_about_once_by_name(monkeypatch):
    monkeypatch.setattr(solving, "_warned", set())
    f = lambda t, y: -y  # noqa: E731
    with pytest.warns(ContinuaWarning, match="rtol=1e-08, atol=1e-08 are below what float32"):
        solve(f, torch.ones(1, 1), 0.0, 0.1, rtol=1e-8, atol=1e-8)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(ContinuaWarning, match="bfloat16"):
        solve(f, torch.ones(1, 1), 0.0, 0.1, rtol=1e-5, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(f, torch.ones(1, 1), 0.0, 0.1, rtol=1e-8, atol=1e-8)  # said already
        solve(f, torch.ones(1, 1), 0.0, 0.1, rtol=1e-3, atol=1e-3)
        solve(f, torch.ones(1, 1, dtype=F64), 0.0, 0.1, rtol=1e-8, atol=1e-8)
        solve(f, torch.ones(1, 1), 0.0, 0.1, rtol=1e-9, atol=1e-9, steps=2)  # no error control, no noise to chase


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ({}, lambda tried: 2 + 6 * tried),  # f(t0, y0), one probe for the first step, six per tried step
        (dict(control=StepControl(first_step=0.1)), lambda tried: 1 + 6 * tried),
        (dict(method="tsit5"), lambda tried: 2 + 6 * tried),
        (dict(method="bosh3"), lambda tried: 2 + 3 * tried),
        (dict(method="dopri5", steps=5), lambda tried: 1 + 6 * tried),
        (dict(method="rk4", steps=5), lambda tried: 4 * tried),
        (dict(method="euler", steps=5), lambda tried: tried),
        (dict(method="rk4", steps=5, control="sample"), lambda tried: 4 * tried),
        (dict(method="midpoint", steps=5, control="sample"), lambda tried: 2 * tried),
        (dict(method="rk4", steps=5, gradient="reversible"), lambda tried: 8 * tried),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_evaluations_are_counted_as_f_sees_them(options, cost, grad):
    network = VectorField()
    field = Recorder(network)
    y0 = torch.randn(2, 3, dtype=F64)
    solution = solve(field, y0.requires_grad_(grad), 0.0, 3.0, params=list(network.parameters()), **options)
    stats = solution.stats
    tried = stats.accepted + stats.rejected
    assert torch.as_tensor(stats.nfe).tolist() == torch.as_tensor(cost(tried)).tolist()
    assert torch.as_tensor(stats.nfe).max() == field.calls


def test_recorded_steps_tell_the_whole_story():
    solution = solve(
        lambda t, y: -30 * torch.sin(9 * t) * y, torch.ones(2, 1, dtype=F64), 0.0, 2.0, record_steps=True, control=dict(first_step=0.5)
    )
    stats, log = solution.stats, solution.stats.steps
    assert len(log.t) == stats.accepted + stats.rejected
    assert int(log.accepted.sum()) == stats.accepted
    assert stats.rejected > 0
    assert stats.first_step == float(log.h[0]) == 0.5
    assert stats.last_step == float(log.h[-1])
    assert torch.equal(log.accepted, log.error <= 1)
    ends = (log.t + log.h)[log.accepted]
    assert torch.allclose(ends[:-1], log.t[log.accepted][1:])
    assert float(ends[-1]) == pytest.approx(2.0)


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
@pytest.mark.parametrize("t1", [2.0, torch.tensor([2.0, 1.0], dtype=F64)])
def test_fixed_steps_are_recorded_too(method, t1):
    log = solve(lambda t, y: -y, torch.ones(2, 1), 0.0, t1, method=method, steps=4, record_steps=True, control="sample").stats.steps
    assert len(log.t) == 8
    assert log.accepted.all()
    assert torch.allclose(log.h[log.sample == 0], torch.tensor(0.5, dtype=F64))
    assert torch.isnan(log.error).all() if method == "rk4" else (log.error < 1).all()


def test_a_configuration_solves_as_its_keywords_do():
    y0 = torch.randn(2, 3, dtype=F64)
    config = SolverConfig(method="tsit5", rtol=1e-5, control="sample")
    field = VectorField().requires_grad_(False)
    assert torch.equal(
        solve_with(config, field, y0, 0.0, 1.0).y1, solve(field, y0, 0.0, 1.0, method="tsit5", rtol=1e-5, control="sample").y1
    )


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [dict(gradient=g) for g in GRADIENTS]
    + [dict(save_at=[0.2, 1.0], dense=True), dict(control="sample"), dict(gradient=Checkpoint("sqrt"))],
    ids=str,
)
def test_nothing_of_200_solves_stays_alive(options):
    """Without the garbage collector: no reference cycle may hold a tensor, whether or not backward was called."""
    field = VectorField(3, 4)
    alive: list[weakref.ref] = []
    gc.collect()
    gc.disable()
    try:
        for turn in range(200 // 7 + 1):  # seven variants: 200 solves in all
            y0 = torch.randn(2, 3, dtype=F64, requires_grad=True)
            solution = solve(field, y0, 0.0, 1.0, **options)
            alive += [weakref.ref(y0), weakref.ref(solution), weakref.ref(solution.y1)]
            if turn % 2:
                solution.y1.sum().backward()
            del y0, solution
        assert not any(reference() is not None for reference in alive)
    finally:
        gc.enable()


def test_backward_can_be_called_again_with_a_kept_graph():
    field, y0 = VectorField(), torch.randn(2, 3, dtype=F64, requires_grad=True)
    for gradient in GRADIENTS:
        loss = solve(field, y0, 0.0, 1.0, gradient=gradient).y1.sum()
        first, second = (torch.autograd.grad(loss, y0, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(first, second)


# --- compilation and export -------------------------------------------------------------------------------------------


class FixedSolve(nn.Module):
    """A whole solve inside a module."""

    def __init__(self, gradient: str = "checkpoint", **options) -> None:
        super().__init__()
        self.field, self.options = MapField(2, dtype=torch.float32), dict(method="rk4", steps=2, gradient=gradient, **options)

    def forward(self, y: Tensor) -> Tensor:
        return solve(self.field, y, 0.0, 1.0, **self.options).y1


def test_a_fixed_step_solve_compiles_to_one_graph_without_gradients():
    model, y0 = FixedSolve(), torch.randn(2, 2, 8, 8)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        assert torch.allclose(compiled(y0), model(y0), atol=1e-6)


def test_a_fixed_step_solve_compiles_to_one_graph_with_direct_gradients():
    model, y0 = FixedSolve("direct"), torch.randn(2, 2, 8, 8)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    plain = torch.autograd.grad(model(y0).square().sum(), list(model.parameters()))
    ours = torch.autograd.grad(compiled(y0).square().sum(), list(model.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(ours, plain, strict=True))


def test_a_fixed_step_solve_is_exported_for_any_batch():
    model = FixedSolve().requires_grad_(False)
    program = torch.export.export(model, (torch.randn(3, 2, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    y0 = torch.randn(5, 2, 8, 8)
    assert torch.allclose(program.module()(y0), model(y0), atol=1e-6)


def test_statistics_start_at_nothing():
    assert Stats() == Stats(0, 0, 0, 0, 0.0, 0.0, {}, None)
