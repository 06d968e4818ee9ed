"""Evolutions of weights against matrix exponentials, NumPy's FFT, SciPy's solvers and closed forms; and the filter that evolves."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm
from torch import Tensor, nn

from continua import ConfigError, ContinuaError, ContinuaWarning
from continua.filters import (
    RDA,
    ConvEvolution,
    Evolution,
    Evolved,
    FilterConv2d,
    Grid,
    HyperNetwork,
    LinearEvolution,
    NJet,
    Pixel,
    Remembering,
    ScaleDiffusion,
    ScheduledNJet,
    Static,
    evolve,
    make_evolution,
)
from continua.filters.evolution import between_nodes, slopes_between
from continua.filters.rda import operate, propagate, wave_numbers

F64 = torch.float64
SIZES = [(3, 3), (5, 5), (4, 4), (6, 5), (1, 2), (2, 7)]


def kernels(rows: int = 5, cols: int = 5, out: int = 2, inputs: int = 3) -> Tensor:
    return torch.randn(out, inputs, rows, cols, dtype=F64)


def rda(channels: int = 2, scale: float = 0.3, **options) -> RDA:
    made = RDA(channels, **{"nonlinearity": "identity", **options}).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=scale)
    with torch.no_grad():
        made.tau.abs_()
    return made


def only(channels: int = 1, *, tau=(0.0, 0.0), v=(0.0, 0.0), rho=0.0, **options) -> RDA:
    """The same five numbers in every channel."""
    made = RDA(channels, **{"nonlinearity": "identity", **options}).double()
    with torch.no_grad():
        made.tau.copy_(torch.tensor(tau).expand(channels, 2))
        made.v.copy_(torch.tensor(v).expand(channels, 2))
        made.rho.fill_(rho)
    return made


def operator_matrix(made: RDA, channel: int, rows: int, cols: int) -> np.ndarray:
    """The operator of eq. 8 as a matrix over the pixels of one kernel, column by column."""
    units = torch.eye(rows * cols, dtype=F64).reshape(1, -1, rows, cols).expand(len(made.rho), -1, -1, -1)
    return operate(units, *made.rates(units))[channel].flatten(1).T.detach().numpy()


# --- reaction, diffusion, advection --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("convention", ["integer", "radian"])
def test_the_closed_form_is_the_matrix_exponential_of_the_operator_and_the_limit_of_many_small_steps(size, convention):
    made, w = rda(wave_numbers=convention), kernels(*size)
    exact = made.path(w, Grid()).at(0.7).detach()
    for channel in range(2):
        operator = operator_matrix(made, channel, *size)
        small_steps = np.linalg.matrix_power(np.eye(len(operator)) + 0.7 / 2**20 * operator, 2**20)
        for flow, tolerance in ((expm(0.7 * operator), 1e-11), (small_steps, 1e-4)):
            np.testing.assert_allclose(exact[channel].flatten(1).numpy(), w[channel].flatten(1).numpy() @ flow.T, atol=tolerance)


@pytest.mark.parametrize("size", SIZES)
def test_the_operator_is_real_and_that_of_numpys_full_transform_without_advection_at_nyquist(size):
    made, w = rda(wave_numbers="radian"), kernels(*size)
    full = []
    for n in size:
        k = np.fft.fftfreq(n) * n
        full.append((2 * np.pi / n * k, 2 * np.pi / n * np.where(2 * np.abs(k) == n, 0, k)))
    (ky, sy), (kx, sx) = ((a[:, None], b[:, None]) if i == 0 else (a[None], b[None]) for i, (a, b) in enumerate(full))
    for c in range(2):
        tau, v, rho = (p[c].detach().numpy() for p in (made.tau, made.v, made.rho))
        rate = -(tau[0] * ky**2 + tau[1] * kx**2) + 1j * (v[0] * sy + v[1] * sx) + rho
        moved = np.fft.ifft2(np.exp(0.4 * rate) * np.fft.fft2(w[c].numpy()))
        assert np.abs(moved.imag).max() < 1e-12
        np.testing.assert_allclose(made.path(w, Grid()).at(0.4)[c].detach().numpy(), moved.real, atol=1e-12)


def test_wave_numbers_are_those_of_the_paper():
    like = torch.zeros((), dtype=F64)
    assert wave_numbers(3, 5, "integer", like).y.flatten().tolist() == [0, 1, -1]
    assert wave_numbers(5, 5, "integer", like).y.flatten().tolist() == [0, 1, 2, -2, -1]
    assert wave_numbers(5, 5, "integer", like).x.flatten().tolist() == [0, 1, 2]
    assert wave_numbers(4, 4, "integer", like).y_shift.flatten().tolist() == [0, 1, 0, -1]
    torch.testing.assert_close(wave_numbers(5, 5, "radian", like).x, 2 * math.pi / 5 * torch.tensor([[0.0, 1.0, 2.0]], dtype=F64))


@pytest.mark.parametrize("size", SIZES)
def test_two_half_steps_equal_one_step_of_linear_evolution(size):
    made, w = rda(), kernels(*size)
    rates = made.rates(w)
    torch.testing.assert_close(propagate(propagate(w, *rates, 0.3), *rates, 0.3), propagate(w, *rates, 0.6))
    coarse, fine = made.nodes(w, Grid(steps=1)), made.nodes(w, Grid(steps=8))
    torch.testing.assert_close(coarse[-1], fine[-1])


@pytest.mark.parametrize("size", [(5, 5), (4, 6)])
def test_diffusion_keeps_the_mean_and_lowers_the_energy(size):
    path = only(2, tau=(0.2, 0.1)).path(kernels(*size), Grid())
    at = [path.at(t).detach() for t in (0.0, 0.3, 1.0)]
    for w in at[1:]:
        torch.testing.assert_close(w.mean((-2, -1)), at[0].mean((-2, -1)))
    energies = [w.square().sum((-2, -1)) for w in at]
    assert bool((energies[0] > energies[1]).all())
    assert bool((energies[1] > energies[2]).all())


@pytest.mark.parametrize("size", [3, 5, 7])
def test_advection_by_one_pixel_in_radians_is_an_exact_roll_to_lower_indices_for_odd_sizes(size):
    w = kernels(size, size, out=1)
    moved = only(v=(1.0, 2.0), wave_numbers="radian").path(w, Grid()).at(1.0)
    torch.testing.assert_close(moved, torch.roll(w, (-1, -2), (-2, -1)))


def test_advection_of_even_sizes_is_real_composes_and_leaves_the_nyquist_mode_alone():
    made = only(v=(1.0, 0.0), wave_numbers="radian")
    checks = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=F64).reshape(1, 1, 4, 1).expand(1, 1, 4, 4)
    torch.testing.assert_close(made.path(checks, Grid()).at(0.37), checks)


def test_reaction_scales_by_e_to_the_rho():
    w = kernels(out=1)
    torch.testing.assert_close(only(rho=0.8).path(w, Grid()).at(1.0), w * math.exp(0.8))


@pytest.mark.parametrize(("around", "nonlinearity"), [("weights", "identity"), ("weights", "tanh"), ("rate", "tanh")])
@pytest.mark.parametrize("size", [(3, 3), (4, 3)])
def test_gradients_of_tau_v_rho_and_w0_are_right(around, nonlinearity, size):
    made, grid = rda(1, around=around, nonlinearity=nonlinearity), Grid(steps=1)
    names = [name for name, _ in made.named_parameters()]

    def end(w: Tensor, *values: Tensor) -> Tensor:
        def run(w: Tensor) -> Tensor:
            path = made.path(w, grid)
            return torch.stack([path.at(0.35), path.at(1.0)])

        class Run(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.made = made

            def forward(self, w: Tensor) -> Tensor:
                return run(w)

        return torch.func.functional_call(Run(), {f"made.{name}": value for name, value in zip(names, values, strict=True)}, (w,))

    inputs = [kernels(*size, out=1, inputs=1).requires_grad_(), *(p.detach().clone().requires_grad_() for p in made.parameters())]
    assert torch.autograd.gradcheck(end, inputs, atol=1e-6)


def test_eq_13_applies_its_nonlinearity_after_each_step_and_so_has_no_limit_of_small_steps():
    w = torch.full((1, 1, 3, 3), 0.5, dtype=F64)
    ends = [RDA(1).double().nodes(w, Grid(steps=n))[-1, 0, 0, 0, 0].item() for n in (5, 100, 1000)]
    assert ends == pytest.approx([0.368, 0.119, 0.039], abs=1e-3)
    made, start = rda(nonlinearity="tanh"), kernels()
    first = torch.tanh(propagate(start, *made.rates(start), 0.2))
    torch.testing.assert_close(made.nodes(start, Grid(steps=5))[1], first)
    torch.testing.assert_close(made.path(start, Grid(steps=5)).at(0.2), first)
    with pytest.raises(ConfigError, match="no rate of change"):
        made(torch.tensor(0.0), start)


def test_any_callable_is_a_nonlinearity():
    made, w = rda(nonlinearity=lambda x: x.clamp(-0.1, 0.1)), kernels()
    assert made.nodes(w, Grid(steps=3))[1:].abs().max().item() <= 0.1


def test_eq_8_is_integrated_as_an_ode():
    made, w = rda(around="rate", nonlinearity="tanh", scale=1.0), kernels(3, 3, inputs=1)

    operators = [operator_matrix(made, channel, 3, 3) for channel in range(2)]

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate([np.tanh(operator @ part) for operator, part in zip(operators, y.reshape(2, 9), strict=True)])

    exact = solve_ivp(rate, (0, 1), w.flatten().numpy(), rtol=1e-11, atol=1e-12, t_eval=[0.33, 1.0]).y
    path = made.path(w, Grid(steps=40))
    for t, expected in zip((0.33, 1.0), exact.T, strict=True):
        np.testing.assert_allclose(path.at(t).detach().flatten().numpy(), expected, atol=2e-6)


def test_negative_diffusion_is_warned_of_by_name_once_and_bounded_by_an_option():
    filter = Evolved(Pixel(1, 1, size=5), only(tau=(-1.0, 0.0)).float())
    filter.label = "blocks.0.conv1"
    conv, x = FilterConv2d(filter), torch.randn(1, 1, 8, 8)
    with pytest.warns(ContinuaWarning, match=r"τ of blocks\.0\.conv1 is -1: negative diffusion amplifies .* up to 54\.6 times"):
        conv(x, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conv(x, 0.5)
        bounded = only(tau=(-50.0, 0.3), antidiffusion=0.1).float()
        assert bounded.diffusivity.tolist() == [pytest.approx([-0.1, 0.3])]
        FilterConv2d(Evolved(Pixel(1, 1, size=5), bounded))(x, 1.0)
    free = only(tau=(-0.3, 0.3), antidiffusion=100.0)
    torch.testing.assert_close(free.diffusivity, free.tau, rtol=1e-4, atol=0.0)
    with pytest.raises(ConfigError, match="antidiffusion"):
        RDA(1, antidiffusion=0.0)


@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
@pytest.mark.parametrize(("change", "message"), [({"tau": (-100.0, 0.0)}, "blown up"), ({"rho": math.nan}, "no longer a finite number")])
def test_an_evolution_that_blows_up_is_refused_by_name_and_never_gives_nan(change, message):
    filter = Evolved(Pixel(1, 1, size=5), only(**change).float())
    filter.label = "blocks.1.conv2"
    with pytest.raises(ContinuaError, match=message) as refused:
        FilterConv2d(filter)(torch.randn(1, 1, 8, 8), 0.0)
    assert "blocks.1.conv2" in str(refused.value)


# --- paths ---------------------------------------------------------------------------------------------------------------


def test_the_interpolant_is_exact_for_cubics_and_at_its_nodes_and_stays_at_the_ends():
    grid = Grid(0.0, 2.0, 4)
    t = torch.tensor(grid.times, dtype=F64)
    nodes, slopes = (t**3 - t)[:, None], (3 * t**2 - 1)[:, None]
    asked = torch.tensor([0.0, 0.3, 0.5, 1.99, 2.0, 7.0, -1.0], dtype=F64)
    inside = asked.clamp(0, 2)
    torch.testing.assert_close(between_nodes(nodes, slopes, grid, asked)[:, 0], inside**3 - inside)
    assert torch.equal(between_nodes(nodes, slopes, grid, t[2]), nodes[2])
    torch.testing.assert_close(slopes_between((t**2)[:, None], grid.step)[:, 0], 2 * t)


@pytest.mark.parametrize("made", [rda(), rda(nonlinearity="tanh"), rda(around="rate", nonlinearity="tanh"), Remembering(rda()), Static()])
def test_several_times_at_once_are_each_time_alone(made):
    path, times = made.path(kernels(), Grid(steps=3)), torch.tensor([0.9, 0.0, 0.4], dtype=F64)
    together = path.at(times)
    for k, t in enumerate(times):
        torch.testing.assert_close(together[k], path.at(t))


@pytest.mark.parametrize(("kernel", "options", "of"), [
    ("exponential", dict(rate=3.0), lambda s: 3 * math.exp(-3 * s)),
    ("box", dict(width=2.0), lambda s: 0.5),
    (lambda s: 1 + torch.cos(s), {}, lambda s: 1 + math.cos(s)),
])  # fmt: skip
@pytest.mark.parametrize("normalise", [True, False])
def test_a_memory_is_the_integral_over_the_history(kernel, options, of, normalise):
    made, w = only(rho=0.9), torch.ones(1, 1, 1, 1, dtype=F64)
    path = Remembering(made, kernel, normalise=normalise, **options).path(w, Grid(steps=200))
    for t in (0.25, 1.0):
        expected = quad(lambda tau, t=t: of(t - tau) * math.exp(0.9 * tau), 0, t)[0]
        expected /= quad(of, 0, t)[0] if normalise else 1.0
        assert path.at(t).item() == pytest.approx(expected, rel=1e-4)
    assert path.at(0.0).item() == (1.0 if normalise else 0.0)


def test_any_module_with_a_rate_can_be_remembered():
    class Grow(nn.Module):
        def forward(self, t, w):
            return 0.9 * w

    w = kernels()
    plain, known = (Remembering(made).path(w, Grid(steps=20)).at(0.7) for made in (Grow(), only(2, rho=0.9)))
    torch.testing.assert_close(plain, known.detach(), rtol=1e-6, atol=1e-6)


def test_a_box_forgets_what_is_older_than_its_width():
    path = Remembering(only(rho=1.0), "box", width=0.25).path(torch.ones(1, 1, 1, 1, dtype=F64), Grid(steps=400))
    assert path.at(1.0).item() == pytest.approx((math.e - math.exp(0.75)) / 0.25, rel=5e-3)


def test_a_normalised_memory_of_what_never_changes_is_that():
    w = kernels()
    torch.testing.assert_close(Remembering(Static(), "exponential").path(w, Grid()).at(0.43), w)
    assert not Remembering(Static()).moves


@pytest.mark.parametrize(("shape", "axes"), [((2, 3, 3, 3), (-2, -1)), ((6, 2, 3), (0,)), ((4, 3), (1, 0))])
def test_a_linear_operator_is_its_matrix_exponential(shape, axes):
    made, w = LinearEvolution(shape, axes, std=0.3).double(), torch.randn(shape, dtype=F64)
    reached = made.path(w, Grid(steps=1)).at(0.8).detach()
    flow, count = torch.as_tensor(expm(0.8 * made.matrix.detach().numpy())), len(axes)
    first = w.movedim(axes, tuple(range(count)))
    expected = (flow @ first.reshape(len(flow), -1)).reshape(first.shape).movedim(tuple(range(count)), axes)
    torch.testing.assert_close(reached, expected)
    integrated = Evolution.path(made, w, Grid(steps=1))
    assert integrated.tensors.keys() == made.path(w, Grid()).tensors.keys()
    torch.testing.assert_close(Evolution.nodes(made, w, Grid(end=0.8, steps=40))[-1], expected, rtol=1e-5, atol=1e-6)


def test_a_small_convolution_starts_still_and_is_the_same_for_all_pairs_of_channels():
    made, w = ConvEvolution().double(), kernels()
    assert torch.equal(made.path(w, Grid()).at(1.0), w)
    nn.init.normal_(made.second.weight)
    path = made.path(w, Grid())
    torch.testing.assert_close(path.at(0.6)[1:, :1], made.path(w[1:, :1], Grid()).at(0.6))
    torch.testing.assert_close(made.path(w, Grid(steps=40)).at(0.6), path.at(0.6), rtol=1e-3, atol=1e-3)


def test_a_hypernetwork_makes_the_weights_in_one_step_from_few_numbers_of_its_own():
    filter = evolve(Pixel(16, 16, size=3), "hyper")
    assert sum(p.numel() for p in filter.parameters()) == 8 + (8 * 128 + 128) + (8 * 144 + 144) > 0
    assert "inner.weight" not in dict(filter.named_parameters())
    assert not filter.time_dependent
    weight = filter.kernel(filter.state()).weight()
    made: HyperNetwork = filter.evolutions["weight"]
    hidden = (made.inputs.weight @ made.embedding + made.inputs.bias).reshape(16, 8)
    expected = (hidden @ made.output.weight.T + made.output.bias).reshape(16, 16, 3, 3).transpose(0, 1)
    torch.testing.assert_close(weight, expected)
    weight.sum().backward()
    assert all(p.grad is not None for p in filter.parameters())


# --- the filter ----------------------------------------------------------------------------------------------------------


class Turning(nn.Module):
    """A user's own evolution: any module with forward(t, w)."""

    def __init__(self) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(1.5, dtype=F64))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return self.speed * torch.cos(t) * w


