"""Steps per image, many at a time, against one image at a time; how often f is called; what is shown and refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis.measure import rank_correlation
from continua.analysis.questions.steps import Steps, per_image, present, steps

DRAW = torch.Generator().manual_seed(5)


def lively_net(name: str = "ode_only_net", **options):
    """A field strong and uneven enough that images need different numbers of steps."""
    torch.manual_seed(0)
    net = create_model(name, width=8, norm_groups=4, **options).eval()
    with torch.no_grad():
        for index, block in enumerate(net.blocks):
            block.field.norm3.weight.mul_(4.0 + index)
            block.field.conv1.filter.weight.mul_(2.0)
    return net


def varied_images(count: int, size: int = 8) -> torch.Tensor:
    strength = torch.logspace(-2, 1, count)[torch.randperm(count, generator=DRAW)]
    return torch.randn(count, 3, size, size, generator=DRAW) * strength[:, None, None, None]


def in_batches(images: torch.Tensor, size: int) -> list:
    return [(part, torch.zeros(len(part), dtype=torch.int64)) for part in images.split(size)]


def field_calls(net) -> list[int]:
    """Counts every call of the first block's f."""
    field, calls = net.blocks[0].field, []
    prepare = field.prepare

    def counting(*args, **options):
        prepared = prepare(*args, **options)

        def counted(t, h):
            calls.append(len(h))
            return prepared.rate(t, h)

        return replace(prepared, rate=counted)

    field.prepare = counting
    return calls


