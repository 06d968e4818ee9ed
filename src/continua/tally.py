"""How many claims hold, fail, are undecided and were not run. Needs nothing else: `continua reproduce --list` counts without PyTorch."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """How many claims hold, fail, are undecided and were not run, at a scale."""

    holds: int
    fails: int
    undecided: int
    not_run: int
    scale: str = ""

    @classmethod
    def of(cls, verdicts: Iterable[str], scale: str) -> "Tally":
        """Of claims with these verdicts."""
        counts = Counter(verdicts)
        return cls(counts["holds"], counts["fails"], counts["undecided"], counts["not run"], scale)

    def __add__(self, other: "Tally") -> "Tally":
        sums = (self.holds + other.holds, self.fails + other.fails, self.undecided + other.undecided, self.not_run + other.not_run)
        return Tally(*sums, self.scale)

    @property
    def text(self) -> str:
        """In a few words. At `smoke` nothing is judged: a handful of digits says nothing about a paper."""
        counts = {"hold": self.holds, "fail": self.fails, "undecided": self.undecided, "not run": self.not_run}
        if not any(counts.values()):
            return "shown"
        if self.scale == "smoke":
            return "not judged"
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def counted(tallies: Iterable[Tally]) -> str:
    """All claims in a sentence; those of studies at `smoke` are not among them, as nothing is judged there.

    Args:
        tallies: one for each study.

    Returns:
        The sentence.

    Examples:
        >>> from continua.studies import Tally, counted
        >>> counted([Tally(2, 1, 0, 0, "cpu"), Tally(0, 0, 3, 0, "cpu")])
        'Claims: 2 hold, 1 fail, 3 undecided, 0 not run.'
    """
    total = sum((tally for tally in tallies if tally.scale != "smoke"), Tally(0, 0, 0, 0))
    return f"Claims: {total.holds} hold, {total.fails} fail, {total.undecided} undecided, {total.not_run} not run."
