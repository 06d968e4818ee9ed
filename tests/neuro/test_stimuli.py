"""Stimuli are what their parameters say: in degrees, in milliseconds, from their seeds."""

import math

import pytest
import torch

from continua import ConfigError
from continua.errors import ContinuaWarning
from continua.neuro import (
    Movie,
    Screen,
    aperture,
    bar,
    contrast_steps,
    drifting_grating,
    drifting_plaid,
    film,
    frame_times,
    gaussian_window,
    grating,
    masked_square,
    moving_bar,
    moving_occluder,
    natural_noise,
    plaid,
    random_dots,
    sparse_noise,
    still,
    to_images,
    tuning,
    white_noise,
)

SCREEN = Screen(40, 64, 0.1, dtype=torch.float64)


def peak(image: torch.Tensor) -> tuple[float, float]:
    """The strongest wave of an image: cycles per pixel along y (upwards) and x, with x ≥ 0."""
    power = torch.fft.rfft2(image).abs()
    row, column = divmod(int(power.argmax()), power.shape[1])
    return -float(torch.fft.fftfreq(image.shape[0])[row]), float(torch.fft.rfftfreq(image.shape[1])[column])


def test_the_middle_of_the_screen_is_0_and_y_grows_upwards() -> None:
    x, y = SCREEN.grid()
    assert (float(x.mean()), float(y.mean())) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))
    assert float(x[0, 1] - x[0, 0]) == pytest.approx(0.1)
    assert float(y[1, 0] - y[0, 0]) == pytest.approx(-0.1)


def test_a_grating_has_its_frequency_in_cycles_per_degree() -> None:
    assert peak(grating(SCREEN, orientation=90.0, frequency=10 / 6.4)[0, 0]) == (0.0, pytest.approx(10 / 64))
    assert abs(peak(grating(SCREEN, orientation=0.0, frequency=2.0)[0, 0])[0]) == pytest.approx(0.2)


def test_a_grating_of_45_degrees_has_stripes_that_rise_to_the_right() -> None:
    square = Screen(64, 64, 0.1)
    up, along = peak(grating(square, orientation=45.0, frequency=8 * math.sqrt(2) / 6.4)[0, 0])
    assert (up, along) == (pytest.approx(-8 / 64), pytest.approx(8 / 64))  # the wave runs down to the right, the stripes up to the right


def test_a_batch_of_gratings_is_each_of_them() -> None:
    angles, sizes = torch.tensor([0.0, 30.0, 90.0]), torch.tensor([1.0, 2.0, math.inf])
    batch = grating(SCREEN, orientation=angles, size=sizes, frequency=1.3, phase=20.0)
    for place in range(3):
        alone = grating(SCREEN, orientation=float(angles[place]), size=float(sizes[place]), frequency=1.3, phase=20.0)
        torch.testing.assert_close(batch[place : place + 1], alone)


def test_a_drifting_grating_moves_towards_its_direction_by_its_speed() -> None:
    times = [0.0, 25.0]
    film_right = drifting_grating(SCREEN, times, frequency=10 / 6.4, temporal_frequency=4.0, orientation=90.0)
    moved = 4.0 / (10 / 6.4) * 0.025  # degrees
    torch.testing.assert_close(film_right.frames[1], grating(SCREEN, frequency=10 / 6.4, x=moved))
    film_left = drifting_grating(SCREEN, times, frequency=10 / 6.4, temporal_frequency=4.0, orientation=270.0)
    torch.testing.assert_close(film_left.frames[1], grating(SCREEN, frequency=10 / 6.4, x=-moved))


def test_a_plaid_is_the_sum_of_two_gratings() -> None:
    expected = grating(SCREEN, orientation=60.0, contrast=0.4) + grating(SCREEN, orientation=120.0, contrast=0.4)
    torch.testing.assert_close(plaid(SCREEN, orientation=90.0, angle=60.0, contrast=0.8), expected)
    torch.testing.assert_close(drifting_plaid(SCREEN, [0.0, 10.0], angle=60.0, contrast=0.8).frames[0], expected)


