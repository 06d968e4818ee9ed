"""Models on disk: what is saved comes back, also from version 0.1; damaged, foreign or hostile files are refused in one sentence."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from continua import ConfigError, ContinuaError, Network, SolverConfig, Tableau, create_model, from_pretrained, register_model
from continua.blocks import Activation
from continua.filters import Filter, PixelKernel
from continua.models import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    Reconstructor,
    complete_options,
    frozen,
    model_entry,
    option_names,
    save_pretrained,
    tensors_digest,
    upgrade_options,
)
from continua.models.dcn import DCN, JetODEConfig
from continua.ode import Adjoint, Direct, Implicit
from continua.runs.loading import stored_recipe
from continua.runs.resolving import LATER_OPTIONS
from continua.train import Recipe, identity, resolve

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
IMAGES = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
OPTIONS = dict(channels=(4, 8), num_classes=3, solver=dict(method="rk4", steps=1))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    create_model("dcn_ode", **OPTIONS).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@torch.no_grad()
def test_a_saved_model_comes_back_in_evaluation_mode(tmp_path):
    net = create_model("dcn_sigma_t", **OPTIONS)
    net.save_pretrained(tmp_path / "deep" / "er")
    back = from_pretrained(tmp_path / "deep" / "er")
    assert not back.training
    assert back.config == net.config
    torch.testing.assert_close(back(IMAGES), net(IMAGES), rtol=0, atol=0)
    assert sorted(path.name for path in (tmp_path / "deep" / "er").iterdir()) == ["config.json", "model.safetensors"]


def test_saved_options_can_be_overridden(saved):
    back = from_pretrained(saved, solver=dict(rtol=1e-4, atol=1e-4))
    assert back.blocks[0].solver.rtol == 1e-4
    assert back.blocks[0].solver.steps is None


def test_saving_again_replaces_the_files_whole(saved):
    net = from_pretrained(saved)
    with torch.no_grad():
        net.stem.bias.fill_(3.0)
    net.save_pretrained(saved)
    assert from_pretrained(saved).stem.bias.eq(3.0).all()
    assert len(list(saved.iterdir())) == 2


def test_a_twin_with_another_solver_saves_that_solver(saved):
    from_pretrained(saved).with_solver(method="euler", steps=7).save_pretrained(saved)
    assert from_pretrained(saved).blocks[1].solver.steps == 7


def change_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_solver_options_of_version_0_1_are_understood(saved):
    options = json.loads((saved / "config.json").read_text())["options"]
    old = dict(method="dopri5", controller="pi", max_steps=50, gradient="checkpoint", segments="sqrt")
    change_config(saved, format=1, options=options | dict(solver=old))
    solver = from_pretrained(saved).blocks[0].solver
    assert solver.plain() == dict(control=dict(kind="pi", max_steps=50), gradient=dict(kind="checkpoint", segments="sqrt"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a model configuration"),
        ("[]", "not a model configuration"),
        ("{}", "not a model configuration"),
        ('{"model": "dcn_ode", "options": 3}', "not a model configuration"),
        ('{"model": "dcn_odd", "options": {}}', "unknown model 'dcn_odd'; did you mean dcn_ode"),
        ('{"model": "dcn_ode", "options": {"class_path": "os.system"}}', "unknown option 'class_path'; dcn_ode has"),
        ('{"model": "dcn_ode", "options": {"channels": "wide"}}', "channels is 'wide'; expected a list"),
        ('{"model": "dcn_ode", "options": {"channels": [1e9]}}', "of a whole number each"),
        ('{"model": "dcn_ode", "options": {"channels": [4000000000]}}', "cannot be built"),
        ('{"model": "dcn_ode", "options": {"order": "two"}}', "order is 'two'; expected a whole number"),
        ('{"model": "dcn_ode", "options": {"solver": {"metod": "rk4"}}}', "did you mean method"),
        ('{"model": "dcn_ode", "options": {"solver": 5}}', "solver is 5; expected"),
        ('{"model": "dcn_ode", "options": {"channels": [4, 16]}}', "expects"),
        ('{"model": "odenet", "options": {"channels": [4, 8]}}', "does not fit its configuration"),
        ("\ud83d".encode("utf-8", "surrogatepass"), "not a model configuration"),
    ],
)
def test_a_wrong_configuration_is_refused(saved, text, said):
    (saved / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ContinuaError, match=said):
        from_pretrained(saved)


def test_a_saved_network_with_an_option_that_filters_no_longer_have_is_refused_in_a_sentence(saved):
    options = json.loads((saved / "config.json").read_text())["options"]
    change_config(saved, options=options | dict(conv_options=dict(discretisation="hybrid")))
    said = "conv_options sets 'discretisation' to 'hybrid', an option that .* does not have; leave it out. Weights .* need training again"
    with pytest.raises(ConfigError, match=said):
        from_pretrained(saved)


def forget_checksum(saved: Path) -> None:
    """As versions saved that kept none."""
    config = json.loads((saved / CONFIG_FILE).read_text())
    assert config.pop("weights_sha256")
    (saved / CONFIG_FILE).write_text(json.dumps(config))


def test_damaged_weights_are_refused(saved):
    forget_checksum(saved)
    weights = saved / "model.safetensors"
    good = weights.read_bytes()
    for bad in (b"", good[:100], b"\xff" * 64, good[:-8], b"\x80\x04cos\nsystem\n."):
        weights.write_bytes(bad)
        with pytest.raises(ConfigError, match="cannot be read"):
            from_pretrained(saved)


def test_a_file_that_claims_a_terabyte_is_refused_before_it_is_read(saved):
    """A sparse file costs its sender nothing."""
    forget_checksum(saved)
    os.truncate(saved / "model.safetensors", 10**12)
    with pytest.raises(
        ConfigError, match=r"model\.safetensors has 1,000,000,000,000 bytes, and weights of this .* need at most 1\d,\d{3},\d{3}:"
    ):
        from_pretrained(saved)
    with pytest.raises(ContinuaError, match=r"was not read; the limit is 8,000,000,000 bytes; CONTINUA_MAX_STATE"):
        tensors_digest(saved / "model.safetensors")


def test_weights_of_another_network_are_refused(saved):
    forget_checksum(saved)
    weights = saved / "model.safetensors"
    tensors = load_file(weights)
    first = next(iter(tensors))
    save_file({key: value for key, value in tensors.items() if key != first}, weights)
    with pytest.raises(ConfigError, match="missing"):
        from_pretrained(saved)
    save_file(tensors | {"extra": torch.zeros(1)}, weights)
    with pytest.raises(ConfigError, match="unexpected"):
        from_pretrained(saved)


def test_missing_files_and_folders_are_named(saved, tmp_path):
    with pytest.raises(ConfigError, match="nowhere does not exist; expected a folder written by save_pretrained"):
        from_pretrained(tmp_path / "nowhere")
    (saved / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has no model\.safetensors"):
        from_pretrained(saved)


def test_a_network_without_a_name_cannot_be_saved(tmp_path):
    with pytest.raises(ConfigError, match="not made by create_model"):
        save_pretrained(DCN(JetODEConfig(channels=(4, 8))), tmp_path)


def test_a_name_is_registered_once():
    with pytest.raises(ConfigError, match="registered already"):

        @register_model(config=JetODEConfig, paper="none", row="none", parameters=0, printed="")
        def dcn_ode():
            return None


# --- what version 0.1 stored ------------------------------------------------------------------------------------------


RESULTS = Path(__file__).parents[2] / "results"
ALL_KEPT = sorted(path.parent for path in RESULTS.glob("**/config.yaml"))
DECODERS = [folder for folder in ALL_KEPT if "task: reconstruct" in (folder / "config.yaml").read_text("utf-8")]
KEPT = [folder for folder in ALL_KEPT if folder not in DECODERS]
IDS = [path.relative_to(RESULTS).as_posix() for path in KEPT]


def kept_recipe(folder: Path) -> Recipe:
    """config.yaml of a run of any version, with the model's options as they are spelled today."""
    return stored_recipe(folder / "config.yaml")


