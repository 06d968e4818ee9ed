"""Ours beside what is printed: means over seeds, differences in standard errors, and what became of a paper's claims."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Unpack

from continua.report import Cell, Claim, Column, Look, PlusMinus, Series, Table

PRINTED_RUNS = 3  # the papers' ± is taken as the standard deviation over this many runs where they do not say otherwise


def over_seeds(values: Sequence[float]) -> PlusMinus | None:
    """Mean and standard deviation over seeds; of a single run there is no spread; None of no run."""
    if not values:
        return None
    return PlusMinus(fmean(values), stdev(values) if len(values) > 1 else math.nan)


def mean_series(name: str, x: Sequence[float], means: Iterable[PlusMinus | None], **look: Unpack[Look]) -> Series:
    """Means with their spread against x; a gap where there is none."""
    known = [mean or PlusMinus(math.nan, math.nan) for mean in means]
    return Series(name, x, [mean.value for mean in known], [mean.error for mean in known], **look)


def in_standard_errors(ours: Sequence[float], printed: "PlusMinus | float | None", printed_runs: int = PRINTED_RUNS) -> float | None:
    """(our mean − printed) / its standard error, from our seeds and the printed ±; None where there is no spread to measure by."""
    theirs = _plus_minus(printed)
    if not ours or theirs is None:
        return None
    variance = stdev(ours) ** 2 / len(ours) if len(ours) > 1 else math.nan
    if not math.isnan(theirs.error):
        variance += theirs.error**2 / printed_runs
    return (fmean(ours) - theirs.value) / math.sqrt(variance) if variance > 0 else None


def comparison(
    name: str,
    title: str,
    ours: Mapping[str, Sequence[float]],
    printed: Mapping[str, "PlusMinus | float | None"],
    *,
    label: str,
    unit: str,
    digits: int,
    printed_runs: int = PRINTED_RUNS,
    extra: Mapping[str, Mapping[str, Cell]] | None = None,
    caption: str = "",
) -> Table:
    """One row for each label in `printed` and in `ours`: ours ± over seeds, how many, printed ±, the difference in standard errors."""
    labels = [*printed, *(row for row in ours if row not in printed)]
    more = extra or {}
    rows: list[list[Cell]] = []
    for row in labels:
        values, theirs = list(ours.get(row, ())), _plus_minus(printed.get(row))
        difference = in_standard_errors(values, theirs, printed_runs)
        rows.append([row, over_seeds(values), len(values), theirs, difference, *(column.get(row) for column in more.values())])
    columns: list[Column | str] = [
        "model",
        Column(f"ours, {label}", unit, digits),
        "seeds",
        Column(f"printed, {label}", unit, digits),
        Column("difference", "standard errors", 1),
    ]
    return Table(name, title, [*columns, *more], rows, caption)


def _plus_minus(printed: "PlusMinus | float | None") -> PlusMinus | None:
    return printed if printed is None or isinstance(printed, PlusMinus) else PlusMinus(float(printed), math.nan)


# --- claims -------------------------------------------------------------------------------------------------------------


def claim_that(hypothesis: str, holds: bool | None) -> Claim:
    """A claim that is so, is not so, or (None) cannot be told: of counts and other facts that need no statistics."""
    return Claim(hypothesis, "undecided" if holds is None else "holds" if holds else "fails")


def claim_above(hypothesis: str, statistic: float | None, threshold: float = 0.0, *, test: str) -> Claim:
    """A claim that holds where a number is above a threshold; it cannot be told where there is no number."""
    if statistic is None:
        return Claim(hypothesis, "undecided", test)
    return Claim(hypothesis, "holds" if statistic > threshold else "fails", test, statistic, threshold)


def claim_ahead(hypothesis: str, first: Sequence[float], second: Sequence[float]) -> Claim:
    """A claim that the mean of the first, over seeds, is above that of the second; it cannot be told where either has no run."""
    difference = fmean(first) - fmean(second) if first and second else None
    return claim_above(hypothesis, difference, test="difference of means over seeds")


@dataclass(frozen=True)
class Tally:
    """How many claims hold, fail and are undecided, at a scale."""

    holds: int
    fails: int
    undecided: int
    scale: str

    @classmethod
    def of(cls, claims: Sequence[Claim], scale: str) -> "Tally":
        """Of these claims."""
        counts = Counter(claim.verdict for claim in claims)
        return cls(counts["holds"], counts["fails"], counts["undecided"], scale)

    @property
    def word(self) -> str:
        """In a word or two. At `smoke` nothing is judged: a handful of digits says nothing about a paper."""
        if not self.holds + self.fails + self.undecided:
            return "shown"
        if self.scale == "smoke":
            return "not judged"
        if not self.holds + self.fails:
            return "cannot be told"
        return "differs" if self.fails else "agrees"

    @property
    def text(self) -> str:
        """With numbers, where something was decided."""
        numbers = f": {self.holds} of {self.holds + self.fails} claims hold" if self.word in ("agrees", "differs") else ""
        return self.word + numbers


def verdict_text(claims: Sequence[Claim], scale: str) -> str:
    """What became of the claims, in a few words."""
    return Tally.of(claims, scale).text
