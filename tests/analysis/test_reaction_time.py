"""Reaction times: each row is the network with that stop, and a saving is judged on images that did not choose it."""

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis import ReactionTime, reaction_time
from continua.analysis.questions.reaction_time import present
from continua.models import Confident, Network

IMAGES = torch.rand(10, 3, 8, 8, generator=torch.Generator().manual_seed(2))
LABELS = torch.arange(10) % 3


def some_net(name: str = "ode_only_net", **options) -> Network:
    torch.manual_seed(1)
    net = create_model(name, num_classes=3, norm_groups=2, **options).eval()
    with torch.no_grad():
        net.get_classifier().weight.mul_(5.0)  # pyright: ignore[reportCallIssue]
    return net


@pytest.mark.parametrize("options", [dict(name="ode_only_net", width=8), dict(name="odenet", channels=(4, 8), stem_padding=1)])
def test_every_row_is_the_network_with_that_stop(options):
    net = some_net(**options)
    result = reaction_time(net, list(zip(IMAGES.split(6), LABELS.split(6), strict=True)), thresholds=(0.7, 0.4))
    assert result.thresholds == [0.4, 0.7]
    sample = net.with_solver(control="sample")
    for row, twin in enumerate([sample, sample.with_stop(Confident(0.4)), sample.with_stop(Confident(0.7))]):
        with torch.no_grad():
            predictions = torch.cat([twin(part).argmax(1) for part in IMAGES.split(6)])
            twin(IMAGES)
        nfe = np.stack([stat.nfe.numpy() for stat in twin.stats if stat is not None], 1)
        np.testing.assert_array_equal(result.predictions[row], predictions.numpy())
        np.testing.assert_array_equal(result.nfe[row], nfe)
        ended = twin.stats[-1].t_end  # pyright: ignore[reportOptionalMemberAccess]
        np.testing.assert_allclose(result.times[row], np.full(10, 1.0) if ended is None else ended.numpy(), atol=2e-3)
    assert (result.nfe[1, :, -1] <= result.nfe[2, :, -1]).all()
    assert (result.times[1] <= result.times[2] + 1e-9).all()


def planted(images: int = 4000, lost: float = 0.0) -> ReactionTime:
    """Two thresholds: the first saves half and loses `lost` of the accuracy, the second saves a tenth and loses nothing."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, images)
    right = rng.random(images) < 0.9
    spoilt = right & (rng.random(images) < lost / 0.9)
    predictions = np.stack([np.where(right, labels, 1 - labels)] * 3)
    predictions[1] = np.where(right & ~spoilt, labels, 1 - labels)
    nfe = np.stack([np.full((images, 2), cost) for cost in ([10.0, 20.0], [10.0, 5.0], [10.0, 17.0])])
    return ReactionTime("dopri5", 2.0, ["a", "b"], [0.5, 0.9], labels, predictions, nfe, np.full((3, images), 1.0))


def test_a_saving_is_the_cheapest_threshold_that_loses_little():
    free = planted().saving()
    assert (free.thresholds, free.lost) == (["0.5", "0.5"], 0.0)
    assert (free.saved, free.saved_last) == (pytest.approx(0.5), pytest.approx(0.75))
    dear = planted(lost=0.05).saving()
    assert (dear.thresholds, dear.saved, dear.lost) == (["0.9", "0.9"], pytest.approx(0.1), 0.0)


def test_what_is_lost_is_that_of_the_other_half():
    noisy = planted(images=60, lost=0.004)
    halves = noisy.saving()
    assert np.isfinite(halves.lost)
    assert halves.lost >= 0


def test_the_page_says_it_and_fixed_steps_are_replaced():
    net = some_net(width=8, solver=dict(method="rk4", steps=2))
    result = reaction_time(net, [(IMAGES, LABELS)], thresholds=(0.5,), classes=["x", "y", "z"])
    assert result.solver.startswith("dopri5, rtol=0.001")
    page = present(result)
    assert "10 images by dopri5" in str(page.parts[0])
    assert "on the two halves" in str(page.parts[1])
    assert "ReactionTime" in repr(result)


def test_networks_without_time_and_no_images_are_refused():
    with pytest.raises(ConfigError, match="no ODE block"):
        reaction_time(some_net("resnet_blocks", channels=(4, 8)), [(IMAGES, LABELS)])
    with pytest.raises(ConfigError, match="no images"):
        reaction_time(some_net(width=8), [])
