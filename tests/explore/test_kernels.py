"""Filters in space and along depth: one kernel of a layer is that layer's, turning it turns it, its answer is a convolution."""

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis import scales, weights
from continua.explore import kernels
from continua.filters.basis import jet_orders
from continua.models import Network, options_in_common


def network(name: str, **options) -> Network:
    torch.manual_seed(0)
    small = options_in_common(name, dict(norm_groups=2, stem_padding=1))
    return create_model(name, **{"channels": (4,) if "anodev2" in name else (4, 6), "in_channels": 1, **small, **options}).eval()


@pytest.mark.parametrize(("name", "t"), [("dcn_ode", None), ("dcn_sigma_ji", None), ("dcn_full", None), ("dcn_sigma_alpha_t", 1.3)])
def test_a_single_kernel_is_that_of_its_layer(name: str, t: float | None) -> None:
    for layer in kernels.filter_layers(network(name)):
        found = kernels.jet(layer, 2, 0, t)
        if found is not None:
            single, whole = found.kernel(found.state()).weight()[0, 0], kernels.layer_kernels(layer, t)[2, 0]
            cut = [(a - b) // 2 for a, b in zip(single.shape, whole.shape, strict=True)]  # kernels of pairs have a fixed size
            inner = torch.nn.functional.pad(single, [-cut[1], -cut[1], -cut[0], -cut[0]])
            if name == "dcn_sigma_ji":
                assert torch.corrcoef(torch.stack([inner.flatten(), whole.flatten()]))[0, 1] > 0.99
            else:
                assert torch.allclose(inner, whole, atol=1e-6)


def test_the_kernel_of_the_time_channel_is_left_out() -> None:
    layer = next(layer for layer in kernels.filter_layers(network("dcn_ode")) if layer.name == "blocks.0.field.conv1")
    assert kernels.layer_kernels(layer).shape[:2] == (4, 4)
    assert layer.conv.filter.in_channels == 5


def test_every_convolution_is_listed_from_input_to_output() -> None:
    assert [(layer.label, layer.kind) for layer in kernels.filter_layers(network("dcn_ode"))] == [
        ("stem", "pixel"),
        ("block 1 conv1", "njet"),
        ("block 1 conv2", "njet"),
        ("block 2 conv1", "njet"),
        ("block 2 conv2", "njet"),
        ("transition 1 conv", "pixel"),
    ]
    kinds = [layer.kind for layer in kernels.filter_layers(network("resnet4_anodev2_c1"))]
    assert kinds == ["pixel", "moving", "moving"]


def test_a_filter_turned_by_a_quarter_is_the_picture_turned_by_a_quarter() -> None:
    learned = kernels.jet(kernels.filter_layers(network("dcn_ode"))[1], 0, 1)
    assert learned is not None
    view = kernels.turned(learned, float(learned.sigma), 90)
    first, second = kernels.filter_maps(view).values[0]
    assert np.allclose(second, np.rot90(first, -1), atol=1e-6)  # from x towards y, which points down
    assert not np.allclose(second, first, atol=1e-3)


def test_a_filter_widened_has_its_own_scale() -> None:
    learned = kernels.jet(kernels.filter_layers(network("dcn_ode"))[1], 0, 1)
    assert learned is not None
    view = kernels.turned(learned, 2.5, 0)
    assert float(view.changed.sigma) == pytest.approx(2.5)
    assert torch.allclose(view.changed.alpha, view.learned.alpha)
    assert [series.name for series in kernels.coefficients(view).series] == ["learned", "yours"]


def test_coefficients_are_shown_by_rising_order_each_with_its_own() -> None:
    learned = kernels.jet(kernels.filter_layers(network("dcn_ode"))[1], 0, 1)
    assert learned is not None
    shown = kernels.coefficients(kernels.turned(learned, float(learned.sigma), 0)).series[0]
    assert list(shown.x) == ["G", "G_x", "G_y", "G_xx", "G_xy", "G_yy"]
    alpha = dict(zip(jet_orders(2), learned.alpha.flatten().tolist(), strict=True))  # by (derivatives along y, along x)
    assert list(shown.y) == pytest.approx([alpha[order] for order in ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))])


def test_a_response_is_the_convolution_of_the_grey_image() -> None:
    learned = kernels.jet(kernels.filter_layers(network("dcn_ode"))[1], 1, 2)
    assert learned is not None
    point = torch.zeros(1, 3, 21, 21)
    point[..., 10, 10] = 1.0
    kernel = learned.kernel(learned.state()).weight()[0, 0]
    half = kernel.shape[-1] // 2
    answer = kernels.response(learned, point)
    assert answer.shape == (21, 21)
    assert np.allclose(answer[10 - half : 11 + half, 10 - half : 11 + half], kernel.flip(0, 1).numpy(), atol=1e-6)  # a layer correlates


def test_pixels_have_no_jet_and_wrong_channels_are_refused() -> None:
    layers = kernels.filter_layers(network("dcn_ode"))
    assert kernels.jet(layers[0], 0, 0) is None
    with pytest.raises(ConfigError, match="got 9 → 0"):
        kernels.jet(layers[1], 0, 9)


def test_maps_of_kernels_show_a_window_that_begins_at_the_pair() -> None:
    layer = kernels.filter_layers(network("dcn_ode"))[3]
    shown = kernels.kernel_maps(layer, 1, 2, rows=2, columns=3)
    assert shown.rows == ("to 1", "to 2")
    assert shown.columns == ("from 2", "from 3", "from 4")
    assert np.allclose(shown.values[1, 2], kernels.layer_kernels(layer)[2, 4].numpy())
    assert kernels.kernel_maps(kernels.filter_layers(network("dcn_ode"))[0], 0, 0).rows == ("from 0",)


def test_only_networks_whose_kernels_move_have_moving_layers() -> None:
    assert kernels.moving_layers(network("dcn_ode")) == []
    assert len(kernels.moving_layers(network("resnet4_anodev2_c1"))) == 2
    assert len(kernels.moving_layers(network("dcn_sigma_t"))) == 4


def test_kernels_along_t_are_those_of_the_analysis() -> None:
    net = network("resnet4_anodev2_c1")
    name = kernels.moving_layers(net)[1]
    found = kernels.layer_path(net, name, 3, 2)
    expected = weights(net, times=2, channel=3, kernels=2, points=2).layers[1]
    assert np.allclose(found.kernels[:, [0, -1]], expected.kernels)
    maps = kernels.moving_kernel_maps(found)
    assert maps.title.startswith("block 1 conv 2")
    assert len(maps.columns) == kernels.MOMENTS
    assert kernels.weight_curves(found)[0].series[0].y[0] == 1.0


def test_the_evolutions_of_a_gaussian_start_alike() -> None:
    maps = kernels.synthetic_maps()
    assert maps.rows == ("diffusion", "advection", "reaction", "all three")
    assert np.allclose(maps.values[:, 0], maps.values[0, 0])


def test_scales_are_there_for_the_figures() -> None:
    assert len(scales(network("dcn_ode")).layers) == 4
