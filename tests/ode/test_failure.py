"""Failures: what cannot work is refused before any work, what fails on the way says where, who and why."""

from math import inf, nan

import pytest
import torch
from fields import Recorder
from torch import Tensor

from continua import ConfigError, ContinuaError, SolverError
from continua.ode import SolverConfig, Status, StepControl, solve

F64 = torch.float64


def explode(t: Tensor, y: Tensor) -> Tensor:
    """dy/dt = y²: y(t) = y0 / (1 − t y0), infinite at t = 1 / y0."""
    return y * y


def wall(t: Tensor, y: Tensor) -> Tensor:
    """Undefined where y > 2."""
    return torch.where(y > 2, nan, torch.ones_like(y))


def start(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)[:, None]


# --- on the way -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["batch", "sample"])
@pytest.mark.parametrize(
    ("f", "y0", "options", "status", "samples"),
    [
        (wall, start(0.0, 1.5, 0.5), {}, Status.NON_FINITE, [1]),
        (lambda t, y: y / y, start(1.0, 0.0, 1.0), {}, Status.NON_FINITE, [1]),  # already at the start
        (lambda t, y: -y, start(1.0, nan, inf), {}, Status.NON_FINITE, [1, 2]),  # already in the input
        (explode, start(0.1, 2.0, 0.1), dict(max_steps=10_000), Status.STEP_UNDERFLOW, [1]),
        (lambda t, y: -1000 * y, start(1.0, 1.0, 1.0), dict(max_steps=20), Status.MAX_STEPS, [0, 1, 2]),
    ],
    ids=["on the way", "at the start", "in the input", "underflow", "max_steps"],
)
def test_an_error_tells_where_who_and_why(control, f, y0, options, status, samples):
    with pytest.raises(SolverError) as caught:
        solve(f, y0, 0.0, 1.0, control=StepControl(control, **options))
    error = caught.value
    assert isinstance(error, ContinuaError)
    assert error.status is status
    # Under one step for all, underflow and max_steps are nobody's fault in particular.
    assert error.samples == (samples if control == "sample" or status is Status.NON_FINITE else [0, 1, 2])
    assert 0.0 <= error.t < 1.0
    assert abs(error.h) < 1.0
    assert isinstance(error.norm, float)
    text = str(error)
    assert status.value in text
    assert f"samples [{', '.join(map(str, error.samples))}]" in text
    assert "What to do:" in text


def test_per_sample_failure_leaves_the_others_alone():
    y0 = start(0.1, 2.0, 0.3, 4.0)
    solution = solve(
        explode, y0, 0.0, 1.0, control=StepControl("sample", max_steps=3000), rtol=1e-6, atol=1e-6, on_failure="status", save_at=[0.2, 1.0]
    )
    assert solution.status == (Status.SUCCESS, Status.STEP_UNDERFLOW, Status.SUCCESS, Status.STEP_UNDERFLOW)
    assert not solution.success
    fine = torch.tensor([0, 2])
    assert torch.allclose(solution.y1[fine], y0[fine] / (1 - y0[fine]), rtol=1e-4)
    assert torch.isfinite(solution.y1).all()
    assert (solution.y1[[1, 3]] > 1e6).all()  # the last good state, close to the pole
    assert torch.isfinite(solution.ys[0]).all()
    assert torch.isnan(solution.ys[1]).flatten().tolist() == [False, True, False, True]


