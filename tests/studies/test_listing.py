"""`continua reproduce --list`: how far each study is, and how long the rest will take."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from continua import tally
from continua.cli import main, reproduce
from continua.studies import SCALES, STUDIES, Row, find_study
from continua.studies.overview import State, seconds_left, study_states, wanted_count
from continua.studies.runs import Places, wanted_runs
from continua.train import RunOptions, load_recipe


def state(finished: int | None, total: int = 36, left: float | None = None, written: tuple[str, ...] = ()) -> State:
    entry = SimpleNamespace(earlier=False, claims=[], runs=[None] * (finished or 0))
    scales: Any = {scale: SimpleNamespace(entry=entry, scale=scale) for scale in written}
    return State(find_study("dcn/table2a"), "cpu", finished, total, left, scales)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (state(0), "not run: 36 runs"),
        (state(0, total=0), "not run"),
        (state(5), "partly: 5 of 36 runs"),
        (state(5, written=("smoke",)), "partly: 5 of 36 runs (done at smoke)"),
        (state(36, written=("cpu",)), "done"),
        (state(36, written=("smoke", "cpu")), "done (also at smoke)"),
        (state(12, written=("cpu",)), "partly: 12 of 36 runs"),
        (state(None), "not run: its data set is not here"),
    ],
)
def test_a_study_is_not_run_partly_or_done(given: State, said: str) -> None:
    assert given.text == said


def test_what_earlier_recipes_made_is_not_taken_for_done() -> None:
    kept: Any = SimpleNamespace(entry=SimpleNamespace(earlier=True, claims=[], runs=[]), scale="cpu")
    given = State(find_study("dcn/table2a"), "cpu", 5, 36, 3000.0, {"cpu": kept})
    assert given.text == "kept from earlier recipes; 5 of 36 runs of today's"
    assert given.time == "about 50 min"


@pytest.mark.parametrize(("seconds", "said"), [(None, ""), (20.0, "about 1 min"), (3000.0, "about 50 min"), (9000.0, "about 2.5 h")])
def test_the_time_that_is_left_is_told_where_it_is_known(seconds: float | None, said: str) -> None:
    assert state(5, left=seconds).time == said
    assert state(36, left=seconds, written=("cpu",)).time == ""
    assert state(5, left=seconds, written=("cpu",)).time == said, "what is written of some runs does not end the study"


def run_of(label: str, seconds: float | None) -> Any:
    result = None if seconds is None else {"seconds": seconds}
    return SimpleNamespace(row=Row(label, "dcn"), finished=result is not None, run=SimpleNamespace(result=result))


def test_missing_runs_take_as_long_as_those_of_their_row_did() -> None:
    wanted = [run_of("a", 10.0), run_of("a", None), run_of("b", 40.0), run_of("b", None), run_of("b", None), run_of("c", None)]
    assert seconds_left(wanted, total=6) == pytest.approx(10 + 40 + 40 + 25)
    assert seconds_left(wanted, total=8) == pytest.approx(10 + 40 + 40 + 3 * 25), "runs that are not even known yet take the mean"
    assert seconds_left([run_of("a", None)], total=1) is None
    assert seconds_left([run_of("a", 5.0)], total=1) == 0


def test_every_study_is_listed_with_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    formulas = {name: study for name, study in STUDIES.items() if not study.rows("smoke")}
    monkeypatch.setattr("continua.studies.overview.STUDIES", formulas | {"dcn/fig4a": STUDIES["dcn/fig4a"]})
    states = {state.study.id: state for state in study_states("smoke", runs=tmp_path, options=RunOptions(progress="off"))}
    assert states["dcn/fig4a"].text == "not run: 3 runs"
    assert states["dcn/table3"].text == "not run"


def test_a_recipe_is_read_once_for_all_seeds_and_studies_that_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes a good tenth of a second, and the list of all studies wants some two hundred runs."""
    read: list[str] = []
    monkeypatch.setattr("continua.studies.runs.load_recipe", lambda *words: read.append(repr(words)) or load_recipe(*words))
    monkeypatch.setattr("continua.studies.overview.STUDIES", {name: STUDIES[name] for name in ("dcn/fig4a", "dcn/fig4b")})
    states = study_states("smoke", seeds=3, runs=tmp_path, options=RunOptions(progress="off"))
    assert len(read) == len(set(read)) < sum(state.total for state in states)


