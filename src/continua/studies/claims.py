"""Claims that can fail: statistics over seeds, tests, verdicts, and how many claims hold, fail, are undecided or were not run.

A claim about networks is a claim about a number that differs from seed to seed. So its statistic is a mean over seeds, paired by seed where
two networks are compared (a seed decides the images, their order and the first weights, which both then share), its test is the t test of
that mean against a threshold, and its verdict follows from the p-value after Holm's correction over the claims of a study:

    holds       p ≤ 0.05 and the mean is on the side of the threshold that the claim names: above, or below
    fails       p ≤ 0.05 and the mean is on the other side
    undecided   anything else, one seed included: the interval contains both
    not run     there is no run to ask

A claim is judged once, when all the seeds are there that were planned: to look again with each new seed would give chance as many tries.
Until then it is undecided, and says its effect so far. Claims that are not judged yet count in Holm's correction as if nothing spoke for
them, so that a verdict stays when they are.

The interval is the 95 % interval of the mean for this claim alone; Holm's correction is in the p-value only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from continua.report import Claim, Verdict
from continua.tally import Tally

ALPHA = 0.05
"""The share of claims without substance that a study may decide by chance."""
POWER = 0.8


def claim_that(hypothesis: str, holds: bool | None, test: str = "counted") -> Claim:
    """A claim that is so, is not so, or (None) cannot be told: of counts and other facts that need no statistics.

    Args:
        hypothesis: the claim in words.
        holds: whether it does; None: cannot be told.
        test: how that was found.

    Returns:
        The claim.

    Examples:
        >>> from continua.studies import claim_that
        >>> claim = claim_that("the parameters are those printed", True)
    """
    return Claim(hypothesis, "undecided" if holds is None else "holds" if holds else "fails", test)


def claim_above(hypothesis: str, values: Sequence[float], threshold: float = 0.0, *, of: str, unit: str = "") -> Claim:
    """A claim that a number, one value for each seed, lies above a threshold in the mean. `of` says what the number is.

    Args:
        hypothesis: the claim in words.
        values: one for each seed.
        threshold: that the mean is to exceed.
        of: what the number is.
        unit: of the number.

    Returns:
        The claim, with its test and interval.

    Examples:
        >>> from continua.studies import claim_above
        >>> claim = claim_above("σ grows with depth", [0.9, 0.8, 0.95], of="rank correlation")
    """
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2:
        return Claim(
            hypothesis,
            "undecided" if known else "not run",
            f"{of}: {'one seed, so no verdict' if known else 'no run'}",
            statistic=known[0] if known else None,
            threshold=threshold,
            unit=unit,
            seeds=len(known),
        )
    mean, error, t = fmean(known), stdev(known) / math.sqrt(len(known)), _t_quantiles(len(known) - 1)
    return Claim(
        hypothesis,
        "undecided",
        f"{of}: t test over {len(known)} seeds",
        statistic=mean,
        threshold=threshold,
        p_value=_p_value(mean - threshold, error, len(known) - 1),
        interval=(mean - t[0] * error, mean + t[0] * error),
        unit=unit,
        seeds=len(known),
        detectable=sum(t) * error,
    )


def claim_below(hypothesis: str, values: Sequence[float], threshold: float = 0.0, *, of: str, unit: str = "") -> Claim:
    """A claim that a number, one value for each seed, lies below a threshold in the mean: of costs, losses and errors.

    Args:
        hypothesis: the claim in words.
        values: one for each seed.
        threshold: that the mean is to stay below.
        of: what the number is.
        unit: of the number.

    Returns:
        The claim, with its test and interval.

    Examples:
        >>> from continua.studies import claim_below
        >>> claim = claim_below("less than a point is lost", [0.1, -0.2, 0.3], 1.0, of="accuracy lost", unit="points")
    """
    return replace(claim_above(hypothesis, values, threshold, of=of, unit=unit), below=True)


def claim_ahead(
    hypothesis: str, first: Mapping[int, float], second: Mapping[int, float], *, margin: float = 0.0, unit: str = "points"
) -> Claim:
    """A claim that the first is ahead of the second, seed by seed; with a margin below zero: not behind by more than that.

    Args:
        hypothesis: the claim in words.
        first: values by seed.
        second: values by seed.
        margin: by how much the first is to be ahead.
        unit: of the difference.

    Returns:
        The claim, with its paired test and interval.

    Examples:
        >>> from continua.studies import claim_ahead
        >>> claim = claim_ahead("A is ahead of B", {0: 41.0, 1: 42.0}, {0: 39.0, 1: 40.5})
    """
    return claim_above(hypothesis, _differences(first, second), margin, of=PAIRED, unit=unit)


def claim_behind(
    hypothesis: str, first: Mapping[int, float], second: Mapping[int, float], *, margin: float = 0.0, unit: str = "points"
) -> Claim:
    """A claim that the first is below the second, seed by seed; with a margin above zero: not above it by as much as that.

    Args:
        hypothesis: the claim in words.
        first: values by seed.
        second: values by seed.
        margin: that the first minus the second is to stay below.
        unit: of the difference.

    Returns:
        The claim, with its paired test and interval.

    Examples:
        >>> from continua.studies import claim_behind
        >>> claim = claim_behind("A has a smaller error than B", {0: 0.1, 1: 0.2}, {0: 0.3, 1: 0.35}, unit="of squared error")
    """
    return claim_below(hypothesis, _differences(first, second), margin, of=PAIRED, unit=unit)


PAIRED = "difference paired by seed"


def _differences(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """The first minus the second for every seed that both have."""
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def _t_quantiles(freedom: int) -> tuple[float, float]:
    """Of Student's distribution: for the interval, and what an effect needs beyond it to be seen four times in five."""
    from scipy.stats import t

    return float(t.ppf(1 - ALPHA / 2, freedom)), float(t.ppf(POWER, freedom))