@torch.no_grad()
def one_at_a_time(net, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accepted, rejected and evaluations of each image, from an ordinary solve of a batch of one; (images, blocks)."""
    rows = []
    for image in images:
        net(image[None])
        rows.append([[stats.accepted, stats.rejected, stats.nfe] for stats in net.stats])
    return tuple(np.moveaxis(np.array(rows), 2, 0))


@pytest.mark.parametrize(("blocks", "count"), [(1, 64), (2, 8)])
def test_every_image_takes_the_steps_it_would_take_alone(blocks, count):
    net = lively_net(num_blocks=blocks).double()
    images = varied_images(count).double()
    result = steps(net, in_batches(images, 32))
    accepted, rejected, nfe = one_at_a_time(net, images)
    np.testing.assert_array_equal(result.accepted, accepted)
    np.testing.assert_array_equal(result.rejected, rejected)
    np.testing.assert_array_equal(result.nfe, nfe)
    assert result.tried.min() < result.tried.max(), "the images should differ for this test to say anything"
    assert rejected.sum() > 0
    np.testing.assert_array_equal(result.nfe, 2 + 6 * (result.accepted + result.rejected))  # dopri5, first step by Hairer's rule


def test_in_float32_only_images_at_the_edge_of_acceptance_differ():
    net, images = lively_net(), varied_images(64)
    result = steps(net, in_batches(images, 64))
    accepted, rejected, _ = one_at_a_time(net, images)
    differ = ((result.accepted != accepted) | (result.rejected != rejected))[:, 0].nonzero()[0]
    logged = per_image(net, record_steps=True)
    logged(images)
    log = logged.blocks[0].stats.steps
    for image in differ:
        errors = log.error[log.sample == image]
        assert (errors - 1).abs().min() < 1e-3, f"image {image} differs though no step was close to the limit"
    assert len(differ) <= 3


def test_a_thousand_images_call_f_twenty_times_less_often():
    net = lively_net(solver=dict(rtol=1e-2, atol=1e-2))
    images = varied_images(1000, size=4)
    calls = field_calls(net)
    result = steps(net, in_batches(images, 250))
    assert len(calls) == result.field_calls
    alone = int(result.nfe.sum())  # one image at a time, a call is one evaluation of one image
    assert alone >= 20 * result.field_calls


def test_arrivals_leave_the_batch():
    net = lively_net()
    calls = field_calls(net)
    result = steps(net, in_batches(varied_images(32), 32))
    assert sum(calls) == result.nfe.sum(), "an image costs only its own evaluations"
    assert min(calls) < 32


@torch.no_grad()
def test_predictions_margins_and_the_extremes():
    net, images = lively_net(), varied_images(12)
    result = steps(net, in_batches(images, 5), shown=3)
    best = per_image(net)(images).topk(2, 1)
    np.testing.assert_array_equal(result.predictions, best.indices[:, 0])
    np.testing.assert_allclose(result.margins, (best.values[:, 0] - best.values[:, 1]).numpy(), rtol=1e-3, atol=1e-4)
    assert sorted(result.tried[result.most], reverse=True) == sorted(result.tried, reverse=True)[:3]
    assert sorted(result.tried[result.least]) == sorted(result.tried)[:3]
    looser = steps(net, in_batches(images, 12), rtol=1e-1, atol=1e-1)
    assert looser.tried.sum() < result.tried.sum()


def test_ranks_share_ties_and_correlate_as_spearman_says():
    from scipy.stats import spearmanr

    draw = np.random.default_rng(0)
    a, b = draw.integers(0, 5, 100), draw.normal(size=100)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert np.isnan(rank_correlation(a, np.ones(100)))


def test_the_page_states_mean_and_spread_and_shows_the_extremes():
    tried = np.array([3, 4, 4, 9])
    result = Steps(
        "dopri5, rtol 0.001, atol 0.001", tried[:, None], np.zeros((4, 1), int), 2 + 6 * tried[:, None], np.array([0, 1, 1, 0]),
        np.array([0, 1, 0, 1]), np.array([3.0, 2.0, 1.0, 0.5]), 56, 1.0, [3, 1], [0, 1], np.zeros((2, 2, 4, 4, 3)),
    )  # fmt: skip
    page = present(result)
    assert "5.00 ± 2.35 steps" in page.parts[0]
    assert f"{result.nfe.sum() / 56:.0f} times less often" in page.parts[0]
    assert page.parts[-1].rows == ("most: 9 4", "fewest: 3 4")
    assert result.plot().axes[0].get_xlabel() == result.plot("histogram").axes[0].get_xlabel() != ""
    with pytest.raises(ConfigError, match=r"unknown figure .margins.; did you mean margin"):
        result.plot("margins")
    same = replace(result, accepted=np.full((4, 1), 3))
    assert "same number of steps" in present(same).parts[1]
    assert len(present(same).parts) == 4, "nothing is drawn against a number that does not change"


def test_what_has_no_steps_of_its_own_is_refused():
    with pytest.raises(ConfigError, match="no ODE block"):
        steps(create_model("residual_net", width=8, num_blocks=1), [])
    with pytest.raises(ConfigError, match="fixed number of steps"):
        steps(lively_net(solver=dict(method="rk4", steps=2)), [])
    with pytest.raises(ConfigError, match="no images"):
        steps(lively_net(), [])
    adjoint = lively_net(solver=dict(gradient="adjoint"))
    assert len(steps(adjoint, in_batches(varied_images(2), 2)).tried) == 2


def test_tolerance_and_method_mean_the_same_for_every_analysis():
    """Adaptive steps of that tolerance by that method; what is not given is the network's own, or dopri5 where it takes fixed steps."""
    from continua.analysis.measure import SolverOptions
    from continua.analysis.question import find_question

    for name in ("steps", "contrast"):
        assert issubclass(find_question(name).Options, SolverOptions)
    fixed, chosen = (
        create_model("odenet", channels=[4, 4], norm_groups=2, solver=solver)
        for solver in (dict(method="rk4", steps=2), dict(method="bosh3"))
    )
    assert SolverOptions().solver(fixed) == {}
    assert SolverOptions(tolerance=1e-4).solver(fixed) == dict(method="dopri5", steps=None, rtol=1e-4, atol=1e-4)
    assert SolverOptions(tolerance=1e-4).solver(chosen) == dict(method="bosh3", steps=None, rtol=1e-4, atol=1e-4)
    assert SolverOptions(method="tsit5").solver(chosen) == dict(method="tsit5", steps=None)
    with pytest.raises(ConfigError, match="tolerance is 0"):
        SolverOptions(tolerance=0.0)
    with pytest.raises(ConfigError, match="no ODE block"):
        SolverOptions(tolerance=1e-3).solver(create_model("resnet_blocks", channels=[4, 4], norm_groups=2))