def test_a_failed_batch_returns_its_last_good_state():
    solution = solve(wall, start(0.0, 1.5), 0.0, 1.0, on_failure="status", dense=True, save_at=[0.25, 0.75])
    assert solution.status == (Status.NON_FINITE,) * 2
    assert torch.allclose(solution.y1, start(0.5, 2.0), atol=1e-9)
    assert torch.allclose(solution.ys[0], start(0.25, 1.75))
    assert torch.isnan(solution.ys[1]).all()
    assert torch.allclose(solution.interpolate(0.25), solution.ys[0])
    assert torch.isnan(solution.interpolate(0.75)).all()  # never an extrapolation


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_fixed_steps_keep_the_last_good_state_of_each_sample(control):
    y0 = start(0.0, 1.6, 3.0)
    options = dict(method="euler", steps=10, control=control)
    solution = solve(wall, y0, 0.0, 1.0, on_failure="status", **options)
    assert solution.status == (Status.SUCCESS, Status.NON_FINITE, Status.NON_FINITE)
    # y = 1.6 may step until it is past 2, where the field is undefined; y = 3 never leaves.
    assert torch.allclose(solution.y1, start(1.0, 2.1, 3.0)) or torch.allclose(solution.y1, start(1.0, 2.0, 3.0))
    with pytest.raises(SolverError) as caught:
        solve(wall, y0, 0.0, 1.0, **options)
    assert caught.value.samples == [1, 2]
    assert caught.value.status is Status.NON_FINITE


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_the_last_good_state_has_exact_gradients(control):
    """So that nothing undefined reaches the parameters of a training loop that goes on."""
    y0 = start(0.1, 1.5).requires_grad_()
    rate = torch.tensor(1.0, dtype=F64, requires_grad=True)
    found = []
    for gradient in ("checkpoint", "direct"):
        solution = solve(
            lambda t, y: rate * wall(t, y) * y, y0, 0.0, 1.0, control=control, gradient=gradient, params=[rate], on_failure="status"
        )
        assert not solution.success
        found.append(torch.autograd.grad(solution.y1.sum(), (y0, rate)))
    for ours, exact in zip(*found, strict=True):
        assert torch.isfinite(ours).all()
        assert torch.allclose(ours, exact, rtol=1e-10)


def test_a_solve_that_fails_at_once_returns_its_input_with_a_gradient():
    y0 = start(3.0).requires_grad_()
    for control in ("batch", "sample"):
        solution = solve(wall, y0, 0.0, 1.0, on_failure="status", control=control)
        assert torch.equal(solution.y1, y0)
        assert torch.equal(torch.autograd.grad(solution.y1.sum(), y0)[0], torch.ones_like(y0))


def test_statuses_read_as_sentences():
    assert all(len(status.value.split()) > 3 for status in Status)
    assert solve(explode, start(0.1), 0.0, 1.0).success


