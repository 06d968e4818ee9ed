"""Studies: every one runs at `smoke`, names all its runs, and finds finished runs again by their configuration."""

import json
from pathlib import Path

import pytest

from continua import ConfigError
from continua.studies import STUDIES, find_study, keep, reproduce, train_here
from continua.studies.reproduce import KEPT
from continua.studies.runs import Places, wanted_runs
from continua.studies.study import SCALES
from continua.train.resolution import identity
from continua.train.setup import RunOptions

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
QUICK = ["dcn/table2a"]
OPTIONS = RunOptions(progress="off")


def smoke(name: str, runs: Path, train=train_here):
    return reproduce(find_study(name), "smoke", runs=runs, options=OPTIONS, train=train)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def check_written(found) -> None:
    """What a person finds after `continua reproduce`."""
    written = json.loads((found.folder / "results.json").read_text("utf-8"))
    assert written["study"] == found.study.id
    assert len(written["claims"]) == len(found.finding.claims)
    assert all(run["result"]["identity"] == run["identity"] for run in written["runs"])
    assert (found.folder / "page.md").read_text("utf-8").startswith(f"# {found.study.id}")
    assert "<html" in (found.folder / "page.html").read_text("utf-8")


@pytest.mark.parametrize("name", QUICK)
def test_a_study_runs_at_smoke(name, runs):
    check_written(smoke(name, runs))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name not in QUICK])
def test_every_study_runs_at_smoke(name, runs):
    check_written(smoke(name, runs))


def test_a_study_run_again_trains_nothing(runs):
    smoke("dcn/table2a", runs)

    def refuse(missing, options):
        pytest.fail(f"asked to train {[one.name for one in missing]}")

    check_written(smoke("dcn/table2a", runs, refuse))


def test_runs_are_shared_between_studies():
    places = Places(Path("nowhere"), [], OPTIONS)
    first, second = (
        {identity(one.recipe): one.row.label for one in wanted_runs(find_study(name), "cpu", range(1), places)}
        for name in ("dcn/table1", "dcn/table2a")
    )
    assert {first[name] for name in first.keys() & second.keys()} == {"ResNet-blocks", "ODE-Net", "DCN-ODE"}


@pytest.mark.parametrize("name", STUDIES)
def test_every_scale_of_a_study_says_what_it_reduces(name):
    study = find_study(name)
    assert set(study.settings) == set(SCALES)
    assert not study.setting("paper").reduced
    if study.rows("cpu"):
        assert study.setting("cpu").reduced
        assert study.setting("cpu").threads  # bit for bit only at the same number
    labels = [row.label for row in study.rows("paper")]
    assert len(set(labels)) == len(labels)


def test_a_kept_study_is_found_again_without_its_runs(runs, tmp_path, monkeypatch):
    found = smoke("dcn/table2a", runs)
    monkeypatch.chdir(tmp_path)
    made = keep(found)
    assert (KEPT / "dcn" / "table2a.json") in made
    assert all(one.finished for one in wanted_runs(found.study, "smoke", range(1), Places(tmp_path / "none", [KEPT], OPTIONS)))


def test_an_unknown_study_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean dcn/table2a"):
        find_study("dcn/tabel2a")
