"""Scales: what is read is what was put in, and the statistics agree with SciPy's."""

import numpy as np
import pytest
import torch
from scipy import stats

import continua
from continua.analysis import scales
from continua.analysis.measure import rank_correlation
from continua.analysis.questions.scales import distribution, present, short_name
from continua.errors import ConfigError
from continua.report import Figure, Table

TINY = dict(channels=(4, 5), in_channels=1)


def test_the_sigma_that_was_set_is_found_in_the_order_of_depth() -> None:
    net = continua.create_model("dcn_ode", **TINY)
    wanted = [0.5, 0.8, 1.5, 3.0]
    filters = [module for module in net.modules() if hasattr(module, "s")]
    for module, sigma in zip(filters, wanted, strict=True):
        torch.nn.init.constant_(module.s, float(np.log2(sigma)))  # pyright: ignore[reportArgumentType]
    result = scales(net)
    assert result.typical.tolist() == pytest.approx(wanted, rel=1e-6)
    assert [layer.name for layer in result.layers] == [f"blocks.{b}.field.conv{c}" for b in (0, 1) for c in (1, 2)]
    assert [layer.block for layer in result.layers] == [0, 0, 1, 1]
    assert result.correlation == pytest.approx(1.0)
    assert result.distributions == []


def test_layers_outside_blocks_count_too() -> None:
    result = scales(continua.create_model("dcn_full", **TINY))
    assert sorted({layer.block for layer in result.layers}, key=str) == [0, 1, None]
    assert result.layers[0].name == "stem"


def test_a_pair_of_channels_has_its_own_sigma_and_a_block_its_distribution() -> None:
    net = continua.create_model("dcn_sigma_ji", **TINY)
    result = scales(net, least=2)
    assert [block.where for block in result.distributions] == ["block 1", "block 2"]
    assert [block.count for block in result.distributions] == [2 * 5 * 4, 2 * 6 * 5]
    values = np.concatenate([layer.sigma.ravel() for layer in result.layers[:2]])
    assert result.distributions[0].median == pytest.approx(float(np.median(values)))


def test_a_scheduled_sigma_is_read_along_its_block() -> None:
    net = continua.create_model("dcn_sigma_t", t1=1.5, **TINY)
    layer = scales(net, times=4).layers[0]
    assert layer.times == pytest.approx([0.0, 0.5, 1.0, 1.5])
    filter = net.blocks[0].field.conv1.filter  # pyright: ignore
    assert layer.sigma[2] == pytest.approx(2 ** (filter.a.item() * 0.5 + filter.b.item()), rel=1e-6)
    assert "sigma_of_t" in [figure.name for figure in present(scales(net)).every(Figure)]


def test_the_statistics_of_a_distribution_agree_with_scipy() -> None:
    sigma = np.random.default_rng(0).gamma(3.0, 0.5, size=700)
    result = distribution(sigma)
    shape, _, scale = stats.lognorm.fit(sigma, floc=0)
    assert (result.log_std, np.exp(result.log_mean)) == pytest.approx((shape, scale), rel=1e-6)
    assert result.skewness == pytest.approx(float(stats.skew(sigma)))
    assert result.log_skewness == pytest.approx(float(stats.skew(np.log(sigma))))
    expected = stats.kstest(sigma, "lognorm", args=(result.log_std, 0, np.exp(result.log_mean))).statistic
    assert result.distance == pytest.approx(float(expected), abs=1e-12)
    assert (result.density * np.diff(result.edges)).sum() == pytest.approx(1.0)


def test_a_log_normal_sample_is_nearer_to_its_fit_than_a_uniform_one() -> None:
    rng = np.random.default_rng(1)
    near, far = distribution(rng.lognormal(0.1, 0.4, 3000)), distribution(rng.uniform(0.1, 3.0, 3000))
    assert near.distance < 0.02 < far.distance
    assert near.skewness > 0.5
    assert abs(near.log_skewness) < 0.15


def test_rank_correlation_agrees_with_scipy_also_with_ties() -> None:
    x, y = [1, 2, 3, 4, 5, 6], [2.0, 1.0, 4.0, 4.0, 3.0, 9.0]
    assert rank_correlation(x, y) == pytest.approx(float(stats.spearmanr(x, y).statistic))
    assert np.isnan(rank_correlation([1, 2], [1, 2]))


def test_a_network_without_scales_is_refused() -> None:
    with pytest.raises(ConfigError, match="no N-jet layer"):
        scales(continua.create_model("odenet", **TINY))


def test_the_page_shows_depth_and_distributions() -> None:
    page = present(scales(continua.create_model("dcn_sigma_ji", **TINY)))
    assert [figure.name for figure in page.every(Figure)] == ["sigma_by_depth", "distribution"]
    assert page.every(Table)[1].heads[-1].label == "KS distance"
    assert short_name("blocks.0.field.conv1") == "block 1 conv1"
    assert short_name("transitions.1.conv") == "transition 2 conv"
    assert short_name("stem") == "stem"


def test_layers_stand_in_the_order_in_which_an_image_meets_them() -> None:
    net = continua.create_model("dcn_full", channels=[4, 8, 8], norm_groups=4)
    result = [layer.name.split(".field")[0].removesuffix(".conv") for layer in scales(net).layers]
    way = ["stem", "blocks.0", "blocks.0", "transitions.0", "blocks.1", "blocks.1", "transitions.1", "blocks.2", "blocks.2"]
    assert result == way