# --- before any work --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(rtol=-0.1), "rtol=-0.1"),
        (dict(atol=-1e-3), "atol=-0.001"),
        (dict(rtol=nan), "rtol=nan"),
        (dict(atol=inf), "atol=inf"),
        (dict(rtol="1e-3"), "rtol='1e-3'"),
        (dict(steps=0), "steps=0"),
        (dict(steps=2.5), "steps=2.5"),
        (dict(control=dict(max_steps=True)), "max_steps=True"),
        (dict(control=dict(first_step=-0.1)), "first_step=-0.1"),
        (dict(gradient=dict(kind="checkpoint", segments=0)), "segments=0"),
        (dict(gradient=dict(kind="direct", segments=2)), "unknown option of gradient 'direct'.*'segments'|segments"),
        (dict(control="each"), "control='each'.*'batch', 'sample'"),
        (dict(gradient="backprop"), "unknown gradient 'backprop'.*checkpoint"),
        (dict(on_failure="ignore"), "on_failure='ignore'"),
        (dict(control=dict(kind="p")), "'pid'"),
        (dict(control=dict(safty=0.8)), "safty"),
        (dict(control=dict(safety=1.5)), "safety=1.5"),
        (dict(method="rk4"), "rk4 is a method without an error estimate.*steps=N"),
        (dict(method="gauss4"), "gauss4 is an implicit method without an error estimate"),
        (dict(t1=nan), "times must be finite"),
        (dict(t0=-inf), "times must be finite"),
        (dict(t1=torch.tensor([1.0, inf])), "times must be finite"),
        (dict(t1=torch.ones(3)), r"t1 has shape \(3,\); expected one number, or \(2,\)"),
        (dict(y0=torch.ones(0, 3)), r"\(0, 3\).*at least one sample"),
        (dict(y0=torch.tensor(1.0)), r"shape \(\)"),
        (dict(y0=torch.ones(2, 3, dtype=torch.int64)), "int64"),
        (dict(y0=[1.0, 2.0]), "list"),
        (dict(y0=()), "tuple"),
        (dict(y0=(torch.ones(2, 3), torch.ones(3, 3))), "same batch size"),
        (dict(save_at=[0.5, 0.2]), "sorted"),
        (dict(save_at=[0.5, 1.2]), "t = 1.2, outside"),
        (dict(save_at=[0.5, nan]), "outside"),
        (dict(save_at=[]), "at least one time"),
        (dict(save_at=torch.ones(2, 2)), "per sample"),
        (dict(save_at=torch.ones(1, 3), t1=torch.ones(2)), r"shape \(1, 3\)"),
        (dict(t0=1.0, t1=0.0, save_at=[0.2, 0.5]), "sorted"),
    ],
    ids=lambda value: str(value).replace("\n", "")[:40] if isinstance(value, dict) else "",
)
def test_what_cannot_work_is_refused_before_f_is_called(change, message):
    field = Recorder(lambda t, y: -y)
    given = {**dict(y0=torch.ones(2, 3), t0=0.0, t1=1.0), **change}
    with pytest.raises(ConfigError, match=message):
        solve(field, given.pop("y0"), given.pop("t0"), given.pop("t1"), **given)
    assert field.calls == 0


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda t, y: y[:, :2], r"shape \(2, 2\) for a state of shape \(2, 3\)"),
        (lambda t, y: y.sum(), r"shape \(\)"),
        (lambda t, y: y.double(), "float64 for a state of torch.float32"),
        (lambda t, y: y > 0, "bool"),
        (lambda t, y: (y,), "a tuple of 1.*expected one tensor"),
        (lambda t, y: None, "NoneType.*expected one tensor"),
    ],
)
@pytest.mark.parametrize("options", [{}, dict(steps=2), dict(control="sample"), dict(gradient="direct")])
def test_a_field_that_returns_something_else_is_told_what_was_expected(f, message, options):
    field = Recorder(f)
    with pytest.raises(ConfigError, match=message):
        solve(field, torch.ones(2, 3, requires_grad=True), 0.0, 1.0, **options)
    assert field.calls == 1


def test_a_coupled_field_must_return_as_many_parts():
    y0 = (torch.ones(2, 3), torch.ones(2, 1))
    with pytest.raises(ConfigError, match="a tuple of 2 tensors"):
        solve(lambda t, y: y[0], y0, 0.0, 1.0)


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_configuration_is_a_dict_with_checks():
    config = SolverConfig.of(dict(method="tsit5", rtol=1e-5))
    assert (config.method, config.rtol, config.atol) == ("tsit5", 1e-5, 1e-3)
    assert SolverConfig.of(config) is config
    assert SolverConfig.of(None) == SolverConfig()
    assert config.replace(rtol=1e-4).rtol == 1e-4
    with pytest.raises(ConfigError, match="did you mean rtol"):
        config.replace(rtoll=1e-4)


def test_controllers_have_their_documented_defaults():
    plain, smooth = StepControl(), StepControl(kind="pi")
    assert (plain.alpha, plain.beta, plain.accept_factor_min, plain.hold_after_rejection) == (1.0, 0.0, 1.0, False)
    assert (smooth.alpha, smooth.beta, smooth.accept_factor_min, smooth.hold_after_rejection) == (0.7, 0.4, 0.2, True)
    assert SolverConfig(control=dict(kind="pi", safety=0.8)).control == StepControl(kind="pi", safety=0.8)


@pytest.mark.parametrize("method", ["radau5", "gauss4"])
@pytest.mark.parametrize("steps", [1, 3])
def test_an_implicit_method_says_that_a_sample_was_undefined_from_the_start(method, steps):
    y0 = torch.tensor([[1.0], [float("nan")]])
    solution = solve(lambda t, y: -y, y0, 0.0, 1.0, method=method, steps=steps, on_failure="status")
    assert set(solution.status) == {Status.NON_FINITE}
    assert torch.equal(solution.y1, y0) or torch.isnan(solution.y1[1]).all()
    with pytest.raises(SolverError, match=r"samples \[1\]"):
        solve(lambda t, y: -y, y0, 0.0, 1.0, method=method, steps=steps)