def test_there_are_runs_to_test() -> None:
    assert len(KEPT) >= 63
    assert len(DECODERS) >= 12


@pytest.mark.parametrize("folder", DECODERS, ids=[path.relative_to(RESULTS).as_posix() for path in DECODERS])
def test_a_kept_decoder_is_rebuilt_and_its_encoder_is_kept_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RESULTS.parent)
    stored = kept_recipe(folder)
    assert Path(str(stored.encoder)) in [kept.relative_to(RESULTS.parent) for kept in KEPT]
    net = from_pretrained(folder / "best")
    assert isinstance(net, Reconstructor)
    ours, theirs = net.encoder.state_dict(), load_file(Path(str(stored.encoder)) / "best" / "model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    recipe = resolve(replace(stored, model_options={}))
    assert identity(recipe) == json.loads((folder / "result.json").read_text("utf-8"))["identity"]


def with_later_options(recipe: Recipe) -> dict[str, Any]:
    """The options of a kept run, and those that the model got since, as what it was without them."""
    known = complete_options(recipe.model)
    return {**{name: value for name, value in LATER_OPTIONS.items() if name in known}, **recipe.model_options}


@pytest.mark.parametrize("folder", KEPT, ids=IDS)
def test_a_kept_run_is_rebuilt_from_its_options(folder: Path) -> None:
    recipe = kept_recipe(folder)
    options = complete_options(recipe.model, recipe.model_options)
    assert options == with_later_options(recipe)  # all of them were stored, and none is left that the model lacks
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
    expected = replace(stored, model_options=with_later_options(stored))
    assert recipe == replace(expected, drop_last=recipe.drop_last)  # two of the oldest runs left that to be decided
    assert identity(recipe) == identity(replace(stored, drop_last=recipe.drop_last))
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


# --- the same bytes for the same network, and no flipped bit unnoticed -----------------------------------------------------


def test_equal_networks_are_equal_files_in_any_process(tmp_path: Path) -> None:
    """safetensors orders its metadata by a hash that each process draws anew."""
    code = (
        "import sys, torch; from continua import create_model; torch.manual_seed(0); "
        "create_model('dcn_ode', channels=[4, 8], norm_groups=4).save_pretrained(sys.argv[1])"
    )
    for name in "abcd":
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True)
    for file in (WEIGHTS_FILE, CONFIG_FILE):
        assert len({(tmp_path / name / file).read_bytes() for name in "abcd"}) == 1


