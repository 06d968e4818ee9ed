"""A disk that is full or cannot be written: a clear error, the earlier checkpoint intact, the same result once there is room."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from training import QUIET, lasting_lines, tiny_recipe, weights

from continua.errors import ContinuaError
from continua.train import Run, resume, train
from continua.train.checkpoint import load_last_checkpoint
from continua.train.loop import Training


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a small file system is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(), tmp_path_factory.mktemp("disk") / "run", QUIET)


def spoil_at(step: int, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    whole = Training._train_batch

    def train_batch(self: Training, batch: Any) -> bool:
        if self.step == step:
            spoil()
        return whole(self, batch)

    monkeypatch.setattr(Training, "_train_batch", train_batch)


def test_a_training_on_a_disk_that_becomes_full_says_so_and_goes_on_once_there_is_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch, reference: Run
) -> None:
    filler = disk / "filler"
    with monkeypatch.context() as patch:
        spoil_at(7, patch, lambda: filler.write_bytes(bytes(shutil.disk_usage(disk).free)))  # in the second of three epochs
        with pytest.raises(ContinuaError, match=r"No space left on device.*--resume"):
            train(tiny_recipe(), disk / "run", QUIET)
    run = Run(disk / "run")
    assert load_last_checkpoint(run.checkpoints)[1]["epoch"] == 1
    assert run.result is None
    filler.unlink()
    resume(run.folder, QUIET)
    assert lasting_lines(run) == lasting_lines(reference)
    assert all(torch.equal(value, weights(reference)[name]) for name, value in weights(run).items())


def test_a_read_only_place_is_refused_before_training(disk: Path) -> None:
    mount("-o", "remount,ro", str(disk))
    with pytest.raises(ContinuaError, match=r"run.*cannot be written \(Read-only file system\)"):
        train(tiny_recipe(), disk / "run", QUIET)


def test_no_room_for_the_final_weights_is_said_and_mended(disk: Path, monkeypatch: pytest.MonkeyPatch, reference: Run) -> None:
    from continua.models import Network

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Network, "save_pretrained", no_room)
        with pytest.raises(ContinuaError, match=r"best cannot be written \(No space left on device\)"):
            train(tiny_recipe(), disk / "run", QUIET)
    run = resume(disk / "run", QUIET)
    assert lasting_lines(run) == lasting_lines(reference)
