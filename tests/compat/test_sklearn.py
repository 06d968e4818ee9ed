"""`ContinuaClassifier` does what scikit-learn expects of a classifier, and learns."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from continua import ConfigError
from continua.compat.sklearn import ContinuaClassifier

TINY: dict[str, Any] = dict(
    model_options=dict(channels=[4, 8], stem_padding=1, norm_groups=2, solver=dict(method="euler", steps=1, gradient="direct")),
    epochs=30,
    batch_size=64,
    random_state=0,
)
# What images, or training by gradients, do not allow.
EXPECTED = {
    "check_methods_subset_invariance": "float32: alone or in a batch, an image differs by rounding (about 1e-6; the check asks for 1e-7)",
    "check_sample_weight_equivalence_on_dense_data": "an image that counts twice is in one batch, two equal images may be in two",
}


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return images[:300], labels[:300]


@pytest.mark.slow
@parametrize_with_checks([ContinuaClassifier(**TINY)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    torch.set_num_threads(1)
    check(estimator)


def test_digits_are_learnt(digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    wide = TINY["model_options"] | dict(channels=[8, 24], norm_groups=4)
    net = ContinuaClassifier(model_options=wide, epochs=20, random_state=0).fit(images[:200], labels[:200])
    assert net.score(images[200:], labels[200:]) > 0.65
    assert net.losses_[-1] < 0.5 * net.losses_[0]
    shares = net.predict_proba(images[200:])
    assert np.allclose(shares.sum(1), 1)
    assert np.array_equal(net.classes_[shares.argmax(1)], net.predict(images[200:]))


def test_images_and_their_rows_give_the_same_network_and_names_are_labels(digits: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = digits
    names = np.array([f"digit {label}" for label in labels])
    quick = TINY | dict(epochs=1)
    of_rows = ContinuaClassifier(**quick).fit(rows, names).predict_proba(rows)
    of_images = ContinuaClassifier(**quick).fit(rows.reshape(-1, 8, 8), names)
    assert np.array_equal(of_rows, of_images.predict_proba(rows.reshape(-1, 8, 8)))
    assert np.array_equal(of_rows, ContinuaClassifier(**quick, image_shape=(1, 8, 8)).fit(rows, names).predict_proba(rows))
    assert of_images.predict(rows[:2].reshape(-1, 8, 8))[0].startswith("digit ")
    with pytest.raises(ConfigError, match=r"image_shape=\(3, 8, 8\) holds 192 numbers, and a row of X 64"):
        ContinuaClassifier(**quick, image_shape=(3, 8, 8)).fit(rows, names)


def test_it_takes_part_in_pipelines_and_searches(digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    whole = make_pipeline(MinMaxScaler(), ContinuaClassifier(**TINY | dict(epochs=1)))
    search = GridSearchCV(whole, {"continuaclassifier__batch_size": [16, 32]}, cv=2, error_score="raise")
    assert search.fit(images[:60], labels[:60]).best_params_["continuaclassifier__batch_size"] in (16, 32)
