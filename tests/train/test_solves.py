"""Coarse to fine, random end times and weighed errors: as the recipe says, reproducible, and exact however a training was stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch
from training import QUIET, lasting_lines, tiny_recipe, weights

from continua.errors import ConfigError
from continua.models import create_model
from continua.runs import Refine, identity, plain_recipe
from continua.train import Interrupted, load_recipe, resume, train
from continua.train.loop import Training
from continua.train.solves import coarse_options, trained_ode_blocks, training_solves

ADAPTIVE: dict[str, Any] = dict(solver=dict(method="bosh3", rtol=0.05, atol=0.05, steps=None, gradient="direct"))
TRICKS: dict[str, Any] = dict(
    model_options=ADAPTIVE,
    regularise=dict(end_time=0.3, error=0.1),
    refine=dict(tolerances=[0.5], epochs=[1.5]),
)


def test_a_coarse_solver_gives_way_to_the_networks_own() -> None:
    refine = Refine(steps=(1, 2), epochs=(1.0, 2.5))
    assert [coarse_options(refine, progress).get("steps") for progress in (0.0, 0.99, 1.0, 2.4, 2.5, 9.0)] == [1, 1, 2, 2, None, None]
    assert coarse_options(Refine(tolerances=(0.1,), epochs=(1.0,)), 0.5) == dict(rtol=0.1, atol=0.1)
    assert coarse_options(Refine(), 0.0) == {}


def test_end_times_are_drawn_from_seed_and_step_and_put_back() -> None:
    recipe = tiny_recipe(regularise=dict(end_time=0.25))
    net = create_model("dcn_ode", channels=(4, 8), solver=dict(method="rk4", steps=1))
    blocks = trained_ode_blocks(net)

    def drawn(step: int) -> list[float]:
        with training_solves(net, recipe, step, 0.0):
            return [block.t1 for block in blocks]

    draws = torch.tensor([drawn(step) for step in range(300)], dtype=torch.float64)
    assert drawn(7) == draws[7].tolist() == drawn(7)
    assert [block.t1 for block in blocks] == [2.0, 2.0]
    assert 1.5 <= float(draws.min()) < 1.51
    assert 2.49 < float(draws.max()) <= 2.5
    assert float(draws.mean()) == pytest.approx(2.0, abs=0.05)  # uniform: ± 0.012
    assert float(draws.std()) == pytest.approx(1 / 12**0.5, abs=0.02)
    assert len(set(draws.flatten().tolist())) == 600  # of each block and each step its own


@pytest.mark.parametrize("batches", [2, 7])
def test_a_training_with_all_of_it_goes_on_exactly(batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(**TRICKS)
    whole = train(recipe, tmp_path / "whole", QUIET)
    step = Training._train_batch

    def until(self: Training, batch: Any) -> bool:
        return step(self, batch) or self.step + 1 == batches

    monkeypatch.setattr(Training, "_train_batch", until)
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "halved", QUIET)
    monkeypatch.setattr(Training, "_train_batch", step)
    halved = resume(tmp_path / "halved", QUIET)
    assert lasting_lines(halved) == lasting_lines(whole)
    expected, ours = weights(whole), weights(halved)
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    assert lasting_lines(whole)[0]["penalty"] > 0


def test_steps_grow_in_the_metrics_as_the_recipe_says(tmp_path: Path) -> None:
    options = dict(solver=dict(method="rk4", steps=4, gradient="direct"))
    run = train(tiny_recipe(model_options=options, refine=dict(steps=[1, 2], epochs=[1, 2])), tmp_path / "run", QUIET)
    assert [line["nfe"][0] for line in run.lines()] == [4, 8, 16]


def test_what_is_not_used_is_no_part_of_the_identity_and_what_is_used_is() -> None:
    plain = tiny_recipe()
    data = plain_recipe(plain)
    assert "refine" in data  # written out all the same
    changed = [dict(refine=dict(steps=[1], epochs=[1]), model_options=dict(solver=dict(steps=2))), dict(regularise=dict(end_time=0.1)),
               dict(regularise=dict(error=0.1))]  # fmt: skip
    assert len({identity(plain), *(identity(tiny_recipe(**change)) for change in changed)}) == 4


def test_another_length_stretches_the_refinement() -> None:
    changes = dict(model_options=dict(solver=dict(steps=4)), refine=dict(steps=[1, 2], epochs=[2, 4]))
    assert load_recipe("demo", dict(changes, epochs=20)).refine.epochs == (2, 4)  # given with it: kept
    assert load_recipe("demo", changes).refine.epochs == (2, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(refine=dict(steps=[2, 1], epochs=[1, 2])), "rising whole numbers"),
        (dict(refine=dict(steps=[1], epochs=[])), "each of them needs the epoch"),
        (dict(refine=dict(steps=[1], tolerances=[0.1], epochs=[1])), "leave the other out"),
        (dict(refine=dict(steps=[1], epochs=[3])), "leave some for the network"),
        (dict(refine=dict(steps=[1], epochs=[1])), "expected fewer steps"),
        (dict(refine=dict(tolerances=[0.1], epochs=[1])), "use refine.steps"),
        (dict(refine=dict(tolerances=[0.01], epochs=[1]), model_options=ADAPTIVE), "not finer"),
        (dict(regularise=dict(end_time=1.0)), "below 1"),
        (dict(regularise=dict(error=1.0)), "estimates no error|gradient='direct'"),
        (dict(model="resnet_blocks", regularise=dict(end_time=0.1)), "has none; leave it out"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tiny_recipe(**changes), tmp_path / "run", QUIET)