def test_shapes_have_their_area_in_degrees() -> None:
    pixel = 0.1**2
    assert float(aperture(SCREEN, size=2.0).sum()) * pixel == pytest.approx(math.pi, rel=0.01)
    assert float(aperture(SCREEN, size=2.0, inner=1.0).sum()) * pixel == pytest.approx(math.pi * 0.75, rel=0.01)
    assert float(bar(SCREEN, orientation=30.0, width=0.5, length=2.0).sum()) * pixel == pytest.approx(1.0, rel=0.02)
    assert float(gaussian_window(SCREEN, sigma=0.3).sum()) * pixel == pytest.approx(2 * math.pi * 0.09, rel=0.01)


def test_a_bar_moves_and_an_occluder_hides() -> None:
    times = frame_times(400.0, 100.0)
    movie = moving_bar(SCREEN, times, speed=5.0, start=-1.0, width=0.4)
    x, _ = SCREEN.grid()
    middles = [float((frame[0, 0] * x).sum() / frame.sum()) for frame in movie.frames]
    assert middles == pytest.approx([-1.0, -0.5, 0.0, 0.5, 1.0], abs=1e-6)
    hidden = moving_occluder(SCREEN, still_movie(times), speed=5.0, start=-1.0, width=0.4, value=-1.0)
    torch.testing.assert_close(hidden.frames, 1 - 2 * movie.frames)


def still_movie(times: list[float]) -> Movie:
    return Movie(torch.ones(len(times), 1, 1, 40, 64, dtype=torch.float64), tuple(times), times[-1])


def test_a_mask_covers_its_square_only() -> None:
    covered = masked_square(SCREEN, torch.ones(1, 1, 40, 64, dtype=torch.float64), size=1.0, value=-1.0)
    assert int((covered < -0.999).sum()) == 100
    assert int((covered > 0.999).sum()) == 40 * 64 - 100


def test_noise_has_its_statistics_and_its_seed() -> None:
    white = white_noise(SCREEN, 50, seed=1, contrast=0.2)
    assert float(white.std()) == pytest.approx(0.2, rel=0.01)
    assert torch.equal(white, white_noise(SCREEN, 50, seed=1, contrast=0.2))
    assert not torch.equal(white, white_noise(SCREEN, 50, seed=2, contrast=0.2))
    assert set(white_noise(SCREEN, 2, seed=1, kind="binary").unique().tolist()) == {-1.0, 1.0}
    checks = white_noise(SCREEN, 2, seed=1, check=4)
    assert torch.equal(checks[..., ::4, ::4].repeat_interleave(4, -1).repeat_interleave(4, -2), checks)
    spots = sparse_noise(SCREEN, 30, seed=3, spots=5, check=2)
    assert (spots.abs().sum(dim=(1, 2, 3)) == 5 * 4).all()
    with pytest.raises(ConfigError, match="gaussian"):
        white_noise(SCREEN, 1, seed=0, kind="blue")  # pyright: ignore[reportArgumentType]


def test_the_amplitude_of_natural_noise_falls_as_1_over_f() -> None:
    square = Screen(64, 64, 0.1, dtype=torch.float64)
    noise = natural_noise(square, 200, seed=0, contrast=0.3)
    assert float(noise.std(dim=(-2, -1), correction=0).min()) == pytest.approx(0.3)
    assert float(noise.mean()) == pytest.approx(0, abs=1e-12)
    amplitude = torch.fft.fft2(noise).abs().square().mean(dim=(0, 1)).sqrt()[0, 1:32]
    slope = torch.linalg.lstsq(
        torch.stack([torch.arange(1, 32).double().log(), torch.ones(31).double()], 1), amplitude.log()[:, None]
    ).solution[0]
    assert float(slope) == pytest.approx(-1.0, abs=0.05)


