"""The claims of kept entries: three of them worked out by hand, all of them decided as their own numbers say."""

import importlib.util
import math
from pathlib import Path

import pytest

from continua.report import Entry, read_entry
from continua.studies import STUDIES, decided

ROOT = Path(__file__).resolve().parents[2]
KEPT = {name: path for name in STUDIES if (path := ROOT / "results" / f"{name}.json").is_file()}

_found = importlib.util.spec_from_file_location("by_hand", Path(__file__).with_name("by_hand.py"))
if _found is None or _found.loader is None:
    pytest.skip("the script that works claims out by hand is not here", allow_module_level=True)
by_hand = importlib.util.module_from_spec(_found)
_found.loader.exec_module(by_hand)


@pytest.mark.parametrize(("study", "hypothesis", "first", "second"), by_hand.CLAIMS)
def test_a_claim_worked_out_by_hand_is_the_kept_one(study: str, hypothesis: str, first: str, second: str) -> None:
    (kept,) = [claim for claim in read_entry(KEPT[study]).claims if claim.hypothesis == hypothesis]
    hand = by_hand.by_hand(study, first, second)
    assert kept.statistic == pytest.approx(hand["mean"])
    assert kept.interval == pytest.approx(hand["interval"], rel=1e-4)
    assert kept.p_value == pytest.approx(hand["p"], rel=1e-3)
    assert kept.seeds == hand["seeds"]


@pytest.mark.parametrize("name", KEPT)
def test_kept_claims_are_those_of_the_study_decided_by_their_own_numbers(name: str) -> None:
    entry: Entry = read_entry(KEPT[name])
    assert len(entry.claims) == STUDIES[name].claims
    planned = 0 if entry.earlier else STUDIES[name].setting(entry.scale).seeds
    assert [claim.verdict for claim in decided(entry.claims, planned)] == [claim.verdict for claim in entry.claims]
    for claim in entry.claims:
        if claim.seeds == 1:
            assert claim.verdict == "undecided", "one seed decides nothing"
        if claim.verdict in ("holds", "fails") and claim.seeds:
            assert claim.adjusted is not None
            assert claim.adjusted <= 0.05
            assert claim.interval is not None
            assert not claim.interval[0] < (claim.threshold or 0.0) < claim.interval[1]
        assert claim.statistic is None or math.isfinite(claim.statistic)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_entry_opens_with_a_sentence_that_anybody_understands(name: str) -> None:
    plain = read_entry(KEPT[name]).plain
    assert plain.endswith((".", "?"))
    assert len(plain.split()) < 30
