"""Reconstruction from a frozen encoder, and trajectory regularisers, through the whole loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from training import QUIET, tiny_recipe, weights

from continua.data import MemorySplit, load
from continua.errors import ConfigError
from continua.runs.view import load_reconstructor
from continua.train import Run, evaluate, identity, load_recipe, resolve, train


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny_recipe(epochs=1, per_class=4), tmp_path_factory.mktemp("tasks") / "encoder", QUIET)


def reconstruction(encoder: Path, **changes: Any) -> Any:
    small = dict(data="digits", per_class=8, epochs=4, batch_size=16, augmentation=dict(crop_padding=0, flip=False))
    return load_recipe("reconstruction", small | dict(encoder=str(encoder)) | changes)


@pytest.mark.filterwarnings("ignore:.*outgrown its map:continua.ContinuaWarning")  # the maps of 8×8 digits are tiny
def test_a_decoder_learns_to_give_images_back_and_its_encoder_stays_as_it_was(encoder: Run, tmp_path: Path) -> None:
    run = train(reconstruction(encoder.folder), tmp_path / "run", QUIET)
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
    with pytest.raises(ConfigError, match="needs ODE blocks"):
        train(tiny_recipe(**changes), tmp_path / "run", QUIET)
    with pytest.raises(ConfigError, match="gradient='checkpoint' or 'direct'"):
        train(tiny_recipe(model_options=dict(solver=dict(gradient="adjoint")), regularise=dict(kinetic=1.0)), tmp_path / "other", QUIET)