def test_dots_move_together_as_far_as_they_are_coherent() -> None:
    times = frame_times(200.0, 20.0)
    together = random_dots(SCREEN, times, seed=0, speed=5.0, direction=0.0, dots=20)
    assert together.jumps == ()
    torch.testing.assert_close(together.frames[5], together.frames[0].roll(5, dims=-1))  # 100 ms · 5 °/s = 0.5° = 5 pixels
    apart = random_dots(SCREEN, times, seed=0, coherence=0.0, dots=20, lifetime=60.0)
    assert len(apart.jumps) >= 3
    assert not torch.allclose(apart.frames[5], apart.frames[0].roll(5, dims=-1), atol=0.1)


def test_a_film_is_linear_between_frames_and_held_before_a_jump() -> None:
    frames = torch.tensor([0.0, 1.0, 5.0, 7.0]).view(4, 1, 1, 1, 1)
    movie = Movie(frames, (0.0, 10.0, 20.0, 30.0), 40.0, jumps=(20.0,))
    assert [float(movie.at(t)) for t in (-1.0, 0.0, 5.0, 10.0, 19.9, 20.0, 25.0, 35.0)] == pytest.approx([0, 0, 0.5, 1, 1, 5, 6, 7])
    held = film(frames.flatten(1)[:, :, None, None], 10.0)
    assert held.jumps == (10.0, 20.0, 30.0)
    assert [float(held.at(t)) for t in (0.0, 9.9, 10.0, 39.0)] == [0, 0, 1, 7]
    assert held.end == 40.0


def test_steps_of_contrast_jump_where_they_step() -> None:
    movie = contrast_steps(torch.ones(1, 1, 2, 2), [0.0, 0.5, 1.0], [100.0, 50.0, 50.0])
    assert (movie.jumps, movie.end) == ((100.0, 150.0), 200.0)
    assert [float(movie.at(t)[0, 0, 0, 0]) for t in (99.0, 100.0, 149.0, 151.0)] == [0, 0.5, 0.5, 1]


def test_films_follow_each_other_with_a_jump() -> None:
    one, two = still(torch.zeros(1, 1, 2, 2), 100.0), moving_bar(Screen(2, 2, 0.1), [0.0, 10.0, 20.0])
    both = one.then(two)
    assert (both.times, both.jumps, both.end) == ((0.0, 100.0, 110.0, 120.0), (100.0,), 120.0)
    back = two.then(one)
    assert (back.times, back.jumps, back.end) == ((0.0, 10.0, 20.0), (20.0,), 120.0)
    assert torch.equal(back.at(25.0), one.at(0.0))


def test_images_of_stimuli_are_luminances() -> None:
    images = to_images(torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1, 1), channels=3)
    assert images.shape == (3, 3, 1, 1)
    assert images[:, 0].flatten().tolist() == [0.0, 0.5, 1.0]
    assert still(torch.zeros(1, 1, 2, 2), 1.0).map(to_images).frames.mean() == 0.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="positive"):
        Screen(0, 3)
    with pytest.raises(ConfigError, match="lengths"):
        grating(SCREEN, orientation=torch.zeros(2), phase=torch.zeros(3))
    with pytest.raises(ConfigError, match="where no frame begins"):
        Movie(torch.zeros(2, 1, 1, 1, 1), (0.0, 1.0), 2.0, jumps=(0.5,))
    with pytest.raises(ConfigError, match="ascend"):
        Movie(torch.zeros(2, 1, 1, 1, 1), (1.0, 0.0), 2.0)
    with pytest.raises(ConfigError, match="spots"):
        sparse_noise(SCREEN, 1, seed=0, spots=0)
    with pytest.raises(ConfigError, match="each contrast"):
        contrast_steps(torch.ones(1, 1, 2, 2), [0.0, 1.0], [1.0])


# --- what a screen cannot show ------------------------------------------------------------------------------------------------


