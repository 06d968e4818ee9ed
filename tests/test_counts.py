"""What the pages count is what was counted: methods and models in the code, checks and experiments in the files that are kept."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from continua.models import model_entry
from continua.ode import METHODS
from continua.ode.config import GRADIENTS

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / "results" / "checks"
KINDS = ("recipes", "run folders", "images", "archives", "arguments of solve")
ROOMS = {"ode": "the solver", "filters": "filters", "checkpointing": "checkpointing"}


def kept(name: str) -> Any:
    return json.loads((CHECKS / name).read_text("utf-8"))


def entry(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))


def claim(name: str, words: str) -> Any:
    (found,) = [claim for claim in entry(name)["claims"] if words in claim["hypothesis"]]
    return found


def column(name: str, table: str, label: str) -> list[Any]:
    (part,) = [part for part in entry(name)["parts"] if isinstance(part, dict) and part["name"] == table]
    labels = [head if isinstance(head, str) else head["label"] for head in part["columns"]]
    return [row[labels.index(label)] for row in part["rows"]]


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
    assert set(verdicts) <= {"equivalent", "unimportant", "missing", "elsewhere"}, "what a survivor is, then why"
    rooms = ", ".join(f"{told['now']['noticed_by_room'][room].split()[-1]} of {name}" for room, name in ROOMS.items())
    first, now = told["at_first"], told["now"]
    expected = [
        f"of {len(rows)} changes ({rooms};",
        f"noticed {first['noticed']} ({first['share_noticed']:.0%}) at first and {now['noticed']} ({now['share_noticed']:.0%})",
        f"Of the {len(survivors)} others {verdicts['equivalent']} make no difference, {verdicts['unimportant']} none that matters, "
        f"and for {verdicts['missing']} a test is missing",
    ]
    text = page("CONTRIBUTING.md")
    assert [words for words in expected if words not in text] == [], "CONTRIBUTING.md must say this"


def test_the_pages_count_the_methods_and_gradients_that_there_are() -> None:
    words = {4: "four", 5: "five", 6: "six", 7: "seven"}
    explicit = [name for name, tableau in METHODS.items() if tableau.explicit]
    adaptive = [name for name, tableau in METHODS.items() if not tableau.explicit and tableau.b_error is not None]
    fixed = len(METHODS) - len(explicit) - len(adaptive)
    assert f"{len(METHODS)} Runge–Kutta methods" in page("README.md")
    assert f"{words[len(GRADIENTS)]} gradients" in page("README.md")
    assert f"| explicit Runge–Kutta | {len(explicit)}, and your tableau |" in page("docs/compare.md")
    assert f"implicit: {len(adaptive)} adaptive, {fixed} with fixed steps" in page("docs/compare.md")
    table = re.search(r"^\| `method=` .*?(?=^$)", (ROOT / "docs/solver.md").read_text("utf-8"), flags=re.M | re.S)
    assert table is not None
    rows = table[0].splitlines()[2:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(METHODS)
    for kind in GRADIENTS:
        assert f"| `{kind}` |" in page("docs/solver.md")


def test_the_models_of_the_front_page_have_the_parameters_it_says() -> None:
    told = re.findall(r"`(\w+)` \(([\d,]+)\)", page("README.md"))
    assert len(told) > 15
    assert [(name, count) for name, count in told if f"{model_entry(name).parameters:,}" != count] == []


def test_the_summary_of_anodev2_says_what_its_tables_say() -> None:
    networks, models, same = (column("anodev2/table3", "parameters", head) for head in ("network", "model", "equal"))
    counted = {(network, model): told for network, model, told in zip(networks, models, same, strict=True)}
    equal = {("AlexNet", f"ANODEV2 config. {number}") for number in (1, 2)} | {key for key in counted if key[1] == "Baseline"}
    assert {key for key, told in counted.items() if told == "yes"} == equal, "the three baselines, and AlexNet in both configurations"
    settings, change = (column("anodev2/evolution", "trained", head) for head in ("settings of τ, v, ρ", "change of kernels"))
    changes = [value for value, setting in zip(change, settings, strict=True) if setting == "found on a hold-out"]
    first, second = claim("anodev2/table1", "config. 1 is ahead of Baseline"), claim("anodev2/table2", "config. 2 is ahead of Baseline")
    assert first["verdict"] == "fails"
    assert second["verdict"] == "undecided"
    share = re.search(r"\(([\d.]+) of them\)", claim("anodev2/table2", "fewer operations")["hypothesis"])
    assert share is not None
    off = [cell["value"] for cell in column("anodev2/gradients", "gradients", "distance at 5 steps") if isinstance(cell, dict)]
    assert {claim("anodev2/gradients", f"loss than by the gradient of the {name}")["verdict"] for name in ("optimality", "adjoint")} == {
        "undecided"
    }
    low, high = second["interval"]
    expected = [
        f"(kernels by {min(changes):.0f} to {max(changes):.0f} %)",
        f"configuration 1 is {-first['statistic']:.1f} points less accurate than the baseline",
        f"Configuration 2 takes {share[1]} of the operations of configuration 1",
        f"undecided (between −{-low:.1f} and +{high:.1f} points)",
        f"{min(off):.0f} to {max(off):.0f} % off",
    ]
    text = page("results/SUMMARY.md")
    assert [words for words in expected if words not in text] == [], "results/SUMMARY.md must say this"


def test_what_taking_the_evolution_away_costs_is_what_is_kept() -> None:
    settings, right, without = (
        column("anodev2/evolution", "trained", head) for head in ("settings of τ, v, ρ", "right of 1,000", "right with τ = v = ρ = 0")
    )
    chosen = [place for place, setting in enumerate(settings) if setting == "found on a hold-out"]
    lost = np.array([right[place] - without[place] for place in chosen])
    assert lost.min() > 0
    expected = [
        f"between {lost.min()} and {lost.max()} of 1,000 answers",
        f"(p = {stats.ttest_1samp(lost, 0.0).pvalue:.2f}, paired t test)",
    ]
    assert [words for words in expected if words not in page("docs/anodev2.md")] == [], "docs/anodev2.md must say this"


def test_what_passes_of_torchdiffeqs_own_tests_is_what_was_counted() -> None:
    told = kept("torchdiffeq.json")
    assert sum(kind["subtests"] for kind in told["failed"]) == told["subtests"] - told["passed"]
    words = f"{told['passed']:,} of {told['subtests']:,} subtests pass ({told['passed'] / told['subtests']:.1%})".replace("%", " %")
    assert words in page("docs/torchdiffeq.md"), f"docs/torchdiffeq.md must say {words}"
    backward, graph, events = (kind["subtests"] for kind in told["failed"])
    assert f"Of the others {backward + graph} look into the backward pass ({backward} count" in page("docs/torchdiffeq.md")
    assert events == 2
