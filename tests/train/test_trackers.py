"""The numbers of each epoch reach trackers, in their offline modes; a tracker that fails ends no training."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from training import QUIET, tiny_recipe

from continua.errors import ConfigError, ContinuaWarning
from continua.train import Interrupted, Run, RunOptions, resume, train
from continua.train.loop import Training

SHORT: dict[str, Any] = dict(epochs=2, per_class=2)


class Notebook:
    """A tracker of one's own."""

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[Any] = []
        self.fails = fails

    def start(self, run: Run, epoch: int) -> None:
        self.heard.append(("start", run.folder.name, epoch))

    def log(self, numbers: Any, epoch: int) -> None:
        if self.fails:
            raise OSError("the server is gone")
        self.heard.append((epoch, numbers["loss"], numbers["nfe/0"]))

    def finish(self, result: Any) -> None:
        self.heard.append(result)


def options(*track: Any) -> RunOptions:
    return RunOptions(progress="off", device="cpu", threads=1, track=track)


def test_a_tracker_of_ones_own_hears_every_epoch_and_the_result(tmp_path: Path) -> None:
    heard = Notebook()
    run = train(tiny_recipe(**SHORT), tmp_path / "run", options(heard))
    lines = [(line["epoch"], line["loss"], line["nfe"][0]) for line in run.lines()]
    assert heard.heard == [("start", "run", 1), *lines, run.result]


def test_an_interrupted_training_ends_without_a_result_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Training._train_batch
    first, second = Notebook(), Notebook()
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", lambda self, batch: step(self, batch) or self.step == 1)
        with pytest.raises(Interrupted):
            train(tiny_recipe(**SHORT), tmp_path / "run", options(first))
    assert first.heard[-1] is None
    run = resume(tmp_path / "run", options(second))
    assert second.heard[0] == ("start", "run", 2)
    assert second.heard[-1] == run.result


def test_a_tracker_that_fails_is_left_out_and_the_training_goes_on(tmp_path: Path) -> None:
    with pytest.warns(ContinuaWarning, match=r"Notebook failed and is left out from here on \(OSError: the server is gone\)"):
        run = train(tiny_recipe(**SHORT), tmp_path / "run", options(Notebook(fails=True)))
    assert len(run.lines()) == 2
    assert run.result is not None


def test_unknown_and_missing_trackers_are_named_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="did you mean wandb"):
        train(tiny_recipe(**SHORT), tmp_path / "a", options("wandbb"))
    with pytest.raises(ConfigError, match="an object with start, log and finish"):
        train(tiny_recipe(**SHORT), tmp_path / "b", options(object()))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        train(tiny_recipe(**SHORT), tmp_path / "c", RunOptions(progress="off", device="cpu", threads=1, track="wandb"))
    assert not any((tmp_path / name).exists() for name in "abc"), "a start that failed leaves no folder"


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


# All three need pydantic, which an installation by hash alone, without what packages ask for, does not bring.
needs = {
    name: pytest.mark.skipif(not installed(name, "pydantic"), reason=f"{name} is not installed, or not with what it needs")
    for name in ("wandb", "mlflow", "trackio")
}


@needs["wandb"]
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = train(tiny_recipe(**SHORT), tmp_path / "run", options("wandb"))
    name = json.loads((run.folder / "trackers.json").read_text())["wandb"]
    files = list((run.folder / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))
    assert len(files) == 1
    assert b"train_accuracy" in files[0].read_bytes()


@needs["mlflow"]
def test_mlflow_in_a_local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'store'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = train(tiny_recipe(**SHORT), tmp_path / "run", options("mlflow"))
    name = json.loads((run.folder / "trackers.json").read_text())["mlflow"]
    client = MlflowClient()
    assert [(metric.step, metric.value) for metric in client.get_metric_history(name, "loss")] == [
        (line["epoch"], pytest.approx(line["loss"])) for line in run.lines()
    ]
    stored = client.get_run(name)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["model"] == "dcn_ode"
    assert stored.data.metrics["result/test_accuracy"] == pytest.approx((run.result or {})["test_accuracy"])


@needs["trackio"]
@pytest.mark.filterwarnings("error:Reserved keys")
def test_trackio_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio

    run = train(tiny_recipe(**SHORT), tmp_path / "run", options("trackio"))
    stored = trackio.Api().runs("continua")
    assert [each.name for each in stored] == ["run"]
    assert run.result is not None


def test_without_the_option_nothing_follows(tmp_path: Path) -> None:
    run = train(tiny_recipe(**SHORT), tmp_path / "run", QUIET)
    assert not (run.folder / "trackers.json").exists()
