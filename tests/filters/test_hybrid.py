"""The hybrid discretisation: blur, then differences, without an artefact at the border."""

import math

import numpy as np
import pytest
import torch
from njet_reference import correlate, derivative, pairs, radius_of

from continua.filters import FilterConv2d, NJet
from continua.filters.basis import jet_orders
from continua.filters.hybrid import hybrid_kernel


def hybrid(sigma, order=2, channels=(2, 3), **options):
    made = FilterConv2d(NJet(*channels, order=order), discretisation="hybrid", **options).double()
    with torch.no_grad():
        made.filter.s.fill_(math.log2(sigma))
    return made


def reference(x, alpha, sigma, order):
    """Blur a map with a wide margin of zeros, then take central differences of the kernel's sign, then cut the margin off."""
    radius = radius_of(sigma, 4.0)
    margin = radius + 2
    g = derivative(0, sigma, radius)
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    channels = x.shape[1]
    blur = np.zeros((channels, channels, 2 * radius + 1, 2 * radius + 1))
    blur[range(channels), range(channels)] = np.outer(g, g)
    blurred = correlate(padded, blur)
    stencil = [np.array([0, 1, 0]), np.array([0.5, 0, -0.5]), np.array([1, -2, 1])]
    weight = sum(
        alpha[f].T[:, :, None, None] * sigma ** (i + j) * np.outer(stencil[i], stencil[j]) for f, (i, j) in enumerate(pairs(order))
    )
    return correlate(blurred, weight)[:, :, margin:-margin, margin:-margin]


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize(("sigma", "size"), [(0.5, (7, 9)), (1.4, (8, 8)), (3.0, (6, 11))])
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_equals_blur_then_differences_on_an_unbounded_plane(order, sigma, size):
    made = hybrid(sigma, order)
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    expected = reference(x.numpy(), made.filter.alpha.detach().numpy(), sigma, order)
    np.testing.assert_allclose(made(x).detach(), expected, rtol=1e-9, atol=1e-12)


def test_as_one_kernel_it_is_the_same_convolution():
    made = hybrid(1.3)
    x = torch.randn(2, 2, 30, 30, dtype=torch.float64)
    weight = hybrid_kernel(made.filter.kernel(made.filter.state())).weight()
    torch.testing.assert_close(torch.nn.functional.conv2d(x, weight, padding=weight.shape[-1] // 2), made(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sigma", [1.0, 2.0, 3.0])
def test_a_constant_image_has_no_second_derivative_until_the_border_is_in_sight(sigma):
    made = hybrid(sigma, channels=(1, 1))
    with torch.no_grad():
        made.filter.alpha.zero_()[jet_orders(2).index((0, 2))] = 1.0
    size, reach = 40, radius_of(sigma, 4.0) + 1
    response = made(torch.ones(1, 1, size, size, dtype=torch.float64))[0, 0].detach()
    # Rows see the border as a fading factor only; columns see it as a derivative within reach, and not a pixel farther in.
    assert float(response[:, reach:-reach].abs().max()) < 1e-14
    # At the border the sampled scheme at the same radius answers to the edge of the image; the hybrid one may not add to that.
    sampled = FilterConv2d(NJet(1, 1, radius_factor=4.0)).double()
    sampled.filter.load_state_dict(made.filter.state_dict())
    difference = (sampled(torch.ones(1, 1, size, size, dtype=torch.float64))[0, 0] - response).abs().max()
    assert float(difference) < {1.0: 0.08, 2.0: 0.03, 3.0: 0.02}[sigma]


@pytest.mark.parametrize(("order", "bounds"), [((0, 1), {1.0: 0.3, 2.0: 0.09, 3.0: 0.04}), ((0, 2), {1.0: 0.25, 2.0: 0.07, 3.0: 0.035})])
@pytest.mark.parametrize("sigma", [1.0, 2.0, 3.0])
def test_distance_from_sampled_derivatives_is_as_documented(order, bounds, sigma):
    made = hybrid(sigma, channels=(1, 1))
    made.filter.radius_factor = 4.0
    with torch.no_grad():
        made.filter.alpha.zero_()[jet_orders(2).index(order)] = 1.0
    kernel = made.filter.kernel(made.filter.state())
    small, large = kernel.weight().detach(), hybrid_kernel(kernel).weight().detach()
    margin = (large.shape[-1] - small.shape[-1]) // 2
    sampled = torch.nn.functional.pad(small, (margin,) * 4)
    assert bounds[sigma] / 2 < float((large - sampled).norm() / sampled.norm()) < bounds[sigma]