def test_seeds_of_a_row_differ_in_nothing_else(tmp_path: Path) -> None:
    places = Places(tmp_path, [], RunOptions(progress="off"))
    first, second = (run.recipe for run in wanted_runs(find_study("dcn/fig3b"), "smoke", (0, 7), places))
    assert (first.seed, second.seed) == (0, 7)
    assert replace(second, seed=0) == first


def test_studies_stand_in_the_order_of_the_papers() -> None:
    names = [name for name in STUDIES if name.startswith("anodev2/")]
    parts = ("table1", "table2", "table3", "table4", "fig1", "fig3", "fig4", "fig5", "gradients", "steps")
    assert names == [f"anodev2/{part}" for part in parts]
    assert list(dict.fromkeys(name.partition("/")[0] for name in STUDIES)) == ["dcn", "anodev2", "features", "rknet", "neuro"]


# --- the list of all of them, which imports no PyTorch ---------------------------------------------------------------------


def declared() -> dict[str, Any]:
    studies = [
        dict(
            id=study.id,
            title=study.title,
            printed=study.published,
            claims=study.claims,
            own=study.own,
            runs={scale: wanted_count(study, scale) for scale in SCALES if scale in study.settings},
        )
        for study in STUDIES.values()
    ]
    return {"scales": list(SCALES), "studies": studies}


def test_what_is_kept_of_the_studies_for_the_list_is_what_they_say() -> None:
    assert declared() == tally.DECLARED, "write it anew: python tests/studies/test_listing.py"


def test_a_study_without_runs_says_the_hours_and_what_would_decide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stake = {"turns on": 1.0, "seeds": 5, "seeds that see it": 63, "hours to see it": 1221}
    studies = {"a/large": {"runs": 35, "hours": 17.5, **stake}, "a/enough": {"runs": 1, "hours": 2.3, **stake, "seeds that see it": 4}}
    (tmp_path / "results" / "checks").mkdir(parents=True)
    (tmp_path / "results" / "checks" / "hours.json").write_text(json.dumps({"scale": "cpu", "studies": studies}))
    monkeypatch.chdir(tmp_path)
    decided_by = "to see the difference it turns on (1 point), 63 seeds, 1,221 hours"
    assert reproduce.hours_needed("a/large", "cpu") == f"35 trainings take 18 hours of one core; {decided_by}"
    assert reproduce.hours_needed("a/enough", "cpu") == "1 training takes 2.3 hours of one core"
    assert reproduce.hours_needed("a/large", "wide") == reproduce.hours_needed("a/unknown", "cpu") == ""


def test_the_quick_list_counts_what_the_full_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("continua.studies.overview.STUDIES", {name: STUDIES[name] for name in ("dcn/table3", "rknet/table3")})
    (tmp_path / "studies" / "dcn-fig4a" / "smoke").mkdir(parents=True)
    verdicts = [{"verdict": "holds"}, {"verdict": "fails"}]
    for runs, said in ((3, "   done"), (2, "   partly: 2 of 3")):
        entry = {"claims": verdicts, "runs": [{}] * runs}
        (tmp_path / "studies" / "dcn-fig4a" / "smoke" / "results.json").write_text(json.dumps({"version": 2, "entry": entry}))
        assert main(["reproduce", "--list", "--scale", "smoke", "--runs", str(tmp_path)]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("dcn/fig4a"))
        assert said in line
        assert "not judged" in line, "at smoke nothing is judged"
    for state in study_states("cpu", options=RunOptions(progress="off")):
        shown = {scale: entry["claims"] for scale, entry in reproduce._written(state.study.id, None).items()}
        assert shown.keys() == state.written.keys()
        assert all(
            [claim["verdict"] for claim in shown[scale]] == [claim.verdict for claim in state.written[scale].entry.claims]
            for scale in shown
        )


if __name__ == "__main__":
    target = Path(tally.__file__).with_name("studies.json")
    target.write_text(json.dumps(declared(), indent=1, ensure_ascii=False) + "\n", "utf-8")