def test_a_grating_that_pixels_cannot_show_is_refused() -> None:
    """Beyond half a cycle per pixel along rows or columns the samples are those of a coarser grating; up to it they are not."""
    square = Screen(64, 64, 0.25, dtype=torch.float64)  # its finest is 2 cycles/°
    with pytest.raises(ConfigError, match=r"5 cycles/° would look like a coarser one on pixels of 0.25°.* is 2 cycles/°"):
        grating(square, frequency=5.0)
    with pytest.raises(ConfigError, match="is 2 cycles/°"):
        grating(square, frequency=torch.tensor([1.0, 2.5]), orientation=0.0)
    with pytest.raises(ConfigError, match=r"is 2\.828 cycles/°"):
        grating(square, frequency=3.0, orientation=45.0)
    with pytest.raises(ConfigError, match="coarser"):
        plaid(square, frequency=3.0)
    with pytest.raises(ConfigError, match="coarser"):
        drifting_grating(square, [0.0, 10.0], frequency=-3.0)
    up, along = peak(grating(square, orientation=45.0, frequency=30 / 16 * math.sqrt(2))[0, 0])  # 2.65 cycles/°, but 1.875 along rows
    assert (abs(up), along) == (pytest.approx(30 / 64), pytest.approx(30 / 64))
    assert peak(grating(square, frequency=2.0, phase=90.0, x=square.degrees_per_pixel)[0, 0])[1] == pytest.approx(0.5)


def test_a_drift_that_frames_cannot_show_is_refused() -> None:
    times = frame_times(100.0, 20.0)
    for drifting in (drifting_grating, drifting_plaid):
        with pytest.raises(ConfigError, match=r"40 cycles/s would look like a slower one in frames of 20 ms; .* is 25 cycles/s"):
            drifting(SCREEN, times, temporal_frequency=torch.tensor([4.0, -40.0]))
        assert len(drifting(SCREEN, times, temporal_frequency=25.0)) == 6
        assert len(drifting(SCREEN, [0.0], temporal_frequency=40.0)) == 1


def test_contrasts_beyond_black_and_white_are_refused() -> None:
    tuned = tuning(lambda x: x.flatten(1)[:, :3], SCREEN, "contrast", [0.1, 1.0])
    assert tuned.values.tolist() == [0.1, 1.0]
    shown = grating(SCREEN, contrast=0.1)
    makers = [
        lambda c: grating(SCREEN, contrast=c),
        lambda c: grating(SCREEN, contrast=torch.tensor([0.5, -c])),
        lambda c: plaid(SCREEN, contrast=c),
        lambda c: bar(SCREEN, contrast=c),
        lambda c: white_noise(SCREEN, 1, seed=0, contrast=c),
        lambda c: sparse_noise(SCREEN, 1, seed=0, contrast=c),
        lambda c: natural_noise(SCREEN, 1, seed=0, contrast=c),
        lambda c: random_dots(SCREEN, [0.0], seed=0, contrast=c),
        lambda c: masked_square(SCREEN, shown, size=1.0, value=c),
        lambda c: moving_occluder(SCREEN, still(shown, 10.0), value=c),
        lambda c: contrast_steps(shown, [1.0, 10 * c], 5.0),
        lambda c: tuning(lambda x: x.flatten(1)[:, :3], SCREEN, "contrast", [0.1, c]),
    ]
    for make in makers:
        make(1.0)
        for wrong in (1.5, 50.0, math.nan):
            with pytest.raises(ConfigError, match="beyond black and white"):
                make(wrong)


def test_frames_have_the_duration_that_was_asked_for() -> None:
    assert frame_times(55.0, frame=10.0) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 55.0]
    assert frame_times(5.0, frame=10.0, start=3.0) == [3.0, 8.0]
    assert frame_times(0.3 * 100, frame=0.1 * 100)[-1] == 30.0
    assert len(frame_times(0.3 * 100, frame=0.1 * 100)) == 4
    with pytest.warns(ContinuaWarning, match="milliseconds"):
        frame_times(0.5)
