"""Instruments read what is there: closed forms of linear units, known curves, known filters; and any network's units."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from continua import ConfigError, create_model, neuro
from continua.filters import FilterConv2d, NJet
from continua.neuro import (
    Movie,
    Screen,
    TimeCourse,
    TuningCurve,
    circular_variance,
    direction_selectivity,
    direction_variance,
    dog_frequency,
    dog_size,
    film_tuning,
    fit,
    frame_by_frame,
    gaussian_window,
    gradient_field,
    grating,
    naka_rushton,
    natural_noise,
    octaves,
    orientation_bandwidth,
    orientation_selectivity,
    population,
    preferred_orientation,
    sparse_fields,
    sparse_noise,
    spike_triggered_average,
    surround_suppression,
    tuning,
    units,
    von_mises,
    von_mises_pair,
    white_noise,
)
from continua.report import draw_figure

SCREEN = Screen(41, 41, 0.1, dtype=torch.float64)


@pytest.fixture(scope="module")
def jets() -> NJet:
    torch.manual_seed(0)
    filter = NJet(1, 5, order=3, radius=12, sharing="channel", s_std=0.0).double()
    return filter.with_values(filter.alpha, torch.tensor([1.5, 2.0, 2.0, 2.5, 1.2], dtype=torch.float64))


@pytest.fixture(scope="module")
def linear(jets: NJet):
    conv = FilterConv2d(jets)
    return lambda stimuli: conv(stimuli)[:, :, 20, 20]


def closed_form(jets: NJet, orientation: Tensor, frequency: Tensor) -> np.ndarray:
    """|F̂| of each unit at gratings, (points, units): rows of an image go down, so y is turned round."""
    direction = torch.deg2rad(orientation.double() - 90)
    pixels = frequency.double() * SCREEN.degrees_per_pixel
    return jets.frequency_response(-pixels * torch.sin(direction), pixels * torch.cos(direction))[:, 0].abs().t().detach().numpy()


# --- oracles of linear units ------------------------------------------------------------------------------------------------


def test_orientation_tuning_of_a_linear_unit_is_the_fourier_transform_of_its_filter(jets: NJet, linear) -> None:
    values = torch.arange(0.0, 180.0, 15.0)
    curve = tuning(linear, SCREEN, "orientation", values, frequency=1.0)
    expected = closed_form(jets, values, torch.full_like(values, 1.0))
    assert np.abs(curve.f1 - expected).max() < 0.01 * expected.max(0).min()
    assert np.abs(curve.response - expected).max() < 0.01 * expected.max(0).min()


def test_frequency_tuning_of_a_linear_unit_is_the_fourier_transform_of_its_filter(jets: NJet, linear) -> None:
    values = torch.linspace(0.2, 2.5, 12)
    curve = tuning(linear, SCREEN, "frequency", values, orientation=30.0)
    expected = closed_form(jets, torch.full_like(values, 30.0), values)
    assert np.abs(curve.response - expected).max() < 0.01 * expected.max(0).min()


def test_contrast_tuning_of_a_linear_unit_is_a_line(jets: NJet, linear) -> None:
    curve = tuning(linear, SCREEN, "contrast", [0.1, 0.2, 0.5, 1.0], frequency=1.0)
    np.testing.assert_allclose(curve.response / curve.values[:, None], np.broadcast_to(curve.response[-1], (4, 5)), rtol=1e-9)
    assert (curve.modulation > 100).all()


def test_a_drifting_grating_gives_the_tuning_of_still_ones(linear) -> None:
    values = [0.0, 45.0, 90.0, 135.0]
    drifting = film_tuning(frame_by_frame(linear), SCREEN, "orientation", values, frequency=1.0, skip=0, cycles=1, frames=8)
    np.testing.assert_allclose(drifting.f1, tuning(linear, SCREEN, "orientation", values, frequency=1.0).f1, atol=1e-10)


def test_temporal_tuning_of_a_leaky_integrator_is_its_low_pass() -> None:
    """dr/dt = (u − r)/τ has gain 1/√(1 + (2π f τ)²); its steps here are exact for a drive that is linear between frames."""
    gabor = (gaussian_window(SCREEN, sigma=0.5) * grating(SCREEN)).flatten()

    def linear(stimuli: Tensor) -> Tensor:
        return stimuli.flatten(1) @ gabor[:, None]

    def leaky(movie: Movie) -> Tensor:
        drive, tau = frame_by_frame(linear)(movie), 50.0
        rates = [drive[0]]
        for k in range(1, len(movie)):
            step = movie.times[k] - movie.times[k - 1]
            decay, mean = math.exp(-step / tau), (1 - math.exp(-step / tau)) * tau / step
            rates.append(decay * rates[-1] + (mean - decay) * drive[k - 1] + (1 - mean) * drive[k])
        return torch.stack(rates)

    speeds = np.array([1.0, 4.0, 16.0])
    curve = film_tuning(leaky, SCREEN, "temporal_frequency", speeds.tolist(), frequency=1.0, skip=4, frames=24)
    still = tuning(linear, SCREEN, "orientation", [90.0], frequency=1.0).f1
    np.testing.assert_allclose(curve.f1, still / np.sqrt(1 + (2 * np.pi * speeds[:, None] * 0.05) ** 2), rtol=0.01)


def test_the_average_triggered_by_noise_recovers_the_filter_of_a_linear_unit(jets: NJet) -> None:
    """64 stimuli for each of 225 pixels: a correlation of about 1/√(1 + 1/64) = 0.992."""
    small = Screen(15, 15, 0.1, dtype=torch.float64)
    kernel = jets.sample(torch.arange(-7.0, 8.0), torch.arange(-7.0, 8.0)).detach()
    model = lambda stimuli: (stimuli * 1.0).flatten(1) @ kernel.flatten(1).t() + 3.0  # noqa: E731
    rough = spike_triggered_average(model, white_noise(small, 64 * 225, seed=5, contrast=0.3))
    assert float(rough.correlation(kernel).min()) > 0.99
    torch.testing.assert_close(gradient_field(model, small.grey()).maps, kernel)
    exact = spike_triggered_average(model, natural_noise(small, 600, seed=1), whiten=1e-12)
    assert float(exact.correlation(kernel - kernel.mean(dim=(-2, -1), keepdim=True)).min()) > 0.99


def test_on_and_off_maps_show_where_light_and_dark_are_answered() -> None:
    small = Screen(9, 9, 0.1)
    rectified = lambda stimuli: torch.stack([stimuli[:, 0, 2, 3].relu(), (-stimuli[:, 0, 6, 5]).relu()], 1)  # noqa: E731
    on, off = sparse_fields(rectified, sparse_noise(small, 3000, seed=0, spots=2))
    assert [divmod(int(part.flatten().argmax()), 9) for part in (on.maps[0], off.maps[1])] == [(2, 3), (6, 5)]
    assert float(off.maps[0].max()) < 0.2 * float(on.maps[0].max())
    assert gradient_field(lambda x: x[:, 0, 2, 3:4] * 2, small.grey()).centre().tolist() == [[2.0, 3.0]]


# --- numbers of curves ------------------------------------------------------------------------------------------------------


def made_curve(parameter: str, values: np.ndarray, responses: np.ndarray) -> TuningCurve:
    return TuningCurve(parameter, values, responses, np.zeros_like(responses), np.zeros(responses.shape[1]))


def test_selectivity_of_known_curves() -> None:
    angles = np.arange(0.0, 180.0, 22.5)
    flat, single = np.ones(8), (angles == 45).astype(float)
    cosine = 1 + np.cos(2 * np.deg2rad(angles - 90))
    curve = made_curve("orientation", angles, np.stack([flat, single, cosine, 0 * flat], 1))
    np.testing.assert_allclose(circular_variance(curve), [1, 0, 0.5, np.nan], atol=1e-12)
    np.testing.assert_allclose(orientation_selectivity(curve), [0, 1, 1, np.nan], atol=1e-12)
    np.testing.assert_allclose(preferred_orientation(curve)[1:3], [45, 90], atol=1e-9)


def test_direction_selectivity_of_known_curves() -> None:
    angles = np.arange(0.0, 360.0, 45.0)
    one, both = (angles == 90).astype(float), ((angles % 180) == 90).astype(float)
    curve = made_curve("direction", angles, np.stack([one, both], 1))
    np.testing.assert_allclose(direction_selectivity(curve), [1, 0], atol=1e-12)
    np.testing.assert_allclose(direction_variance(curve), [0, 1], atol=1e-12)
    np.testing.assert_allclose(circular_variance(curve), [0, 0], atol=1e-12)
    np.testing.assert_allclose(np.minimum(preferred_orientation(curve), 180 - preferred_orientation(curve)), 0, atol=1e-9)  # stripes lie


def test_suppression_bandwidth_and_time_course_of_known_curves() -> None:
    sizes = made_curve("size", np.array([1.0, 2.0, 4.0]), np.array([[1.0, 1.0], [4.0, 2.0], [1.0, 3.0]]))
    np.testing.assert_allclose(surround_suppression(sizes), [0.75, 0.0])
    frequencies = np.geomspace(0.25, 16, 61)
    curve = made_curve("frequency", frequencies, np.exp(-0.5 * (np.log2(frequencies) - 1) ** 2)[:, None])
    assert octaves(curve) == pytest.approx(2 * math.sqrt(2 * math.log(2)), rel=0.01)
    times = np.arange(-50.0, 200.0, 1.0)
    rise = np.where(times > 40, 1 - np.exp(-(times - 40) / 10), 0.0)
    course = TimeCourse(times, np.stack([2 + rise, 2 - rise * np.exp(-times.clip(0) / 30)], 1))
    assert course.latency()[0] == pytest.approx(40 + 10 * math.log(2), abs=0.1)
    np.testing.assert_allclose(course.transience(), [0, 1], atol=0.03)


@pytest.mark.parametrize(
    ("parameter", "values", "function", "parameters", "closeness"),
    [
        ("orientation", np.arange(0.0, 180.0, 15.0), von_mises, (0.5, 7.0, 62.0, 2.5), 1e-4),
        ("direction", np.arange(0.0, 360.0, 20.0), von_mises_pair, (0.2, 5.0, 1.5, 100.0, 4.0), 1e-4),
        ("contrast", np.geomspace(0.01, 1.0, 10), naka_rushton, (1.0, 30.0, 0.2, 2.2), 1e-3),
        ("frequency", np.geomspace(0.2, 10.0, 12), dog_frequency, (20.0, 0.1, 12.0, 0.35), 1e-2),
        ("size", np.linspace(0.2, 8.0, 14), dog_size, (25.0, 0.8, 10.0, 2.0), 1e-2),
    ],
)
def test_a_fit_recovers_the_curve_it_was_made_of(parameter, values, function, parameters, closeness) -> None:
    exact = function(values, *parameters)
    result = fit(made_curve(parameter, values, np.stack([exact, 100 * exact, 0 * exact], 1)))
    assert result.r2[0] > 0.9999
    np.testing.assert_allclose(result.at(values)[:, 0], exact, atol=closeness * np.abs(exact).max())
    np.testing.assert_allclose(result.at(values)[:, 1], 100 * exact, atol=100 * closeness * np.abs(exact).max())
    np.testing.assert_allclose(result.parameters[0], parameters, rtol=0.05)
    assert np.isnan(result.r2[2])


def test_the_peak_of_a_fit_is_that_of_the_curve() -> None:
    values = np.geomspace(0.2, 10.0, 12)
    result = fit(made_curve("frequency", values, dog_frequency(values, 20.0, 0.1, 12.0, 0.35)[:, None]))
    grid = np.geomspace(0.2, 10.0, 5001)
    assert result.peak(0.2, 10.0)[0] == pytest.approx(grid[dog_frequency(grid, 20.0, 0.1, 12.0, 0.35).argmax()], rel=0.01)


def test_a_log_normal_population_is_seen_as_one() -> None:
    random = np.random.default_rng(0)
    good = population(np.exp(random.normal(1.0, 0.4, 4000)), "frequency")
    assert (good.log_mean, good.log_std) == (pytest.approx(1.0, abs=0.02), pytest.approx(0.4, abs=0.02))
    assert good.distance < 0.03
    bad = population([*random.uniform(0.1, 1.0, 500), math.nan, -1.0, math.inf])
    assert bad.left_out == 3
    assert bad.distance > 0.05


# --- any network ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dcn_ode", "resnet_blocks"])
def test_units_of_a_network_are_its_states(name: str) -> None:
    small: dict = dict(channels=(4, 8), in_channels=3)
    net = create_model(name, **small, **({"solver": dict(method="rk4", steps=2)} if name == "dcn_ode" else {})).eval()
    stimuli = grating(Screen(16, 16, 0.1), frequency=torch.tensor([1.0, 2.0]))
    images = (0.5 * (1 + stimuli)).expand(-1, 3, -1, -1)
    with torch.no_grad():
        last = net.states(images, 1)[-1]
        torch.testing.assert_close(units(net, -1)(stimuli), last[:, :, last.shape[2] // 2, last.shape[3] // 2])
        torch.testing.assert_close(units(net, 1, place="mean", channels=[2])(stimuli), last.mean((2, 3))[:, [2]])
        torch.testing.assert_close(units(net, 1, place="all")(stimuli), last.flatten(1))
        assert units(net, "stem", place=(1, 2))(stimuli).shape[0] == 2
        if name == "dcn_ode":
            within = net.states(images, 0, [0.7])[0]
            torch.testing.assert_close(units(net, 0, t=0.7, place=(0, 0))(stimuli), within[:, :, 0, 0])
    curve = tuning(units(net, 0), Screen(16, 16, 0.1), "orientation", torch.arange(0.0, 180.0, 45.0), frequency=1.0, phases=4)
    assert curve.units == net.states(images, 0).shape[2]
    assert np.isfinite(circular_variance(curve)).any()
    assert gradient_field(units(net, 0, channels=[0, 1]), Screen(16, 16, 0.1).grey()).maps.shape == (2, 1, 16, 16)


def test_results_are_drawn(linear, tmp_path: Path) -> None:
    curve = tuning(linear, SCREEN, "orientation", torch.arange(0.0, 180.0, 30.0), frequency=1.0)
    course = TimeCourse(np.arange(5.0), np.ones((5, 2)))
    figures: list = [curve.figure(), fit(curve).figure(curve), population(curve.response[0], "rate").figure(), course.figure()]
    figures.append(gradient_field(linear, SCREEN.grey()).picture())
    for place, figure in enumerate(figures):
        assert draw_figure(figure, tmp_path / f"{place}.png").stat().st_size > 0


def test_what_an_instrument_cannot_read_is_refused(linear) -> None:
    with pytest.raises(ConfigError, match="film_tuning"):
        tuning(linear, SCREEN, "direction", [0.0])
    with pytest.raises(ConfigError, match="leave it out"):
        tuning(linear, SCREEN, "frequency", [1.0], frequency=2.0)
    with pytest.raises(ConfigError, match="at least 3"):
        tuning(linear, SCREEN, "frequency", [1.0], phases=2)
    with pytest.raises(ConfigError, match="flatten"):
        tuning(lambda x: x, SCREEN, "frequency", [1.0])
    with pytest.raises(ConfigError, match="equally spaced"):
        circular_variance(made_curve("orientation", np.array([0.0, 10.0, 20.0]), np.ones((3, 1))))
    with pytest.raises(ConfigError, match="expected one over size"):
        surround_suppression(made_curve("contrast", np.array([0.1, 1.0]), np.ones((2, 1))))
    with pytest.raises(ConfigError, match="no gradient"):
        gradient_field(lambda x: x.detach().flatten(1), SCREEN.grey())
    with pytest.raises(ConfigError, match="show more values"):
        fit(made_curve("contrast", np.array([0.1, 1.0]), np.ones((2, 1))))
    with pytest.raises(ConfigError, match="no block 7"):
        units(create_model("dcn_ode", channels=(4, 8)), 7)


@pytest.mark.parametrize("sharpness", [0.8, 2.0, 6.0])
@pytest.mark.parametrize("preferred", [0.0, 90.0, 172.0])
def test_an_orientation_bandwidth_is_that_of_the_curve(sharpness: float, preferred: float) -> None:
    """A von Mises falls to half where cos 2(θ − preferred) = 1 − ln 2 / sharpness, also across 0°."""
    angles = np.arange(0.0, 180.0, 2.0)
    rates = von_mises(angles, 0.0, 3.0, preferred, sharpness)[:, None]
    curve = TuningCurve("orientation", angles, rates, np.zeros_like(rates), np.zeros(1))
    assert orientation_bandwidth(curve)[0] == pytest.approx(np.rad2deg(np.arccos(1 - np.log(2) / sharpness)), rel=0.01)


def test_a_curve_that_does_not_fall_to_half_has_no_bandwidth() -> None:
    angles = np.arange(0.0, 180.0, 15.0)
    rates = von_mises(angles, 5.0, 1.0, 60.0, 2.0)[:, None]
    assert np.isinf(orientation_bandwidth(TuningCurve("orientation", angles, rates, np.zeros_like(rates), np.zeros(1)))).all()


def test_what_was_published_stands_beside_a_population() -> None:
    assert all(entry.says and entry.source and entry.measure in (*dir(neuro), "modulation", "latency") for entry in neuro.MACAQUE_V1)
    entries = neuro.published("surround_suppression")
    figure = neuro.population([0.2, 0.5, 0.9], "suppression").figure(bins=3, beside=entries)
    line = figure.series[-1]
    assert list(line.x) == [0.67, 0.67]
    assert "Jones" in figure.caption
    assert "Jones" in line.name
    with pytest.raises(ConfigError, match="published measure"):
        neuro.published("suround_suppression")


def test_a_place_outside_the_map_is_refused() -> None:
    net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1, solver=dict(method="rk4", steps=1)).eval()
    height, width = net.states(torch.zeros(1, 1, 16, 16), 0)[-1].shape[-2:]
    with torch.no_grad():
        assert units(net, 0, place=(height - 1, -width))(torch.zeros(1, 1, 16, 16)).shape == (1, 4)
    for place in ((height, 0), (0, -width - 1)):
        with pytest.raises(ConfigError, match=f"outside the map of {height} × {width}"):
            units(net, 0, place=place)(torch.zeros(1, 1, 16, 16))


def test_grey_of_a_film_is_measured_on_a_screen_of_any_resolution() -> None:
    """The background has no frequency, so that pixels of a degree and drifts of 1 cycle per second show it too."""
    cells = frame_by_frame(lambda stimuli: stimuli.flatten(1)[:, :2] + 3)
    curve = film_tuning(cells, Screen(8, 8, 1.0), "direction", [0.0, 90.0], frequency=0.25, temporal_frequency=0.5, frames=4)
    np.testing.assert_allclose(curve.baseline, [3.0, 3.0])
