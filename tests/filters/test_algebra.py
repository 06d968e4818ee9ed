"""Filter algebra against the continuous functions it claims to be."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from scipy.signal import fftconvolve

from continua import ConfigError
from continua.filters import NJet, fit_pixel_kernel
from continua.filters.algebra import steering_matrix
from continua.filters.basis import jet_orders


def jet(order=3, sharing="layer", **options):
    return NJet(2, 3, order=order, sharing=sharing, **options).double()


def grid(reach, step=1.0):
    count = round(reach / step)
    return torch.arange(-count, count + 1, dtype=torch.float64) * step


def test_second_order_steering_is_equation_seven():
    theta, orders = 0.6, jet_orders(2)
    column = steering_matrix(2, theta)[:, orders.index((2, 0))]
    expected = {(2, 0): math.cos(theta) ** 2, (1, 1): -2 * math.cos(theta) * math.sin(theta), (0, 2): math.sin(theta) ** 2}
    np.testing.assert_allclose(column, [expected.get(pair, 0.0) for pair in orders], atol=1e-15)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("sharing", ["layer", "pair"])
def test_a_rotated_filter_is_the_filter_at_rotated_coordinates(order, sharing):
    filter, theta = jet(order, sharing), 0.7
    turned = filter.rotate(theta)
    for y, x in [(0.3, -1.1), (1.7, 0.4), (-0.6, -0.9)]:
        back_x, back_y = math.cos(theta) * x + math.sin(theta) * y, -math.sin(theta) * x + math.cos(theta) * y
        at = filter.sample(*torch.tensor([[back_y], [back_x]], dtype=torch.float64))
        torch.testing.assert_close(turned.sample(*torch.tensor([[y], [x]], dtype=torch.float64)), at, rtol=1e-9, atol=1e-12)


def test_rotations_compose_and_a_full_turn_is_the_identity():
    product = steering_matrix(4, 0.3) @ steering_matrix(4, 0.5)
    torch.testing.assert_close(product, steering_matrix(4, 0.8), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(steering_matrix(4, 2 * math.pi), torch.eye(15, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sharing", ["layer", "channel", "pair"])
def test_a_rescaled_filter_is_the_filter_at_scaled_coordinates(sharing):
    filter, y, x = jet(sharing=sharing), grid(3, 0.5), grid(2, 0.4)
    torch.testing.assert_close(filter.rescale(1.7).sample(y, x), filter.sample(y / 1.7, x / 1.7) / 1.7**2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sharing", ["layer", "channel", "pair"])
def test_blurring_is_convolution_with_a_gaussian(sharing):
    filter, step = jet(2, sharing, s_std=0.2), 0.125
    fine = grid(12, step)
    g = torch.exp(-(fine**2) / (2 * 0.8**2)) / (math.sqrt(2 * math.pi) * 0.8)
    gaussian = torch.outer(g, g).numpy() * step**2
    expected = fftconvolve(filter.sample(fine, fine)[0, 0].detach().numpy(), gaussian, mode="same")
    np.testing.assert_allclose(filter.blur(0.8).sample(fine, fine)[0, 0].detach(), expected, atol=1e-8)


def test_blurs_compose_by_their_variances():
    filter, y = jet(), grid(3)
    torch.testing.assert_close(filter.blur(0.6).blur(0.8).sample(y, y), filter.blur(1.0).sample(y, y), rtol=1e-9, atol=1e-12)


def test_sampling_at_pixels_is_the_kernel_where_it_is_not_truncated():
    filter = jet(2, radius_factor=6.0, s_std=0.0)
    kernel = filter.kernel(filter.state())
    y = grid(kernel.size[0] // 2)
    torch.testing.assert_close(filter.sample(y, y), kernel.weight(), rtol=0, atol=1e-8)


def test_frequency_response_is_the_fourier_transform():
    filter, step = jet(s_std=0.2), 0.25
    y = grid(14, step)
    samples = filter.sample(y, y).to(torch.complex128)
    for fy, fx in [(0.0, 0.0), (0.1, -0.05), (0.02, 0.2)]:
        wave = torch.exp(-2j * math.pi * (fy * y[:, None] + fx * y[None, :])) * step**2
        expected = (samples * wave).sum((-2, -1))
        ours = filter.frequency_response(torch.tensor(fy, dtype=torch.float64), torch.tensor(fx, dtype=torch.float64))
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_derivative_of_order_n_peaks_at_root_n_over_two_pi_sigma_along_its_direction(order):
    filter = NJet(1, 1, order=order).double()
    with torch.no_grad():
        filter.alpha.zero_()[jet_orders(order).index((0, order))] = 1.0
    for angle in (0.0, 0.4, 2.0):
        tuning = filter.rotate(angle).tuning()
        assert float(tuning.frequency) == pytest.approx(math.sqrt(order) / (2 * math.pi * float(filter.sigma.detach())), rel=1e-4)
        assert math.cos(2 * (float(tuning.orientation) - angle)) == pytest.approx(1.0, abs=1e-6)


def test_tuning_finds_the_maximum_of_the_response_of_any_filter():
    filter = jet(2, "channel")
    tuning = filter.tuning()
    phi = torch.nan_to_num(tuning.orientation)
    peak = filter.frequency_response(tuning.frequency * phi.sin(), tuning.frequency * phi.cos()).abs()
    f = torch.linspace(-0.6, 0.6, 121, dtype=torch.float64)
    everywhere = filter.frequency_response(f[:, None].expand(121, 121), f[None, :].expand(121, 121)).abs().amax((-2, -1))
    for o in range(3):
        for c in range(2):
            assert float(peak[o, c, o, c].detach()) >= float(everywhere[o, c].detach()) * (1 - 1e-9)


def test_a_low_pass_filter_has_no_orientation():
    tuning = NJet(1, 1, order=0).tuning()
    assert float(tuning.frequency) == 0.0
    assert math.isnan(float(tuning.orientation))


def test_an_njets_own_kernel_is_fitted_without_residual():
    filter = NJet(2, 3, radius=3).double()
    with torch.no_grad():
        filter.s.fill_(0.3)
    fit = fit_pixel_kernel(filter.kernel(filter.state()).weight())
    assert fit.residual < 1e-6
    assert float(fit.filter.sigma.detach()) == pytest.approx(2**0.3, rel=1e-5)
    torch.testing.assert_close(fit.filter.alpha, filter.alpha, rtol=1e-4, atol=1e-6)


def test_the_fit_is_nearest_and_its_residual_is_measured_on_the_realised_kernel():
    weight = torch.randn(4, 2, 5, 5, dtype=torch.float64)
    fit = fit_pixel_kernel(weight)
    realised = fit.filter.kernel(fit.filter.state()).weight()
    rest = weight - realised
    assert fit.residual == pytest.approx(float(rest.norm() / weight.norm()), rel=1e-9)
    torch.testing.assert_close(fit.residual_per_kernel, (rest.flatten(2).norm(dim=2) / weight.flatten(2).norm(dim=2)), rtol=1e-9, atol=0)
    for sigma in np.geomspace(0.3, 4.0, 25):
        assert fit.residual <= fit_pixel_kernel(weight, sigma=float(sigma)).residual + 1e-9
    gradient = torch.autograd.grad(rest.square().sum(), [fit.filter.alpha])[0]
    assert float(gradient.abs().max()) < 1e-9


def test_rotating_the_sampled_image_of_a_filter_agrees_with_steering():
    filter = NJet(1, 1, s_std=0.0).double()
    y = grid(8, 0.25)
    image = filter.sample(y, y)[0, 0].detach().numpy()
    theta = 0.5
    rows, cols = np.meshgrid(y, y, indexing="ij")
    back = np.stack([-np.sin(theta) * cols + np.cos(theta) * rows, np.cos(theta) * cols + np.sin(theta) * rows]) / 0.25 + len(y) // 2
    expected = map_coordinates(image, back, order=5)
    np.testing.assert_allclose(filter.rotate(theta).sample(y, y)[0, 0].detach(), expected, atol=1e-4)


def test_impossible_requests_are_refused():
    with pytest.raises(ConfigError, match="factor"):
        jet().rescale(-1.0)
    with pytest.raises(ConfigError, match="sigma_bounds"):
        jet(sigma_bounds=(0.2, 8.0)).rescale(100.0)
    with pytest.raises(ConfigError, match="odd"):
        fit_pixel_kernel(torch.randn(1, 1, 4, 4))
