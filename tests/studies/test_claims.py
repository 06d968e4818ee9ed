"""Claims: statistics over seeds against SciPy's own tests, a planted null, verdicts after Holm's correction."""

import math

import numpy as np
import pytest
from scipy import stats

from continua.report import from_plain, to_plain
from continua.studies import Claim, claim_above, claim_ahead, claim_behind, claim_below, claim_that, decided, verdict_text
from continua.studies.claims import seeds_for

RNG = np.random.default_rng(5)


def by_seed(values) -> dict[int, float]:
    return dict(enumerate(map(float, values)))


def test_being_ahead_is_scipys_paired_t_test_with_its_interval():
    first, second = RNG.normal(40, 2, 8), RNG.normal(38, 2, 8)
    claim, expected = claim_ahead("a", by_seed(first), by_seed(second)), stats.ttest_rel(first, second)
    assert claim.statistic == pytest.approx((first - second).mean())
    assert claim.p_value == pytest.approx(expected.pvalue)
    assert claim.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_pairs_are_made_by_seed_and_not_by_place():
    claim = claim_ahead("a", {2: 5.0, 0: 1.0, 7: 9.0}, {0: 0.5, 2: 4.0})
    assert claim.statistic == pytest.approx(0.75)
    assert claim.seeds == 2


def test_a_planted_null_is_undecided():
    """Two names for one model: the same numbers, or numbers of the same distribution."""
    same = by_seed(RNG.normal(40, 2, 8))
    (claim,) = decided([claim_ahead("a model is ahead of itself", same, dict(same))])
    assert claim.verdict == "undecided"
    trials = [decided([claim_ahead("null", by_seed(RNG.normal(0, 1, 8)), by_seed(RNG.normal(0, 1, 8)))])[0] for _ in range(400)]
    wrong = sum(trial.verdict != "undecided" for trial in trials)
    assert wrong <= stats.binom.ppf(0.9999, 400, 0.05), "more than one in twenty nulls were decided"


def test_a_clear_difference_holds_and_its_contrary_fails():
    first, second = by_seed([4.0, 5.0, 6.0, 5.5]), by_seed([1.0, 2.1, 2.9, 2.6])
    ahead, behind = decided([claim_ahead("a", first, second), claim_ahead("b", second, first)])
    assert (ahead.verdict, behind.verdict) == ("holds", "fails")
    assert ahead.interval is not None
    assert ahead.interval[0] > 0


def test_there_is_no_verdict_on_one_seed_and_none_without_a_run():
    one, none = decided([claim_ahead("a", {0: 50.0}, {0: 1.0}), claim_ahead("b", {}, {0: 1.0})])
    assert (one.verdict, none.verdict) == ("undecided", "not run")
    assert "one seed" in one.test
    assert one.statistic == 49.0
    assert claim_above("a", [math.nan], of="a number").verdict == "not run"


def test_within_a_margin_is_a_test_against_the_margin():
    close = by_seed(RNG.normal(0.0, 0.1, 8))
    level = by_seed([0.0] * 8)
    (on_par,) = decided([claim_ahead("on par", close, level, margin=-1.0)])
    (worse,) = decided([claim_ahead("on par", by_seed(np.array(list(close.values())) - 5), level, margin=-1.0)])
    assert (on_par.verdict, worse.verdict) == ("holds", "fails")


def test_a_number_below_its_threshold_holds_where_above_would_fail():
    lost = [0.1, 0.3, 0.2, 0.15]
    below, above = decided([claim_below("less than a point is lost", lost, 1.0, of="lost"), claim_above("more is", lost, 1.0, of="lost")])
    assert (below.verdict, above.verdict) == ("holds", "fails")
    assert (below.statistic, below.interval, below.p_value) == (above.statistic, above.interval, above.p_value)
    (too_much,) = decided([claim_below("less than a point is lost", [value + 5 for value in lost], 1.0, of="lost")])
    assert too_much.verdict == "fails"


def test_what_is_below_is_still_so_after_it_was_written_and_read():
    claim = claim_behind("a smaller error", by_seed([0.1, 0.2, 0.12]), by_seed([0.5, 0.61, 0.49]), unit="of squared error")
    assert claim.statistic == pytest.approx(-0.3933, abs=1e-3), "the sign that the reader expects: the first minus the second"
    (again,) = decided([from_plain(Claim, to_plain(claim))])
    assert again.verdict == "holds"


def test_p_values_are_corrected_as_holm_says():
    claims = [Claim(name, "undecided", p_value=p, statistic=1.0, threshold=0.0) for name, p in zip("abc", (0.03, 0.01, 0.04), strict=True)]
    corrected = decided([*claims, claim_that("a fact", True)])
    assert [claim.adjusted for claim in corrected[:3]] == pytest.approx([0.06, 0.03, 0.06])
    assert [claim.verdict for claim in corrected] == ["undecided", "holds", "undecided", "holds"]
    assert decided(corrected) == corrected, "the correction is not applied twice"


def test_a_claim_is_not_judged_before_its_planned_seeds_are_there():
    first, second = [4.0, 5.0, 6.0, 5.5], [1.0, 2.1, 2.9, 2.6]
    (early,) = decided([claim_ahead("a", by_seed(first), by_seed(second))], planned=8)
    assert early.verdict == "undecided"
    assert early.adjusted is None, "no p-value to look at again with each new seed"
    assert "95 % interval" in early.sentence
    assert "so far, 4 of 8 seeds" in early.sentence
    (whole,) = decided([claim_ahead("a", by_seed(first), by_seed(second))], planned=4)
    assert whole.verdict == "holds"
    assert "so far" not in whole.sentence
    assert decided([early]) == [early], "the plan goes with the claim"
    assert decided([claim_that("a fact", True)], planned=8)[0].verdict == "holds", "facts have no seeds to wait for"


