"""All classes at once against scikit-learn's LinearSVC, and against the conditions of the minimum."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from continua.analysis import svm
from continua.analysis.svm import fit_linear_machines
from continua.errors import ContinuaWarning


def clouds(classes: int, per_class: int, width: int, noise: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positive, correlated features as pooled activations are."""
    draw = np.random.default_rng(seed)
    labels = np.tile(np.arange(classes), per_class)
    mix = draw.normal(size=(width, width)) / width**0.5
    return np.maximum((draw.normal(size=(classes, width))[labels] + noise * draw.normal(size=(len(labels), width))) @ mix, 0), labels


@pytest.mark.parametrize("c", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_machine_is_that_of_scikit_learn(c, classes):
    x, y = clouds(classes, 30, 12)
    ours = fit_linear_machines(x, y, [c], tol=1e-9)[0]
    theirs = LinearSVC(C=c, dual=False, tol=1e-10, max_iter=100_000).fit(x, y)
    assert np.array_equal(ours.classes, theirs.classes_)
    ours_w = ours.weights[:, 1:] if classes == 2 else ours.weights  # scikit-learn keeps one machine for two classes
    ours_b = ours.bias[1:] if classes == 2 else ours.bias
    np.testing.assert_allclose(ours_w.T, theirs.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours_b, theirs.intercept_, rtol=1e-5, atol=1e-6)
    fresh, _ = clouds(classes, 50, 12, seed=1)
    assert np.array_equal(ours.predict(fresh), theirs.predict(fresh))


def test_the_gradient_vanishes_where_the_walk_ends():
    x, y = clouds(5, 40, 20, noise=2.0)
    c = 10.0
    machine = fit_linear_machines(x, y, [c], tol=1e-8)[0]
    design = np.c_[x, np.ones(len(x))]
    w = np.r_[machine.weights, machine.bias[None]]
    sign = np.where(y[:, None] == machine.classes, 1.0, -1.0)
    slack = np.maximum(0, 1 - sign * (design @ w))
    gradient = w - 2 * c * design.T @ (slack * sign)
    at_zero = 2 * c * design.T @ sign
    assert np.abs(gradient).max() < 1e-7 * np.abs(at_zero).max()


def test_single_precision_gives_the_same_answers():
    x, y = clouds(20, 30, 40, noise=2.0)
    fresh, _ = clouds(20, 30, 40, noise=2.0, seed=3)
    for c in (0.01, 1.0, 100.0):
        exact = fit_linear_machines(x, y, [c], tol=1e-10)[0].predict(fresh)
        single = fit_linear_machines(x.astype(np.float32), y, [c])[0].predict(fresh.astype(np.float32))
        assert (single == exact).mean() > 0.99


def test_classes_in_portions_are_the_same_machine(monkeypatch):
    x, y = clouds(6, 20, 10)
    whole = fit_linear_machines(x, y, [1.0], tol=1e-9)[0]
    monkeypatch.setattr(svm, "MEMORY", 2 * 11 * 11)
    parts = fit_linear_machines(x, y, [1.0], tol=1e-9)[0]
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-8)


def test_a_walk_that_is_cut_short_says_so():
    x, y = clouds(3, 20, 10)
    with pytest.warns(ContinuaWarning, match="not converged in 3 steps"):
        fit_linear_machines(x, y, [100.0], tol=1e-12, max_steps=3)[0]
    assert fit_linear_machines(x, y, [1.0], dtype=torch.float32)[0].weights.dtype == np.float32
