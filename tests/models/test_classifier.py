"""timm's habits: classifiers that are replaced or left out, features by level, and the signatures that people's code relies on."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, Network, create_model, from_pretrained, list_models
from continua.models import FeatureExtractor, model_entry, option_names
from continua.models.classifier import NoClassifier, find_classifier

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")  # tiny maps: a kernel may outgrow them
MODELS = list_models(task="classify")
ONE_OF_EACH = ("dcn_ode", "res_ode_net", "alexnet", "erknet", "erknet_imagenet_3x1_3x1_3x1_1x1_b")


def tiny(name: str, **options: Any) -> Network:
    torch.manual_seed(7)
    if "solver" in option_names(name):
        options = {"solver": dict(method="midpoint", steps=1), **options}
    return create_model(name, **{**model_entry(name).tiny, **options}).eval()


def pictures(size: int = 32) -> Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(3))


def last_maps(net: Network, images: Tensor) -> "Tensor | list[Tensor]":
    return net.forward_scales(images) if net.multiscale else net.forward_features(images)


# --- classifiers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_no_classes_means_the_features_that_the_classifier_would_read(name: str) -> None:
    net, images = tiny(name, num_classes=7), pictures()
    maps = last_maps(net, images)
    features = net.forward_head(maps, pre_logits=True)
    assert features.shape == (2, net.head_hidden_size)
    torch.testing.assert_close(net.get_classifier()(features), net(images))
    net.reset_classifier(0)
    assert net.num_classes == 0
    assert isinstance(net.get_classifier(), NoClassifier)
    assert torch.equal(net(images), features)
    assert torch.equal(net.forward_head(maps, pre_logits=True), features)
    bare = tiny(name, num_classes=0)
    assert bare.config == net.config
    assert [(key, value.shape) for key, value in bare.state_dict().items()] == [
        (key, value.shape) for key, value in net.state_dict().items()
    ]
    assert bare.num_features == net.num_features == net.forward_features(images).shape[1]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_new_classifier_is_fresh_and_the_rest_stays(name: str) -> None:
    net = tiny(name, num_classes=7).double()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    place, old = find_classifier(net) or pytest.fail("no classifier")
    net.reset_classifier(3)
    new = net.get_classifier()
    assert isinstance(new, nn.Linear)
    assert (new.in_features, new.out_features, new.weight.dtype) == (old.in_features, 3, torch.float64)
    assert net.num_classes == net.config["options"]["num_classes"] == 3
    after = net.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in after if not key.startswith(place))
    if name.startswith("erknet"):  # this family starts its biases at 0
        assert not new.bias.any()
    assert net(pictures().double()).shape == (2, 3)


def test_a_classifier_survives_saving_and_a_new_one_is_put_on_saved_weights(tmp_path: Path) -> None:
    net, images = tiny("alexnet", num_classes=7), pictures()
    net.reset_classifier(5)
    net.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(from_pretrained(tmp_path)(images), net(images))
        features = net.forward_head(net.forward_features(images), pre_logits=True)
        other = from_pretrained(tmp_path, num_classes=4)
        assert other(images).shape == (2, 4)
        assert other.config["options"]["num_classes"] == 4
        assert torch.equal(other.forward_head(other.forward_features(images), pre_logits=True), features)
        bare = from_pretrained(tmp_path, num_classes=0)
        assert torch.equal(bare(images), features)
        bare.save_pretrained(tmp_path / "bare")
        again = from_pretrained(tmp_path / "bare", num_classes=2)
        assert torch.equal(again.forward_head(again.forward_features(images), pre_logits=True), features)
        assert torch.equal(from_pretrained(tmp_path, num_classes=5)(images), net(images))  # as many as saved: those that were saved


def test_a_head_of_ones_own_is_listened_to() -> None:
    net, images = tiny("dcn_ode"), pictures()
    net.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    assert (net.num_classes, net.head_hidden_size) == (3, 5)
    h = net.forward_features(images)
    torch.testing.assert_close(net.get_classifier()(net.forward_head(h, pre_logits=True)), net(images))
    net.reset_classifier(2)
    assert net(images).shape == (2, 2)


def test_what_has_no_classifier_says_so() -> None:
    net = create_model("reconstruction", **model_entry("reconstruction").tiny)
    assert net.num_classes == 0
    for ask in (net.get_classifier, lambda: net.reset_classifier(3)):
        with pytest.raises(ConfigError, match="no linear layer"):
            ask()
    with pytest.raises(ConfigError, match="forward_features"):
        tiny("dcn_ode").reset_classifier(0, "")
    for wrong in (-1, 2.5, True):
        with pytest.raises(ConfigError, match="num_classes="):
            tiny("dcn_ode").reset_classifier(wrong)  # pyright: ignore[reportArgumentType]


# --- features by level --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_feature_info_says_what_the_maps_are(name: str) -> None:
    net, images = tiny(name), pictures(64)
    for level, state in zip(net.feature_info, net.forward_scales(images), strict=True):
        assert level["num_chs"] == state.shape[1]
        assert level["reduction"] == pytest.approx(64 / state.shape[-1], rel=0.15)  # stems without padding lose a border
        assert net.get_submodule(level["module"])


def test_features_only_gives_maps_and_leaves_out_what_they_do_not_need() -> None:
    images = pictures()
    options = dict(channels=(4, 8, 8), solver=dict(method="midpoint", steps=1))
    torch.manual_seed(0)
    whole = create_model("dcn_ode", **options)
    torch.manual_seed(0)
    backbone = create_model("dcn_ode", features_only=True, out_indices=(0, 1), **options)
    assert isinstance(backbone, FeatureExtractor)
    maps = backbone(images)
    assert [part.shape[1] for part in maps] == backbone.feature_info.channels() == [4, 8]
    assert backbone.feature_info.reduction() == [1, 2]
    assert backbone.feature_info.module_name() == ["blocks.0", "blocks.1"]
    assert backbone.feature_info.channels(2) == 8
    assert backbone.feature_info.get_dicts(["reduction"], [2]) == [{"reduction": 4}]
    assert len(backbone.feature_info) == 3
    for mine, theirs in zip(maps, whole.forward_scales(images), strict=False):
        assert torch.equal(mine, theirs)
    sum(part.sum() for part in maps).backward()
    assert all(p.grad is not None for p in backbone.parameters())
    assert len(create_model("erknet", features_only=True, out_indices=1, growth=8)(images)) == 1
    with pytest.raises(ConfigError, match="features_only=True"):
        create_model("dcn_ode", out_indices=(0,))  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match="no block 5"):
        create_model("dcn_ode", features_only=True, out_indices=(5,))


# --- timm's own signatures ----------------------------------------------------------------------------------------------

# Of timm 1.0: huggingface.co/docs/timm, "Feature extraction", and the methods of its models.
SIGNATURES = {
    "forward_features": ["x"],
    "forward_head": ["x", "pre_logits"],
    "forward_intermediates": ["x", "indices", "norm", "stop_early", "output_fmt", "intermediates_only"],
    "reset_classifier": ["num_classes", "global_pool"],
    "get_classifier": [],
}


def positions(function: Any) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, item in inspect.signature(function).parameters.items() if item.kind in kinds and name != "self"]


@pytest.mark.parametrize("method", SIGNATURES)
def test_methods_take_what_timm_s_take_in_the_same_order(method: str) -> None:
    ours = positions(getattr(Network, method))
    assert len(ours) == len(SIGNATURES[method])
    assert ours[1:] == SIGNATURES[method][1:]  # what is read is images or h; nobody gives it by name
    assert positions(create_model)[:2] == ["name", "pretrained"]


def test_a_network_of_timm_has_the_same_methods_and_results() -> None:
    timm = pytest.importorskip("timm")
    theirs, ours = timm.create_model("resnet18", num_classes=7).eval(), tiny("dcn_ode", num_classes=7)
    for method in SIGNATURES:
        assert positions(getattr(type(theirs), method))[1:] == positions(getattr(Network, method))[1:]
    images = pictures()
    for net in (theirs, ours):
        last, maps = net.forward_intermediates(images, indices=2)
        assert isinstance(last, Tensor)
        assert len(maps) == 2
        assert net.forward_head(net.forward_features(images), pre_logits=True).shape == (2, net.num_features)
        assert {"num_chs", "reduction", "module"} <= set(net.feature_info[0])
        net.reset_classifier(0)
        assert net.num_classes == 0
        assert net(images).shape == (2, net.num_features)
