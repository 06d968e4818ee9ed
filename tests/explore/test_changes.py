"""Changes of an image and of the solver: against the analyses' masks, the network's own end times, and the counts of fixed steps."""

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis import masked
from continua.explore.changes import Change, Solver, Trial, changed, outcome, trial_probabilities, trials, trials_table
from continua.models import Network

CLASSES = tuple("0123456789")


def network(name: str = "dcn_ode", **options) -> Network:
    torch.manual_seed(0)
    quick = dict(solver=dict(method="bosh3", rtol=0.02, atol=0.02)) if name == "dcn_ode" else {}
    small = dict(channels=(4, 6), norm_groups=2, stem_padding=1) if name.startswith(("dcn", "res", "ode")) and "ano" not in name else {}
    return create_model(name, **{**small, **quick, "in_channels": 1, **options}).eval()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.rand(1, 1, 13, 12)


@pytest.mark.parametrize("size", [0, 1, 3, 6, 12])
def test_a_mask_in_the_middle_is_that_of_the_analysis(image: torch.Tensor, size: int) -> None:
    assert torch.equal(changed(image, Change(mask=size)), masked(image, size))


def test_a_mask_goes_where_it_is_put_and_stays_inside(image: torch.Tensor) -> None:
    corner = changed(image, Change(mask=4, y=0.0, x=1.0)) == 0
    assert corner[0, 0, :4, -4:].all()
    assert corner.sum() == 16


def test_a_mask_larger_than_the_image_is_refused(image: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        changed(image, Change(mask=13))


def test_contrast_is_around_black_and_noise_in_units_of_white() -> None:
    black, unit = torch.tensor(-2.0).reshape(1, 1, 1), torch.tensor(4.0).reshape(1, 1, 1)
    flat = torch.zeros(1, 1, 200, 200)
    assert torch.allclose(changed(flat, Change(contrast=0.25), black, unit), torch.tensor(-1.5))
    noisy = changed(flat, Change(noise=0.1), black, unit)
    assert float(noisy.std()) == pytest.approx(0.4, rel=0.05)
    assert torch.equal(noisy, changed(flat, Change(noise=0.1), black, unit))
    assert not torch.equal(noisy, changed(flat, Change(noise=0.1, seed=1), black, unit))


def test_fixed_steps_cost_what_they_say(image: torch.Tensor) -> None:
    assert outcome(network(), image, solver=Solver("rk4", steps=3)).nfe == (12, 12)


def test_a_tighter_tolerance_costs_more(image: torch.Tensor) -> None:
    loose, tight = (outcome(network(), image, solver=Solver(tolerance=tolerance)) for tolerance in (1e-1, 1e-5))
    assert sum(tight.nfe) > sum(loose.nfe)


def test_scaled_time_is_the_end_time_of_block_one(image: torch.Tensor) -> None:
    net = network()
    with torch.no_grad():
        expected = net(image, t1={0: 0.5}).softmax(1)[0].numpy()
    assert np.allclose(outcome(net, image, time_factor=0.25).probabilities, expected, atol=1e-6)


def test_a_network_without_time_ignores_what_it_does_not_have(image: torch.Tensor) -> None:
    found = outcome(network("resnet_blocks"), image, solver=Solver("rk4", steps=3), time_factor=0.5)
    assert found.nfe == ()
    assert found.problem == ""


def test_a_solve_that_fails_is_told_and_not_raised() -> None:
    found = outcome(network(), torch.full((1, 1, 12, 12), float("nan")))
    assert "solver gave up" in found.problem
    shown = trials_table([Trial("as it is", outcome(network(), torch.rand(1, 1, 12, 12))), Trial("broken", found)], CLASSES)
    assert str(shown.rows[1][1]).startswith("none: the solver gave up")


def test_a_solver_that_the_network_refuses_is_told() -> None:
    net = network("resnet4_anodev2_c1", channels=(4,))
    assert "BatchNorm" in outcome(net, torch.rand(1, 1, 16, 16), solver=Solver("dopri5")).problem


def test_each_part_of_a_change_has_its_row() -> None:
    rows = trials(Change(mask=3, contrast=0.5, noise=0.1), Solver("rk4", steps=4), scaled=True)
    assert [row[0] for row in rows] == [
        "as it is",
        "mask 3×3",
        "contrast 0.5",
        "contrast 0.5, time of block 1 × 0.5",
        "noise 0.1",
        "rk4, 4 steps",
        "all together",
    ]
    assert rows[-1][3] is True
    assert trials(Change(), Solver(), scaled=True) == [rows[0]]
    assert [row[0] for row in trials(Change(mask=3), Solver(), scaled=False)] == ["as it is", "mask 3×3"]


def test_the_table_and_the_bars_hold_the_outcomes(image: torch.Tensor) -> None:
    net = network()
    rows = [Trial(name, outcome(net, changed(image, change))) for name, change in (("as it is", Change()), ("mask", Change(mask=6)))]
    shown = trials_table(rows, CLASSES)
    assert shown.rows[0][1] == CLASSES[rows[0].outcome.best]
    assert shown.rows[1][5] == sum(rows[1].outcome.nfe)
    bars = trial_probabilities(rows, CLASSES)
    assert sum(map(float, bars.series[1].y)) == pytest.approx(100)
