"""What holds for every registered model, whatever its family. A new model is here as soon as it is registered.

Models are built with `model_entry(name).tiny`: the same structure, small and quick.
"""

import copy
import json
import pickle

import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, Network, SolverConfig, create_model, list_models
from continua.blocks import ODEBlock
from continua.models import model_entry, option_names

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")  # tiny maps: a kernel may outgrow them

MODELS = list_models(task="classify")  # decoders make images: tests/models/test_reconstruction.py
FIXED = dict(method="midpoint", steps=1)


def tiny(name: str, **options) -> Network:
    """A small model in evaluation mode; continuous ones take one cheap step."""
    torch.manual_seed(7)
    if "solver" in option_names(name):
        options = {"solver": FIXED, **options}
    return create_model(name, **{**model_entry(name).tiny, **options}).eval()


def pictures(batch: int = 2, size: int = 12) -> Tensor:
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(3))


def has_time(net: Network) -> bool:
    return any(isinstance(block, ODEBlock) for block in net.blocks)


def is_per_sample(net: Network) -> bool:
    """BatchNorm, which mixes samples, and dropout are the only layers of the zoo that behave differently in training."""
    dropping = any(isinstance(module, nn.Dropout) and module.p > 0 for module in net.modules())
    return not dropping and not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules())


@pytest.mark.parametrize("name", MODELS)
def test_the_parameter_count_is_the_contract(name):
    with torch.device("meta"):  # counts need no numbers
        net = create_model(name)
    assert sum(p.numel() for p in net.parameters()) == model_entry(name).parameters


@pytest.mark.parametrize("name", MODELS)
def test_the_forward_pass_is_features_then_head_with_a_gradient_for_every_parameter(name):
    net, images = tiny(name, num_classes=7), pictures()
    logits = net(images)
    assert logits.shape == (2, 7)
    features = net.forward_features(images)
    assert features.ndim == 4
    scales = net.forward_scales(images)
    assert len(scales) == len(net.blocks)
    torch.testing.assert_close(scales[-1], features)
    torch.testing.assert_close(net.forward_head(scales if net.multiscale else features), logits)
    with pytest.raises(ConfigError, match="the head of"):
        net.forward_head(features if net.multiscale else scales)
    (logits * torch.randn(2, 7)).sum().backward()
    without = [key for key, p in net.named_parameters() if p.grad is None or not bool(torch.isfinite(p.grad).all())]
    assert without == []
    assert sum(bool(p.grad.abs().sum() > 0) for p in net.parameters() if p.grad is not None) > 0.8 * len(list(net.parameters()))


@pytest.mark.parametrize("name", MODELS)
def test_states_run_from_the_input_of_a_block_to_its_output(name):
    net, images = tiny(name), pictures()
    assert len(net.blocks) >= 1
    with torch.no_grad():
        last = net.states(images, block=-1)
        torch.testing.assert_close(last[-1], net.forward_features(images))
        torch.testing.assert_close(net.states(images, block=0)[0], net.stem(images))
    assert len(net.stats) == len(net.blocks)
    with pytest.raises(ConfigError, match="no block 99"):
        net.states(images, block=99)
    if has_time(net):
        end = net.blocks[0].t1
        assert net.states(images, 0, [0.0, end / 3, end]).shape[0] == 3
        stats = net.stats[0]
        assert stats is not None
        assert stats.nfe == 2
    else:
        with pytest.raises(ConfigError, match="has no time"):
            net.states(images, 0, [0.0])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_forward_intermediates_means_what_timm_means(name):
    net, images = tiny(name), pictures()
    count, scales = len(net.blocks), net.forward_scales(images)
    final, every = net.forward_intermediates(images)
    assert torch.equal(final, scales[-1])
    assert len(every) == count
    assert all(torch.equal(state, scale) for state, scale in zip(every, scales, strict=True))
    (last,) = net.forward_intermediates(images, indices=1, intermediates_only=True)
    assert torch.equal(last, scales[-1])
    stopped, (first,) = net.forward_intermediates(images, indices=[0], stop_early=True, output_fmt="NCHW")
    assert torch.equal(first, scales[0])
    assert torch.equal(stopped, first)
    ends = net.forward_intermediates(images, indices=[-1, 0], intermediates_only=True)
    assert torch.equal(ends[-1], scales[-1])
    assert len(ends) == min(count, 2)
    for wrong in (dict(indices=[99]), dict(indices=count + 1), dict(norm=True), dict(output_fmt="NLC")):
        with pytest.raises(ConfigError):
            net.forward_intermediates(images, **wrong)


