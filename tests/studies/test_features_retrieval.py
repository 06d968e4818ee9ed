"""Retrieval by features: the time is chosen by other queries than those that judge it, and the networks are those of Table 1."""

import numpy as np
import pytest

from continua.studies import find_study
from continua.studies.features_retrieval import judged


def test_a_time_is_judged_by_the_half_that_did_not_choose_it() -> None:
    table = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.3]])
    assert judged(table).tolist() == [0.2, 0.1]


def test_choosing_among_noise_gains_nothing() -> None:
    tables = np.random.default_rng(0).normal(size=(2000, 21, 2))
    assert np.mean([judged(table).mean() for table in tables]) == pytest.approx(0, abs=0.07)
    assert tables.max(1).mean() > 1.5, "as the largest itself would seem to"


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_neighbours_are_asked_of_the_networks_of_table_1(scale: str) -> None:
    asked, trained = find_study("features/retrieval"), find_study("features/table1")
    assert asked.rows(scale) == trained.rows(scale)
    assert asked.setting(scale).change == trained.setting(scale).change
