"""A run is read through one view, by code that trains nothing; and one loop says how good its network is."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training import QUIET, tiny_recipe

from continua.analysis import Subject
from continua.data import Loader
from continua.errors import ConfigError, SolverError
from continua.runs import RunIndex, RunView, evaluate, evaluate_run, identity, resolve, task_of
from continua.runs.resolving import LATER_OPTIONS
from continua.train import Interrupted, Run, resume, train
from continua.train.loop import Training

RESULTS = Path(__file__).parents[2] / "results"
KEPT = sorted(path.parent for path in RESULTS.rglob("config.yaml"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(epochs=1, per_class=4), tmp_path_factory.mktemp("view") / "run", QUIET)


def test_reading_a_run_imports_no_training_code() -> None:
    code = f"""
import sys
from continua.runs import RunView
view = RunView({str(KEPT[0])!r}, device="cpu")
view.metrics, view.result, view.environment, view.weights, view.network
print(*[name for name in sys.modules if name.startswith(("continua.train", "lightning"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_run_is_read_and_recognised(folder: Path) -> None:
    view = RunView(folder)
    assert view.result is not None
    assert view.config["model"] == view.result["model"]
    known = RunIndex(folder.parent).find(view.recipe)
    assert known is not None
    assert known.folder == folder or known.recipe == view.recipe, "by what it is, also where two folders hold the same run"
    assert view.weights_file().is_file()


def test_a_kept_recipe_means_the_same_today() -> None:
    """The options that are stored are the options that the model has now."""
    recipes = {folder.name: recipe for folder in KEPT if (recipe := RunView(folder).recipe).encoder is None}
    # What came later is what networks without it are.
    today = {name: resolve(recipe).model_options for name, recipe in recipes.items()}
    stored = {name: {**recipe.model_options, **_later(today[name], recipe.model_options)} for name, recipe in recipes.items()}
    assert [name for name in recipes if today[name] != stored[name]] == []


def _later(options: Mapping[str, object], stored: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in LATER_OPTIONS.items() if name in options and name not in stored}


def test_a_view_reads_what_the_training_wrote(run: Run) -> None:
    view = RunView(run.folder, device="cpu")
    assert (view.name, view.recipe, view.result, view.metrics) == ("run", run.recipe, run.result, run.lines())
    assert [line["epoch"] for line in view.epochs] == [1]
    assert view.environment["threads"] == 1
    assert view.network is view.network, "loaded once"
    assert view.load_network() is not view.network
    assert not view.network.training
    assert view.images(split="train").count == 40, "as it was trained"
    assert view.images(split="train", own=False).count > 1000, "as it was published"
    assert (view.images().name, view.images().data) == ("test", "digits")


def test_what_is_no_run_is_refused_and_a_run_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run"):
        RunView(tmp_path / "nothing")
    Run(tmp_path / "begun").create(tiny_recipe())
    view = RunView(tmp_path / "begun")
    assert (view.result, view.metrics, view.environment) == (None, [], {})
    with pytest.raises(ConfigError, match=r"no weights in best/ yet.*--resume"):
        view.weights_file()


def test_a_subject_with_another_solver_is_another_one_to_the_store_of_answers(run: Run) -> None:
    view = RunView(run.folder, device="cpu")
    plain, other = Subject(view), Subject(view, solver={"method": "rk4", "steps": 3})
    assert plain.weights == view.weights != other.weights
    assert plain.model is view.network
    assert other.model.blocks[0].solver.steps == 3
    assert plain.model.blocks[0].solver.steps == 1


# --- one loop for all -----------------------------------------------------------------------------------------------------


def test_training_evaluate_and_analyses_count_the_same(run: Run) -> None:
    view = RunView(run.folder, device="cpu")
    loop, command = evaluate(view.network, view.images(), task=task_of(view.recipe)), evaluate_run(run.folder, device="cpu")
    result = run.result or {}
    assert loop.accuracy == command["top1"] == result["test_accuracy"]
    assert loop.loss == pytest.approx(command["loss"], rel=1e-6)
    assert loop.loss == result["test_loss"]
    assert loop.images == command["images"] == result["test_images"] == len(loop.predictions)


def test_batches_that_fail_count_as_wrong_and_not_in_loss_or_cost(run: Run) -> None:
    view = RunView(run.folder, device="cpu")
    images = view.images(batch_size=100)
    whole = evaluate(view.network, images, task=task_of(view.recipe), keep=True)
    calls = []

    def forward(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        if len(calls) == 2:
            raise SolverError("no")
        return view.network(batch)

    part = evaluate(view.network, images, task=task_of(view.recipe), forward=forward)
    assert (part.images, part.failed, part.solved, len(part.solves)) == (359, 100, 259, 3)
    assert part.predictions == [*whole.predictions[:100], *[-1] * 100, *whole.predictions[200:]]
    labels = torch.cat(whole.labels)
    right = torch.tensor(part.predictions) == labels
    assert part.accuracy == int(right.sum()) / 359
    losses = torch.cat(whole.losses).double()
    assert part.loss == pytest.approx(float(torch.cat([losses[:100], losses[200:]]).mean()))
    assert part.nfe_per_image == part.nfe_per_solve == [4.0, 4.0]


def test_only_valid_samples_of_a_batch_count(run: Run) -> None:
    view = RunView(run.folder, device="cpu")
    split = view.images().split
    two = [evaluate(view.network, Loader(split, 64, augmentation=view.preprocess, rank=rank, world_size=2)) for rank in (0, 1)]
    alone = evaluate(view.network, view.images())
    sums = [sum(numbers) for numbers in zip(*([part.solved, part.failed, part.correct or 0, part.loss_sum] for part in two), strict=True)]
    together = two[0].over_ranks(lambda _: sums)
    assert (together.images, together.correct) == (alone.images, alone.correct)
    assert together.accuracy == alone.accuracy


def test_a_network_comes_back_in_the_mode_it_was_in(run: Run) -> None:
    network = RunView(run.folder, device="cpu").load_network().train()
    evaluate(network, [(torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64))], forward=lambda images: network(images))
    assert network.training


# --- formats --------------------------------------------------------------------------------------------------------------


def test_a_run_begun_by_the_first_version_goes_on_under_its_new_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoints know it by the identity it had; options may be spelt otherwise now."""
    step = Training._train_batch
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", lambda self, batch: step(self, batch) or self.step == 2)
        with pytest.raises(Interrupted):
            train(tiny_recipe(epochs=1), tmp_path / "run", QUIET)
    begun = Run(tmp_path / "run")
    before = identity(begun.recipe)
    begun.config.write_text(begun.config.read_text("utf-8").removeprefix("format: 2\n"), "utf-8")
    monkeypatch.setattr("continua.runs.loading._upgraded", lambda data: {**data, "evaluation_batch_size": 255})
    assert identity(begun.recipe) != before
    finished = resume(tmp_path / "run", QUIET)
    assert (finished.result or {})["identity"] == identity(finished.recipe) != before
    known = RunIndex(tmp_path).find(finished.recipe)
    assert known is not None
    assert known.folder == finished.folder


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create(tiny_recipe())
    run.config.write_text(run.config.read_text("utf-8").replace("format: 2\n", "format: 3\n"), "utf-8")
    with pytest.raises(ConfigError, match="format 3; this version of Continua reads up to 2"):
        RunView(tmp_path)
