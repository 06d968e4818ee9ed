"""The three networks of the feature study: their parts' counts, shapes, options, and what the published recipe trains."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from training import QUIET

from continua import ConfigError, create_model
from continua.blocks import ODEBlock, ResidualBlock
from continua.filters import Pixel
from continua.models import option_names
from continua.train import load_recipe, train

NAMES = ("residual_net", "res_ode_net", "ode_only_net")
RESIDUAL_STEM = 1_792 + 78_080 + 754_304
FIELD = 1_536 + 2 * 592_384  # three norms; two 3×3 convolutions of 257 channels with biases


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "stem", "blocks", "total"),
    [
        ("residual_net", RESIDUAL_STEM, [1_180_672] * 6, 7_921_290),
        ("res_ode_net", RESIDUAL_STEM, [FIELD], 2_023_562),
        ("ode_only_net", 12_544, [FIELD], 1_201_930),
    ],
)
def test_every_part_has_the_count_of_its_formula(name, stem, blocks, total):
    with torch.device("meta"):
        net = create_model(name)
    assert count(net.stem) == stem
    assert [count(block) for block in net.blocks] == blocks
    assert count(net.head) == 512 + 2_570
    assert count(net) == total


@torch.no_grad()
def test_states_have_the_sizes_of_the_paper():
    for name, side in (("residual_net", 8), ("res_ode_net", 8), ("ode_only_net", 16)):
        assert create_model(name, width=8).stem(torch.rand(1, 3, 32, 32)).shape == (1, 8, side, side)


@torch.no_grad()
def test_a_down_sampling_block_adds_a_projection_of_its_normalised_input():
    block = ResidualBlock(4, Pixel, out_channels=6, stride=2, norm_groups=2)
    for p in block.parameters():
        p.copy_(torch.randn_like(p))
    x = torch.randn(2, 4, 9, 9)
    ready = functional.relu(functional.group_norm(x, 2, block.norm1.weight, block.norm1.bias))
    inside = functional.conv2d(ready, block.conv1.filter.weight, stride=2, padding=1)
    inside = functional.relu(functional.group_norm(inside, 2, block.norm2.weight, block.norm2.bias))
    expected = functional.conv2d(ready, block.shortcut.filter.weight, stride=2) + functional.conv2d(
        inside, block.conv2.filter.weight, padding=1
    )
    torch.testing.assert_close(block(x), expected)
    plain = ResidualBlock(4, Pixel)
    assert plain.shortcut is None
    torch.testing.assert_close(plain(x) - x, plain.conv2(plain.act(plain.norm2(plain.conv1(plain.act(plain.norm1(x)))))))


@torch.no_grad()
def test_width_blocks_classes_groups_and_interval_are_free():
    images = torch.rand(2, 1, 20, 20)
    for name in NAMES:
        net = create_model(name, width=12, num_blocks=3, num_classes=4, in_channels=1, norm_groups=4).eval()
        assert len(net.blocks) == 3
        assert net(images).shape == (2, 4)
    net = create_model("res_ode_net", width=12, stem_width=5, t1=0.5, solver=dict(method="rk4", steps=1))
    assert net.stem[0].out_channels == 5
    assert isinstance(net.blocks[0], ODEBlock)
    assert net.blocks[0].t1 == 0.5
    assert "solver" not in option_names("residual_net")
    assert "stem_width" not in option_names("ode_only_net")


def test_dropout_acts_in_training_only():
    net, images = create_model("residual_net", width=8, dropout=0.9), torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        assert not torch.equal(net.train()(images), net(images))
        assert torch.equal(net.eval()(images), net(images))
        still = create_model("residual_net", width=8, dropout=0.0).train()
        assert torch.equal(still(images), still(images))


@pytest.mark.parametrize("options", [dict(width=0), dict(num_blocks=0), dict(dropout=1.0), dict(stem_width=-3)])
def test_what_cannot_be_built_is_refused_by_name(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        create_model("residual_net", **options)


def test_the_recipe_is_the_published_set_up():
    recipe = load_recipe("features")
    look, optimiser, schedule = recipe.augmentation, recipe.optimiser, recipe.schedule
    assert (recipe.epochs, recipe.batch_size, recipe.drop_last, recipe.seed, recipe.holdout) == (200, 128, False, 23, 0.1)
    assert (look.crop_padding, look.hue, look.saturation, look.brightness, look.contrast, look.flip) == (4, 0.05, 0.05, 0, 0, True)
    assert (look.mean, look.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert (optimiser.kind, optimiser.lr, optimiser.momentum, optimiser.weight_decay) == ("sgd", 0.1, 0.9, 1e-4)
    assert (schedule.kind, schedule.factor, schedule.patience, schedule.threshold) == ("plateau", 0.1, 15, 1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_every_network_trains_an_epoch_by_the_recipe(name: str, tmp_path: Path):
    options = dict(width=8, solver=dict(rtol=1e-2, atol=1e-2)) if name != "residual_net" else dict(width=8, num_blocks=2)
    grey = dict(saturation=0.0, hue=0.0, crop_padding=1, mean=[0.5], std=[0.5])
    changes = dict(model=name, model_options=options, data="digits", per_class=10, epochs=1, batch_size=32, augmentation=grey)
    run = train(load_recipe("features", changes), tmp_path / name, QUIET)
    assert run.result is not None
    assert 0.0 <= run.result["test_accuracy"] <= 1.0
    (line,) = [line for line in run.lines() if line["event"] == "epoch"]
    assert line["images"] == 90  # a tenth is held out for the plateau
    assert all((nfe > 0) is (name != "residual_net") for nfe in line["nfe"])
