"""The registered neural fields do what theory says: patterns of the fastest wave, bumps that stay, fronts of the predicted speed."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from continua import ConfigError, Network, create_model
from continua.blocks import NeuralField, dominant_wave
from continua.neuro import DrivenNetwork, Screen, still

FINE = dict(rtol=1e-6, atol=1e-6)  # the error is a mean over the sheet, and only the edges of a front make any


def sheet(**options) -> tuple[Network, NeuralField]:
    """A field whose images are its state, in float64."""
    net = create_model("neural_field", stem="none", in_channels=1, **options).double().eval()
    field = net.blocks[0].get_submodule("field")
    assert isinstance(field, NeuralField)
    return net, field


@pytest.mark.parametrize("options", [{}, dict(lateral="njet", amplitudes=(8.0,), sigmas=(2.0,))], ids=["gaussians", "njet"])
@torch.no_grad()
def test_noise_becomes_the_pattern_whose_wave_grows_fastest(options: dict) -> None:
    net, field = sheet(**options)
    relation = field.dispersion(32, 32)
    assert relation.unstable
    torch.manual_seed(0)
    start = field.resting_state()[:, None, None] + 1e-3 * torch.randn(1, 1, 32, 32, dtype=torch.float64)
    pattern = net.forward_features(start)
    assert float(pattern.std()) > 0.1, "it has saturated"
    assert dominant_wave(pattern[0, 0]) == pytest.approx(relation.fastest, abs=1.01 / 32)  # to the resolution of the torus


@torch.no_grad()
def test_an_n_jet_field_prefers_the_wave_of_its_laplacian() -> None:
    """−σ²∇²G has the Fourier transform σ²k² exp(−σ²k²/2), largest at k = √2/σ."""
    _, field = sheet(lateral="njet", amplitudes=(8.0,), sigmas=(3.0,))
    assert field.dispersion(1, 400).fastest == pytest.approx(math.sqrt(2) / 3 / (2 * math.pi), abs=1 / 400)


@torch.no_grad()
def test_a_strong_input_leaves_a_bump_and_a_weak_one_nothing() -> None:
    net, field = sheet(amplitudes=(4.0, -4.0), sigmas=(4.0, 8.0), slope=(200.0,), threshold=(0.3,))
    x = torch.arange(160, dtype=torch.float64) - 80
    spot = torch.exp(-0.5 * (x / 4) ** 2)[None, None, None]
    bump, nothing = net.forward_features(spot), net.forward_features(0.2 * spot)
    inside = field.rates(bump)[0, 0, 0] > 0.5
    assert 5 < int(inside.sum()) < 25
    assert bool(inside[80])
    assert float(nothing.abs().max()) < 0.05


@torch.no_grad()
def test_a_front_travels_at_the_speed_that_theory_gives() -> None:
    """With an excitatory kernel w and a steep rate, a front u(x − ct) that fires behind it has u(0) = threshold, so that
    threshold = ∫_0^∞ e^(−v) W(cτv) dv with W(x) = ∫_x^∞ w (Amari 1977; Ermentrout and McLeod 1993)."""
    amplitude, sigma, threshold, tau = 2.0, 8.0, 0.5, 10.0

    def miss(speed: float) -> float:
        return quad(lambda v: math.exp(-v) * amplitude * norm.sf(speed * tau * v / sigma), 0, 60)[0] - threshold

    expected = brentq(miss, 1e-6, 10.0)
    assert isinstance(expected, float)
    net, field = sheet(amplitudes=(amplitude,), sigmas=(sigma,), slope=(400.0,), threshold=(threshold,), tau=(tau,), t1=100.0, solver=FINE)
    x = torch.arange(800, dtype=torch.float64) - 400
    start = (amplitude * (x.abs() < 100))[None, None, None].double()
    early, late = (field.rates(u)[0, 0, 0].sum() / 2 for u in net.states(start, 0, [50.0, 100.0]))
    assert float(late - early) / 50 == pytest.approx(expected, rel=0.02)


@torch.no_grad()
def test_excitation_and_inhibition_oscillate_at_the_frequency_of_the_linearisation() -> None:
    net = create_model("wilson_cowan", stem="none", in_channels=2, t1=40.0, solver=dict(rtol=1e-8, atol=1e-10)).double().eval()
    field = net.blocks[0].get_submodule("field")
    assert isinstance(field, NeuralField)
    relation, rest = field.dispersion(1, 16), field.resting_state()
    start = 1e-5 * torch.tensor([1.0, -0.5], dtype=torch.float64)
    u = rest[:, None, None] + start[:, None, None].expand(2, 1, 16)
    end = net.forward_features(u[None])[0, :, 0, 0] - rest
    expected = torch.linalg.matrix_exp(40 * relation.jacobian[0, 0].real) @ start
    torch.testing.assert_close(end, expected, rtol=1e-3, atol=1e-8)  # a thousandth of the start
    assert float(relation.frequency.max()) > 1


@torch.no_grad()
def test_a_registered_field_watches_films() -> None:
    """Its time is in ms already: one ms per unit of depth."""
    net, _ = sheet(t1=20.0, amplitudes=(0.0,), sigmas=(1.0,))
    screen = Screen(4, 4, dtype=torch.float64)
    movie = still(screen.grey() + 0.5, 40.0)
    driven = DrivenNetwork(net, gain=0.1, tau=1.0, prepare=lambda contrasts: contrasts)
    read = driven.respond(movie, [0.0, 1.0, 2.0])
    # du/ds = −u/10 + 0.1 (0.5 − u): from 0.5 towards 0.25 with a time constant of 5 ms
    expected = 0.25 + 0.25 * 5 * (1 - math.exp(-1 / 5))
    assert float(read.responses[0, 0, 0]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(amplitudes=(1.0, 2.0, 3.0)), "as many of each"),
        (dict(populations=2), "a multiple of 4"),
        (dict(lateral="njet"), "amplitudes of 1, sigmas of one number"),
        (dict(lateral="nyet"), "unknown lateral"),
        (dict(stem="none"), "as many of each, as images are u"),
        (dict(sigmas=(1.0, 0.0)), "positive"),
        (dict(tau=(0.0,)), "positive"),
        (dict(slope=(1.0, 2.0)), "populations"),
    ],
)
def test_what_is_no_field_is_refused_when_it_is_built(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create_model("neural_field", **options)
