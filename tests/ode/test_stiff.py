"""Adaptive stiff methods: the classic stiff problems, their gradients, states inside, per-sample steps, and how they fail."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from continua.errors import ConfigError, SolverError
from continua.ode import Checkpoint, Event, Implicit, SolverConfig, Status, StepControl, find_method, solve
from continua.ode.implicit import DiagonalStepper

METHODS = ["kvaerno3", "kvaerno5"]


def double(*values: object) -> Tensor:
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=torch.float64)


def robertson(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    return torch.stack([-0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b * b, 3e7 * b * b], dim=1)


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    a, b = y.unbind(1)
    return torch.stack([b, 1000 * (1 - a * a) * b - a], dim=1)


def following(t: Tensor, y: Tensor) -> Tensor:
    """x' = y, where y is pulled to cos t, however steeply (Prothero & Robinson 1974): x = sin t."""
    b = y[:, 1]
    return torch.stack([b, -1e6 * (b - torch.cos(t)) - torch.sin(t)], dim=1)


class Net(nn.Module):
    """A smooth stiff field with parameters and explicit time."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Linear(width, width).double()
        self.decay = nn.Parameter(torch.logspace(0, 3, width, dtype=torch.float64))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        time = t if t.ndim == 0 else t[:, None]
        return torch.tanh(self.mix(y) + time) - self.decay * y


# --- the method -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_l_stable_and_the_embedded_one_a_stable(method: str) -> None:
    tableau = find_method(method)
    a, one = np.array(tableau.a), np.ones(tableau.stages)
    embedded = np.array(tableau.b) - np.array(tableau.b_error)
    for weights in (np.array(tableau.b), embedded):
        on_axis = [abs(1 + z * weights @ np.linalg.solve(np.eye(len(a)) - z * a, one)) for z in 1j * np.logspace(-2, 4, 200)]
        assert max(on_axis) < 1 + 1e-9  # A-stable, by the maximum principle: the poles 1/γ lie to the right
    z = -1e9
    assert abs(1 + z * np.array(tableau.b) @ np.linalg.solve(np.eye(len(a)) - z * a, one)) < 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_states_inside_a_step_stay_bounded_however_stiff_f_is(method: str) -> None:
    tableau = find_method(method)
    a, dense = np.array(tableau.a), np.array(tableau.interpolant)
    powers = np.arange(1, dense.shape[1] + 1)
    for z in (-1e2, -1e5, -1e8):
        k = z * np.linalg.solve(np.eye(len(a)) - z * a, np.ones(len(a)))
        assert max(abs(1 + (dense * theta**powers).sum(1) @ k) for theta in np.linspace(0, 1, 21)) < 1.3


@pytest.mark.parametrize(("method", "order"), [("kvaerno3", 3), ("kvaerno5", 5)])
def test_observed_order_of_fixed_steps(method: str, order: int) -> None:
    def pendulum(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[:, 1], -torch.sin(y[:, 0])], dim=1)

    y0 = double([[1.2, 0.3], [0.5, -0.8]])
    exact = solve(pendulum, y0, 0.0, 2.0, method="dopri8", rtol=1e-13, atol=1e-13).y1
    errors = [float((solve(pendulum, y0, 0.0, 2.0, method=method, steps=n).y1 - exact).norm()) for n in (8, 16)]
    assert abs(math.log2(errors[0] / errors[1]) - order) < 0.3


# --- the problems -----------------------------------------------------------------------------------------------------


def oracle(f: Callable[[Tensor, Tensor], Tensor], y0: list[float], t1: float) -> np.ndarray:
    def rates(t: float, y: np.ndarray) -> np.ndarray:
        return f(torch.tensor(t), torch.as_tensor(y)[None])[0].numpy()

    return solve_ivp(rates, (0, t1), y0, "Radau", rtol=1e-9, atol=1e-12).y[:, -1]


@torch.no_grad()
def test_robertson_is_solved_where_dopri5_gives_up() -> None:
    y0 = [1.0, 0.0, 0.0]
    found = solve(robertson, double([y0]), 0.0, 100.0, method="kvaerno5", rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found.y1[0].numpy(), oracle(robertson, y0, 100.0), rtol=1e-4)
    assert found.stats.accepted < 150
    gave_up = solve(robertson, double([y0]), 0.0, 100.0, rtol=1e-5, atol=1e-9, on_failure="status")
    assert gave_up.status == (Status.MAX_STEPS,)


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
def test_a_smooth_solution_is_followed_in_few_steps_however_stiff(method: str) -> None:
    times = torch.linspace(0, 3, 31, dtype=torch.float64)
    solution = solve(following, double([[0.0, 1.0]]), 0.0, 3.0, method=method, rtol=1e-5, atol=1e-5, save_at=times)
    assert isinstance(solution.ys, Tensor)
    exact = torch.stack([torch.sin(times), torch.cos(times)], dim=1)
    torch.testing.assert_close(solution.y1[0], exact[-1], rtol=0, atol=1e-4)
    torch.testing.assert_close(solution.ys[:, 0], exact, rtol=0, atol=5e-3)  # of order 3, whatever the method
    assert solution.stats.accepted < 60


@torch.no_grad()
def test_times_to_land_on_give_states_of_full_accuracy() -> None:
    times = torch.linspace(0, 3, 7, dtype=torch.float64)
    control = StepControl(step_at=times)
    solution = solve(following, double([[0.0, 1.0]]), 0.0, 3.0, method="kvaerno5", rtol=1e-7, atol=1e-7, save_at=times, control=control)
    assert isinstance(solution.ys, Tensor)
    torch.testing.assert_close(solution.ys[:, 0, 0], torch.sin(times), rtol=0, atol=1e-6)


@torch.no_grad()
def test_an_event_is_found_on_a_stiff_solution() -> None:
    solution = solve(
        *(following, double([[0.0, 1.0]]), 0.0, 3.0),
        **dict(method="kvaerno3", rtol=1e-7, atol=1e-7, event=Event(lambda t, y: y[0, 1])),
    )
    assert solution.t_end is not None
    assert abs(float(solution.t_end) - math.pi / 2) < 1e-5


@torch.no_grad()
def test_samples_with_their_own_steps_are_those_solved_alone() -> None:
    y0, ends = double([[2.0, 0.0], [1.5, 0.1], [1.2, 0.0]]), double([1.0, 10.0, 60.0])
    options = dict(method="kvaerno5", rtol=1e-5, atol=1e-7)
    together = solve(van_der_pol, y0, 0.0, ends, control="sample", **options)
    assert isinstance(together.stats.accepted, Tensor)
    for i in range(3):
        alone = solve(van_der_pol, y0[i : i + 1], 0.0, float(ends[i]), **options)
        torch.testing.assert_close(together.y1[i : i + 1], alone.y1, rtol=1e-4, atol=1e-6)
        assert abs(int(together.stats.accepted[i]) - int(alone.stats.accepted)) <= 2


@torch.no_grad()
@pytest.mark.parametrize("options", [dict(linear="krylov"), dict(jacobian="difference"), dict(jacobian="difference", linear="krylov")])
def test_every_way_to_solve_the_linear_systems_gives_the_same_states(options: dict[str, str]) -> None:
    y0, field = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), Net()
    dense = solve(field, y0, 0.0, 1.0, method="kvaerno5", rtol=1e-6, atol=1e-6)
    other = solve(field, y0, 0.0, 1.0, method=Implicit("kvaerno5", **options), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.y1, dense.y1, rtol=1e-5, atol=1e-5)
    assert abs(int(other.stats.accepted) - int(dense.stats.accepted)) <= 2


@torch.no_grad()
def test_image_shaped_states_take_krylov_and_agree_with_the_closed_form() -> None:
    """Diffusion, y' = D Δy with periodic borders: every Fourier mode decays by itself."""
    y0 = torch.randn(2, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def diffusion(t: Tensor, y: Tensor) -> Tensor:
        return 200 * (sum(torch.roll(y, s, d) for s in (1, -1) for d in (2, 3)) - 4 * y)

    frequency = 2 * torch.cos(2 * math.pi * torch.fft.fftfreq(16, dtype=torch.float64)) - 2
    decay = torch.exp(0.02 * 200 * (frequency[:, None] + frequency[None, :]))
    exact = torch.fft.ifft2(torch.fft.fft2(y0) * decay).real
    found = solve(diffusion, y0, 0.0, 0.02, method="kvaerno5", rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.y1, exact, rtol=0, atol=1e-4)


def test_a_large_jacobian_is_the_same_by_rows_at_once_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    y0, field = torch.randn(2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), Net(20)
    at_once = solve(field, y0, 0.0, 0.1, method="kvaerno3", rtol=1e-5, atol=1e-5).y1
    monkeypatch.setattr("continua.ode.implicit.jacobian.LOOPED_ROWS", 100)
    torch.testing.assert_close(solve(field, y0, 0.0, 0.1, method="kvaerno3", rtol=1e-5, atol=1e-5).y1, at_once, rtol=1e-10, atol=1e-10)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "linear", "segments"), [("kvaerno3", "dense", "sqrt"), ("kvaerno5", "krylov", None)])