def test_any_module_with_forward_t_w_is_an_evolution():
    filter = Evolved(Pixel(2, 2).double(), Turning(), grid=Grid(steps=20))
    state = filter.state()
    weight = filter.kernel(state, torch.tensor(0.77, dtype=F64)).weight()
    torch.testing.assert_close(weight, filter.inner.weight * math.exp(1.5 * math.sin(0.77)), rtol=1e-6, atol=1e-7)
    weight.square().sum().backward()
    assert filter.evolutions["weight"].rate.speed.grad.abs() > 0


EVOLVED = {
    "pixel": lambda: Evolved(Pixel(3, 2), rda(nonlinearity="tanh")),
    "pixel, closed": lambda: Evolved(Pixel(3, 2), rda()),
    "njet α": lambda: Evolved(NJet(3, 2), LinearEvolution((6, 3, 2), (0,), std=0.3)),
    "njet σ": lambda: Evolved(NJet(3, 2), {"s": ScaleDiffusion(0.0)}),
    "njet α and σ": lambda: evolve(NJet(3, 2), {"alpha": "linear", "s": "diffusion"}, options={"alpha": {"std": 0.2}}),
    "njet per channel": lambda: Evolved(NJet(3, 2, sharing="channel", s_std=0.2), {"s": ScaleDiffusion(0.0)}),
    "njet per pair": lambda: Evolved(NJet(3, 2, sharing="pair", s_std=0.2), {"alpha": LinearEvolution((6, 3, 2), (0,), std=0.3)}),
}


