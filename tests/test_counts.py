"""What the pages say of fuzzing and of mutants is what was counted, and the counts are kept."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / "results" / "checks"
KINDS = ("recipes", "run folders", "images", "archives", "arguments of solve")
ROOMS = {"ode": "the solver", "filters": "filters", "checkpointing": "checkpointing"}


def kept(name: str) -> Any:
    return json.loads((CHECKS / name).read_text("utf-8"))


def page(name: str) -> str:
    return " ".join((ROOT / name).read_text("utf-8").split())


def test_the_fuzzed_inputs_in_the_text_are_those_that_are_kept() -> None:
    counts = kept("fuzz.json")
    assert set(counts) == set(KINDS)
    for kind in counts.values():
        assert kind["inputs"] == sum(entry["inputs"] for entry in kind["rounds"]) >= 10_000
        assert not kind["failed"]
        assert not any(entry["failed"] for entry in kind["rounds"])
    slowest = max(entry["slowest_seconds"] for kind in counts.values() for entry in kind["rounds"])
    told = ", ".join(f"{counts[kind]['inputs']:,} {kind}" for kind in KINDS)
    assert f"{told}; the slowest took {slowest:g} s of processor time" in page("SECURITY.md"), "SECURITY.md must say this"


def test_the_mutants_in_the_text_are_those_that_are_kept() -> None:
    told = kept("mutants.json")
    rows = told["mutants"]
    assert len({(row["file"], row["kind"], row["was"], row["nth"]) for row in rows}) == len(rows) >= 300
    for name, which in (("at_first", "at_first"), ("now", "outcome")):
        assert told[name]["judged"] == len(rows)
        assert told[name]["noticed"] == sum(row[which] == "noticed" for row in rows)
    survivors = [row for row in rows if row["outcome"] != "noticed"]
    assert [row for row in survivors if row.get("judgement", "open") == "open"] == [], "each survivor has a line that judges it"
    verdicts = Counter(row["judgement"].partition(":")[0] for row in survivors)
    assert set(verdicts) <= {"equivalent", "unimportant", "missing"}, "what a survivor is, then why"
    rooms = ", ".join(f"{told['now']['noticed_by_room'][room].split()[-1]} of {name}" for room, name in ROOMS.items())
    first, now = told["at_first"], told["now"]
    expected = [
        f"of {len(rows)} changes ({rooms})",
        f"noticed {first['noticed']} ({first['share_noticed']:.0%}) at first and {now['noticed']} ({now['share_noticed']:.0%})",
        f"Of the {len(survivors)} others {verdicts['equivalent']} make no difference, {verdicts['unimportant']} none that matters, "
        f"and for {verdicts['missing']} a test is missing",
    ]
    text = page("CONTRIBUTING.md")
    assert [words for words in expected if words not in text] == [], "CONTRIBUTING.md must say this"
