"""Numbers of an evaluation against sums written out by hand; reconstruction and trajectory regularisers through the whole loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training import QUIET, tiny_recipe, weights

from continua.data import MemorySplit, load
from continua.errors import ConfigError
from continua.runs.evaluation import BINS, classification
from continua.runs.view import load_reconstructor
from continua.train import Run, evaluate, identity, load_recipe, resolve, train


@pytest.fixture
def predictions() -> tuple[torch.Tensor, torch.Tensor]:
    return 2 * torch.randn(500, 7), torch.randint(0, 7, (500,))


def test_top_1_top_5_and_confusion_are_counts(predictions: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = predictions
    found = classification(logits, labels, tuple("abcdefg"), 510)
    order = np.argsort(-logits.numpy(), axis=1)
    assert found["top1"] == pytest.approx((order[:, 0] == labels.numpy()).sum() / 510), "ten images that failed count as wrong"
    assert found["top5"] == pytest.approx((order[:, :5] == labels.numpy()[:, None]).any(1).sum() / 510)
    confusion = np.zeros((7, 7), dtype=int)
    np.add.at(confusion, (labels.numpy(), order[:, 0]), 1)
    assert found["confusion"] == confusion.tolist()
    one = found["per_class"]["c"]
    assert (one["images"], one["accuracy"]) == (confusion[2].sum(), pytest.approx(confusion[2, 2] / confusion[2].sum()))
    wrong = confusion[2].copy()
    wrong[2] = 0
    assert one["confused_with"] == "abcdefg"[int(wrong.argmax())]


def test_the_calibration_error_is_the_mean_gap_between_confidence_and_accuracy(predictions: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = predictions
    confidence, guess = (part.numpy() for part in logits.softmax(1).max(1))
    right = guess == labels.numpy()
    expected = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence > low) & (confidence <= low + 1 / BINS)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert classification(logits, labels, tuple("abcdefg"), 500)["calibration_error"] == pytest.approx(expected, rel=1e-4)


def test_sure_and_right_is_perfect() -> None:
    labels = torch.arange(6) % 3
    found = classification(100.0 * torch.nn.functional.one_hot(labels).float(), labels, ("x", "y", "z"), 6)
    assert (found["top1"], found["top5"]) == (1.0, 1.0)
    assert found["calibration_error"] == pytest.approx(0.0, abs=1e-6)
    assert all(one["confused_with"] is None for one in found["per_class"].values())


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(epochs=1, per_class=4), tmp_path_factory.mktemp("tasks") / "encoder", QUIET)


def reconstruction(encoder: Path, **changes: Any) -> Any:
    small = dict(data="digits", per_class=8, epochs=4, batch_size=16, augmentation=dict(crop_padding=0, flip=False))
    return load_recipe("reconstruction", small | dict(encoder=str(encoder)) | changes)


@pytest.mark.filterwarnings("ignore:.*outgrown its map:continua.ContinuaWarning")  # the maps of 8×8 digits are tiny
def test_a_decoder_learns_to_give_images_back_and_its_encoder_stays_as_it_was(encoder: Run, tmp_path: Path) -> None:
    run = train(reconstruction(encoder.folder, epochs=6), tmp_path / "run", QUIET)
    lines, result = run.lines(), run.result
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    assert lines[0]["train_accuracy"] is None
    assert result is not None
    assert result["model"] == "dcn_ode"
    saved = weights(run)
    for name, value in weights(encoder).items():
        assert torch.equal(saved[f"stem.network.{name}"], value), name
    net = load_reconstructor(run.best)
    test = load("digits")["test"]
    assert isinstance(test, MemorySplit)
    images = test.images / 255
    with torch.no_grad():
        error = (net(images) - net.target(images)).square().mean()
    assert float(error) == pytest.approx(result["test_loss"], rel=1e-4)
    assert evaluate(run.folder, device="cpu")["loss"] == pytest.approx(result["test_loss"], rel=1e-4)


def test_an_encoder_counts_by_its_weights_not_by_its_folder(encoder: Run, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "best").symlink_to(encoder.best, target_is_directory=True)
    here, there = resolve(reconstruction(encoder.folder)), resolve(reconstruction(tmp_path / "moved"))
    assert here.encoder != there.encoder
    assert identity(here) == identity(there)


def test_an_encoder_must_be_a_finished_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of a finished run"):
        resolve(reconstruction(tmp_path))


@pytest.mark.parametrize("name", ["kinetic", "jacobian"])
def test_a_regulariser_lowers_the_energy_it_weighs(name: str, tmp_path: Path) -> None:
    def mean_energy(weight: float) -> float:
        recipe = tiny_recipe(regularise={name: weight}, per_class=4, epochs=4, optimiser=dict(lr=0.05))
        run = train(recipe, tmp_path / f"{weight}", QUIET)
        return run.lines()[-1]["penalty"] / weight

    assert mean_energy(1.0) < 0.9 * mean_energy(1e-6)


def test_regularisers_need_a_trajectory(tmp_path: Path) -> None:
    changes: dict[str, Any] = dict(model="resnet_blocks", regularise=dict(kinetic=1.0))
    with pytest.raises(ConfigError, match="is about ODE blocks, and resnet_blocks has none"):
        train(tiny_recipe(**changes), tmp_path / "run", QUIET)
    with pytest.raises(ConfigError, match="gradient='checkpoint' or 'direct'"):
        train(tiny_recipe(model_options=dict(solver=dict(gradient="adjoint")), regularise=dict(kinetic=1.0)), tmp_path / "other", QUIET)