def test_looking_after_every_seed_decides_no_more_nulls_than_looking_once():
    def looks(planned: int) -> int:
        """Nulls of eight seeds that are decided at any of the looks from two seeds on."""
        draw, wrong = np.random.default_rng(3), 0
        for _ in range(100):
            values = list(draw.normal(0, 1, 8))
            verdicts = [decided([claim_above("null", values[:seeds], of="a number")], planned)[0].verdict for seeds in range(2, 9)]
            wrong += any(verdict != "undecided" for verdict in verdicts)
        return wrong

    assert looks(planned=8) <= stats.binom.ppf(0.999, 100, 0.05)
    assert looks(planned=0) > stats.binom.ppf(0.999, 100, 0.05), "without a plan chance gets as many tries as there are seeds"


def test_a_verdict_stays_when_the_other_claims_of_the_study_are_run():
    clear, rest = by_seed([4.0, 5.0, 6.0, 5.5]), by_seed([1.0, 2.1, 3.9, 2.6])
    before = decided([claim_ahead("a", clear, rest), *(claim_ahead(name, {}, {}) for name in "bc")], planned=4)[0]
    after = decided([claim_ahead("a", clear, rest), *(claim_ahead(name, rest, rest) for name in "bc")], planned=4)[0]
    assert before.adjusted == after.adjusted == pytest.approx(3 * (before.p_value or 0))


def test_an_interval_that_seems_to_decide_an_undecided_claim_says_whose_it_is():
    likely, open_ = decided([claim_above("a", [1.0, 2.0, 2.2], of="a number"), claim_above("b", [1.0, -2.0, 0.5], of="a number")])
    (decisive,) = decided([claim_above("a", [1.0, 2.0, 2.2], of="a number")])
    assert (likely.verdict, open_.verdict, decisive.verdict) == ("undecided", "undecided", "holds")
    assert likely.interval == decisive.interval
    assert likely.effect == f"{decisive.effect} of this claim alone"
    assert "alone" not in open_.effect + decisive.effect


def test_every_claim_about_seeds_says_what_it_could_have_seen():
    decisive, open_ = decided([claim_above("a", [2.0, 2.1, 2.2], of="x"), claim_above("b", [1.0, -2.0, 0.5], of="x")])
    assert (decisive.verdict, open_.verdict) == ("holds", "undecided")
    assert all("would have been seen four times in five" in claim.sentence for claim in (decisive, open_))


def test_the_detectable_effect_is_seen_about_four_times_in_five():
    claim = claim_above("a", list(RNG.normal(0, 1, 20)), of="a number")
    assert claim.detectable is not None
    error = claim.detectable / (stats.t.ppf(0.975, 19) + stats.t.ppf(0.8, 19))
    power = stats.nct.sf(stats.t.ppf(0.975, 19), 19, claim.detectable / error)
    assert power == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("effect", "spread"), [(5.0, 1.0), (1.0, 1.0), (1.0, 2.8), (0.42, 2.8)])
def test_the_seeds_that_an_effect_needs_see_it_four_times_in_five_and_one_less_does_not(effect: float, spread: float):
    seeds = seeds_for(effect, spread)

    def power(count: int) -> float:
        return float(stats.nct.sf(stats.t.ppf(0.975, count - 1), count - 1, effect / spread * math.sqrt(count)))

    assert power(seeds) >= 0.77  # the sum of two quantiles is a little off where seeds are few
    assert power(seeds - 1) < 0.83 or seeds == 2


def test_a_claim_says_its_effect_its_interval_and_what_it_could_have_seen():
    (claim,) = decided([claim_ahead("a is ahead of b", by_seed([1.0, 3.0, 2.0]), by_seed([0.5, 3.5, 1.0]))])
    assert "+0.333 points, 95 % interval" in claim.sentence
    assert "3 seeds" in claim.sentence
    assert "would have been seen" in claim.sentence
    assert [claim_that("a", holds).said for holds in (True, False, None)] == ["holds here", "fails here", "undecided"]


CLAIMS = [Claim("with 52 images", "holds"), Claim("with 8", "fails"), Claim("with 2", "undecided"), Claim("with 4", "not run")]


@pytest.mark.parametrize(
    ("claims", "scale", "said"),
    [
        (CLAIMS[:1], "cpu", "1 hold"),
        (CLAIMS, "cpu", "1 hold, 1 fail, 1 undecided, 1 not run"),
        (CLAIMS[2:3], "cpu", "1 undecided"),
        (CLAIMS, "smoke", "not judged"),
        ([], "cpu", "shown"),
    ],
)
def test_a_verdict_counts_the_claims(claims: list[Claim], scale: str, said: str) -> None:
    assert verdict_text(claims, scale) == said


def test_facts_are_counted_apart_from_claims():
    fact = claim_that("the parameters are those printed", True)
    assert verdict_text([*CLAIMS, fact], "cpu") == "1 hold, 1 fail, 1 undecided, 1 not run; facts: 1 holds"
    assert [claim.fact for claim in (fact, claim_above("a", [], of="x"), claim_above("a", [1.0, 2.0], of="x"))] == [True, False, False]
