"""A survey of a network's units: against the instruments one by one, and against the Fourier transform of linear units."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from continua import ConfigError, Network, create_model
from continua.filters import FilterConv2d, NJet
from continua.neuro import Screen, TuningCurve, block_sigma, peak_frequency, rescaled_block, survey, tuning, units

FREQUENCIES = [0.05, 0.1, 0.2, 0.3]


def linear_net(sigma: float) -> Network:
    """One block that is an N-jet convolution: first derivatives along x and along y."""
    jet = NJet(1, 2, order=1, radius=20)
    alpha = torch.zeros_like(jet.alpha)  # (0,1), (0,0), (1,0)
    alpha[0, 0, 0] = alpha[2, 0, 1] = 1.0
    net = Network()
    net.stem, net.head = nn.Identity(), nn.Identity()
    net.blocks, net.transitions = nn.ModuleList([FilterConv2d(jet.with_values(alpha, torch.tensor([sigma])))]), nn.ModuleList()
    return net.double().eval()


def test_a_survey_of_linear_units_is_their_fourier_transform() -> None:
    sigma, screen = 3.0, Screen(64, 64, 1.0, dtype=torch.float64)
    frequencies = np.geomspace(0.02, 0.15, 9).tolist()
    (block,) = survey(linear_net(sigma), screen, orientations=4, frequencies=frequencies, phases=4, contrast=0.5, prepare=lambda x: x)
    numbers = block.numbers()
    assert block.orientation.preferred.tolist() == [90.0, 0.0]  # stripes at right angles to the derivative
    assert numbers["preferred frequency"] == pytest.approx([1 / (2 * math.pi * sigma)] * 2, rel=0.03)  # a parabola through three points
    omega = 2 * math.pi * np.array(frequencies) * sigma
    assert block.frequency.f1[:, 0] == pytest.approx(0.5 * omega * np.exp(-(omega**2) / 2), rel=0.01)
    assert numbers["orientation selectivity"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert numbers["F1/F0"].tolist() == [math.inf, math.inf]


def test_a_survey_reads_what_the_instruments_read_one_by_one() -> None:
    torch.manual_seed(0)
    net = create_model("dcn_ode", channels=(4, 4), norm_groups=2, in_channels=1, solver=dict(method="euler", steps=1)).eval()
    screen = Screen(16, 16, 1.0)
    both = survey(net, screen, orientations=4, frequencies=FREQUENCIES, phases=3, contrast=0.5)
    assert [part.block for part in both] == [0, 1]
    curves = [tuning(units(net, 1), screen, "orientation", [0, 45, 90, 135], phases=3, contrast=0.5, frequency=f) for f in FREQUENCIES]
    best = both[1].frequency.response.argmax(0)
    for unit, place in enumerate(best):
        assert both[1].orientation.f1[:, unit] == pytest.approx(curves[place].f1[:, unit], rel=1e-4, abs=1e-6)
        assert both[1].orientation.f0[:, unit] == pytest.approx(curves[place].f0[:, unit], rel=1e-3, abs=1e-5)
    (second,) = survey(net, screen, orientations=4, frequencies=FREQUENCIES, phases=3, contrast=0.5, blocks=[1])
    assert np.allclose(second.orientation.f1, both[1].orientation.f1, atol=1e-6)


def test_a_wider_block_has_its_scales_multiplied_and_nothing_else_changed() -> None:
    net = create_model("dcn_ode", channels=(4, 4), norm_groups=2)
    wide = rescaled_block(net, 1, 2.0)
    assert block_sigma(wide, 1) == pytest.approx(2 * block_sigma(net, 1))
    assert block_sigma(wide, 0) == pytest.approx(block_sigma(net, 0))
    same = {name: torch.equal(value, net.state_dict()[name]) for name, value in wide.state_dict().items()}
    assert all(equal or (name.startswith("blocks.1") and name.endswith(".s")) for name, equal in same.items())
    with pytest.raises(ConfigError, match="N-jets"):
        rescaled_block(create_model("odenet", channels=(4,), norm_groups=2), 0, 2.0)


@pytest.mark.parametrize("centre", [0.06, 0.11])
def test_a_peak_is_read_between_the_frequencies_shown(centre: float) -> None:
    shown = np.geomspace(0.02, 0.4, 9)
    rate = np.exp(-0.5 * (np.log2(shown / centre) / 1.2) ** 2)[:, None]
    zero = np.zeros_like(rate)
    assert peak_frequency(TuningCurve("frequency", shown, rate, zero, np.zeros(1))) == pytest.approx([centre], rel=0.02)
    assert np.isnan(peak_frequency(TuningCurve("frequency", shown, -rate, zero, np.zeros(1)))).all()
    falling = TuningCurve("frequency", shown, 1 / shown[:, None], zero, np.zeros(1))
    assert peak_frequency(falling) == pytest.approx([0.02])
    with pytest.raises(ConfigError, match="over frequency"):
        peak_frequency(TuningCurve("contrast", shown, rate, zero, np.zeros(1)))
