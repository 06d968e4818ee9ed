"""Comparisons of systems agree with NumPy's, SciPy's and scikit-learn's own formulas, and with what was put in."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from continua import ConfigError, ContinuaError
from continua.neuro import (
    Recordings,
    dissimilarity,
    linear_cka,
    linear_predictivity,
    noise_ceiling,
    read_recordings,
    rsa,
)
from continua.report import draw_figure

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(30, 12)), RANDOM.normal(size=(30, 50))


@pytest.mark.parametrize("distance", ["correlation", "cosine", "euclidean"])
def test_dissimilarity_is_scipys(distance: Any) -> None:
    np.testing.assert_allclose(dissimilarity(X, distance).matrix, cdist(X, X, distance), atol=1e-7)
    np.testing.assert_allclose(dissimilarity(torch.tensor(X).view(30, 3, 4), distance).matrix, cdist(X, X, distance), atol=1e-7)


def test_cosine_dissimilarity_is_that_of_scikit_learn() -> None:
    from sklearn.metrics.pairwise import cosine_distances

    np.testing.assert_allclose(dissimilarity(X, "cosine").matrix, cosine_distances(X), atol=1e-12)


def test_rsa_is_the_rank_correlation_of_the_two_triangles() -> None:
    pairs = np.triu_indices(30, 1)
    one, other = (1 - np.asarray(np.corrcoef(values)) for values in (X, Y))
    expected: Any = spearmanr(one[pairs], other[pairs])
    result = rsa(X, Y, resamples=0)
    assert result.score == pytest.approx(expected.statistic, abs=1e-12)
    assert result.ceiling is None


def test_rsa_sees_the_same_geometry_in_other_units_and_its_interval_holds_the_score() -> None:
    turn, _ = np.linalg.qr(RANDOM.normal(size=(12, 12)))
    assert rsa(X, X @ turn * 3, distance="cosine", resamples=0).score == pytest.approx(1)
    noisy = rsa(X, X + RANDOM.normal(size=X.shape), resamples=100)
    assert noisy.low < noisy.score < noisy.high < 1


def test_the_ceiling_bounds_what_a_perfect_model_reaches() -> None:
    truth = RANDOM.normal(size=(40, 30))
    subjects = [truth + 0.8 * RANDOM.normal(size=truth.shape) for _ in range(6)]
    result = rsa(truth, subjects, resamples=0, by="pearson")
    assert result.ceiling is not None
    assert result.ceiling.lower < result.ceiling.upper
    assert result.ceiling.lower - 0.02 < result.score < result.ceiling.upper + 0.02
    assert result.of_ceiling == pytest.approx(result.score / result.ceiling.lower)
    alone = noise_ceiling([dissimilarity(truth)] * 2)
    assert (alone.lower, alone.upper) == (pytest.approx(1), pytest.approx(1))


def test_cka_is_the_alignment_of_centred_gram_matrices() -> None:
    centring = np.eye(30) - 1 / 30
    k, m = centring @ X @ X.T @ centring, centring @ Y @ Y.T @ centring
    expected = (k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum())
    assert linear_cka(X, Y) == pytest.approx(expected, abs=1e-12)  # by stimuli
    assert linear_cka(X, X[:, :5]) == pytest.approx(linear_cka(X, np.pad(X[:, :5], ((0, 0), (0, 60)))), abs=1e-12)  # by units
    turn, _ = np.linalg.qr(RANDOM.normal(size=(12, 12)))
    assert linear_cka(X, 3 * X @ turn + 7) == pytest.approx(1)


@pytest.mark.parametrize("method", ["ridge", "pls"])
def test_neurons_that_are_linear_in_the_features_are_predicted(method: str) -> None:
    features = RANDOM.normal(size=(200, 10))
    neurons = features @ RANDOM.normal(size=(10, 4))
    result = linear_predictivity(features, np.hstack([neurons, RANDOM.normal(size=(200, 5))]), method=method, components=10)  # pyright: ignore[reportArgumentType]
    assert (result.correlation[:4] > 0.999).all()
    assert (np.abs(result.correlation[4:]) < 0.3).all()
    assert result.low <= result.score <= result.high


def test_the_correction_for_noise_recovers_a_perfect_model() -> None:
    features = RANDOM.normal(size=(300, 8))
    signal = features @ RANDOM.normal(size=(8, 12))
    signal /= signal.std(0)
    recorded = Recordings(np.stack([signal + 1.5 * RANDOM.normal(size=signal.shape) for _ in range(6)]))
    reliability = recorded.reliability()
    assert reliability is not None
    assert reliability.mean() == pytest.approx(1 / (1 + 1.5**2 / 6), abs=0.03)  # signal over signal and noise of the mean
    result = linear_predictivity(features, recorded)
    assert result.score == pytest.approx(1.0, abs=0.04)
    assert np.median(result.correlation) < 0.9


def test_a_prediction_never_saw_its_stimulus() -> None:
    """Noise with many features is fitted perfectly and predicted not at all."""
    result = linear_predictivity(RANDOM.normal(size=(60, 200)), RANDOM.normal(size=(60, 20)))
    assert abs(result.score) < 0.15


def test_recordings_are_read_from_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", responses=np.ones((3, 20, 5)), names=[f"n{k}" for k in range(5)])
    recorded = read_recordings(tmp_path / "a.npz")
    assert (recorded.responses.shape, recorded.names[1]) == ((3, 20, 5), "n1")
    with pytest.raises(ContinuaError, match="say which array"):
        read_recordings(tmp_path / "a.npz", key="rates")
    (tmp_path / "b.npz").write_bytes(b"no")
    for name in ("b.npz", "c.npz"):
        with pytest.raises(ContinuaError, match="cannot be read"):
            read_recordings(tmp_path / name)


def test_comparisons_are_drawn(tmp_path: Path) -> None:
    draw_figure(dissimilarity(X).picture("block 0"), tmp_path / "a.png")
    draw_figure(linear_predictivity(X, Y, folds=3).figure(), tmp_path / "b.png")
    for name in "ab":
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert len(picture.convert("L").getcolors() or range(256)) > 2  # more than a blank page


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="same stimuli"):
        rsa(X, Y[:-1])
    with pytest.raises(ConfigError, match="same stimuli"):
        linear_cka(X, Y[:-1])
    with pytest.raises(ConfigError, match="same stimuli"):
        linear_predictivity(X, Y[:-1])
    with pytest.raises(ConfigError, match="folds"):
        linear_predictivity(X, Y, folds=40)
    with pytest.raises(ConfigError, match="finite"):
        dissimilarity(np.full((3, 2), np.nan))
    with pytest.raises(ContinuaError, match="correlation"):
        dissimilarity(X, "correlaton")  # pyright: ignore[reportArgumentType]


def test_an_array_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", Y)
    with pytest.raises(ContinuaError, match=r"\.npy file, a single array; use Recordings"):
        read_recordings(tmp_path / "a.npy")


def test_silent_neurons_do_not_count() -> None:
    silent = np.concatenate([Y, np.full((len(Y), Y.shape[1] + 2), 3.0)], axis=1)
    alone, among = linear_predictivity(X, Y, folds=3), linear_predictivity(X, silent, folds=3)
    assert np.isnan(among.correlation[Y.shape[1] :]).all()
    np.testing.assert_allclose(among.correlation[: Y.shape[1]], alone.correlation)
    assert among.score == pytest.approx(alone.score)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repeated = linear_predictivity(X, Recordings(np.stack([silent, silent])), folds=3, resamples=0)
    assert repeated.score == pytest.approx(alone.score)
    with pytest.raises(ConfigError, match="no recorded neuron varies"):
        linear_predictivity(X, np.ones_like(Y), folds=3)


def test_a_missing_response_is_refused_in_our_words_alone() -> None:
    missing = np.stack([Y, Y])
    missing[:, 0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match="no recorded response"):
            linear_predictivity(X, Recordings(missing))
