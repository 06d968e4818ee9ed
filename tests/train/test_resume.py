"""However often a training is killed, it ends with the same weights and the same metrics, bit for bit."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training import QUIET, begin_or_resume, finish, killed_at, lasting_lines, start, tiny_recipe, weights

from continua.train import Run, RunOptions, train

OFTEN = RunOptions(progress="off", device="cpu", threads=1, checkpoint_minutes=1e-9)  # a checkpoint after every batch
SOLVER: dict[str, Any] = dict(model_options=dict(solver=dict(method="dopri5", rtol=0.05, atol=0.05, steps=None)))
CHANGES: dict[str, Any] = SOLVER | dict(
    ema=0.9, label_smoothing=0.1, holdout=0.25, selection="holdout", optimiser=dict(kind="adamw", lr=0.01)
)


def assert_same(run: Run, reference: Run) -> None:
    assert lasting_lines(run) == lasting_lines(reference)
    expected, found = weights(reference), weights(run)
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same training, left alone."""
    torch.set_num_threads(1)
    return train(tiny_recipe(**CHANGES), tmp_path_factory.mktemp("reference") / "run", QUIET)


def test_three_kills_change_nothing(reference: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for place, count, options in [("batch", 2, OFTEN), ("half a checkpoint", 3, OFTEN), ("between sum and checkpoint", 1, QUIET)]:
        assert finish(start(killed_at, place, count, folder, CHANGES, options)) == -9
        assert Run(folder).result is None
    assert finish(start(begin_or_resume, folder, CHANGES)) == 0
    assert_same(Run(folder), reference)


def test_a_kill_before_the_first_checkpoint_starts_anew(reference: Run, tmp_path: Path) -> None:
    assert finish(start(killed_at, "batch", 1, tmp_path / "run", CHANGES)) == -9
    assert not list((tmp_path / "run" / "checkpoints").glob("*.pt"))
    assert finish(start(begin_or_resume, tmp_path / "run", CHANGES)) == 0
    assert_same(Run(tmp_path / "run"), reference)


def test_a_kill_after_the_last_checkpoint_leaves_only_the_report_to_do(reference: Run, tmp_path: Path) -> None:
    assert finish(start(killed_at, "checkpoint", 3, tmp_path / "run", CHANGES)) == -9
    assert finish(start(begin_or_resume, tmp_path / "run", CHANGES)) == 0
    assert_same(Run(tmp_path / "run"), reference)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(reference: Run, tmp_path: Path) -> None:
    folder, draw, kills = tmp_path / "run", random.Random(20), 0
    while kills < 20:
        process = start(begin_or_resume, folder, CHANGES, OFTEN)
        # From before the first file is there to well inside the training; a child that finished is started over.
        time.sleep(draw.uniform(0.0, 2.5))
        process.kill()
        if finish(process) == -9:
            kills += 1
        else:
            assert_same(Run(folder), reference)
            folder = tmp_path / f"run{kills}"
    assert finish(start(begin_or_resume, folder, CHANGES)) == 0
    assert_same(Run(folder), reference)