@pytest.mark.parametrize(
    "change", [dict(t1=None), dict(t1="x"), dict(t0=[]), dict(save_at="x"), dict(save_at=["a"]), dict(save_at=3.0)], ids=str
)
def test_times_that_are_no_numbers_are_refused_in_a_sentence(change):
    with pytest.raises(ConfigError, match=r"t0|t1|save_at"):
        solve(lambda t, y: -y, torch.ones(1, 1), **{"t0": 0.0, "t1": 1.0, **change})


def test_the_times_of_torchdiffeq_as_third_argument_are_told_what_to_write():
    with pytest.raises(ConfigError, match=r"torchdiffeq's odeint.*solve\(f, y0, t\[0\], t\[-1\], save_at=t\)"):
        solve(lambda t, y: -y, torch.ones(2, 3), torch.linspace(0, 1, 5))
    with pytest.raises(ConfigError, match=r"needs an end time t1; got t0=0\.0 alone"):
        solve(lambda t, y: -y, torch.ones(2, 3), 0.0)


def test_a_tuple_for_a_tensor_is_described_without_riddles():
    with pytest.raises(
        ConfigError, match=r"returned a tuple of 1 \(a tensor \(2, 3\)\); expected one tensor, shaped like y0, which is a tensor"
    ):
        solve(lambda t, y: (y,), torch.ones(2, 3), 0.0, 1.0)


def test_too_many_steps_are_told_of_stiffness_and_not_of_fixed_steps():
    with pytest.raises(SolverError, match=r"may be stiff.*method='kvaerno5'") as caught:
        solve(lambda t, y: -1e6 * (y - t), start(1.0), 0.0, 10.0)
    assert caught.value.status is Status.MAX_STEPS
    assert "steps=N" not in str(caught.value)


def test_a_complex_state_is_told_how_to_stay_complex():
    y0 = torch.ones(2, 1, dtype=torch.complex128)
    with pytest.raises(ConfigError, match=r"takes real states: give it torch.view_as_real\(y0\).*compat.torchdiffeq") as caught:
        solve(lambda t, y: 1j * y, y0, 0.0, 1.0)
    assert "float()" not in str(caught.value)

    def turn(t: Tensor, y: Tensor) -> Tensor:
        return torch.view_as_real(1j * torch.view_as_complex(y))

    end = torch.view_as_complex(solve(turn, torch.view_as_real(y0), 0.0, 1.0, rtol=1e-9, atol=1e-9).y1)
    torch.testing.assert_close(end, torch.exp(1j * torch.ones_like(y0)), rtol=1e-7, atol=1e-7)


def with_more(t: Tensor, y: Tensor, args: float) -> Tensor:
    return args * y


@pytest.mark.parametrize(
    ("f", "takes"),
    [
        (torch.nn.Sequential(torch.nn.Linear(3, 3)), r"Sequential.forward takes \(input\)"),
        (torch.nn.Linear(3, 3), r"Linear.forward takes \(input"),
        (lambda y: -y, r"<lambda> takes \(y\)"),
        (with_more, "with_more takes .*args"),
        (torch.nn.Linear(3, 3).forward, "forward takes"),
    ],
)
@pytest.mark.parametrize("options", [{}, dict(t1=torch.ones(2)), dict(control="sample")], ids=str)
def test_a_field_that_does_not_take_t_and_y_is_told_how_it_is_called(f, takes, options):
    with pytest.raises(ConfigError, match=f"f is called as f\\(t, y\\), and {takes}"):
        solve(f, torch.ones(2, 3), 0.0, **{"t1": 1.0, **options})


def test_a_type_error_inside_a_field_is_its_own():
    with pytest.raises(TypeError, match="unsupported operand"):
        solve(lambda t, y: y + "1", torch.ones(2, 3), 0.0, 1.0)
