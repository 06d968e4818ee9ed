"""Ours beside the printed value: means, spreads, and differences in standard errors."""

import math

import pytest

from continua.report import PlusMinus
from continua.studies import comparison, in_standard_errors, over_seeds


def test_the_spread_over_seeds_is_the_sample_standard_deviation():
    mean = over_seeds([1.0, 3.0])
    assert mean is not None
    assert (mean.value, mean.error) == (2.0, pytest.approx(math.sqrt(2)))


def test_a_single_run_has_no_spread_and_no_run_has_no_mean():
    alone = over_seeds([5.0])
    assert alone is not None
    assert math.isnan(alone.error)
    assert over_seeds([]) is None


def test_a_value_that_is_no_number_leaves_no_mean_and_no_spread():
    mean = over_seeds([1.0, math.nan, 3.0])
    assert mean is not None
    assert math.isnan(mean.value)
    assert math.isnan(mean.error)


def test_a_difference_is_measured_by_both_standard_errors():
    # Ours: mean 2, s² = 2, n = 2, so 1 per mean. Printed: 5 ± √3·… over three runs: 3 / 3 = 1 per mean. Together √2.
    assert in_standard_errors([1.0, 3.0], PlusMinus(5.0, math.sqrt(3)), printed_runs=3) == pytest.approx(-3 / math.sqrt(2))


def test_without_a_spread_of_ours_there_is_no_measure():
    assert in_standard_errors([1.0], PlusMinus(5.0, 1.0)) is None
    assert in_standard_errors([1.0, 1.0], 5.0) is None
    assert in_standard_errors([1.0, 2.0], None) is None


def test_a_comparison_shows_rows_that_only_one_side_has():
    table = comparison("a", "A", {"ours alone": [1.0]}, {"printed alone": 2.0}, label="accuracy", unit="%", digits=1)
    assert [row[0] for row in table.rows] == ["printed alone", "ours alone"]
    assert table.rows[0][1] is None
    assert table.rows[1][3] is None
