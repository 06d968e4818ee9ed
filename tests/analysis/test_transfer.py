"""Transfer against scikit-learn's own grid search; what is refused; what an interrupted search keeps."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from continua import ConfigError, create_model
from continua.analysis.questions.features import Features, features
from continua.analysis.questions.transfer import CS, present, transfer


def given(points: int = 2, classes: int = 4, per_class: int = 15, width: int = 8, seed: int = 0) -> Features:
    draw = np.random.default_rng(seed)
    labels = np.tile(np.arange(classes), per_class)
    values = draw.normal(size=(1, classes, width))[:, labels] * np.linspace(0.3, 0.8, points)[:, None, None]
    values = np.maximum(values + draw.normal(size=(points, len(labels), width)), 0)
    return Features(list(np.linspace(0, 1, points)), [f"t = {i}" for i in range(points)], values, labels)


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("solver", ["together", "liblinear"])
def test_the_search_is_that_of_scikit_learn(standardise, solver):
    taken = given()
    result = transfer(taken, standardise=standardise, solver=solver, jobs=1)
    svc = LinearSVC(dual=False, tol=1e-8, max_iter=100_000)
    name = "linearsvc__C" if standardise else "C"
    for point, values in zip(result.points, taken.values, strict=True):
        search = GridSearchCV(make_pipeline(StandardScaler(), svc) if standardise else svc, {name: list(CS)}, cv=5).fit(
            values, taken.labels
        )
        np.testing.assert_allclose(point.scores, search.cv_results_["mean_test_score"], atol=1e-12)
        np.testing.assert_allclose(point.spread, search.cv_results_["std_test_score"], atol=1e-12)
        assert point.best_c == search.best_params_[name]
        assert point.accuracy == pytest.approx(search.best_score_)
        assert point.retrained == pytest.approx(search.score(values, taken.labels))  # refitted on the whole set


@pytest.mark.slow  # starting processes takes its time
def test_workers_change_nothing():
    taken = given(points=1)
    assert transfer(taken, jobs=2, cs=(0.1, 1.0)).points == transfer(taken, jobs=1, cs=(1.0, 0.1)).points


def test_better_features_transfer_better_and_are_named():
    result = transfer(given(points=3, per_class=40), jobs=1, cs=(1.0,))
    assert result.points[2].accuracy > result.points[0].accuracy
    page = present(result)
    assert "t = 2" in page.parts[0]
    assert (result.classes, result.images, result.width) == (4, 160, 8)


def test_an_interrupted_search_goes_on():
    taken, store, made = given(points=3), {}, []

    def keep(name, make):
        if name not in store:
            piece = make()
            made.append(name)
            if len(made) == 2 and len(store) == 1:
                raise KeyboardInterrupt
            store[name] = piece
        return store[name]

    with pytest.raises(KeyboardInterrupt):
        transfer(taken, jobs=1, cs=(1.0,), keep=keep)
    assert list(store) == ["t = 0"]
    store["t = 0"]["accuracy"] = 0.123  # not made again
    result = transfer(taken, jobs=1, cs=(1.0,), keep=keep)
    assert [point.name for point in result.points] == taken.names
    assert result.points[0].accuracy == 0.123
    assert result.points[1:] == transfer(taken, jobs=1, cs=(1.0,)).points[1:]


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (np.zeros(60, int), {}, "at least two classes"),
        (np.full(60, -1), {}, "no labels"),
        (np.r_[np.zeros(57, int), 1, 1, 1], {}, "fewer than the 5 folds"),
        (None, dict(folds=1), "folds is 1"),
        (None, dict(cs=()), "at least one value"),
        (None, dict(cs=(0.0,)), "above 0"),
    ],
)
def test_what_cannot_work_is_refused(labels, options, words):
    taken = given()
    labels = taken.labels if labels is None else labels
    with pytest.raises(ConfigError, match=words):
        transfer(Features(taken.points, taken.names, taken.values, labels), **options)


def test_features_of_a_network_transfer():
    net = create_model("ode_only_net", width=8, norm_groups=1, solver=dict(method="rk4", steps=1)).eval()
    labels = torch.arange(40) % 2
    bright = torch.tensor([3.0, 0.0, -3.0])[:, None, None] * (2 * labels[:, None, None, None] - 1)
    images = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + bright
    result = transfer(features(net, [(images, labels)], [0.0, 1.0]), jobs=1, cs=(1.0, 10.0))
    assert result.points[0].accuracy > 0.9