@pytest.mark.parametrize("name", MODELS)
def test_copies_pickles_and_state_dicts_give_the_same_network(name):
    net, images = tiny(name), pictures(1)
    with torch.no_grad():
        expected = net(images)
        other = tiny(name)
        for p in other.parameters():
            p.add_(1.0)
        assert not torch.allclose(other(images), expected)
        other.load_state_dict(net.state_dict())
        for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), other):
            torch.testing.assert_close(twin(images), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", MODELS)
def test_the_configuration_survives_json_and_builds_the_same_network(name):
    net = tiny(name, num_classes=5)
    config = json.loads(json.dumps(net.config))
    assert config["model"] == name
    twin = create_model(config["model"], **config["options"])
    assert json.loads(json.dumps(twin.config)) == config
    assert {key: value.shape for key, value in twin.state_dict().items()} == {key: value.shape for key, value in net.state_dict().items()}
    assert [getattr(block, "solver", None) for block in twin.blocks] == [getattr(block, "solver", None) for block in net.blocks]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_memory_layout_batch_and_mode_do_not_change_the_answer(name):
    net, images = tiny(name), pictures()
    expected = net(images)
    torch.testing.assert_close(net(images[1:2]), expected[1:2], rtol=1e-4, atol=1e-5)
    if is_per_sample(net):
        torch.testing.assert_close(copy.deepcopy(net).train()(images), expected)
    last = copy.deepcopy(net).to(memory_format=torch.channels_last)
    torch.testing.assert_close(last(images.contiguous(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.needs("bfloat16")
@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_autocast_trains_and_stays_near_float32(name):
    net, images = tiny(name), pictures()
    with torch.no_grad():
        expected = net(images)
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(images)
        loss = logits.float().square().sum()
    loss.backward()
    logits = logits.detach()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
    assert float((logits - expected).abs().max()) < 0.1 * (1 + float(expected.abs().max()))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_odd_image_sizes_work(name):
    net = tiny(name)
    assert net(pictures(1, 28)).shape == net(pictures(1, 33)).shape == (1, 10)
    assert net(torch.rand(1, 3, 20, 27)).shape == (1, 10)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_another_solver_shares_the_weights(name):
    net, images = tiny(name), pictures(1)
    if not has_time(net):
        with pytest.raises(ConfigError, match="no solver to change"):
            net.with_solver(method="euler", steps=3)
        return
    twin = net.with_solver(method="euler", steps=3)
    assert twin is not net
    assert {id(p) for p in twin.parameters()} == {id(p) for p in net.parameters()}
    assert not torch.allclose(twin(images), net(images))
    torch.testing.assert_close(twin.with_solver(SolverConfig.of(FIXED))(images), net(images))
    assert twin.config["options"]["solver"] == {"method": "euler", "steps": 3}
    assert net.config["options"]["solver"] == FIXED


@pytest.mark.parametrize("name", MODELS)
def test_a_model_describes_itself(name):
    net = tiny(name)
    text = repr(net)
    assert len(text) > 200
    if has_time(net):
        assert "t in [0, " in text
        assert "midpoint, 1 steps" in text


@pytest.mark.parametrize("name", MODELS)
def test_a_misspelt_option_names_the_nearest(name):
    with pytest.raises(ConfigError, match="did you mean num_classes"):
        create_model(name, num_clases=10)


@pytest.mark.parametrize("name", MODELS)
def test_images_that_do_not_fit_are_refused_by_what_was_expected(name):
    net = tiny(name)
    for images in (pictures()[:, :1], pictures()[0]):
        with pytest.raises(ConfigError, match=r"\(batch, 3, height, width\); got .* in_channels"):
            net(images)


@pytest.mark.parametrize(("name", "size"), [("odenet", 3), ("alexnet", 1)])
def test_images_that_are_too_small_are_refused_in_our_words(name: str, size: int) -> None:
    with pytest.raises(ConfigError, match=f"images of {size}×{size} are too small for {name}: a map inside it"):
        create_model(name, num_classes=3)(pictures(size=size))
