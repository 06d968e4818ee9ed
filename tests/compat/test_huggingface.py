"""Networks on the Hugging Face hub, by the real client against a stand-in on loopback: what is pushed comes back, and no more is read."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import continua as ct
from continua.compat import huggingface
from continua.models import hub_card

constants = pytest.importorskip("huggingface_hub.constants", reason="pip install huggingface_hub")
from hub_stand_in import TOKEN, Hub, running_hub  # noqa: E402
from huggingface_hub import PyTorchModelHubMixin  # noqa: E402


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """HF_ENDPOINT and its kin are read when the package is imported, so its constants are set."""
    with running_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.address + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture
def net() -> ct.Network:
    return ct.create_model("odenet", num_classes=3, channels=[4, 4, 4], norm_groups=2, solver=dict(method="euler", steps=1)).eval()


def test_what_is_pushed_is_what_is_loaded(hub: Hub, net: ct.Network, tmp_path: Path) -> None:
    address = net.push_to_hub("ann/small", model_card_kwargs={"license": "apache-2.0"})
    assert address.startswith(f"{hub.address}/ann/small/")
    assert set(hub.repos["ann/small"]) == {"config.json", "model.safetensors", "README.md"}
    images = torch.rand(2, 3, 16, 16)
    again = ct.from_pretrained("ann/small", cache_dir=tmp_path)
    assert torch.equal(again(images), net(images))
    assert {line.rpartition("/")[2] for line in hub.asked if line.startswith("GET") and "/resolve/" in line} == {
        "config.json",
        "model.safetensors",
    }
    fresh = ct.create_model("hf-hub:ann/small", pretrained=True, num_classes=7)
    assert fresh(images).shape == (2, 7)
    assert fresh.training
    assert torch.equal(huggingface.from_pretrained("ann/small", cache_dir=tmp_path, local_files_only=True)(images), net(images))


def test_a_card_that_somebody_wrote_is_kept(hub: Hub, net: ct.Network) -> None:
    net.push_to_hub("ann/small")
    assert b"has not yet written down" in hub.repos["ann/small"]["README.md"]
    hub.repos["ann/small"]["README.md"] = b"mine"
    net.push_to_hub("ann/small")
    assert hub.repos["ann/small"]["README.md"] == b"mine"
    net.push_to_hub("ann/small", model_card_kwargs={"text": "Trained on digits."})
    assert b"Trained on digits." in hub.repos["ann/small"]["README.md"]


def test_saving_pushes_where_asked_to(hub: Hub, net: ct.Network, tmp_path: Path) -> None:
    net.save_pretrained(tmp_path / "kept", push_to_hub=True, repo_id="ann/kept")
    assert (tmp_path / "kept" / "model.safetensors").read_bytes() == hub.repos["ann/kept"]["model.safetensors"]
    with pytest.raises(ct.ConfigError, match="repo_id belong to push_to_hub=True"):
        net.save_pretrained(tmp_path / "kept", repo_id="ann/kept")


def test_a_file_larger_than_its_network_is_refused_before_it_is_fetched(hub: Hub, net: ct.Network, tmp_path: Path) -> None:
    net.push_to_hub("ann/small")
    hub.claimed["model.safetensors"] = 50_000_000
    with pytest.raises(ct.ConfigError, match="50,000,000 bytes; a network of that configuration needs at most"):
        ct.from_pretrained("ann/small", cache_dir=tmp_path)
    assert "GET" not in {line.split()[0] for line in hub.asked if line.endswith("safetensors")}
    hub.claimed["config.json"] = 500_000_000
    with pytest.raises(ct.ConfigError, match="CONTINUA_MAX_JSON"):
        ct.from_pretrained("ann/small", cache_dir=tmp_path / "other")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": "os.system", "options": {}, "format": 2}, "unknown model"),
        ({"model": "odenet", "options": {"class_path": "os.system"}, "format": 2}, "class_path"),
        ({"model": "odenet", "options": {"channels": [10**6] * 3}, "format": 2}, "CONTINUA_MAX_PARAMETERS"),
    ],
)
def test_a_strangers_configuration_is_checked_and_runs_nothing(
    config: dict[str, object], said: str, hub: Hub, net: ct.Network, tmp_path: Path
) -> None:
    net.push_to_hub("ann/small")
    hub.repos["ann/small"]["config.json"] = json.dumps(config).encode()
    with pytest.raises(ct.ConfigError, match=said):
        ct.from_pretrained("ann/small", cache_dir=tmp_path)


def test_weights_that_were_exchanged_and_repositories_that_are_not_there_are_refused(hub: Hub, net: ct.Network, tmp_path: Path) -> None:
    net.push_to_hub("ann/small")
    data = bytearray(hub.repos["ann/small"]["model.safetensors"])
    data[-1] ^= 1
    hub.repos["ann/small"]["model.safetensors"] = bytes(data)
    with pytest.raises(ct.ConfigError, match="checksum"):
        ct.from_pretrained("ann/small", cache_dir=tmp_path)
    del hub.repos["ann/small"]["model.safetensors"]
    with pytest.raises(ct.ConfigError, match=r"gave no model\.safetensors of it"):
        ct.from_pretrained("ann/small", cache_dir=tmp_path / "other")
    with pytest.raises(ct.ConfigError, match=r"ann/gone is no folder here, and the hub gave no config\.json"):
        ct.from_pretrained("ann/gone")


def test_the_hub_says_no_in_one_line(hub: Hub, net: ct.Network) -> None:
    with pytest.raises(ct.ConfigError, match="log in"):
        net.push_to_hub("ann/small", token="hf_wrong")
    with pytest.raises(ct.ConfigError, match="'licence' is not known; known are license"):
        net.push_to_hub("ann/small", model_card_kwargs={"licence": "mit"})


@pytest.mark.parametrize("verb", ["push_to_hub", "from_pretrained"])
def test_the_verbs_take_what_those_of_the_mixin_take(verb: str) -> None:
    theirs = inspect.signature(getattr(PyTorchModelHubMixin, verb)).parameters
    ours = inspect.signature(getattr(huggingface, verb)).parameters
    assert set(theirs) - {"self", "pretrained_model_name_or_path", "model_kwargs"} <= set(ours)


def test_without_the_package_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ct.ConfigError, match=r"pip install huggingface_hub"):
        ct.from_pretrained("ann/small")


@pytest.mark.parametrize("name", ["runs", "a/b/c", "/nowhere/x", "./ann/small"])
def test_what_can_only_be_a_folder_is_not_looked_for_on_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no folder runs/, which a clone has after the demo
    with pytest.raises(ct.ConfigError, match=r"does not exist; expected a folder"):
        ct.from_pretrained(name)


def test_a_card_is_tagged_as_a_neural_ode_only_where_the_network_has_one(net: ct.Network) -> None:
    plain = ct.create_model("resnet4")
    assert "- neural-ode" in hub_card(net, "ann/small")
    assert "- neural-ode" not in hub_card(plain, "ann/small")
    assert "- neural-ode" in hub_card(plain, "ann/small", tags=["neural-ode"]), "what its owner says stays"
