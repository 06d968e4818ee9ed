"""One image's way through a block: states, probabilities, D(t) and steps, against the network itself and the analyses."""

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis.questions.pattern_completion import completion
from continua.explore import trajectory
from continua.explore.changes import Change, changed, outcome
from continua.models import Network, model_entry, options_in_common

QUICK = dict(method="bosh3", rtol=0.02, atol=0.02)
SMALL = dict(channels=(4, 6), norm_groups=2, stem_padding=1, in_channels=1, solver=QUICK)


def network(name: str = "dcn_ode", **options) -> Network:
    torch.manual_seed(0)
    return create_model(name, **{**options_in_common(name, SMALL), **options}).eval()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.rand(1, 1, 12, 12)


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("name", ["dcn_ode", "odenet", "dcn_sigma_t", "resnet_blocks"])
def test_a_block_that_ends_at_its_end_says_what_the_network_says(name: str, block: int, image: torch.Tensor) -> None:
    net = network(name)
    apart = 0.02 if name == "dcn_sigma_t" else 1e-5  # where filters move, the moments of a path share the steps of later blocks
    found = trajectory.follow(net, image, block)
    assert np.allclose(trajectory.probabilities_on_the_way(net, image, found)[-1], outcome(net, image).probabilities, atol=apart)


def test_a_block_that_ends_early_says_what_the_network_with_that_end_time_says(image: torch.Tensor) -> None:
    net = network(solver=dict(rtol=1e-5, atol=1e-5))
    found = trajectory.follow(net, image, 0)
    with torch.no_grad():
        logits = net(image, t1={0: found.times[5]})
    assert np.allclose(trajectory.probabilities_on_the_way(net, image, found)[5], logits.softmax(1)[0].numpy(), atol=1e-4)


def test_every_network_of_periods_and_scales_can_be_followed(image: torch.Tensor) -> None:
    name = "erknet_imagenet_3x1_3x1_3x1_1x1_b"
    for model, size in (("erknet_k36_7x1_6x1_6x1", 16), (name, 64)):
        torch.manual_seed(0)
        net = create_model(model, **model_entry(model).tiny).eval()
        picture = torch.rand(1, 3, size, size)
        for block in range(len(net.blocks)):
            found = trajectory.follow(net, picture, block)
            assert found.steps is None
            assert np.allclose(trajectory.probabilities_on_the_way(net, picture, found)[-1], outcome(net, picture).probabilities, atol=1e-5)


def test_the_steps_fill_the_time_of_the_block(image: torch.Tensor) -> None:
    found = trajectory.follow(network(), image, 0)
    steps = found.steps
    assert steps is not None
    taken = [size for size, accepted in zip(steps.size, steps.accepted, strict=True) if accepted]
    assert sum(taken) >= 2.0 - 1e-5
    assert steps.t[0] == 0.0
    assert found.nfe == outcome(network(), image).nfe[0]


def test_d_is_that_of_the_analysis(image: torch.Tensor) -> None:
    net = network(solver=dict(rtol=1e-5, atol=1e-5))
    plain, other = trajectory.follow(net, image, 0), trajectory.follow(net, changed(image, Change(mask=4)), 0)
    expected = completion(net, [(image, torch.zeros(1, dtype=torch.int64))], mask=4, times=trajectory.MOMENTS)
    assert np.allclose(trajectory.difference(plain, other), expected.mean, rtol=1e-4)
    assert np.allclose(plain.times, expected.times)


def test_an_image_does_not_differ_from_itself(image: torch.Tensor) -> None:
    found = trajectory.follow(network(), image, 1)
    assert (trajectory.difference(found, found) == 0).all()


def test_the_liveliest_channels_are_those_that_change_most() -> None:
    states = np.zeros((3, 4, 2, 2), np.float32)
    states[-1, 3], states[-1, 1] = 2.0, -5.0
    assert trajectory.Trajectory(0, (0.0, 1.0, 2.0), states, None, None).liveliest(2) == [1, 3]


def test_figures_show_rejected_steps_apart() -> None:
    steps = trajectory.StepList((0.0, 0.0, 0.5), (1.0, 0.5, 0.5), (2.0, 0.5, 0.1), (False, True, True))
    found = trajectory.Trajectory(0, (0.0, 1.0), np.zeros((2, 1, 2, 2)), 12, steps)
    names = [series.name for series in trajectory.step_sizes(found).series]
    assert names == ["accepted: 2", "rejected: 1"]
    assert "12 evaluations" in trajectory.step_sizes(found).title
    curves = trajectory.probability_curves(found, np.full((2, 2), 0.5), ("a", "b"))
    assert [series.name for series in curves.series] == ["a", "b", "solver steps", "rejected steps"]


def test_a_block_without_time_has_states_and_no_steps(image: torch.Tensor) -> None:
    found = trajectory.follow(network("resnet_blocks"), image, 0)
    assert found.times == (0.0, 1.0)
    assert trajectory.maps(found, [0]).columns == ("input", "output")
    with pytest.raises(ConfigError, match="no solver"):
        trajectory.step_sizes(found)


def test_several_images_are_refused() -> None:
    with pytest.raises(ConfigError, match="one image"):
        trajectory.follow(network(), torch.rand(2, 1, 12, 12), 0)


def test_following_an_image_leaves_the_networks_own_statistics_alone(image: torch.Tensor) -> None:
    net = network()
    trajectory.follow(net, image, 0)
    assert net.stats == [None, None]
