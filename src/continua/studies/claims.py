"""Claims of the papers in words, and what became of them all together."""

import re
from collections.abc import Sequence

from continua.studies.study import Claim

SAID = {True: "holds here", False: "does not hold here", None: "cannot be told from these runs"}


def claim_text(claim: Claim) -> str:
    """A claim as a sentence, in Markdown."""
    return f"Claim: {claim.text} — **{SAID[claim.holds]}**."


def claim_from(text: str) -> Claim | None:
    """The claim that `claim_text` wrote; None of any other sentence."""
    found = re.fullmatch(r"Claim: (.*) — \*\*(.*)\*\*\.", text, re.S)
    holds = {words: value for value, words in SAID.items()}
    return Claim(found[1], holds[found[2]]) if found is not None and found[2] in holds else None


def verdict(claims: Sequence[Claim], scale: str) -> str:
    """In a few words. At `smoke` nothing is judged: a handful of digits says nothing about a paper."""
    told = [claim.holds for claim in claims if claim.holds is not None]
    if not claims:
        return "shown"
    if scale == "smoke":
        return "not judged"
    if not told:
        return "cannot be told"
    return f"{'agrees' if all(told) else 'differs'}: {sum(told)} of {len(told)} claims hold"