def seeds_for(effect: float, spread: float) -> int:
    """How many seeds see an effect of that size four times in five, where values have that standard deviation: `detectable` turned round.

    Args:
        effect: distance of the mean from the threshold.
        spread: standard deviation over seeds.

    Returns:
        The fewest seeds, at least two.

    Examples:
        >>> from continua.studies.claims import seeds_for
        >>> seeds_for(1.0, 1.0)
        10
    """
    seeds = 2
    while sum(_t_quantiles(seeds - 1)) * spread > effect * math.sqrt(seeds):
        seeds += 1
    return seeds


def _p_value(difference: float, error: float, freedom: int) -> float:
    """Two-sided. Values that are all the same leave nothing to test by: no difference is no evidence, any difference is all of it."""
    from scipy.stats import t

    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * t.sf(abs(difference) / error, freedom))


def decided(claims: Sequence[Claim], planned: int = 0) -> list[Claim]:
    """The claims of a study with their verdicts, each p-value corrected for how many there are (Holm 1979). Again, the same comes out.

    Args:
        claims: of one study.
        planned: how many seeds it was to have; with fewer, a claim about seeds stays undecided. 0: as many as there are.

    Returns:
        The same claims with verdicts.

    Examples:
        >>> from continua.studies import claim_that, decided
        >>> verdicts = decided([claim_that("one is one", True)])
    """
    known = [replace(claim, planned=planned or claim.planned) if claim.seeds else claim for claim in claims]
    of_seeds = sum(not claim.fact for claim in known)
    tested = sorted((claim for claim in known if claim.p_value is not None and not claim.early), key=lambda claim: claim.p_value or 0.0)
    adjusted: dict[int, float] = {}
    largest = 0.0
    for place, claim in enumerate(tested):
        largest = max(largest, min(1.0, (of_seeds - place) * (claim.p_value or 0.0)))
        adjusted[id(claim)] = largest
    return [_judged(claim, adjusted.get(id(claim))) for claim in known]


def _judged(claim: Claim, adjusted: float | None) -> Claim:
    if adjusted is not None:
        return replace(claim, adjusted=adjusted, verdict=_verdict(claim, adjusted))
    return replace(claim, adjusted=None, verdict="undecided") if claim.early else claim


def _verdict(claim: Claim, adjusted: float) -> Verdict:
    if claim.statistic is None or adjusted > ALPHA:
        return "undecided"
    above = claim.statistic > (claim.threshold or 0.0)
    return "holds" if above != claim.below else "fails"


def verdict_text(claims: Sequence[Claim], scale: str) -> str:
    """What became of the claims, in a few words.

    Args:
        claims: of one study.
        scale: at which they were judged.

    Returns:
        Words such as "3 hold, 1 undecided; facts: 2 hold".

    Examples:
        >>> from continua.studies import verdict_text
        >>> verdict_text([], "cpu")  # doctest: +SKIP
    """
    return Tally.of(map(vars, claims), scale).text
