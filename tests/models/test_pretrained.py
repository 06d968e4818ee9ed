"""Models on disk: what is saved comes back; files that are damaged, foreign or hostile are refused in one sentence."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from continua import ConfigError, ContinuaError, create_model, from_pretrained, register_model
from continua.models import save_pretrained
from continua.models.dcn import DCN, JetODEConfig

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
        ('{"model": "dcn_ode", "options": {"class_path": "os.system"}}', "unknown option of dcn_ode 'class_path'"),
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


def test_damaged_weights_are_refused(saved):
    weights = saved / "model.safetensors"
    good = weights.read_bytes()
    for bad in (b"", good[:100], b"\xff" * 64, good[:-8], b"\x80\x04cos\nsystem\n."):
        weights.write_bytes(bad)
        with pytest.raises(ConfigError, match="cannot be read"):
            from_pretrained(saved)


def test_weights_of_another_network_are_refused(saved):
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
    with pytest.raises(ConfigError, match=r"has no config\.json"):
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
