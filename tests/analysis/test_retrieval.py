"""Nearest neighbours by features, against scikit-learn's and against orders that can be written down."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors

from continua.analysis import Features, retrieval
from continua.errors import ConfigError


def taken(values: np.ndarray, labels: np.ndarray) -> Features:
    return Features([0.0], ["t = 0"], values[None], labels)


def test_it_is_what_scikit_learn_finds():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 700)  # more than one block of images
    values = draw.normal(size=(700, 5)) + labels[:, None] * np.array([0.6, -0.3, 0.0, 0.2, 0.0])
    (point,) = retrieval(taken(values, labels), nearest=7).points
    found = NearestNeighbors(n_neighbors=8, metric="cosine", algorithm="brute").fit(values).kneighbors(return_distance=False)[:, :7]
    assert point.precision == pytest.approx(float((labels[found] == labels[:, None]).mean()), abs=1e-12)
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosine = unit @ unit.T
    keep = ~np.eye(700, dtype=bool)
    average = [average_precision_score(labels[keep[i]] == labels[i], cosine[i][keep[i]]) for i in range(700)]
    assert point.average_precision == pytest.approx(float(np.mean(average)), abs=1e-9)


def test_features_that_tell_classes_apart_are_perfect_and_those_that_say_nothing_are_chance():
    draw, labels = np.random.default_rng(1), np.arange(300) % 3
    perfect = retrieval(taken(np.eye(3)[labels], labels), nearest=99)
    assert (perfect.points[0].first, perfect.points[0].precision, perfect.points[0].average_precision) == (1.0, 1.0, 1.0)
    noise = retrieval(taken(draw.normal(size=(300, 40)), labels), nearest=10)
    assert noise.chance == pytest.approx(99 / 299)
    assert noise.points[0].precision == pytest.approx(noise.chance, abs=0.04)


def test_an_image_alone_in_its_class_does_not_ask():
    labels = np.array([0, 0, 1])
    (point,) = retrieval(taken(np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.05]]), labels), nearest=1).points
    assert point.first == 0.0, "the two of class 0 both find the stranger first"
    assert point.average_precision == 0.5


def test_each_half_of_the_queries_has_its_own_precision():
    labels = np.array([0, 0, 1, 1])
    values = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [0.0, 1.0]])  # the nearest of each: 1, 0, 1, 2
    (point,) = retrieval(taken(values, labels), nearest=1).points
    assert point.by_half == (0.5, 1.0), "of images 0 and 2, and of images 1 and 3"
    assert sum(point.by_half) / 2 == point.precision


@pytest.mark.parametrize(
    ("labels", "nearest", "said"),
    [([-1, -1, -1], 1, "no labels"), ([0, 0, 1], 3, "fewer than there are others"), ([0, 1, 2], 1, "no two images")],
)
def test_what_cannot_be_asked(labels, nearest, said):
    with pytest.raises(ConfigError, match=said):
        retrieval(taken(np.eye(3), np.array(labels)), nearest=nearest)
