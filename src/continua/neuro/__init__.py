"""A laboratory for visual neuroscience: stimuli, instruments, comparison of models and recordings, neural fields.

    screen = Screen(64, 64, degrees_per_pixel=0.1)
    grating(screen, orientation=45.0, frequency=2.0)                        stimuli: contrasts in [−1, 1]
    drifting_grating(screen, frame_times(500.0), temporal_frequency=4.0)    a `Movie`, in milliseconds

Each part has its page in the documentation.
"""

from continua.neuro.gratings import bar, drifting_grating, drifting_plaid, grating, moving, moving_bar, moving_occluder, plaid
from continua.neuro.movie import Movie, contrast_steps, film, frame_times, still
from continua.neuro.noise import natural_noise, random_dots, sparse_noise, white_noise
from continua.neuro.screen import Screen, aperture, gaussian_window, masked_square, to_images

__all__ = [
    "Movie",
    "Screen",
    "aperture",
    "bar",
    "contrast_steps",
    "drifting_grating",
    "drifting_plaid",
    "film",
    "frame_times",
    "gaussian_window",
    "grating",
    "masked_square",
    "moving",
    "moving_bar",
    "moving_occluder",
    "natural_noise",
    "plaid",
    "random_dots",
    "sparse_noise",
    "still",
    "to_images",
    "white_noise",
]