@pytest.mark.parametrize("kind", EVOLVED)
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_a_kernel_per_sample_is_the_kernel_of_each_time(kind):
    conv, x = FilterConv2d(EVOLVED[kind]().double()), torch.randn(3, 3, 9, 9, dtype=F64)
    times = torch.tensor([0.1, 1.0, 0.6], dtype=F64)
    together = conv(x, times)
    for k, t in enumerate(times):
        torch.testing.assert_close(together[k : k + 1], conv(x[k : k + 1], t))
    assert not torch.allclose(conv(x, 0.0), conv(x, 1.0))


@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_the_scale_of_an_evolved_n_jet_diffuses_as_that_of_a_scheduled_one():
    scheduled = ScheduledNJet(2, 3, scale="diffusion", radius="max", interval=(0.0, 1.0)).double()
    inner = NJet(2, 3).double()
    with torch.no_grad():
        inner.alpha.copy_(scheduled.alpha)
        inner.s.copy_(scheduled.b)
    evolved = Evolved(inner, {"s": ScaleDiffusion(float(scheduled.a.detach()))})
    for t in (0.0, 0.4, 1.0):
        time = torch.tensor(t, dtype=F64)
        ours, theirs = (f.kernel(f.state(), time, f.read_host(f.state())).weight() for f in (evolved, scheduled))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_closed_form_of_scale_diffusion_is_the_solution_of_its_rate():
    made, s = ScaleDiffusion(0.5).double(), torch.tensor([-0.3, 0.8], dtype=F64)
    torch.testing.assert_close(made.path(s, Grid()).at(1.0), Evolution.nodes(made, s, Grid(steps=50))[-1], rtol=1e-6, atol=1e-7)


