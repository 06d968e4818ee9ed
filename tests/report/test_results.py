"""docs/results.md is what results/*/*.json say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from continua.cli import main
from continua.errors import ConfigError
from continua.report import VERSION, Axis, Claim, Entry, Figure, PlusMinus, RunOfEntry, Series, Table, entry_environment, read_entry
from continua.report.results import draw_results, result_files, results_page

ROOT = Path(__file__).parents[2]


def entry(**changes: Any) -> Entry:
    given: dict[str, Any] = dict(
        title="Small data",
        paper="DCN, Table 2a",
        asked="Is it so?",
        commands=["continua train --recipe dcn"],
        reduced=["45 epochs instead of 1,000"],
        environment={"processor": "a CPU", "threads": 1},
        parts=[
            "One sentence.",
            Table("accuracy", "Accuracy", ["model", "ours"], [["DCN-ODE", PlusMinus(38.1, 0.4)]]),
            Figure("loss", "Loss", Axis("epoch"), Axis("loss", "nats"), [Series("DCN-ODE", [1, 2], [2.3, 2.1])]),
        ],
        notes=["It is not so."],
        claims=[Claim("it is so", "fails", "difference of means", -0.5, 0.0, interval=(-1.0, 0.25))],
    )
    return Entry(**{**given, **changes})


def test_the_page_of_results_is_made_from_their_files() -> None:
    assert (ROOT / "docs" / "results.md").read_text("utf-8") == results_page(ROOT / "results"), (
        "run `make results` and commit what it wrote"
    )


def test_the_front_of_the_page_is_short() -> None:
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    front = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert len(front.split()) <= 2500


def test_claims_that_wait_for_runs_are_counted_in_front_and_told_among_the_numbers(tmp_path: Path) -> None:
    judged = Claim("it is so", "holds", "t test over 4 seeds", 1.0, 0.0, interval=(0.5, 1.5), seeds=4, planned=4)
    early = Claim("it may be so", "undecided", "t test over 2 seeds", 1.0, 0.0, interval=(-1.0, 3.0), seeds=2, planned=4)
    open_ = Claim("it could be so", "undecided", "t test over 4 seeds", 1.0, 0.0, interval=(-0.5, 2.5), seeds=4, planned=4)
    entry(claims=[judged, open_, early, Claim("nobody knows", "not run", "no run")]).write(tmp_path / "dcn" / "small.json")
    page = results_page(tmp_path)
    front = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert "- **undecided so far, with 2 of 4 seeds**: 1 claim\n- **not run**: 1 claim\n" in front
    assert "- **holds here**: it is so (+1, +0.5 to +1.5)" in front
    assert "- **undecided**: 1 claim\n" in front
    for hypothesis in ("it could be so", "it may be so", "nobody knows"):
        assert hypothesis not in front
        assert f"- {hypothesis}: " in page


def test_studies_without_all_their_runs_are_listed_with_their_hours_and_what_would_decide_them(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    known = {"runs": 35, "hours": 17.52}
    stake = {"turns on": 1.0, "seeds": 5, "seeds that see it": 63, "hours to see it": 1221}
    studies = {"dcn/table1": known | stake, "dcn/fig3b": {"runs": 5, "hours": 8.67}, "dcn/fig1": {"runs": 0, "hours": 0.0}}
    hours = {"cpu": "a CPU", "spread": 2.8, "together": {"hours": 26.2}, "studies": studies}
    (tmp_path / "checks" / "hours.json").write_text(json.dumps(hours))
    page = results_page(tmp_path)
    assert "<summary>2 studies lack trainings" in page
    assert "| `dcn/table1` | 35 | 0 | 17.5 | 1 | 63 (5 planned) | 1,221 |" in page
    assert "| `dcn/fig3b` | 5 | 0 | 8.7 | — | — | — |" in page
    assert "dcn/fig1" not in page


def test_every_picture_of_the_page_is_there() -> None:
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    links = [part.partition(")")[0] for part in page.split("](pictures/")[1:]]
    assert [link for link in links if not (ROOT / "docs" / "pictures" / link).is_file()] == []


def test_no_entry_has_weights_that_are_too_large() -> None:
    weights = list((ROOT / "results").rglob("*.safetensors"))
    assert all(path.stat().st_size < 2e6 for path in weights)
    assert sum(path.stat().st_size for path in weights) < 60e6


def test_an_entry_is_the_same_after_its_file(tmp_path: Path) -> None:
    path = entry().write(tmp_path / "dcn" / "small.json")
    assert read_entry(path) == entry()
    data = json.loads(path.read_text("utf-8"))
    assert data["version"] == VERSION
    assert data["claims"][0]["verdict"] == "fails"
    assert data["parts"][1]["rows"] == [["DCN-ODE", {"value": 38.1, "error": 0.4}]]


def test_the_page_says_what_was_asked_reduced_and_typed(tmp_path: Path) -> None:
    entry().write(tmp_path / "results" / "dcn" / "small.json")
    entry(title="Other", reduced=[]).write(tmp_path / "results" / "anodev2" / "other.json")
    (tmp_path / "results" / "SUMMARY.md").write_text("What agrees, what does not.\n")
    page = results_page(tmp_path / "results")
    assert page.index("What agrees, what does not.") < page.index("## Other")
    assert page.index("## Other") < page.index("## Small data")
    for text in (
        "*DCN, Table 2a.* Is it so?",
        "45 epochs instead of 1,000",
        "```sh\ncontinua train --recipe dcn\n```",
        "It is not so.",
        "- **fails here**: it is so (-0.5, -1 to +0.25)",
    ):
        assert text in page
    assert "| DCN-ODE | 38.1 ± 0.4 |" in page
    assert "What was reduced from the paper is not said." in page
    assert "![Loss](pictures/results/dcn-small-loss.svg)" in page
    stale = tmp_path / "docs" / "pictures" / "results" / "gone.svg"
    stale.parent.mkdir(parents=True)
    stale.touch()
    made = draw_results(tmp_path / "results", tmp_path / "docs")
    assert sorted(path.name for path in made) == ["anodev2-other-loss.svg", "dcn-small-loss.svg"]
    assert not stale.exists()


def test_the_page_counts_as_the_list_of_studies_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "--list", "--runs", str(tmp_path)]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "Claims:" in line]
    _, _, counts = said.partition(": ")
    assert f"{counts}**" in results_page(ROOT / "results")


def test_claims_of_studies_without_an_entry_are_counted_and_those_written_by_hand_are_not(tmp_path: Path) -> None:
    entry().write(tmp_path / "dcn" / "small.json")
    nothing = results_page(tmp_path)
    assert " 0 done, 0 partly" in nothing
    assert "0 hold, 0 fail, 0 undecided, " in nothing
    entry(study="dcn/table1", scale="cpu").write(tmp_path / "dcn" / "table1.json")
    page = results_page(tmp_path)
    assert " 0 done, 1 partly" in page
    assert "0 hold, 1 fail, 0 undecided, " in page


def test_nothing_was_reduced_is_said_only_where_recipes_were_compared() -> None:
    whole = entry(reduced=[], study="dcn/table1", scale="paper", runs=[RunOfEntry("DCN-ODE", 0, "dcn_ode-cifar10-seed0")])
    assert whole.differs.startswith("Nothing was reduced")
    for other in (entry(reduced=[], study="dcn/fig1", scale="cpu"), entry(reduced=[])):
        assert "Nothing was reduced" not in other.differs


def test_files_of_runs_and_of_checks_are_no_entries(tmp_path: Path) -> None:
    for file in ("dcn/small/run/result.json", "checks/kept-runs.json", "benchmarks/solver.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("{}")
    assert result_files(tmp_path) == []


@pytest.mark.parametrize("change", [dict(title=None), dict(colour=1), dict(parts=7), dict(version=1)])
def test_a_wrong_entry_is_refused_by_name(change: dict[str, Any], tmp_path: Path) -> None:
    path = entry().write(tmp_path / "dcn" / "small.json")
    data = json.loads(path.read_text("utf-8")) | change
    if change.get("title", "") is None:
        del data["title"]
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"small\.json"):
        read_entry(path)


def test_the_environment_of_an_entry_names_no_machine() -> None:
    full = {
        "processor": "a CPU",
        "threads": 1,
        "python": "3.11",
        "system": "host-a",
        "commit": "x",
        "packages": {"torch": "2", "numpy": "1"},
    }
    assert entry_environment(full) == {"processor": "a CPU", "threads": 1, "python": "3.11", "torch": "2"}
