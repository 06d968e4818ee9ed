"""What a training does: the files and numbers it leaves, failures, divergence, selection, averages, signals."""

import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training import QUIET, lasting_lines, tiny_recipe, weights

import continua
from continua.errors import ConfigError, ContinuaError, SolverError
from continua.machine import OutOfMemory
from continua.models import options_in_common
from continua.train import Interrupted, Run, TrainingStopped, identity, resume, train
from continua.train.loop import Training
from continua.train.step import StopSignal, TrainingStep


def plain_recipe(**changes: Any) -> Any:
    """Without a solver: as quick as can be."""
    recipe = tiny_recipe(**changes)
    options = options_in_common("resnet_blocks", recipe.model_options)
    return replace(recipe, model="resnet_blocks", model_options=options)


@contextmanager
def failing_forward(monkeypatch: pytest.MonkeyPatch, fails: Any) -> Iterator[list[float]]:
    """A network whose k-th call in training raises SolverError where `fails(k, rtol)`."""
    from continua.models.network import Network

    calls: list[float] = []
    whole = Network.forward

    def forward(self: Any, images: torch.Tensor, **options: Any) -> torch.Tensor:
        if self.training:
            rtol = getattr(getattr(self.blocks[0], "solver", None), "rtol", math.nan)
            calls.append(rtol)
            if fails(len(calls), rtol):
                raise SolverError("took max_steps steps (t = 0.5)")
        return whole(self, images, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "forward", forward)
        yield calls


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(test_every=2), tmp_path_factory.mktemp("loop") / "run", QUIET)


def test_a_run_leaves_everything_to_know_and_to_use_it(finished: Run) -> None:
    names = {path.name for path in finished.folder.iterdir()} - {".lock"}
    assert names == {"config.yaml", "metrics.jsonl", "checkpoints", "best", "environment.json", "log.txt", "result.json"}
    result, environment = finished.result, json.loads(finished.environment.read_text())
    assert result is not None
    assert result["identity"] == identity(finished.recipe)
    assert result["selection"] == "last epoch"
    assert {"packages", "commit", "processor", "threads", "device", "deterministic_algorithms"} <= environment.keys()
    net = continua.from_pretrained(finished.best)
    assert result["parameters"] == sum(p.numel() for p in net.parameters())


def test_an_epoch_line_tells_how_the_epoch_went(finished: Run) -> None:
    lines = finished.lines()
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["nfe"] == [4.0, 4.0], "one step of RK4 in each of two blocks"
        assert line["nfe_backward"] == [0.0, 0.0], "a small network keeps its graph and replays nothing"
        assert line["rejected"] == [0.0, 0.0]
        assert len(line["sigma"]) == 4
        assert line["images"] == 80
        assert line["gradient_norm"] > 0
        assert math.isfinite(line["loss"])
        assert 0 <= line["train_accuracy"] <= 1
        assert line["images_per_second"] > 0
    assert ["test_accuracy" in line for line in lines] == [False, True, False]
    assert lines[0]["lr"] > lines[-1]["lr"]


def test_the_same_recipe_gives_the_same_run(finished: Run, tmp_path: Path) -> None:
    again = train(finished.recipe, tmp_path / "again", QUIET)
    assert lasting_lines(again) == lasting_lines(finished)
    assert all(torch.equal(value, weights(finished)[name]) for name, value in weights(again).items())


def test_the_reported_accuracy_is_that_of_the_saved_weights(finished: Run) -> None:
    from continua.train import evaluate

    assert finished.result is not None
    assert evaluate(finished.folder, device="cpu")["top1"] == pytest.approx(finished.result["test_accuracy"])


def test_training_learns_the_digits(tmp_path: Path) -> None:
    options = dict(channels=[16, 32], norm_groups=4)
    recipe = plain_recipe(per_class=40, epochs=8, batch_size=32, augmentation=dict(crop_padding=0), model_options=options)
    run = train(recipe, tmp_path / "run", QUIET)
    assert run.result is not None
    assert run.result["test_accuracy"] > 0.8, "chance is 0.1"


# --- failures -------------------------------------------------------------------------------------------------------------


def test_a_failed_batch_is_skipped_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_forward(monkeypatch, lambda k, _: k in (2, 4)):
        run = train(plain_recipe(epochs=2), tmp_path / "run", QUIET)
    skipped = [line for line in run.lines() if line["event"] == "skipped"]
    assert [(line["epoch"], line["batch"]) for line in skipped] == [(1, 1), (1, 3)]
    assert "max_steps" in skipped[0]["diagnosis"]
    epochs = [line for line in run.lines() if line["event"] == "epoch"]
    assert [(line["skipped"], line["images"]) for line in epochs] == [(2, 48), (0, 80)]


def test_too_many_failures_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = plain_recipe(failure=dict(max_skipped=2))
    with failing_forward(monkeypatch, lambda k, _: k > 5), pytest.raises(TrainingStopped, match="3 batches of one epoch") as stopped:
        train(recipe, tmp_path / "run", QUIET)
    assert "step-000000005.pt" in str(stopped.value), "the last good checkpoint is named"
    assert Run(tmp_path / "run").lines()[-1]["event"] == "stopped"