def test_a_clock_runs_ahead_and_stops_at_the_end():
    filter = Evolved(Pixel(1, 1).double(), only(rho=1.0), clock=2.0)
    shares = [filter.kernel(filter.state(), torch.tensor(t, dtype=F64)).weight() / filter.inner.weight for t in (0.0, 0.25, 0.5, 1.0)]
    assert [float(ratio.detach().mean()) for ratio in shares] == pytest.approx([1.0, math.exp(0.5), math.e, math.e])


def test_the_path_is_computed_once_per_realised_convolution_whatever_is_evaluated():
    made, x = rda(nonlinearity="tanh"), torch.randn(4, 3, 8, 8, dtype=F64)
    conv, calls = FilterConv2d(Evolved(Pixel(3, 2).double(), made)), []
    inner = made.nodes
    made.nodes = lambda *arguments: calls.append(1) or inner(*arguments)
    ready = conv.realise(x.shape, x.dtype)
    for t in (0.0, 0.3, torch.rand(4)):
        ready(x, t)
    assert len(calls) == 1


def test_evolutions_are_computed_in_full_precision_under_autocast_and_in_half_precision_networks():
    filter = Evolved(Pixel(3, 2), LinearEvolution((2, 3, 3, 3), std=0.2))
    conv, x = FilterConv2d(filter), torch.randn(2, 3, 8, 8)
    exact = conv(x, 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(tensor.dtype == torch.float32 for tensor in filter.state().values())
        torch.testing.assert_close(conv(x, 0.5).float(), exact, rtol=0.1, atol=0.05)
    small = FilterConv2d(Evolved(Pixel(3, 2), RDA(2))).bfloat16()
    assert small(x.bfloat16(), 0.5).dtype == torch.bfloat16


def test_a_frozen_filter_keeps_its_path_and_computes_nothing():
    filter = Evolved(Pixel(3, 2), rda(nonlinearity="tanh").float())
    conv, x = FilterConv2d(filter), torch.randn(2, 3, 8, 8)
    frozen = conv.freeze()
    torch.testing.assert_close(frozen(x, 0.6), conv(x, 0.6).detach())
    nn.init.ones_(filter.inner.weight)
    assert not torch.allclose(frozen(x, 0.6), conv(x, 0.6))
    assert not any(p.requires_grad for p in frozen.parameters())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Evolved(Pixel(1, 1), {"alpha": Static()}), "no 'alpha' to evolve"),
        (lambda: Evolved(ScheduledNJet(1, 1), {"alpha": Static()}), "schedule of its own"),
        (lambda: evolve(NJet(1, 1), "rda"), "acts on the pixels"),
        (lambda: evolve(Pixel(1, 1), "diffusion"), "use 'rda'"),
        (lambda: evolve(Pixel(1, 1), "magic"), "unknown evolution 'magic'"),
        (lambda: evolve(Pixel(1, 1), "rda", options={"speed": 1}), "speed"),
        (lambda: evolve(Pixel(1, 1), "rda", memory="elephant"), "exponential, box"),
        (lambda: make_evolution("rda", (2, 1, 3, 3), wave_numbers="odd"), "'integer' or 'radian'"),
        (lambda: RDA(1, nonlinearity="tnah"), "tanh"),
        (lambda: RDA(1, around="both"), r"eq\. 13"),
        (lambda: Grid(steps=0), "at least one step"),
        (lambda: RDA(3).path(kernels(out=2), Grid()), r"shape \(3, in, rows, cols\); got \(2, 3, 5, 5\)"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_isotropic_diffusion_is_tau_k_squared():
    """Eq. 8 as it is written: one τ; four numbers for each output channel, and the path of two equal ones."""
    torch.manual_seed(0)
    one, two = RDA(3, nonlinearity="identity", isotropic=True, start=0.2), RDA(3, nonlinearity="identity")
    assert sum(p.numel() for p in one.parameters()) == 4 * 3
    assert sum(p.numel() for p in two.parameters()) == 5 * 3
    with torch.no_grad():
        two.tau.copy_(one.tau.expand(-1, 2)), two.v.copy_(one.v), two.rho.copy_(one.rho)
    w, grid = torch.randn(3, 2, 5, 5), Grid(steps=4)
    torch.testing.assert_close(one.nodes(w, grid), two.nodes(w, grid))
    one.nodes(w, grid)[-1].square().sum().backward()
    two.nodes(w, grid)[-1].square().sum().backward()
    torch.testing.assert_close(one.tau.grad, two.tau.grad.sum(1, keepdim=True))
    assert "isotropic" in repr(one)


def test_a_spread_to_start_from():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    assert all(not p.any() for p in RDA(64).parameters())
    assert torch.equal(before, torch.random.get_rng_state()), "zeros draw nothing, so networks without a spread start as they always did"
    numbers = torch.cat([p.detach().flatten() for p in RDA(400, start=0.3).parameters()])
    assert float(numbers.std()) == pytest.approx(0.3, rel=0.1)
    with pytest.raises(ConfigError, match="0 or more"):
        RDA(4, start=-1.0)
