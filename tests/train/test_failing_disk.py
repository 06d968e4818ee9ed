"""Checkpoints and lines of metrics on a disk that fails at each file operation in turn: what was saved before is there, and whole."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from failing_disk import WAYS, Ended, EndingDisk

from continua.errors import ContinuaError
from continua.runs import Run
from continua.train.checkpoint import CheckpointError, checkpoints, load_last_checkpoint, save_checkpoint


def work(run: Run, reached: list[int]) -> None:
    """What a training does to its folder; `reached`: the steps whose checkpoint is said to be safe."""
    run.write_json(run.environment, {"threads": 1})
    for step in (1, 2, 3):
        run.append({"event": "epoch", "epoch": step})
        metrics = run.metrics_bytes()
        state: dict[str, Any] = {"step": step, "net": torch.full((50,), float(step)), "metrics": metrics.decode()}
        save_checkpoint(run.checkpoints, step, state)
        reached.append(step)
    run.write_json(run.result_file, {"epoch": 3})


def struck(home: Path, way: str, at: int) -> tuple[int, list[int]]:
    """How many points there were, and the steps that were reached before the disk failed at one of them."""
    home.mkdir(exist_ok=True)
    disk, reached = EndingDisk(home, way, at, seed=at), []
    with suppress(Ended, ContinuaError, OSError), disk.installed():
        work(Run(home / "run"), reached)
    return disk.points, reached


@pytest.mark.parametrize("way", WAYS)
def test_what_was_said_to_be_saved_is_there_whatever_fails_next(way: str, tmp_path: Path) -> None:
    points, whole = struck(tmp_path / "whole", "count", 0)
    assert whole == [1, 2, 3]
    assert points > 50
    for at in range(1, points + 1):
        folder = tmp_path / f"{at}"
        _, reached = struck(folder, way, at)
        run = Run(folder / "run")
        saved = None
        if checkpoints(run.checkpoints):
            try:
                saved = load_last_checkpoint(run.checkpoints)[1]  # a warning here would be an error: none is damaged
            except CheckpointError:
                pytest.fail(f"{way} at {at}: no checkpoint can be read")
        last = saved["step"] if saved else 0
        assert last >= max(reached, default=0), f"{way} at {at}: step {max(reached)} was said to be safe, and {last} is there"
        if saved:
            assert torch.equal(saved["net"], torch.full((50,), float(last)))
            assert run.metrics_bytes().startswith(saved["metrics"].encode()), f"{way} at {at}: lines were lost"
        assert run.result in (None, {"epoch": 3})
        reached.clear()
        work_again = struck(folder, "count", 0)[1]
        assert work_again == [1, 2, 3], f"{way} at {at}: it cannot be gone on with"
