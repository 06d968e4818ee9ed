"""Configurations: known without building, plain data and back, refused by name where a family lacks it or the type is wrong."""

import json
from dataclasses import FrozenInstanceError, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from continua import ConfigError, SolverConfig, create_model, list_models, register_model
from continua.cli import main
from continua.models import (
    ClassifierConfig,
    Network,
    complete_options,
    model_config,
    model_entry,
    model_options,
    option_names,
)
from continua.models.anodev2 import CoupledConfig, NeuralODEConfig
from continua.models.dcn import JetODEConfig, ResidualConfig
from continua.models.registry import _ENTRIES
from continua.options import option


@pytest.mark.parametrize("name", list_models())
def test_options_are_known_without_building_and_survive_json_and_yaml(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as nothing_is_built:
        nothing_is_built.setattr(Network, "__init__", lambda *_: pytest.fail("a network was built"))
        options = complete_options(name)
        assert list(options) == option_names(name) == [item.name for item in model_options(name)]
        assert all(item.help and item.type for item in model_options(name))
        for text in (json.loads(json.dumps(options)), yaml.safe_load(yaml.safe_dump(options))):
            assert text == options
            assert complete_options(name, text) == options
            assert model_config(name, **text) == model_config(name) == model_entry(name).config
        tiny = complete_options(name, model_entry(name).tiny)
    assert create_model(name, **model_entry(name).tiny).config == {"model": name, "options": tiny}


@pytest.mark.parametrize(
    ("model", "wrong", "nearest"),
    [
        ("resnet_blocks", "t1", "odenet"),
        ("resnet_blocks", "solver", "odenet"),
        ("resnet_blocks", "order", "resnet_srf_blocks"),
        ("odenet", "order", "dcn_ode"),
        ("dcn_full", "stem_padding", "dcn_ode"),
        ("residual_net", "solver", "res_ode_net"),
        ("ode_only_net", "stem_width", "res_ode_net"),
        ("resnet4", "solver", "resnet4_neural_ode"),
        ("resnet4_neural_ode", "nonlinearity", "resnet4_anodev2_c1"),
        ("erknet", "loops", "irknet"),
        ("erknet", "t1", "odenet|dcn_ode|ode_only_net|res_ode_net"),
        ("reconstruction", "num_classes", r"\w+"),
    ],
)
def test_an_option_that_a_family_lacks_is_refused_with_the_nearest_model_that_has_it(model: str, wrong: str, nearest: str) -> None:
    assert wrong not in option_names(model)
    for ask in (create_model, model_config):
        with pytest.raises(ConfigError, match=rf"{model} has no option '{wrong}'; the nearest model that has it is ({nearest})\."):
            ask(model, **{wrong: 1})
    with pytest.raises(ConfigError, match=wrong):
        complete_options(model, {wrong: 1})


def test_configurations_are_frozen_typed_and_equal_where_their_options_are() -> None:
    config = model_config("dcn_ode", channels=[4, 8], num_classes=np.int64(3), solver={"method": "rk4", "steps": 2})
    assert isinstance(config, JetODEConfig)
    assert config == JetODEConfig(channels=(4, 8), num_classes=3, solver=SolverConfig(method="rk4", steps=2))
    assert type(config.num_classes) is int
    assert config.plain()["solver"] == {"method": "rk4", "steps": 2}
    with pytest.raises(FrozenInstanceError):
        config.t1 = 3.0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ConfigError, match="JetODEConfig: channels is 8; expected a list"):
        JetODEConfig(channels=8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="at least 1"):
        ResidualConfig(channels=())


def test_the_default_solver_of_anodev2_follows_the_steps() -> None:
    euler = {"method": "euler", "steps": 3}
    assert complete_options("resnet4_neural_ode", {"steps": 3})["solver"] == euler
    own = NeuralODEConfig(solver=SolverConfig(method="rk4", steps=1), norm="group")
    assert own.vary(steps=7).solver == own.solver
    assert complete_options("resnet4_anodev2_c2")["solver"] == {"method": "euler", "steps": 2}


