"""A neural field does what its linearisation and Amari's theory say."""

import math
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from continua import ConfigError, solve
from continua.blocks import ODEBlock
from continua.filters import FilterConv2d, NJet
from continua.neuro import LateralGaussians, NeuralField, dominant_wave, mexican_hat


def at_the_end(field: NeuralField, start: Tensor, t1: float, **solver: float) -> Tensor:
    """u(t1), without gradients."""
    end = solve(field, start, 0.0, t1, **solver).y1  # pyright: ignore[reportArgumentType]
    assert isinstance(end, Tensor)
    return end.detach()


def hat(**options) -> NeuralField:
    """Its pattern has a spacing of about ten pixels."""
    return NeuralField(mexican_hat(6.0, 1.5, 6.0, 3.0), slope=2.0, **options).double()


def test_every_small_wave_grows_at_the_rate_of_the_dispersion_relation() -> None:
    field, (height, width) = hat(), (12, 20)
    torch.manual_seed(1)
    rest = field.resting_state()
    noise = 1e-6 * torch.randn(1, 1, height, width, dtype=torch.float64)
    end = at_the_end(field, rest[:, None, None] + noise, 20.0, rtol=1e-10, atol=1e-14)
    before, after = torch.fft.fft2(noise)[0, 0], torch.fft.fft2(end - rest[:, None, None])[0, 0]
    torch.testing.assert_close((after / before).real, torch.exp(20 * field.dispersion(height, width).growth), rtol=1e-3, atol=0)


def test_the_wave_that_grows_fastest_is_the_one_that_is_seen() -> None:
    field = hat()
    relation = field.dispersion(40, 40)
    assert relation.unstable
    torch.manual_seed(0)
    start = field.resting_state()[:, None, None] + 1e-3 * torch.randn(1, 1, 40, 40, dtype=torch.float64)
    seen = ODEBlock(field, t1=400.0)(start)
    assert float(seen.detach().std()) > 0.1  # it has saturated
    assert dominant_wave(seen[0, 0]) == pytest.approx(relation.fastest, abs=1.01 / 40)  # to the resolution of the torus


def test_two_populations_follow_the_matrix_exponential_of_their_wave() -> None:
    """Excitation and inhibition of different speeds: oscillating waves, as in Wilson and Cowan."""
    amplitude = torch.tensor([[[9.0, -8.0], [8.0, -1.0]]])
    sigma = torch.tensor([[[1.0, 2.0], [1.0, 2.0]]])
    field = NeuralField(LateralGaussians(amplitude, sigma), tau=[10.0, 15.0], slope=1.0, threshold=[0.5, 1.0]).double()
    relation, rest = field.dispersion(1, 16), field.resting_state()
    assert float(relation.frequency.max()) > 1
    x = torch.arange(16, dtype=torch.float64)
    wave = torch.cos(2 * math.pi * 2 * x / 16)
    start = 1e-6 * torch.tensor([1.0, -0.5], dtype=torch.float64)
    end = at_the_end(field, (rest[:, None] + start[:, None] * wave)[None, :, None], 30.0, rtol=1e-10, atol=1e-14)[0, :, 0]
    expected = torch.linalg.matrix_exp(30 * relation.jacobian[0, 2].real) @ start
    torch.testing.assert_close((end - rest[:, None]) @ wave / 8, expected, rtol=1e-3, atol=1e-12)


def test_a_bump_stays_and_has_amaris_width() -> None:
    """With a steep firing rate a bump of width a needs ∫_0^a w = threshold − rest (Amari 1977); the wider one is stable."""
    excitation, near, inhibition, far, threshold = 4.0, 4.0, 4.0, 8.0, 0.3
    field = NeuralField(mexican_hat(excitation, near, inhibition, far), slope=200.0, threshold=threshold).double()

    def reach(a: float) -> float:
        return float(excitation * (norm.cdf(a / near) - 0.5) - inhibition * (norm.cdf(a / far) - 0.5))

    width: Any = brentq(lambda a: reach(a) - threshold, near * 1.4, 60.0)
    x = torch.arange(160, dtype=torch.float64) - 80
    start = torch.exp(-0.5 * (x / (width / 2)) ** 2)[None, None, None]
    end = at_the_end(field, start, 400.0)[0, 0, 0].detach()
    assert float(field.rates(end[None, None, None]).detach().sum()) == pytest.approx(width, abs=1.0)  # to a pixel
    weak = at_the_end(field, 0.2 * start, 400.0)
    assert float(weak.detach().abs().max()) < 0.05  # below threshold it dies out


def test_an_n_jet_is_a_lateral_kernel_and_means_what_a_convolution_does() -> None:
    torch.manual_seed(3)
    jet = NJet(2, 2, order=2, radius=3).double()
    field = NeuralField(jet, tau=1.0).double()
    u = torch.randn(1, 2, 21, 21, dtype=torch.float64)
    lateral = (field(torch.tensor(0.0), u) + u)[..., 3:-3, 3:-3]
    torch.testing.assert_close(lateral, FilterConv2d(jet)(field.rates(u))[..., 3:-3, 3:-3])
    small = NeuralField(jet, tau=1.0).double()  # a torus smaller than the kernel
    assert small(torch.tensor(0.0), u[..., :4, :1]).shape == (1, 2, 4, 1)


def test_gradients_reach_every_parameter_through_a_solve() -> None:
    field = hat()
    u = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    grads = []
    for gradient in ("checkpoint", "direct"):
        field.zero_grad()
        ODEBlock(field, t1=10.0, solver=dict(method="rk4", steps=8, gradient=gradient))(u).square().sum().backward()
        grads.append([parameter.grad.clone() for parameter in field.parameters() if parameter.grad is not None])
    assert len(grads[0]) == 5  # amplitude, σ, slope, threshold, rest
    torch.testing.assert_close(grads[0], grads[1])
    assert all(float(grad.abs().max()) > 0 for grad in grads[0])


def test_input_is_added_at_its_time() -> None:
    field = NeuralField(mexican_hat(0.0, 1.0, 0.0, 2.0), tau=10.0, input=lambda t: t).double()
    end = at_the_end(field, torch.zeros(1, 1, 2, 2, dtype=torch.float64), 20.0, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(end.detach(), torch.full_like(end, 20 - 10 + 10 * math.exp(-2)))  # a leaky integrator of a ramp


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="each population to each"):
        NeuralField(NJet(1, 2))
    with pytest.raises(ConfigError, match="positive"):
        mexican_hat(1.0, 0.0, 1.0, 1.0)
    with pytest.raises(ConfigError, match="populations"):
        NeuralField(mexican_hat(1.0, 1.0, 1.0, 2.0), tau=[1.0, 2.0])
    with pytest.raises(ConfigError, match="expected"):
        hat()(torch.tensor(0.0), torch.zeros(1, 2, 4, 4, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"expected \(height, width\)"):
        dominant_wave(torch.zeros(1, 1, 4, 4))
