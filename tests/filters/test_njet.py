"""N-jet kernels are the numbers of the formulas, and their gradients are those of the formulas."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from njet_reference import derivative, njet, pairs, radius_of
from scipy.ndimage import gaussian_filter

from continua import ConfigError, ContinuaError, ContinuaWarning
from continua.filters import NJet
from continua.filters.basis import gaussian_derivatives, jet_orders, scale_direction, truncation_radius


def jet(sigma=1.0, channels=(3, 4), **options):
    made = NJet(*channels, **options).double()
    with torch.no_grad():
        made.s.fill_(np.log2(sigma))
    return made


def test_basis_order_is_that_of_the_authors():
    assert jet_orders(2) == [(0, 2), (0, 1), (0, 0), (1, 1), (1, 0), (2, 0)]
    assert [jet_orders(n) for n in range(5)] == [pairs(n) for n in range(5)]


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.3, 4.0])
def test_one_dimensional_derivatives_follow_the_hermite_formula_to_order_six(sigma):
    radius = radius_of(sigma)
    ours = gaussian_derivatives(torch.tensor(sigma, dtype=torch.float64), 6, radius)
    expected = np.stack([derivative(n, sigma, radius) for n in range(7)])
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("sigma", "size"), [(0.25, 3), (0.26, 5), (0.75, 5), (1.25, 7), (1.75, 9), (2.25, 11), (2.75, 13)])
def test_kernel_size_is_twice_ceil_of_two_sigma_and_a_half_plus_one(sigma, size):
    made = jet(sigma)
    assert made.kernel(made.state()).size == (size, size)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("sigma", [0.4, 1.1, 2.7])
def test_dense_weights_equal_the_reference(order, sigma):
    made = jet(sigma, order=order)
    expected = njet(made.alpha.detach().numpy(), sigma, order, radius_of(sigma))
    np.testing.assert_allclose(made.kernel(made.state()).weight().detach(), expected, rtol=1e-10, atol=1e-13)


def test_radius_factor_widens_the_kernel():
    made = jet(1.3, radius_factor=4.0)
    expected = njet(made.alpha.detach().numpy(), 1.3, 2, radius_of(1.3, 4.0))
    np.testing.assert_allclose(made.kernel(made.state()).weight().detach(), expected, rtol=1e-10, atol=1e-13)


def test_each_output_channel_has_the_kernel_of_its_own_sigma():
    made = NJet(3, 4, sharing="channel").double()
    weight = made.kernel(made.state()).weight().detach().numpy()
    middle = weight.shape[-1] // 2
    for channel, sigma in enumerate(made.sigma.tolist()):
        radius = radius_of(sigma)
        alone = np.zeros_like(weight[:1])
        inside = slice(middle - radius, middle + radius + 1)
        alone[..., inside, inside] = njet(made.alpha.detach().numpy()[:, :, [channel]], sigma, 2, radius)
        np.testing.assert_allclose(weight[[channel]], alone, rtol=1e-10, atol=1e-13)


def test_each_pair_has_its_own_sigma_on_seven_by_seven_pixels():
    made = NJet(3, 4, sharing="pair").double()
    weight = made.kernel(made.state()).weight().detach().numpy()
    assert weight.shape == (4, 3, 7, 7)
    for c in range(3):
        for o in range(4):
            alone = njet(made.alpha.detach().numpy()[:, [c]][:, :, [o]], float(made.sigma[c, o]), 2, 3)
            np.testing.assert_allclose(weight[o, c], alone[0, 0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("i", "j"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2)])
def test_a_wide_kernel_gives_scipys_gaussian_derivatives(i, j):
    sigma = 1.7
    made = jet(sigma, channels=(1, 1), radius_factor=4.0)
    with torch.no_grad():
        made.alpha.zero_()[jet_orders(2).index((i, j))] = 1.0
    image = np.random.default_rng(0).normal(size=(41, 43))
    weight = made.kernel(made.state()).weight()
    ours = torch.nn.functional.conv2d(torch.from_numpy(image)[None, None], weight, padding="same")[0, 0].detach()
    # SciPy convolves where a layer correlates, which turns the sign of odd derivatives; it does not normalise by σ^n.
    theirs = gaussian_filter(image, sigma, order=(i, j), mode="constant", radius=radius_of(sigma, 4.0))
    scale = (-sigma) ** (i + j)
    np.testing.assert_allclose(ours, scale * theirs, atol=1e-10)


@pytest.mark.parametrize("sharing", ["layer", "channel", "pair"])
def test_gradients_of_alpha_and_s_pass_gradcheck(sharing):
    made = NJet(2, 3, sharing=sharing).double()

    def weight(alpha, s):
        return made.kernel({"alpha": alpha, "s": s}).weight()

    torch.autograd.gradcheck(weight, (made.alpha, made.s), fast_mode=True)


def test_gradient_of_bounded_s_passes_gradcheck():
    made = jet(5.0, sigma_bounds=(0.3, 6.0))
    torch.autograd.gradcheck(lambda s: made.kernel({"alpha": made.alpha.detach(), "s": s}).weight(), (made.s,), fast_mode=True)


def test_initial_values_are_those_of_the_paper():
    made = NJet(64, 64)
    assert made.alpha.shape == (6, 64, 64)
    assert made.s.shape == (1,)
    assert abs(float(made.alpha.std()) - 0.1) < 0.003
    assert abs(float(NJet(64, 64, sharing="pair").s.std()) - 2 / 3) < 0.03


def test_bounds_hold_sigma_without_ever_flattening():
    made = jet(1.0, sigma_bounds=(0.5, 4.0))
    for s in (-6.0, -1.0, 0.5, 3.0, 8.0):
        with torch.no_grad():
            made.s.fill_(s)
        assert 0.5 < float(made.sigma) < 4.0
        assert float(torch.autograd.grad(made.sigma.sum(), made.s)[0]) > 0


@pytest.mark.parametrize(("factor", "response_bound", "gradient_bound"), [(2.0, 0.12, 0.30), (3.0, 0.012, 0.06), (4.0, 0.0005, 0.004)])
@pytest.mark.parametrize("near", [0.75, 1.25, 1.75, 2.25])
def test_response_and_gradient_of_sigma_jump_by_less_than_a_bound_where_the_radius_does(near, factor, response_bound, gradient_bound):
    """The bounds hold for every loss: |Δ dL/ds| ≤ bound · |∂L/∂W| |∂W/∂s|. At the paper's factor 2 truncation costs up to a tenth of the
    response and a quarter of the gradient; at 4 nothing that matters."""
    made = jet(near, radius_factor=factor)
    x, target = torch.randn(2, 3, 40, 40, dtype=torch.float64), torch.randn(2, 4, 40, 40, dtype=torch.float64)
    edge = (np.ceil(factor * near + 0.5) - 0.5) / factor  # the largest σ of this radius
    sizes, responses, gradients, scales = [], [], [], []
    for sigma in (edge - 1e-9, edge + 1e-9):
        s = torch.tensor([np.log2(sigma)], dtype=torch.float64)
        weight, slope = torch.func.jvp(lambda s: made.kernel({"alpha": made.alpha.detach(), "s": s}).weight(), (s,), (torch.ones_like(s),))
        weight.requires_grad_()
        y = torch.nn.functional.conv2d(x, weight, padding=weight.shape[-1] // 2)
        (upstream,) = torch.autograd.grad((y - target).square().sum(), weight)
        sizes.append(weight.shape[-1])
        responses.append(y.detach())
        gradients.append(float((upstream * slope).sum()))
        scales.append(float(upstream.norm() * slope.norm()))
    assert sizes[1] == sizes[0] + 2
    assert float((responses[1] - responses[0]).norm() / responses[0].norm()) < response_bound
    assert abs(gradients[1] - gradients[0]) / max(scales) < gradient_bound


def test_a_sigma_outside_the_sensible_range_is_named_once():
    made = jet(9.0)
    made.label = "blocks.1.conv2"
    with pytest.warns(ContinuaWarning, match=r"blocks\.1\.conv2 is 9"):
        made.kernel(made.state())
    made.kernel(made.state())  # a second warning would be an error here


@pytest.mark.parametrize("s", [20.0, float("nan"), float("inf")])
def test_an_exploded_sigma_says_what_to_do_instead_of_asking_for_memory(s):
    made = jet()
    with torch.no_grad():
        made.s.fill_(s)
    with pytest.raises(ContinuaError, match="sigma_bounds"), pytest.warns(ContinuaWarning) if s == 20 else nullcontext():
        made.kernel(made.state())


def test_wrong_options_are_refused():
    with pytest.raises(ConfigError, match="sharing"):
        NJet(1, 1, sharing="image")
    with pytest.raises(ConfigError, match="order"):
        NJet(1, 1, order=-1)
    with pytest.raises(ConfigError, match="sigma_bounds"):
        NJet(1, 1, sigma_bounds=(2.0, 1.0))
    with pytest.raises(ContinuaError, match="half-width"):
        truncation_radius(1e6, 2.0)


@pytest.mark.parametrize(("radius", "kept"), [(4, 9), (9, 9), (9, 2), (0, 3)])
def test_the_direction_in_which_taps_move_with_the_scale_is_their_derivative(radius, kept):
    sigma = torch.tensor(1.3, dtype=torch.float64)
    taps, slopes = torch.func.jvp(lambda value: gaussian_derivatives(value, 4, radius), (sigma,), (torch.ones_like(sigma),))
    slopes = slopes[:, max(0, radius - kept) : radius + kept + 1]
    expected = slopes / slopes.norm() if radius else slopes  # a single pixel does not move
    torch.testing.assert_close(scale_direction(taps, sigma, kept), expected, rtol=1e-12, atol=1e-14)


def test_each_sample_s_taps_have_their_own_direction():
    sigma = torch.tensor([0.4, 1.0, 2.2], dtype=torch.float64)
    together = scale_direction(gaussian_derivatives(sigma, 2, [2, 3, 5]), sigma, 9)
    for own, value, radius in zip(together, sigma, (2, 3, 5), strict=True):
        alone = scale_direction(gaussian_derivatives(value, 2, radius), value, 9)
        torch.testing.assert_close(own[:, 5 - radius : 6 + radius], alone)
        assert own.norm() == pytest.approx(1.0)
