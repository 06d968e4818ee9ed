"""How far the studies are and what became of their claims, counted. Needs nothing else: `continua reproduce --list` counts without PyTorch.

A claim is decided by statistics over seeds; a fact by counting or comparing, so the two are counted apart. A claim that two studies make
about the same runs is one claim, and counts once. Claims of the papers and claims of our own are counted apart.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# What is declared of each study; tests/studies/test_listing.py compares it with the studies and writes it anew.
DECLARED: Mapping[str, Any] = json.loads(Path(__file__).with_name("studies.json").read_text("utf-8"))

HowFar = Literal["done", "partly", "kept from earlier recipes", "without a result"]
HOW_FAR: tuple[HowFar, ...] = ("done", "partly", "kept from earlier recipes", "without a result")
CAUTION = ("not run", "undecided", "fails", "holds")  # of two verdicts on one claim the first in this order counts
WORDS: Mapping[str, str] = {"holds": "hold", "fails": "fail", "undecided": "undecided", "not run": "not run"}


@dataclass(frozen=True)
class Judged:
    """What became of a claim. `about` is what it shares with the same claim of another study: its words and its number."""

    verdict: str
    fact: bool = False
    about: tuple[str, float, int] | None = None

    @classmethod
    def of(cls, claim: Mapping[str, Any]) -> "Judged":
        """From the fields of a claim, as they are or as they were read from a file."""
        fact = bool(claim.get("test")) and claim.get("threshold") is None
        number = claim.get("statistic")
        about = None if number is None else (claim["hypothesis"], float(number), int(claim.get("seeds") or 0))
        return cls(claim["verdict"], fact, about)


@dataclass(frozen=True)
class Tally:
    """The claims of a study at a scale. `own`: the study asks what no paper claims."""

    claims: tuple[Judged, ...] = ()
    scale: str = ""
    how_far: HowFar = "without a result"
    own: bool = False

    @classmethod
    def of(cls, claims: Iterable[Mapping[str, Any]], scale: str, how_far: HowFar = "done", own: bool = False) -> "Tally":
        """Of claims that were asked."""
        return cls(tuple(Judged.of(claim) for claim in claims), scale, how_far, own)

    @classmethod
    def not_run(cls, claims: int, scale: str = "", own: bool = False) -> "Tally":
        """Of a study that was not carried out and has this many claims."""
        return cls((Judged("not run"),) * claims, scale, own=own)

    @property
    def text(self) -> str:
        """In a few words. At `smoke` nothing is judged: a handful of digits says nothing about a paper."""
        if not self.claims:
            return "shown"
        if self.scale == "smoke":
            return "not judged"
        counts = Counter(claim.verdict for claim in self.claims if not claim.fact)
        said = ", ".join(f"{counts[verdict]} {word}" for verdict, word in WORDS.items() if counts[verdict])
        facts = _facts(claim for claim in self.claims if claim.fact)
        return "; ".join(words for words in (said, f"facts: {facts}" if facts else "") if words)


def _facts(facts: Iterable[Judged]) -> str:
    counts = Counter(fact.verdict for fact in facts)
    words = {"holds": "hold" if counts["holds"] != 1 else "holds", "fails": "do not" if counts["fails"] != 1 else "does not"}
    return ", ".join(
        f"{counts[verdict]} {words.get(verdict, 'undecided')}" for verdict in ("holds", "fails", "undecided") if counts[verdict]
    )


def each_once(tallies: Iterable[Tally]) -> list[Judged]:
    """Every claim once. Where two studies judge the same one, each corrected for its own claims, the more cautious verdict counts.

    Args:
        tallies: one for each study.

    Returns:
        The claims and facts of all of them.

    Examples:
        >>> from continua.tally import Tally, each_once
        >>> same = Tally.of([{"hypothesis": "a", "verdict": "holds", "statistic": 2.5, "threshold": 0.0}], "cpu")
        >>> len(each_once([same, same]))
        1
    """
    known: dict[object, Judged] = {}
    for tally in tallies:
        for claim in tally.claims:
            key = claim.about or object()
            if key not in known or CAUTION.index(claim.verdict) < CAUTION.index(known[key].verdict):
                known[key] = claim
    return list(known.values())


def counted(tallies: Iterable[Tally]) -> str:
    """All claims in a sentence or two; those of studies at `smoke` are not among them, as nothing is judged there.

    Args:
        tallies: one for each study.

    Returns:
        The sentences.

    Examples:
        >>> from continua.studies import Tally, counted
        >>> claims = [{"hypothesis": "a", "verdict": "holds"}, {"hypothesis": "b", "verdict": "undecided"}]
        >>> counted([Tally.of(claims, "cpu"), Tally.not_run(3, "cpu")])
        'Claims: 1 hold, 0 fail, 1 undecided, 3 not run.'
    """
    judged = [tally for tally in tallies if tally.scale != "smoke"]
    sentences = []
    for own, title in ((False, "Claims"), (True, "Claims of our own")):
        claims = each_once(tally for tally in judged if tally.own is own)
        counts = Counter(claim.verdict for claim in claims if not claim.fact)
        facts = _facts(claim for claim in claims if claim.fact)
        said = ", ".join(f"{counts[verdict]} {word}" for verdict, word in WORDS.items())
        if claims or not own:
            sentences.append(f"{title}: {said}{f'; facts checked without statistics: {facts}' if facts else ''}.")
    return " ".join(sentences)


def how_far(tallies: Iterable[Tally]) -> str:
    """How many studies are done, partly done, kept from earlier recipes, and without a result.

    Args:
        tallies: one for each study.

    Returns:
        Words such as "20 done, 4 partly, 2 kept from earlier recipes, 9 without a result".

    Examples:
        >>> from continua.tally import Tally, how_far
        >>> how_far([Tally.of([], "cpu"), Tally.not_run(3)])
        '1 done, 0 partly, 0 kept from earlier recipes, 1 without a result'
    """
    counts = Counter(tally.how_far for tally in tallies)
    return ", ".join(f"{counts[state]} {state}" for state in HOW_FAR)


def state_of(entry: Mapping[str, Any] | None, wanted: int) -> HowFar:
    """How far a study is of which this was written, with so many runs wanted.

    Args:
        entry: `earlier` and `runs` of what was written; None: nothing was.
        wanted: runs of the whole study.

    Returns:
        One of `HOW_FAR`.

    Examples:
        >>> from continua.tally import state_of
        >>> state_of({"runs": [1, 2]}, 3)
        'partly'
    """
    if entry is None:
        return "without a result"
    if entry.get("earlier"):
        return "kept from earlier recipes"
    return "done" if len(entry.get("runs", ())) >= wanted else "partly"


def tally_of_declared(study: Mapping[str, Any], entry: Mapping[str, Any] | None, scale: str) -> Tally:
    """The claims of a study as it is declared, with what was written of it at this scale.

    Args:
        study: one of the `studies` of `DECLARED`.
        entry: what was written; None: nothing was.
        scale: of the study.

    Returns:
        The claims, counted as not run where nothing was written.

    Examples:
        >>> from continua.tally import DECLARED, tally_of_declared
        >>> tally_of_declared(DECLARED["studies"][0], None, "cpu").text
        '4 not run'
    """
    if entry is None:
        return Tally.not_run(study["claims"], scale, study["own"])
    return Tally.of(entry.get("claims", ()), scale, state_of(entry, study["runs"].get(scale, 0)), study["own"])
