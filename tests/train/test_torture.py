"""Trainings on a disk that fails: whatever happens at whichever file operation, going on ends with the same bits."""

import random
from pathlib import Path

import pytest
import torch
from failing_disk import CHANGES, WAYS, differences, end_well, tortured
from training import QUIET, finish, start, tiny_recipe

from continua.train import Run, train


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    return train(tiny_recipe(**CHANGES), tmp_path_factory.mktemp("reference") / "run", QUIET)


def points_of_a_training(tmp_path: Path) -> int:
    assert finish(start(tortured, tmp_path / "counted", "count", 0, tmp_path / "points")) == 0
    return int((tmp_path / "points").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_training_survives_failures_of_every_kind_at_points_drawn_at_random(reference: Run, tmp_path: Path) -> None:
    points, draw = points_of_a_training(tmp_path), random.Random(0)
    assert points > 50, "everything that is written passes the stand-in"
    for way in WAYS:
        for trial in range(3):
            folder = tmp_path / f"{way}{trial}"
            for _ in range(2):  # struck twice: also while it goes on
                code = finish(start(tortured, folder, way, draw.randint(1, points)))
                assert code in (0, -9), f"{way}: a traceback"
            assert finish(start(end_well, folder)) == 0 or Run(folder).result is not None
            assert differences(Run(folder), reference) == []