def test_gradients_of_the_steps_are_exact(method: str, linear: str, segments: "str | None") -> None:
    field = Net()
    y0 = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    parameters = tuple(field.parameters())

    def ends(y: Tensor, *_: Tensor) -> "tuple[Tensor, Tensor]":
        chosen = Implicit(method, linear=linear, tol=1e-13)
        solution = solve(field, y, 0.0, 0.3, method=chosen, steps=2, gradient=Checkpoint(segments), save_at=[0.07, 0.3])
        assert isinstance(solution.ys, Tensor)
        assert isinstance(solution.y1, Tensor)
        return solution.y1, solution.ys

    assert torch.autograd.gradcheck(ends, (y0, *parameters), atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_gradients_of_adaptive_steps_follow_those_of_a_tight_explicit_solve(control: str) -> None:
    field, times = Net(), [0.0, 0.05, 0.1, 0.2]

    def gradients(**options: object) -> list[Tensor]:
        y0 = torch.full((2, 2), 0.5, dtype=torch.float64, requires_grad=True)
        solution = solve(field, y0, 0.0, 0.2, rtol=1e-7, atol=1e-7, save_at=times, control=StepControl(control, max_steps=20000), **options)
        assert isinstance(solution.ys, Tensor)
        assert isinstance(solution.y1, Tensor)
        loss = solution.y1.square().sum() + (solution.ys * torch.arange(1.0, 5.0, dtype=torch.float64)[:, None, None]).sum()
        return list(torch.autograd.grad(loss, (y0, *field.parameters())))

    for found, expected in zip(gradients(method="kvaerno5"), gradients(method="dopri5"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_moment_of_an_event_has_its_gradient() -> None:
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(1, 1, dtype=torch.float64)
    event = Event(lambda t, y: y[0, 0] - 0.5)
    solution = solve(lambda t, y: -rate * y, y0, 0.0, 3.0, method="kvaerno5", rtol=1e-9, atol=1e-9, event=event, params=[rate])
    assert solution.t_end is not None
    (gradient,) = torch.autograd.grad(solution.t_end, rate)
    assert abs(float(gradient) + math.log(2) / 4) < 1e-5


# --- failures and refusals --------------------------------------------------------------------------------------------


def test_an_undefined_rate_is_named_as_such() -> None:
    def breaks(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t > 0.5, torch.nan, -y)

    solution = solve(breaks, torch.ones(2, 1), 0.0, 1.0, method="kvaerno3", on_failure="status")
    assert set(solution.status) == {Status.NON_FINITE}
    assert isinstance(solution.y1, Tensor)
    assert bool(torch.isfinite(solution.y1).all())
    with pytest.raises(SolverError, match="infinite or not a number"):
        solve(breaks, torch.ones(2, 1), 0.0, 1.0, method="kvaerno3")


def test_an_iteration_that_never_converges_says_so() -> None:
    def jumps(t: Tensor, y: Tensor) -> Tensor:
        return 1e30 * torch.sign(torch.sin(1e12 * y))

    y0 = torch.full((1, 1), 0.3, dtype=torch.float64)
    solution = solve(jumps, y0, 0.0, 1.0, method="kvaerno3", on_failure="status", control=StepControl(first_step=0.1))
    assert solution.status[0] in (Status.NOT_CONVERGED, Status.STEP_UNDERFLOW)
    fixed = solve(jumps, y0, 0.0, 1.0, method=Implicit("kvaerno3", max_iterations=4), steps=2, on_failure="status")
    assert fixed.status == (Status.NOT_CONVERGED,)


def test_a_singular_matrix_makes_the_step_shorter() -> None:
    """y' = y: I − hγJ is singular at h = 1/γ, the first step that is tried here."""
    first = 1 / find_method("kvaerno3").a[1][1]
    y0 = torch.ones(1, 1, dtype=torch.float64)
    solution = solve(lambda t, y: y, y0, 0.0, 4.0, method="kvaerno3", rtol=1e-4, atol=1e-4, control=StepControl(first_step=first))
    torch.testing.assert_close(solution.y1, y0 * math.exp(4.0), rtol=1e-2, atol=0)
    assert int(solution.stats.rejected) >= 1


def test_damping_solves_a_fixed_step_that_plain_newton_overshoots(monkeypatch: pytest.MonkeyPatch) -> None:
    def steep(t: Tensor, y: Tensor) -> Tensor:
        return -5 * torch.atan(5 * (y - 0.2))

    options = dict(method="kvaerno3", steps=1, on_failure="status")
    y0 = torch.full((1, 1), 3.0, dtype=torch.float64)
    assert solve(steep, y0, 0.0, 1.0, **options).success
    monkeypatch.setattr("continua.ode.implicit.diagonal.MOST_HALVINGS", 0)
    assert not solve(steep, y0, 0.0, 1.0, **options).success


def test_what_cannot_be_combined_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="kvaerno5"):
        SolverConfig(method="radau5")
    with pytest.raises(ConfigError, match="jump_at"):
        SolverConfig(method="kvaerno5", control=dict(jump_at=[0.5]))
    with pytest.raises(ConfigError, match="newton"):
        SolverConfig(method=Implicit("kvaerno3", solver="fixed_point"))
    with pytest.raises(ConfigError, match="linear"):
        Implicit("kvaerno3", linear="lu")
    with pytest.raises(ConfigError, match="sample"):
        SolverConfig(method="kvaerno3", steps=3, control="sample")


def test_a_jacobian_is_kept_while_it_serves() -> None:
    """A linear f has one Jacobian: it is taken once for all steps."""
    taken = []

    class Counting(DiagonalStepper):
        def _renew(self, *arguments: object) -> None:
            taken.append(1)
            super()._renew(*arguments)

    matrix = torch.diag(double([-1.0, -1e3, -1e5]))
    y0 = torch.ones(2, 3, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("continua.ode.solving.DiagonalStepper", Counting)
        solution = solve(lambda t, y: y @ matrix, y0, 0.0, 1.0, method="kvaerno5", rtol=1e-5, atol=1e-5)
    assert len(taken) == 1
    assert int(solution.stats.accepted) > 5
