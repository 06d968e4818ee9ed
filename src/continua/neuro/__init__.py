"""A laboratory for visual neuroscience: stimuli, instruments, comparison of models and recordings, neural fields.

    screen = Screen(64, 64, degrees_per_pixel=0.1)
    grating(screen, orientation=45.0, frequency=2.0)                        stimuli: contrasts in [−1, 1]
    drifting_grating(screen, frame_times(500.0), temporal_frequency=4.0)    a `Movie`, in milliseconds
    cells = units(net, block=0, t=1.0)                                      units of a network, as a function of stimuli
    curve = tuning(cells, screen, "orientation", torch.arange(0, 180, 15), frequency=2.0)
    circular_variance(curve), fit(curve)["preferred"]                       numbers of each unit
    spike_triggered_average(cells, white_noise(screen, 5000, seed=0))       receptive fields
    rsa(respond(cells, stimuli), recordings)                                comparison with another system

Each part has its page in the documentation.
"""

from continua.blocks import Dispersion, NeuralField, dominant_wave
from continua.filters import LateralGaussians, mexican_hat
from continua.neuro.block_tuning import BlockTuning, block_sigma, rescaled_block, survey
from continua.neuro.cells import Units, frame_by_frame, respond, units
from continua.neuro.cortex import MACAQUE_V1, Published, published
from continua.neuro.curves import TuningCurve, film_tuning, tuning
from continua.neuro.driven import DrivenNetwork, FilmResponse
from continua.neuro.fits import Fit, Population, dog_frequency, dog_size, fit, naka_rushton, population, von_mises, von_mises_pair
from continua.neuro.gratings import bar, drifting_grating, drifting_plaid, grating, moving, moving_bar, moving_occluder, plaid
from continua.neuro.movie import Movie, StreamedMovie, contrast_steps, film, frame_times, still, streamed
from continua.neuro.noise import natural_noise, random_dots, sparse_noise, white_noise
from continua.neuro.perception import Eigendistortions, Metamer, Percept, eigendistortions, metamer, metamer_film
from continua.neuro.predictivity import Predictivity, Recordings, linear_predictivity, read_recordings
from continua.neuro.receptive_fields import ReceptiveField, gradient_field, sparse_fields, spike_triggered_average
from continua.neuro.screen import Screen, aperture, gaussian_window, masked_square, to_images
from continua.neuro.selectivity import (
    TimeCourse,
    circular_variance,
    direction_selectivity,
    direction_variance,
    octaves,
    orientation_bandwidth,
    orientation_selectivity,
    peak_frequency,
    preferred_orientation,
    surround_suppression,
)
from continua.neuro.similarity import Ceiling, Dissimilarity, Similarity, dissimilarity, linear_cka, noise_ceiling, rsa

__all__ = [
    "MACAQUE_V1",
    "BlockTuning",
    "Ceiling",
    "Dispersion",
    "Dissimilarity",
    "DrivenNetwork",
    "Eigendistortions",
    "FilmResponse",
    "Fit",
    "LateralGaussians",
    "Metamer",
    "Movie",
    "NeuralField",
    "Percept",
    "Population",
    "Predictivity",
    "Published",
    "ReceptiveField",
    "Recordings",
    "Screen",
    "Similarity",
    "StreamedMovie",
    "TimeCourse",
    "TuningCurve",
    "Units",
    "aperture",
    "bar",
    "block_sigma",
    "circular_variance",
    "contrast_steps",
    "direction_selectivity",
    "direction_variance",
    "dissimilarity",
    "dog_frequency",
    "dog_size",
    "dominant_wave",
    "drifting_grating",
    "drifting_plaid",
    "eigendistortions",
    "film",
    "film_tuning",
    "fit",
    "frame_by_frame",
    "frame_times",
    "gaussian_window",
    "gradient_field",
    "grating",
    "linear_cka",
    "linear_predictivity",
    "masked_square",
    "metamer",
    "metamer_film",
    "mexican_hat",
    "moving",
    "moving_bar",
    "moving_occluder",
    "naka_rushton",
    "natural_noise",
    "noise_ceiling",
    "octaves",
    "orientation_bandwidth",
    "orientation_selectivity",
    "peak_frequency",
    "plaid",
    "population",
    "preferred_orientation",
    "published",
    "random_dots",
    "read_recordings",
    "rescaled_block",
    "respond",
    "rsa",
    "sparse_fields",
    "sparse_noise",
    "spike_triggered_average",
    "still",
    "streamed",
    "surround_suppression",
    "survey",
    "to_images",
    "tuning",
    "units",
    "von_mises",
    "von_mises_pair",
    "white_noise",
]
