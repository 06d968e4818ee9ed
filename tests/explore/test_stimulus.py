"""What the panels Stimulus and Metamers show: films, units and curves of a network, and filters turned and widened as theory has it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from exploring import make_run
from torch import nn

from continua import ConfigError, Network
from continua.explore.metamers import metamers
from continua.explore.network import Explored, open_run
from continua.explore.stimulus import (
    BEFORE,
    FilterChange,
    Preparation,
    Stimulus,
    course_figure,
    film_maps,
    film_of,
    has_jets,
    preparing,
    record,
    tuned,
    tuning_figure,
    with_filters,
)
from continua.filters import FilterConv2d, NJet
from continua.neuro import DrivenNetwork, Screen, peak_frequency, preferred_orientation, tuning, units

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Explored:
    return open_run(make_run(tmp_path_factory.mktemp("stimulus") / "run"))


def edge_detector(sigma: float) -> Network:
    """One block that is the derivative of a Gaussian along x."""
    jet = NJet(1, 1, order=1, radius=24)
    alpha = torch.zeros_like(jet.alpha)
    alpha[0] = 1.0  # (0, 1)
    net = Network()
    net.stem, net.head = nn.Identity(), nn.Identity()
    net.blocks, net.transitions = nn.ModuleList([FilterConv2d(jet.with_values(alpha, torch.tensor([sigma])))]), nn.ModuleList()
    return net.double().eval()


@pytest.mark.parametrize(("factor", "degrees"), [(1.0, 0.0), (1.0, 30.0), (2.0, -45.0), (0.8, 75.0)])
def test_curves_follow_the_filter(factor: float, degrees: float) -> None:
    """A linear unit prefers 1/(2πσ) and the orientation at right angles to its derivative: both move exactly as its filter is moved."""
    changed = with_filters(edge_detector(3.0), 0, FilterChange(factor, degrees))
    screen, cells = Screen(64, 64, 1.0, dtype=torch.float64), units(changed, 0, prepare=lambda x: x)
    over = tuning(cells, screen, "orientation", torch.arange(0.0, 180.0, 15.0), frequency=0.05, phases=4)
    turned = (preferred_orientation(over)[0] - (90.0 + degrees) + 90) % 180 - 90
    assert turned == pytest.approx(0.0, abs=0.5)
    fine = np.geomspace(0.01, 0.2, 25).tolist()
    best = peak_frequency(tuning(cells, screen, "frequency", fine, orientation=90.0 + degrees, phases=4))[0]
    assert best == pytest.approx(1 / (2 * math.pi * 3.0 * factor), rel=0.02)


def test_the_network_itself_is_left_alone(network: Explored) -> None:
    before = {name: value.clone() for name, value in network.model.state_dict().items()}
    changed = with_filters(network.model, 0, FilterChange(1.5, 20.0))
    assert all(torch.equal(value, before[name]) for name, value in network.model.state_dict().items())
    moved = {name for name, value in changed.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("blocks.0.") for name in moved)
    assert with_filters(network.model, 0, FilterChange()) is network.model


def test_a_recording_is_that_of_the_driven_network(network: Explored) -> None:
    stimulus, setting = Stimulus(frequency=2.0), Preparation(duration=40.0)
    recorded = record(network, stimulus, setting, FilterChange())
    assert recorded.times[-1] == BEFORE + 40
    assert np.all(recorded.shown[recorded.times < BEFORE - 1] == 0)
    assert np.ptp(recorded.shown[-1]) > 1
    driven = DrivenNetwork(network.model, tau=10.0, solver=dict(rtol=1e-2, atol=1e-2), prepare=preparing(network))
    movie = film_of(Screen(8, 8, 0.1), stimulus, 40.0)
    (_, states) = next(iter(driven.walk(movie, [60.0])))
    assert recorded.states[-1] == pytest.approx(states[0][0].numpy(), rel=0.05, abs=0.05)  # steps of the solver differ
    figure = course_figure(recorded, [0, 2], 0.5, 0.5)
    assert [series.name for series in figure.series] == ["channel 0", "channel 2", "stimulus on"]
    assert list(figure.series[1].y) == pytest.approx(recorded.states[:, 2, 4, 4].tolist())
    maps = film_maps(recorded, [0, 2], 0)
    assert maps.rows == ("stimulus", "channel 0", "channel 2")
    assert maps.values.shape[2:] == (8, 8)


def test_a_later_block_sleeps_first_and_one_that_never_wakes_is_said(network: Explored) -> None:
    recorded = record(network, Stimulus("bar", speed=0.0), Preparation(block=1, duration=40.0), FilterChange())
    asleep = np.isnan(recorded.states).all((1, 2, 3))
    assert asleep[0]
    assert not asleep[-1]
    assert np.array_equal(asleep, recorded.times < 20.0)  # depth 2 at 10 ms each
    assert np.isfinite(film_maps(recorded, [0], 1).values).all()
    with pytest.raises(ConfigError, match="wakes 100 ms after the film begins"):
        record(network, Stimulus(), Preparation(block=1, duration=40.0, tau=50.0), FilterChange())


def test_units_are_tuned_as_trained_and_as_changed(network: Explored) -> None:
    plain, changed = (tuned(network, Stimulus(), Preparation(), change) for change in (FilterChange(), FilterChange(2.0, 45.0)))
    assert plain[0].units == 4
    assert not np.allclose(plain[1].response, changed[1].response)
    figure = tuning_figure(plain[0], changed[0], 1, same=False)
    assert [series.name for series in figure.series] == ["as trained", "with your filters"]
    assert list(figure.series[1].y) == pytest.approx(changed[0].response[:, 1].tolist())
    assert len(tuning_figure(plain[0], plain[0], 1, same=True).series) == 1


def test_a_network_without_time_has_curves_but_no_film(tmp_path: Path) -> None:
    plain = open_run(make_run(tmp_path / "run", "resnet_blocks", channels=[4, 6], norm_groups=2, stem_padding=1))
    assert not has_jets(plain.model, 0)
    with pytest.raises(ConfigError, match="without a time"):
        record(plain, Stimulus(), Preparation(), FilterChange())
    assert tuned(plain, Stimulus(), Preparation(), FilterChange())[0].units == 4
    film = metamers(plain, torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8), 0, 3)
    assert film.times is None
    assert film.maps().columns == ("at its end",)


def test_a_film_of_metamers_comes_nearer_to_the_response(network: Explored) -> None:
    image = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    film = metamers(network, image, 0, 30)
    assert film.times == pytest.approx((0.0, 0.4, 0.8, 1.2, 1.6, 2.0))
    assert film.maps().values.shape == (3, 6, 8, 8)
    assert (film.losses < 0.7).all()
    assert film.losses[0] < 0.05, "the stem alone is nearly undone"
    assert len(film.figure().series) == 2
