"""Trained networks that come with the package: listed, loaded whole, described, and refused where a file is not that of its card."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from continua import ConfigError, create_model, list_models
from continua.blocks import ODEBlock
from continua.models import FeatureExtractor, Network, model_card, model_entry
from continua.models.kept import KEPT, check_whole

ROOT = Path(__file__).parents[2]
NAMES = list_models(pretrained=True)
IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_few_small_networks_are_kept() -> None:
    assert len(NAMES) >= 2
    assert sum(path.stat().st_size for path in KEPT.rglob("*")) < 10e6
    assert list_models("dcn*", pretrained=True) == [name for name in NAMES if name.startswith("dcn")]
    assert list_models(pretrained=True, task="reconstruct") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_network_is_loaded_and_its_card_says_what_it_is(name: str) -> None:
    card = model_card(name)
    assert card.name.startswith(f"{card.model}.")
    net = create_model(name, pretrained=True)
    assert net.name == card.model
    assert net.training
    assert sum(parameter.numel() for parameter in net.parameters()) == card.parameters
    assert net.num_classes == len(card.classes)
    stored = load_file(card.folder / "model.safetensors")
    assert all(torch.equal(value, stored[key]) for key, value in net.state_dict().items())
    assert (card.folder / "README.md").read_text("utf-8") == card.markdown()
    for word in (card.data, card.licence, card.sha256, "recipe.yaml", "seeds"):
        assert word in card.markdown()
    assert (card.folder / "recipe.yaml").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_card_agrees_with_the_run_it_names(name: str) -> None:
    card = model_card(name)
    result = ROOT / card.run / "result.json"
    if not result.is_file():
        pytest.skip("the run is not under results/ here")
    facts = json.loads(result.read_text("utf-8"))
    assert (facts["test_accuracy"], facts["parameters"], facts["epoch"]) == (card.accuracies[0], card.parameters, card.epochs)
    kept, run = (load_file(folder / "model.safetensors") for folder in (card.folder, ROOT / card.run / "best"))
    assert all(torch.equal(kept[key], run[key]) for key in run)


@torch.no_grad()
def test_options_change_what_is_loaded_as_people_expect() -> None:
    net = create_model("resnet4", pretrained=True).eval()
    features = net.forward_features(IMAGES)
    fresh = create_model("resnet4", pretrained=True, num_classes=4).eval()
    assert fresh(IMAGES).shape == (2, 4)
    assert torch.equal(fresh.forward_features(IMAGES), features)
    pooled = create_model("resnet4.cifar10_2500", pretrained=True, num_classes=0).eval()
    assert torch.equal(pooled(IMAGES), net.forward_head(features, pre_logits=True))
    maps = create_model("resnet4", pretrained=True, features_only=True).eval()
    assert isinstance(maps, FeatureExtractor)
    assert torch.equal(maps(IMAGES)[-1], features)
    untrained = create_model("dcn_ode.cifar10_520", num_classes=4)
    assert untrained.config["options"]["channels"] == [16, 32, 64]
    assert not torch.equal(untrained.stem.bias, create_model("dcn_ode", pretrained=True).stem.bias)


def test_solvers_of_single_blocks_go_with_the_solver_and_the_blocks_that_they_belong_to() -> None:
    own, other = create_model("dcn_ode", pretrained=True), create_model("dcn_ode", pretrained=True, solver=dict(method="dopri5"))
    assert len(set(steps(own))) > 1
    assert steps(other) == [None] * 3
    assert len(steps(create_model("dcn_ode.cifar10_520", channels=(4, 8), norm_groups=4))) == 2


def steps(net: Network) -> list[int | None]:
    return [block.solver.count for block in net.blocks if isinstance(block, ODEBlock)]


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ConfigError, match=r"no trained weights of odenet.*list_models\(pretrained=True\)"):
        create_model("odenet", pretrained=True)
    with pytest.raises(ConfigError, match=r"did you mean resnet4\.cifar10_2500"):
        create_model("resnet4.cifar10_250", pretrained=True)
    assert model_entry("odenet").name == "odenet"


def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = model_card("resnet4")
    weights = (card.folder / "model.safetensors").read_bytes()
    check_whole(card)
    assert hashlib.sha256(weights).hexdigest() == card.sha256
    (tmp_path / card.name).mkdir()
    (tmp_path / card.name / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    monkeypatch.setattr("continua.models.kept.KEPT", tmp_path)
    with pytest.raises(ConfigError, match="damaged or changed"):
        check_whole(card)
