"""Claims are counted once, apart from facts, apart from our own; studies by how far they are."""

from typing import Any

from continua.tally import HOW_FAR, HowFar, Tally, counted, each_once, how_far, state_of


def claim(verdict: str, hypothesis: str = "a is ahead of b", **fields: Any) -> dict[str, Any]:
    return {"hypothesis": hypothesis, "verdict": verdict, "test": "t test over 5 seeds", "threshold": 0.0, "seeds": 5, **fields}


def fact(verdict: str, hypothesis: str = "the parameters are those printed") -> dict[str, Any]:
    return {"hypothesis": hypothesis, "verdict": verdict, "test": "counted"}


def test_facts_do_not_pad_the_claims() -> None:
    tallies = [Tally.of([claim("holds", statistic=1.5), fact("holds"), fact("fails")], "cpu"), Tally.of([fact("holds")], "cpu")]
    said = "Claims: 1 hold, 0 fail, 0 undecided, 0 not run; facts checked without statistics: 2 hold, 1 does not."
    assert counted(tallies) == said, "two studies may count the same of different networks, so facts are never taken for one another"


def test_a_claim_that_two_studies_make_about_the_same_runs_counts_once() -> None:
    one = Tally.of([claim("undecided", statistic=0.25)], "cpu")
    two = Tally.of([claim("undecided", statistic=0.25), claim("fails", "a is ahead of c", statistic=-2.0)], "cpu")
    assert counted([one, two]) == "Claims: 0 hold, 1 fail, 1 undecided, 0 not run."
    other_runs = Tally.of([claim("undecided", statistic=0.31)], "cpu")
    assert counted([one, other_runs]) == "Claims: 0 hold, 0 fail, 2 undecided, 0 not run."


def test_of_two_verdicts_on_one_claim_the_more_cautious_counts() -> None:
    strict, lax = Tally.of([claim("undecided", statistic=0.25)], "cpu"), Tally.of([claim("holds", statistic=0.25)], "cpu")
    for order in ([strict, lax], [lax, strict]):
        assert [judged.verdict for judged in each_once(order)] == ["undecided"]


def test_claims_of_our_own_are_not_the_papers() -> None:
    own = Tally.of([claim("holds", statistic=1.0)], "cpu", own=True)
    said = counted([own, Tally.not_run(2, "cpu"), Tally.not_run(1, "cpu", own=True)])
    assert said == "Claims: 0 hold, 0 fail, 0 undecided, 2 not run. Claims of our own: 1 hold, 0 fail, 0 undecided, 1 not run."


def test_nothing_is_judged_at_smoke() -> None:
    assert counted([Tally.of([claim("holds", statistic=1.0)], "smoke")]) == "Claims: 0 hold, 0 fail, 0 undecided, 0 not run."


def test_what_is_partly_done_or_of_earlier_recipes_is_not_counted_as_done() -> None:
    states: list[HowFar] = [
        state_of({"runs": [1, 2, 3]}, 3),
        state_of({"runs": [1, 2]}, 3),
        state_of({"runs": [1, 2, 3], "earlier": True}, 3),
    ]
    assert (*states, state_of(None, 3)) == HOW_FAR
    tallies = [Tally.of([], "cpu", state) for state in states]
    assert how_far([*tallies, Tally.not_run(4)]) == "1 done, 1 partly, 1 kept from earlier recipes, 1 without a result"
