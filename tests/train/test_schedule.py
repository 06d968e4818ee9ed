"""The learning rate as a function of progress, against closed forms and PyTorch's own schedulers."""

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch

from continua.train import Schedule
from continua.train.optimiser import Plateau, lr_factor

BATCHES = 5


def factors(schedule: Schedule, epochs: int, drops: int = 0) -> list[float]:
    return [lr_factor(schedule, step / BATCHES, epochs, 1 / BATCHES, drops) for step in range(epochs * BATCHES)]


def torch_factors(make: Any, epochs: int) -> list[float]:
    """What a scheduler of PyTorch, stepped once per epoch, multiplies the rate by in every batch."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, found = make(optimiser), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(epochs):
            found += [optimiser.param_groups[0]["lr"]] * BATCHES
            scheduler.step()
    return found


def test_multistep_and_step_are_those_of_pytorch() -> None:
    ours = factors(Schedule("multistep", milestones=(3, 5)), 8)
    assert ours == pytest.approx(torch_factors(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 5], 0.1), 8))
    ours = factors(Schedule("step", every=3, factor=0.5), 8)
    assert ours == pytest.approx(torch_factors(lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5), 8))


def test_cosine_falls_from_one_to_its_end_with_half_way_in_the_middle() -> None:
    found = factors(Schedule("cosine", final=0.2), 10)
    assert found[0] == 1.0
    assert found[25] == pytest.approx(0.6)
    assert all(a > b for a, b in pairwise(found))
    assert lr_factor(Schedule("cosine", final=0.2), 10.0, 10, 0.1) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", ["constant", "cosine"])
def test_warm_up_grows_linearly_to_the_full_rate(kind: Any) -> None:
    found = factors(Schedule(kind, warmup=2.0), 10)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert found[10] == pytest.approx(1.0)


def test_a_plateau_drops_as_pytorch_does() -> None:
    schedule = Schedule("plateau", patience=2, factor=0.5, threshold=1e-4)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, mode="max", patience=2, factor=0.5, threshold=1e-4, eps=0)
    ours, draw = Plateau(), torch.Generator().manual_seed(3)
    for accuracy in torch.rand(60, generator=draw).cummax(0).values.tolist():
        ours.see(accuracy, schedule)
        theirs.step(accuracy)
        assert lr_factor(schedule, 0.0, 60, 0.1, ours.drops) == pytest.approx(optimiser.param_groups[0]["lr"])
    assert ours.drops > 2
