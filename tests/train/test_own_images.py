"""A training on a folder of one's own images: its classes, and where it lies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from training import QUIET, tiny_recipe

from continua import ConfigError, DataError
from continua.runs import Recipe, RunView, evaluate_run
from continua.train import Interrupted, RunOptions, resume, train
from continua.train.step import StopSignal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes, six images of each to train on and two to test."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 2)):
        for name in ("ants", "bees", "flies"):
            place = tmp_path / "insects" / split / name
            place.mkdir(parents=True)
            for n in range(count):
                Image.fromarray(draw.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(place / f"{n}.png")
    return tmp_path / "insects"


def recipe(**changes: object) -> Recipe:
    return tiny_recipe(data="image_folder16", per_class=None, epochs=1, batch_size=6, **changes)


def options(folder: Path) -> RunOptions:
    return RunOptions(data_dir=folder, device="cpu", progress="off", threads=QUIET.threads)


def test_classes_are_those_of_the_folder_and_the_run_knows_where_it_is(folder: Path, tmp_path: Path) -> None:
    run = train(recipe(), tmp_path / "run", options(folder))
    assert run.recipe.model_options["num_classes"] == 3
    assert run.data_dir == folder
    assert "insects" not in run.config.read_text("utf-8")  # where it lies is no part of what was asked
    assert evaluate_run(run.folder, device="cpu")["images"] == 6
    shutil.move(folder, tmp_path / "elsewhere")
    with pytest.raises(DataError, match="insects, which is not there; say with --data-dir"):
        RunView(run.folder, device="cpu").images()
    moved = RunView(run.folder, device="cpu", data_dir=tmp_path / "elsewhere").images()
    assert sum(len(labels) for _, labels in moved) == 6


def test_a_stopped_run_goes_on_without_being_told_where_its_images_are(folder: Path, tmp_path: Path) -> None:
    stop = StopSignal()
    stop.number = signal.SIGTERM
    with pytest.raises(Interrupted):
        train(recipe(), tmp_path / "run", options(folder), stop=stop)
    run = resume(tmp_path / "run", QUIET)
    assert run.result is not None
    assert json.loads((run.folder / "where.json").read_text("utf-8")) == {"data_dir": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_saves_the_step(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    for image in list(folder.glob("train/*/*.png")):
        for copy in range(100):  # an epoch long enough to be interrupted while its workers are at work
            os.link(image, image.with_name(f"{image.stem}-{copy}.png"))
    words = ["train", "--recipe", "demo", "--data", "image_folder16", "--data-dir", str(folder), "--per-class", "null", "--epochs", "10000"]
    words += ["--batch-size", "6", "--model-options.channels", "[4, 8]", "--model-options.solver", "{method: euler, steps: 1}"]
    words += ["--out", str(tmp_path / "run"), "--threads", "1", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "continua", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text("utf-8"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert f"go on with: continua train --resume {tmp_path / 'run'}" in said
    assert "Traceback" not in errors
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.pt"))


def test_a_folder_of_classes_alone_trains_with_a_share_held_out(folder: Path, tmp_path: Path) -> None:
    flat = folder / "train"
    with pytest.raises(ConfigError, match=r"no test or val images here.*--holdout 0\.2"):
        train(recipe(), tmp_path / "run", options(flat))
    run = train(recipe(holdout=0.34), tmp_path / "run", options(flat))
    seen = evaluate_run(run.folder, device="cpu")
    assert (seen["split"], seen["images"]) == ("holdout", 6)  # two of the six of each class
    assert (run.result or {})["split"] == "holdout"
    assert [each["images"] for each in seen["per_class"].values()] == [2, 2, 2]


def test_a_head_for_other_classes_is_refused_and_leaves_the_folder_free(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"image_folder16 has 3 classes, and model_options.num_classes is 10"):
        train(recipe(model_options={"num_classes": 10}), tmp_path / "run", options(folder))
    assert not (tmp_path / "run").exists(), "not even a lock is left"
    assert train(recipe(), tmp_path / "run", options(folder)).result is not None
