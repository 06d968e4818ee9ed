"""Claims of studies that compare: their signs are the reader's, and nobody is ahead because more was tried."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from continua.analysis import Point
from continua.studies import anodev2_gradients, decided, find_study
from continua.studies.dcn_figures import UNTRAINED, _completion_claims
from continua.studies.features import before_the_end, cross_fitted

RNG = np.random.default_rng(3)


def point(by_fold: list[float]) -> Point:
    return Point("t", 0.0, [], [], 1.0, float(np.mean(by_fold)), 0.0, by_fold)


def noise(places: int, folds: int = 5) -> list[Point]:
    """Places that are all as good, measured with errors."""
    return [point(RNG.normal(0.2, 0.02, folds).tolist()) for _ in range(places)]


def test_who_has_more_places_to_choose_from_has_no_advantage_by_chance():
    trials = [(noise(21), noise(7)) for _ in range(400)]
    largest = [max(p.accuracy for p in many) - max(p.accuracy for p in few) for many, few in trials]
    fair = [cross_fitted(many).mean() - cross_fitted(few).mean() for many, few in trials]
    error = np.std(fair) / np.sqrt(len(fair))
    assert np.mean(largest) > 5 * error, "the largest of more noisy numbers is larger"
    assert abs(np.mean(fair)) < 4 * error


def test_a_better_place_is_found_by_the_other_folds():
    points = [point([0.1, 0.1, 0.1]), point([0.3, 0.31, 0.29]), point([0.2, 0.2, 0.2])]
    assert cross_fitted(points) == pytest.approx([0.3, 0.31, 0.29])
    assert before_the_end(points) == pytest.approx(0.1)
    assert np.isnan(before_the_end([Point("t", 0.0, [], [], 1.0, 0.2, 0.0, [])] * 2)), "the folds were not kept"


def rising(by: float) -> dict[int, Any]:
    """D of four seeds that goes up by so much, and a little more with each."""
    return {seed: SimpleNamespace(mean=[0.2, 0.2 + by * (1 + 0.01 * seed)]) for seed in range(4)}


def test_where_d_rises_everywhere_no_claim_says_that_it_falls():
    found = {"DCN-ODE": rising(0.1), UNTRAINED: rising(0.5), "ODE-Net": rising(0.3), "ResNet-blocks": rising(0.05)}
    falls, untrained, odenet, resnet = decided(_completion_claims(found))
    assert (falls.verdict, falls.statistic) == ("fails", pytest.approx(0.1015))
    assert [claim.verdict for claim in (untrained, odenet, resnet)] == ["holds", "holds", "fails"]
    assert untrained.statistic == pytest.approx(-0.406), "DCN-ODE minus the control"
    assert all("rises less, or falls more" in claim.hypothesis for claim in (untrained, odenet, resnet))


def test_a_lower_loss_has_the_sign_of_lower(monkeypatch):
    """Every gradient that is compared has its words, and the loss of the first minus that of another is what is printed."""
    losses = ([1.0, 1.1, 1.2], [1.5, 1.61, 1.69], [0.5, 0.6, 0.71])
    loss = {name: dict(enumerate(values)) for name, values in zip(anodev2_gradients.NAMES, losses, strict=True)}
    distance = {name: {steps: [0.2, 0.21, 0.22] for steps in anodev2_gradients.FINER} for name in list(loss)[1:]}
    monkeypatch.setattr(anodev2_gradients, "compare_gradients", lambda *_, **__: SimpleNamespace(loss=loss, distance=distance))
    study = find_study("anodev2/gradients")
    runs: Any = SimpleNamespace(setting=study.setting("smoke"))
    claims = decided(study.ask(runs).claims)
    assert [claim.verdict for claim in claims] == ["holds", "holds", "fails", "holds"]
    assert claims[0].statistic == pytest.approx(-0.5)
    assert all(claim.hypothesis.count("the gradient of") == 2 for claim in claims)
