"""A run directory: one training at a time, files whole, found by what it is and not by what it is called."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from training import finish, start, tiny_recipe

from continua.cli import main
from continua.data import load
from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError
from continua.train import Run, RunOptions, find_run, identity, load_recipe, resolve, resume, run_id, runs_folder, train


def hold(folder: Path, ready: Path) -> None:
    """Hold the lock of a run until killed."""
    with Run(folder).locked():
        ready.touch()
        time.sleep(300)


def test_a_second_training_in_a_folder_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    folder, ready = tmp_path / "run", tmp_path / "ready"
    first = start(hold, folder, ready)
    while not ready.exists() and first.is_alive():
        time.sleep(0.05)
    with pytest.raises(ConfigError, match=f"is being trained in by process {first.pid} on"), Run(folder).locked():
        pass
    os.kill(first.pid, signal.SIGKILL)
    assert finish(first) == -9
    with Run(folder).locked():
        assert str(os.getpid()) in (folder / ".lock").read_text(), "the lock of a dead process is taken over"


def test_a_training_that_could_not_begin_leaves_its_folder_free(tmp_path: Path) -> None:
    absent = RunOptions(progress="off", device="cpu", data_dir=tmp_path / "nothing")
    for _ in range(2):  # the second time the data are still missing, not the folder taken
        with pytest.raises(DataError, match="continua data fetch cifar10"):
            train(tiny_recipe(data="cifar10"), tmp_path / "run", absent)
    assert not Run(tmp_path / "run").exists


def test_a_folder_that_holds_a_run_is_not_begun_again(tmp_path: Path) -> None:
    run, recipe = Run(tmp_path), resolve(tiny_recipe())
    run.create(recipe)
    assert run.recipe == recipe
    with pytest.raises(ConfigError, match="--resume"):
        run.create(recipe)
    run.write_json(run.result_file, {})
    with pytest.raises(ConfigError, match="is finished"):
        run.create(recipe)
    with pytest.raises(ConfigError, match="is not a run"):
        resume(tmp_path / "nothing")


def test_lines_written_after_a_position_are_forgotten(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.lines() == []
    run.append({"epoch": 1, "σ": 0.5})
    length = run.metrics_length()
    run.append({"epoch": 2})
    with open(run.metrics, "ab") as file:
        file.write(b'{"epoch": 3, "lo')  # cut off by a power failure
    run.truncate_metrics(length)
    assert run.lines() == [{"epoch": 1, "σ": 0.5}]
    with pytest.raises(ContinuaError, match="shorter than"):
        run.truncate_metrics(length + 1)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ContinuaError, match=r"file/run.*cannot be written"):
        train(tiny_recipe(), tmp_path / "file" / "run")


def test_runs_live_where_asked_else_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTINUA_RUNS", raising=False)
    assert runs_folder() == Path("runs")
    monkeypatch.setenv("CONTINUA_RUNS", "elsewhere")
    assert runs_folder() == Path("elsewhere")
    assert runs_folder("here") == Path("here")


def test_small_files_are_json_for_people(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_json(run.environment, {"σ": 1})
    assert "σ" in run.environment.read_text("utf-8")
    assert json.loads(run.environment.read_text("utf-8")) == {"σ": 1}


# --- the run of a recipe ----------------------------------------------------------------------------------------------


def begun(folder: Path, **changes: object) -> Run:
    run = Run(folder)
    run.create(resolve(tiny_recipe(**changes)))
    return run


def test_a_run_is_found_by_its_recipe_whatever_its_folder_is_called(tmp_path: Path) -> None:
    begun(tmp_path / "mine", seed=1)
    begun(tmp_path / "study" / "cell", seed=2)
    for seed, folder in [(1, tmp_path / "mine"), (2, tmp_path / "study" / "cell")]:
        found = find_run(tiny_recipe(seed=seed), tmp_path)
        assert found is not None
        assert found.folder == folder
    assert find_run(tiny_recipe(seed=3), tmp_path) is None
    assert find_run(tiny_recipe(), tmp_path / "nowhere") is None


def test_a_finished_run_comes_before_one_that_was_only_begun(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        begun(tmp_path / name)
    finished = Run(tmp_path / "b")
    finished.write_json(finished.result_file, {"identity": run_id(tiny_recipe())})
    found = find_run(tiny_recipe(), tmp_path)
    assert found is not None
    assert found.folder.name == "b"


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("model: [")
    begun(tmp_path / "whole")
    with pytest.warns(ContinuaWarning, match="broken is passed over"):
        assert find_run(tiny_recipe(), tmp_path) is not None


@pytest.mark.parametrize(("per_class", "holdout"), [(8, None), (1, None), (2, 0.25), (None, 0.1), (2, 0.19)])
@pytest.mark.parametrize("batch", [15, 16, 17, 1294])
def test_drop_last_is_decided_when_a_recipe_is_resolved_as_the_loader_would(
    per_class: int | None, holdout: float | None, batch: int
) -> None:
    recipe = tiny_recipe(per_class=per_class, holdout=holdout, batch_size=batch, drop_last="auto")
    images = len(load("digits", per_class=per_class, holdout=holdout)["train"])
    assert resolve(recipe).drop_last is (images >= batch)


def test_auto_and_what_it_comes_to_are_the_same_run() -> None:
    auto = tiny_recipe(drop_last="auto")
    assert run_id(auto) == run_id(tiny_recipe(drop_last=True)) != run_id(tiny_recipe(drop_last=False))
    assert run_id(resolve(auto)) == run_id(auto) == identity(resolve(auto))


def test_an_empty_table_on_the_command_line_empties_the_recipes_and_leaves_the_epochs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--recipe", "small_data", "--per_class", "52", "--print-config"]
    assert main([*words, "--length_by_per_class", "{}"]) == 0
    plain = capsys.readouterr().out
    assert main(words) == 0
    multiplied = capsys.readouterr().out
    assert "epochs: 100\n" in plain
    assert "epochs: 1000\n" in multiplied
    assert load_recipe("small_data", {"length_by_per_class": {}}).length_by_per_class == {}


def test_an_empty_mapping_empties_and_a_filled_one_is_laid_on_top(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("model_options: {channels: [8, 16], solver: {rtol: 0.1, atol: 0.01}}\n")
    assert load_recipe(tmp_path / "r.yaml", {"model_options": {}}).model_options == {}
    kept = load_recipe(tmp_path / "r.yaml", {"model_options": {"solver": {"rtol": 0.5}}}).model_options
    assert kept == {"channels": [8, 16], "solver": {"rtol": 0.5, "atol": 0.01}}
