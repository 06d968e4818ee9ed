"""Weights over depth: what the numbers mean, on filters whose way is known; the synthetic rows of Fig. 3."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from continua import ConfigError, create_model
from continua.analysis import weights
from continua.analysis.questions.weights import centre_of_mass, present, synthetic, write_gif
from continua.report import Figure, Maps


def network(**options):
    net = create_model("resnet4_anodev2_c1", channels=(4,), nonlinearity="identity", **options).eval()
    for conv in net.blocks[0].field.convs:
        torch.nn.init.constant_(conv.filter.evolutions["weight"].rho, 0.7)
    return net


def test_norms_kernels_and_centres_are_those_of_the_layer_along_t():
    net = network()
    result = weights(net, times=3, channel=1, kernels=2, points=5)
    assert [layer.name for layer in result.layers] == ["blocks.0.field.convs.0", "blocks.0.field.convs.1"]
    layer, start = result.layers[0], net.blocks[0].field.convs[0].filter.inner.weight.detach().double()
    assert layer.times == [0.0, 0.5, 1.0]
    assert layer.kernels.shape == (2, 3, 3, 3)
    for column, t in enumerate(layer.times):
        np.testing.assert_allclose(layer.kernels[:, column], start[1, :2].numpy() * math.exp(0.7 * t), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.norm, [float(start.norm()) * math.exp(0.7 * t) for t in layer.curve_times], rtol=1e-5)
    np.testing.assert_allclose(layer.centre, np.tile(centre_of_mass(start), (5, 1)), atol=1e-6)


def test_the_centre_of_mass_is_measured_from_the_middle():
    w = torch.zeros(2, 3, 5, 5, dtype=torch.float64)
    assert centre_of_mass(w) == (0.0, 0.0)
    w[1, 2, 0, 4] = -3.0
    assert centre_of_mass(w) == (-2.0, 2.0)


def test_a_scheduled_n_jet_is_shown_too_though_its_size_changes():
    net = create_model("dcn_sigma_t", channels=(3,))
    with torch.no_grad():
        for conv in (net.blocks[0].field.conv1, net.blocks[0].field.conv2):
            conv.filter.a.fill_(2.0)
            conv.filter.b.fill_(-1.0)
    layer = weights(net, times=3, points=3).layers[0]
    assert layer.kernels.shape[-2:] == (11, 11)
    assert np.abs(layer.kernels[:, 0, 0]).max() == 0.0
    assert layer.times == [0.0, 1.0, 2.0]


def test_the_synthetic_rows_diffuse_drift_and_grow():
    rows = {row.name: row.images for row in synthetic(times=3)}
    assert list(rows) == ["diffusion", "advection", "reaction", "all three"]
    y = np.arange(33) - 16

    def moments(image):
        total = image.sum()
        middle = np.array([(image.sum(1) @ y) / total, (image.sum(0) @ y) / total])
        return total, middle, (image.sum(0) @ y**2) / total - middle[1] ** 2

    total, middle, variance = moments(rows["diffusion"][-1])
    assert (total, variance) == (pytest.approx(1.0), pytest.approx(1 + 2 * 2.0, rel=1e-3))
    assert np.abs(middle).max() < 1e-6
    total, middle, variance = moments(rows["advection"][-1])
    np.testing.assert_allclose(middle, [-5.0, 6.0], atol=1e-3)
    assert (total, variance) == (pytest.approx(1.0), pytest.approx(1.0, rel=1e-3))
    np.testing.assert_allclose(rows["reaction"][1], rows["reaction"][0] * math.exp(0.5), atol=1e-12)
    assert moments(rows["all three"][-1])[0] == pytest.approx(math.e)


def test_the_page_shows_kernels_norms_centres_and_the_synthetic_rows():
    page = present(weights(network(), times=4))
    assert [part.name for part in page.every(Maps)] == ["kernels_blocks_0_field_convs_0", "kernels_blocks_0_field_convs_1", "synthetic"]
    assert [part.name for part in page.every(Figure)] == ["norm", "centre"]
    assert "+101.4 %" in page.parts[0]
    np.testing.assert_allclose(page.every(Figure)[0].series[0].y[-1], math.exp(0.7), rtol=1e-5)


def test_an_animation_has_a_frame_for_each_moment(tmp_path):
    target = write_gif(weights(network(), times=7, points=2), tmp_path / "new" / "weights.gif")
    with Image.open(target) as image:
        assert image.n_frames == 7
        assert image.size == (4 * 70 + 6, 2 * 70 + 6)


def test_a_network_whose_weights_do_not_change_is_told_so():
    with pytest.raises(ConfigError, match="no layer whose weights change"):
        weights(create_model("resnet4_neural_ode", channels=(4,)))
    with pytest.raises(ConfigError, match=r"of that name.*blocks\.0\.field\.convs\.0"):
        weights(network(), layers=["conv9"])
    with pytest.raises(ConfigError, match="channels 0 … 3"):
        weights(network(), channel=9)