def test_no_flipped_bit_of_weights_is_loaded(tmp_path: Path) -> None:
    create_model("dcn_ode", channels=[4, 8], norm_groups=4).save_pretrained(tmp_path)
    path, draw = tmp_path / WEIGHTS_FILE, random.Random(0)
    whole = path.read_bytes()
    for _ in range(50):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"model\.safetensors is damaged: its checksum"):
            from_pretrained(tmp_path)
    path.write_bytes(whole)
    assert from_pretrained(tmp_path).name == "dcn_ode"


def test_weights_that_were_saved_without_a_checksum_are_read_as_before(tmp_path: Path) -> None:
    net = create_model("dcn_ode", channels=[4, 8], norm_groups=4)
    net.save_pretrained(tmp_path)
    forget_checksum(tmp_path)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in from_pretrained(tmp_path).state_dict().items())


def test_a_network_is_known_by_its_tensors_not_by_the_bytes_around_them(tmp_path: Path) -> None:
    create_model("dcn_ode", channels=[4, 8], norm_groups=4).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    save_file(tensors, tmp_path / "other.safetensors", {"made": "elsewhere"})
    assert (tmp_path / "other.safetensors").read_bytes() != (tmp_path / WEIGHTS_FILE).read_bytes()
    assert tensors_digest(tmp_path / "other.safetensors") == tensors_digest(tmp_path / WEIGHTS_FILE)
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name] + 1}, tmp_path / "other.safetensors")
    assert tensors_digest(tmp_path / "other.safetensors") != tensors_digest(tmp_path / WEIGHTS_FILE)


@pytest.mark.parametrize("folder", sorted((Path(__file__).parents[2] / "results").glob("*/*/best"))[::9], ids=lambda path: path.parent.name)
def test_kept_weights_have_a_checksum_that_is_right(folder: Path) -> None:
    assert "weights_sha256" in json.loads((folder / CONFIG_FILE).read_text())
    from_pretrained(folder)


# --- what saves must load ---------------------------------------------------------------------------------------------


