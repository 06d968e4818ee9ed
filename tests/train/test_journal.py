"""TensorBoard files hold the numbers of metrics.jsonl, each once, whatever happened in between."""

import sys
from pathlib import Path
from typing import Any

import pytest
from training import QUIET, tiny_recipe

from continua.errors import ConfigError
from continua.train import Interrupted, Run, RunOptions, resume, train
from continua.train.loop import Training
from continua.train.metrics import Journal

BOARD = RunOptions(progress="off", device="cpu", threads=1, tensorboard=True)


def scalars(run: Run) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.folder / "tensorboard"))
    found.Reload()
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_tensorboard_shows_each_epoch_once_even_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Training._train_batch

    def stopping(self: Training, batch: Any) -> bool:
        return step(self, batch) or self.step == 6

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", stopping)
        with pytest.raises(Interrupted):
            train(tiny_recipe(), tmp_path / "run", BOARD)
    run = resume(tmp_path / "run", BOARD)
    found, lines = scalars(run), run.lines()
    assert found["loss"] == [(line["epoch"], pytest.approx(line["loss"])) for line in lines]
    assert found["nfe/1"] == [(line["epoch"], line["nfe"][1]) for line in lines]
    assert found["sigma/blocks.0.field.conv1"][-1][1] == pytest.approx(lines[-1]["sigma"]["blocks.0.field.conv1"])
    assert found["train_accuracy"][0][1] == pytest.approx(lines[0]["train_accuracy"])


def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    run = train(tiny_recipe(epochs=1, per_class=2), tmp_path / "run", QUIET)
    assert not (run.folder / "tensorboard").exists()


def test_without_the_package_it_is_named_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install tensorboard"):
        Journal(Run(tmp_path), writes=True, track="tensorboard")
    Journal(Run(tmp_path), writes=False, track="tensorboard")  # other ranks write nothing and need nothing
