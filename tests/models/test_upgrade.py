"""What version 0.1 stored: every kept run still loads, is rebuilt from its own files, and is the run that today's recipe asks for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from continua import ConfigError, create_model, from_pretrained
from continua.models import complete_options, model_entry, option_names, upgrade_options
from continua.models.reconstruction import Reconstructor
from continua.runs.loading import parse_recipe, read_yaml
from continua.train import Recipe, identity, resolve

RESULTS = Path(__file__).parents[2] / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("**/config.yaml"))
IDS = [path.relative_to(RESULTS).as_posix() for path in KEPT]


def kept_recipe(folder: Path) -> Recipe:
    """config.yaml of a run of 0.1, with the model's options as they are spelled today."""
    data = read_yaml(folder / "config.yaml")
    return parse_recipe({**data, "model_options": upgrade_options(data["model"], data["model_options"])})


def test_there_are_runs_to_test() -> None:
    assert len(KEPT) >= 63


@pytest.mark.parametrize("folder", KEPT, ids=IDS)
def test_a_kept_run_is_rebuilt_from_its_options(folder: Path) -> None:
    recipe = kept_recipe(folder)
    options = complete_options(recipe.model, recipe.model_options)
    assert options == recipe.model_options  # all of them were stored, and none is left that the model lacks
    stored = json.loads((folder / "best" / "config.json").read_text("utf-8"))
    assert complete_options(stored["model"], upgrade_options(stored["model"], stored["options"])) == options
    with torch.device("meta"):
        net = create_model(recipe.model, **options)
    with safe_open(folder / "best" / "model.safetensors", "pt") as weights:
        assert {key: tuple(value.shape) for key, value in net.state_dict().items()} == {
            key: tuple(weights.get_slice(key).get_shape())
            for key in weights.keys()  # noqa: SIM118
        }
    assert from_pretrained(folder / "best").config == {"model": recipe.model, "options": options}


@pytest.mark.parametrize("folder", KEPT, ids=IDS)
def test_a_kept_run_has_the_identity_of_the_recipe_resolved_today(folder: Path) -> None:
    stored = kept_recipe(folder)
    recipe = resolve(stored)
    assert recipe == replace(stored, drop_last=recipe.drop_last)  # two of the oldest runs left that to be decided
    defaults = complete_options(recipe.model)
    chosen = {name: value for name, value in recipe.model_options.items() if value != defaults[name]}
    assert identity(resolve(replace(recipe, model_options=chosen))) == identity(recipe)


@pytest.mark.parametrize(
    ("model", "dropped"),
    [
        ("resnet_blocks", {"t1": 2.0, "solver": {}, "augment_channels": 0, "order": 2}),
        ("odenet", {"order": 2}),
        ("dcn_full", {"stem_padding": 0}),
        ("resnet4_neural_ode", {"coupling": 1, "weight_steps": None, "evolution": "static", "nonlinearity": "tanh", "memory": None}),
    ],
)
def test_only_what_a_model_never_used_is_dropped(model: str, dropped: dict[str, object]) -> None:
    own = {name: value for name, value in complete_options(model).items() if name in option_names(model)}
    assert upgrade_options(model, {**own, **dropped}) == own
    assert upgrade_options(model, {"class_path": "os.system"}) == {"class_path": "os.system"}
    with pytest.raises(ConfigError, match="class_path"):
        complete_options(model, upgrade_options(model, {"class_path": "os.system"}))


def test_a_neural_ode_whose_weights_evolved_is_not_guessed_at() -> None:
    with pytest.raises(ConfigError, match="resnet4_anodev2_c1"):
        upgrade_options("resnet4_neural_ode", {"evolution": "rda"})


def test_evolutions_other_than_rda_leave_its_options_behind() -> None:
    old = {"evolution": "linear", "nonlinearity": "identity", "steps": 3}
    assert upgrade_options("resnet4_anodev2_c1", old) == {"evolution": "linear", "steps": 3}


def test_a_decoder_of_version_0_1_is_read(tmp_path: Path) -> None:
    net = Reconstructor(create_model("dcn_ode", channels=(4, 8), solver=dict(method="euler", steps=1))).eval()
    net.save_pretrained(tmp_path)
    images = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        expected = net(images)
    names = {"stem.network.": "encoder.", "transitions.0.conv.": "squeeze.", "head.norm.": "norm.", "head.conv.": "to_image."}
    old = {}
    for key, value in load_file(tmp_path / "model.safetensors").items():
        start = next((new for new in names if key.startswith(new)), "")
        old[names.get(start, "") + key.removeprefix(start)] = value
    save_file(old, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"task": "reconstruct", "encoder": net.encoder.config, "format": 1}))
    back = from_pretrained(tmp_path)
    assert back.config == net.config
    with torch.no_grad():
        assert torch.equal(back(images), expected)


def test_files_say_which_format_they_have_and_newer_ones_are_refused(tmp_path: Path) -> None:
    create_model("resnet_blocks", **model_entry("resnet_blocks").tiny).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    assert stored["format"] == 2
    path.write_text(json.dumps({**stored, "options": {**stored["options"], "t1": 2.0}}))
    with pytest.raises(ConfigError, match="resnet_blocks has no option 't1'"):  # forgiven in files of format 1 only
        from_pretrained(tmp_path)
    path.write_text(json.dumps({**stored, "format": 3}))
    with pytest.raises(ConfigError, match=r"format is 3.*update Continua"):
        from_pretrained(tmp_path)