class Blur(Filter):
    """A filter of one's own, with the pixels of another."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.size = 3
        self.weight = nn.Parameter(torch.rand(out_channels, in_channels, 3, 3))

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def kernel(self, state: dict[str, Tensor], t: object = None, host: object = None) -> PixelKernel:
        return PixelKernel(state["weight"])


class OwnGradient(Direct):
    kind = ""


@torch.no_grad()
def test_a_tableau_of_ones_own_comes_back(tmp_path: Path) -> None:
    third = Tableau(a=[[], [1 / 3], [0, 2 / 3]], b=[1 / 4, 0, 3 / 4], c=[0, 1 / 3, 2 / 3], b_error=[1 / 4, -1, 3 / 4], name="heun3")
    net = create_model("dcn_ode", **(OPTIONS | dict(solver=dict(method=third, steps=1)))).eval()
    net.save_pretrained(tmp_path)
    back = from_pretrained(tmp_path)
    assert torch.equal(back(IMAGES), net(IMAGES))
    assert back.config == net.config
    assert back.blocks[0].solver.tableau.plain() == third.plain()
    implicit = Tableau(a=[[0.5]], b=[1.0], c=[0.5], name="midpoint by hand")
    other = net.with_solver(method=Implicit(implicit, tol=1e-4))
    other.save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).config == other.config
    assert from_pretrained(tmp_path).blocks[0].solver.tableau.plain() == implicit.plain()
    adaptive = create_model("dcn_ode", **(OPTIONS | dict(solver=dict(method=third, gradient=Adjoint(method=third)))))
    adaptive.save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).config == adaptive.config


@torch.no_grad()
def test_a_linear_head_that_was_put_in_by_hand_comes_back(tmp_path: Path) -> None:
    net = create_model("dcn_ode", **OPTIONS).eval()
    net.head.linear = nn.Linear(8, 5)
    net.save_pretrained(tmp_path)
    back = from_pretrained(tmp_path)
    assert back.num_classes == 5
    assert torch.equal(back(IMAGES), net(IMAGES))


def a_whole_head(net: Network) -> None:
    net.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def a_longer_head(net: Network) -> None:
    net.head.linear = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def a_head_without_bias(net: Network) -> None:
    net.head.linear = nn.Linear(8, 3, bias=False)


def an_activation(net: Network) -> None:
    net.head.act = Activation("gelu")


def a_filter(net: Network) -> None:
    net.stem.filter = Blur(3, 4)


def a_solver(net: Network) -> None:
    net.blocks[1].solver = SolverConfig(method="rk4", steps=9)


def an_end_time(net: Network) -> None:
    net.blocks[0].t1 = 5.0


def a_layer_more(net: Network) -> None:
    net.adapter = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (a_whole_head, "head is a Sequential where its options make a Head"),
        (a_longer_head, r"head\.linear is a Sequential where its options make a Linear"),
        (a_head_without_bias, r"head\.linear\.bias has shape None where its options make \(3,\)"),
        (an_activation, r"head\.act is Activation\(gelu\) where its options make Activation\(celu\)"),
        (a_filter, r"stem\.filter is a Blur where its options make a Pixel"),
        (a_solver, r"blocks\.1 is ODEBlock\(.*9 steps.*with_solver"),
        (an_end_time, r"blocks\.0 is ODEBlock\(t in \[0, 5\]"),
        (a_layer_more, r"adapter \(Linear\) was added"),
        (lambda net: net.reset_classifier(3), None),
        (frozen, r"filter is a Pixel where its options make a NJet"),
    ],
)
def test_what_would_not_come_back_is_refused_by_name(tmp_path: Path, change: Callable[[Network], object], named: str | None) -> None:
    net = create_model("dcn_ode", **OPTIONS)
    changed = change(net)
    net = changed if isinstance(changed, Network) else net
    if named is None:
        return net.save_pretrained(tmp_path / "new")
    with pytest.raises(ConfigError, match=named):
        net.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    return None


def test_a_gradient_of_ones_own_is_refused_by_name(tmp_path: Path) -> None:
    net = create_model("dcn_ode", **(OPTIONS | dict(solver=dict(method="rk4", steps=1, gradient=OwnGradient()))))
    with pytest.raises(ConfigError, match=r"solver\.gradient \(OwnGradient\) is an object of your own"):
        net.save_pretrained(tmp_path)


def test_saving_leaves_no_trace_in_the_random_numbers(tmp_path: Path) -> None:
    net = create_model("resnet4_anodev2_c1", channels=(4,))
    before = torch.get_rng_state()
    net.save_pretrained(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_that_is_not_registered_here_says_what_to_import(saved: Path) -> None:
    change_config(saved, model="mine")
    with pytest.raises(ConfigError, match="import the module that registers it first"):
        from_pretrained(saved)