def test_options_of_rda_belong_to_rda() -> None:
    assert CoupledConfig(nonlinearity="identity").motion().options["nonlinearity"] == "identity"
    with pytest.raises(ConfigError, match="an option of evolution='rda', and the evolution is 'linear'"):
        CoupledConfig(evolution="linear", nonlinearity="identity")


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        ("dcn_ode", dict(activation="rleu"), "did you mean relu"),
        ("residual_net", dict(norm_groups="all"), "norm_groups='all'"),
        ("erknet", dict(norm_momentum=2.0), "norm_momentum"),
        ("erknet", dict(growth=36, channels=64), "rule 1"),
        ("dcn_ode", dict(solver=dict(method="rk5")), "rk5"),
        ("resnet4_anodev2_c1", dict(coupling=3), "expected 1, 2 or 'free'"),
        ("reconstruction", dict(encoder="dcn_odd"), "unknown model 'dcn_odd'"),
    ],
)
def test_values_that_cannot_work_are_refused_before_anything_is_built(model: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        complete_options(model, options)


def test_stages_have_one_spelling() -> None:
    for stages in ("3×2_4x1", [[3, 2], [4, 1]], ((3, 2), (4, 1))):
        assert complete_options("erknet", {"stages": stages})["stages"] == "3x2_4x1"
    assert complete_options("ERKNet-3x2_4x1-B")["bottleneck"] is True
    assert complete_options("erknet", {"growths": [2, 2]})["stages"] is None


def test_a_model_of_ones_own_is_a_dataclass_and_a_function(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class OwnConfig(ClassifierConfig):
        width: int = option(4, "channels")

    @register_model(config=OwnConfig(width=6), tiny=dict(width=2))
    def own_model_of_a_test(config: OwnConfig) -> Network:
        net = Network()
        net.stem = torch.nn.Conv2d(config.in_channels, config.width, 3)
        net.blocks, net.transitions = torch.nn.ModuleList([torch.nn.Identity()]), torch.nn.ModuleList()
        net.head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(config.width, config.num_classes))
        return net

    try:
        net = create_model("own_model_of_a_test", num_classes=3)
        assert own_model_of_a_test.__name__ == net.name
        assert net.config["options"] == {"num_classes": 3, "in_channels": 3, "width": 6}
        assert net(torch.rand(2, 3, 8, 8)).shape == (2, 3)
        net.save_pretrained(tmp_path)
        with pytest.raises(ConfigError, match=r"unknown option 'widht'; did you mean width\? own_model_of_a_test has: "):
            create_model("own_model_of_a_test", widht=3)
    finally:
        del _ENTRIES["own_model_of_a_test"]


@pytest.mark.parametrize("name", ["dcn_ode", "ERKNet-2x1", "reconstruction"])
def test_the_command_prints_every_option_with_type_default_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--options", name]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for item in model_options(name):
        assert f"{item.name} = {json.dumps(item.default, ensure_ascii=False)} ({item.type}) {item.help}" in printed
    assert main(["models", "--json", "--options", name]) == 0
    listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in listed] == option_names(name)
    assert set(listed[0]) == {item.name for item in fields(model_options(name)[0])}


# --- types ------------------------------------------------------------------------------------------------------------


ONE_OF_EACH = ("dcn_ode", "ode_only_net", "resnet4_anodev2_c1", "erknet")


@pytest.mark.parametrize("model", ONE_OF_EACH)
@pytest.mark.parametrize("option", ["num_classes", "in_channels"])
@pytest.mark.parametrize("value", ["ten", None, 2.5, [10], 0, -1, True])
def test_a_network_has_a_whole_number_of_classes_and_channels(model: str, option: str, value: Any) -> None:
    if (option, value) == ("num_classes", 0):  # features without a classifier: tests/models/test_classifier.py
        value = -2
    with pytest.raises(ConfigError, match=rf"{option} is .*; expected (a whole number|at least {int(option == 'in_channels')})"):
        create_model(model, **{option: value})


@pytest.mark.parametrize(
    ("model", "option", "value", "expected"),
    [
        ("dcn_ode", "channels", 8, "a list, of a whole number each"),
        ("resnet4_anodev2_c1", "channels", None, "a list, of a whole number each"),
        ("erknet", "growths", 8, "a list, of a whole number each or nothing"),
        ("dcn_ode", "solver", "rk4", "SolverConfig or options by name or nothing"),
        ("dcn_ode", "filter_options", [8], "options by name or nothing"),
        ("dcn_ode", "activation", ["relu"], "a name"),
        ("residual_net", "dropout", "half", "a number"),
        ("erknet", "attention", 1, "true or false"),
        ("irknet", "filters", 3, "'pixel' or 'njet'"),
    ],
)
def test_what_was_given_and_what_is_expected_are_said(model: str, option: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_model(model, **{option: value})
    assert str(caught.value) == f"{model}: {option} is {value!r}; expected {expected}"


@pytest.mark.parametrize("inside", ["filter_options", "conv_options"])
def test_an_option_that_no_filter_has_is_refused(inside: str) -> None:
    with pytest.raises(ConfigError, match="'colour'"):
        create_model("dcn_ode", **{inside: {"colour": 1}})


def test_an_option_that_the_network_sets_itself_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="filter_options sets 'in_channels', which the network sets itself"):
        create_model("dcn_ode", filter_options={"in_channels": 3})
    with pytest.raises(ConfigError, match="stride 1; got 2"):
        create_model("dcn_ode", conv_options={"stride": 2})


def test_images_of_another_dtype_and_batches_of_none_are_refused_by_name() -> None:
    net = create_model("dcn_ode", channels=(4, 4, 4), norm_groups=2)
    with pytest.raises(ConfigError, match=r"images are torch.float64 and the network is torch.float32: images.to\(torch.float32\)"):
        net(torch.zeros(1, 3, 32, 32, dtype=torch.float64))
    with pytest.raises(ConfigError, match="at least one image"):
        net(torch.zeros(0, 3, 32, 32))
    assert create_model("resnet_blocks", channels=(4, 4, 4), norm_groups=2)(torch.zeros(0, 3, 32, 32)).shape == (0, 10)


def test_numbers_of_numpy_and_numbers_without_a_point_are_numbers() -> None:
    net = create_model("dcn_ode", num_classes=np.int64(3), channels=[4, 8], t1=2)
    assert net.config["options"]["num_classes"] == 3


@pytest.mark.parametrize("model", list_models())
def test_what_every_model_is_made_of_passes(model: str) -> None:
    """The defaults and the tiny options of the whole zoo agree with what its signatures say."""
    assert create_model(model, **model_entry(model).tiny).name == model
