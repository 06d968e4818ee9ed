"""A run directory: one training at a time, files whole, errors that say what to do."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from training import finish, start, tiny_recipe

from continua.errors import ConfigError, ContinuaError, DataError
from continua.train import Run, RunOptions, resolve, resume, runs_folder, train


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