def test_the_policy_stop_ends_with_the_first_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = plain_recipe(failure=dict(policy="stop"))
    with failing_forward(monkeypatch, lambda k, _: k == 1), pytest.raises(TrainingStopped, match="no checkpoint had been written"):
        train(recipe, tmp_path / "run", QUIET)


@pytest.mark.parametrize(("policy", "expected"), [("loosen", 0.5), ("tighten", 0.005)])
def test_a_batch_is_tried_again_with_other_tolerances(
    policy: str, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = dict(method="heun", steps=None, rtol=0.05, atol=0.05)
    recipe = tiny_recipe(epochs=1, per_class=4, model_options=dict(solver=solver), failure=dict(policy=policy))
    with failing_forward(monkeypatch, lambda k, rtol: k <= 2 and rtol == 0.05) as calls:
        run = train(recipe, tmp_path / "run", QUIET)
    assert calls[:3] == [0.05, pytest.approx(expected), 0.05], "the batch after it has the recipe's tolerance again"
    assert [line["event"] for line in run.lines()] == ["retried", "epoch"]
    assert run.lines()[-1]["skipped"] == 0


def test_other_tolerances_need_a_solver_that_has_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="changes tolerances"):
        train(tiny_recipe(failure=dict(policy="loosen")), tmp_path / "run", QUIET)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_numbers_that_are_not_finite_never_reach_the_weights(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from continua.runs.evaluation import Classify

    whole, calls = Classify.losses, 0

    def losses(self: Any, net: Any, outputs: torch.Tensor, batch: Any, smoothing: bool = True) -> torch.Tensor:
        nonlocal calls
        found, calls = whole(self, net, outputs, batch, smoothing), calls + 1
        if calls == 2:
            return found * math.nan if where == "loss" else found + torch.sqrt((outputs * 0).sum(1).clamp(min=0))  # √ has no slope at 0
        return found

    monkeypatch.setattr(Classify, "losses", losses)
    run = train(plain_recipe(epochs=1), tmp_path / "run", QUIET)
    assert f"the {where} is not finite" in run.lines()[0]["diagnosis"]
    assert all(value.isfinite().all() for value in weights(run).values())


def test_a_training_that_diverges_is_stopped_early(tmp_path: Path) -> None:
    recipe = plain_recipe(epochs=50, optimiser=dict(lr=500.0), schedule=dict(warmup=0), failure=dict(divergence=3.0, divergence_batches=3))
    with pytest.raises(TrainingStopped, match=r"diverges: loss .* lower optimiser.lr"):
        train(recipe, tmp_path / "run", QUIET)
    assert len(Run(tmp_path / "run").lines()) < 50


def test_the_checkpoint_from_before_a_divergence_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from continua.runs.evaluation import Classify
    from continua.train.checkpoint import checkpoints, read_checkpoint

    whole, calls = Classify.losses, 0

    def losses(self: Any, *given: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return whole(self, *given, **options) * (100.0 if calls > 7 else 1.0)  # from the third batch of the second epoch on

    monkeypatch.setattr(Classify, "losses", losses)
    recipe = plain_recipe(epochs=9, test_every=0, failure=dict(divergence_batches=20))
    with pytest.raises(TrainingStopped, match="diverges") as stopped:
        train(recipe, tmp_path / "run", QUIET)
    kept = checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in kept] == ["step-000000005.pt", "step-000000020.pt", "step-000000025.pt"]
    assert str(kept[0]) in str(stopped.value), "the last two were written amid high losses"
    assert [read_checkpoint(path)["high_losses"] for path in kept] == [0, 13, 18]


# --- selection, averages, groups ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selection", "name"), [("holdout", "holdout_accuracy"), ("paper", "test_accuracy")])
def test_the_selected_epoch_is_the_first_best_one(selection: str, name: str, tmp_path: Path) -> None:
    run = train(plain_recipe(selection=selection, holdout=0.25, epochs=4, optimiser=dict(lr=0.5)), tmp_path / "run", QUIET)
    accuracies = [line[name] for line in run.lines()]
    assert run.result is not None
    assert run.result["epoch"] == 1 + accuracies.index(max(accuracies))
    assert ("optimistic" in run.result["selection"]) is (selection == "paper")
    if selection == "paper":
        assert run.result["test_accuracy"] == max(accuracies)


def test_averaged_weights_are_what_the_formula_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    guard = Training._guard

    def remember(self: Training, loss: float) -> None:  # after every step that went well
        seen.append(self.net.head.linear.weight.detach().clone())
        guard(self, loss)

    monkeypatch.setattr(Training, "_guard", remember)
    run = train(plain_recipe(epochs=2, ema=0.8), tmp_path / "run", QUIET)
    torch.manual_seed(0)
    average = continua.create_model("resnet_blocks", **run.recipe.model_options).head.linear.weight.detach()
    for value in seen:
        average = 0.8 * average + 0.2 * value
    torch.testing.assert_close(weights(run)["head.linear.weight"], average)


def test_scales_have_their_own_rate_and_decay(tmp_path: Path) -> None:
    recipe = tiny_recipe(epochs=1, per_class=2, optimiser=dict(scale_lr_factor=0.0, weight_decay=0.1, scale_weight_decay=0.0))
    run = train(recipe, tmp_path / "run", QUIET)
    torch.manual_seed(0)
    before = continua.create_model("dcn_ode", **run.recipe.model_options).state_dict()
    moved = {name: not torch.equal(value, before[name]) for name, value in weights(run).items()}
    assert not any(moved[name] for name in moved if name.endswith(".s"))
    assert all(moved[name] for name in moved if name.endswith(".alpha"))


def test_clipping_bounds_the_step(tmp_path: Path) -> None:
    recipe = plain_recipe(epochs=1, optimiser=dict(lr=1.0, momentum=0.0, clip_norm=1e-3), schedule=dict(kind="constant", warmup=0))
    run = train(recipe, tmp_path / "run", QUIET)
    torch.manual_seed(0)
    before = continua.create_model("resnet_blocks", **run.recipe.model_options).state_dict()
    moved = math.sqrt(sum(float((value - before[name]).square().sum()) for name, value in weights(run).items()))
    assert 0 < moved <= 5 * 1e-3 * 1.01, "five steps of at most lr · clip_norm"


@pytest.mark.parametrize(
    "changes", [pytest.param(dict(precision="bfloat16"), marks=pytest.mark.needs("bfloat16")), dict(channels_last=True)]
)
def test_another_precision_or_layout_trains_nearly_the_same(changes: dict[str, Any], finished: Run, tmp_path: Path) -> None:
    run = train(tiny_recipe(test_every=2, **changes), tmp_path / "run", QUIET)
    assert [line["loss"] for line in run.lines()] == pytest.approx([line["loss"] for line in finished.lines()], rel=0.02)
    assert all(value.dtype == torch.float32 for value in weights(run).values())


# --- signals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_saves_and_the_rest_is_as_if_nothing_had_happened(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = train(plain_recipe(), tmp_path / "reference", QUIET)
    if signal.getsignal(number) == signal.SIG_IGN:  # under nohup, which trainings respect
        signal.signal(number, signal.SIG_DFL)
    step, handler = Training._train_batch, signal.getsignal(number)

    def signalled(self: Training, batch: Any) -> bool:
        if self.step == 6:
            os.kill(os.getpid(), number)
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", signalled)
        with pytest.raises(Interrupted, match="epoch 2, batch 2 of 5") as stopped:
            train(plain_recipe(), tmp_path / "run", QUIET)
    assert (stopped.value.signal, stopped.value.folder) == (number, tmp_path / "run")
    assert signal.getsignal(number) == handler
    run = resume(tmp_path / "run", QUIET)
    assert lasting_lines(run) == lasting_lines(reference)
    assert all(torch.equal(value, weights(reference)[name]) for name, value in weights(run).items())


def test_a_recipe_changed_by_hand_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_forward(monkeypatch, lambda k, _: k > 5), pytest.raises(TrainingStopped):
        train(plain_recipe(failure=dict(policy="stop")), tmp_path / "run", QUIET)
    run = Run(tmp_path / "run")
    run.config.write_text(run.config.read_text().replace("lr: 0.05", "lr: 0.06"))
    with pytest.raises(continua.ContinuaError, match="belongs to another recipe"):
        resume(run.folder, QUIET)


def test_what_somebody_else_decided_about_a_signal_stays() -> None:
    """`nohup` ignores SIGHUP, and a program of one's own may use SIGUSR1."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal().listening() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
            assert stop.number == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_step_that_needs_too_much_memory_says_how_large_it_was_and_what_needs_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object) -> None:
        torch.empty(2**50)

    monkeypatch.setattr(TrainingStep, "__call__", too_large)
    with pytest.raises(OutOfMemory, match=r"a step of dcn_ode with 16 images of 1×8×8 \(.* GB more.*\).*batch_size") as said:
        train(tiny_recipe(), tmp_path / "run", QUIET)
    assert "\n" not in str(said.value)


def test_ranks_that_see_different_data_are_told_so_before_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_two_ranks(self: TrainingStep, numbers: Any) -> list[float]:
        return [numbers[0] + 3, numbers[1] + 9] if len(numbers) == 2 else list(numbers)  # the other one has 3 batches

    monkeypatch.setattr(TrainingStep, "sum_over_ranks", of_two_ranks)
    monkeypatch.setattr("lightning_fabric.Fabric.world_size", property(lambda self: 2))
    monkeypatch.setattr("continua.train.start.watched_ranks", lambda rank, ranks: nullcontext())  # there is no other rank to watch
    with pytest.raises(ContinuaError, match=r"rank 0 has \d+ batches .*do not see the same data"):
        train(tiny_recipe(), tmp_path / "run", QUIET)
