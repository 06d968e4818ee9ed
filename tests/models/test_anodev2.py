"""The ANODEV2 models: counts part by part, what their options change, a training step by their own recipes."""

import json
import re

import pytest
import torch
from torch import nn
from training import QUIET

from continua import ConfigError, create_model, list_models
from continua.blocks import CoupledBlock, PostActResidualBlock
from continua.cli import main
from continua.filters import RDA, Evolved, Remembering
from continua.models import export_program, from_pretrained, model_entry
from continua.train import Run, load_recipe, recipe_names, train
from continua.train.optimiser import build_optimiser, parameter_groups

NAMES = ("alexnet", "resnet4", "resnet10")
FORMS = ("", "_neural_ode", "_anodev2_c1", "_anodev2_c2")
MODELS = [name + form for name in NAMES for form in FORMS]


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def tiny(name: str, **options):
    return create_model(name, channels=(4, 6) if "resnet10" in name else (4,), **options)


def test_the_twelve_models_are_registered():
    assert set(MODELS) <= set(list_models())


@pytest.mark.parametrize(("name", "stem", "head"), [("alexnet", 4_864 + 128, 1_573_248 + 73_920 + 1_930), ("resnet4", 464, 2_570)])
def test_counts_follow_the_formulas_of_their_parts(name, stem, head):
    channels, layers, taps = (64, 1, 25) if name == "alexnet" else (16, 2, 9)
    for form in FORMS:
        net = create_model(name + form)
        assert (count(net.stem), count(net.head)) == (stem, head)
        steps, evolving = {"": (1, 0), "_neural_ode": (2, 0), "_anodev2_c1": (5, 5), "_anodev2_c2": (2, 5)}[form]
        bias = channels if form or name == "alexnet" else 0
        each = taps * channels**2 + bias + evolving * channels + 2 * steps * channels
        assert count(net.blocks[0]) == layers * each


def test_resnet_10_has_its_ordinary_blocks_outside_and_its_ode_blocks_inside():
    net = create_model("resnet10_anodev2_c1")
    assert [type(block) for block in net.blocks] == [CoupledBlock, CoupledBlock]
    assert [count(part) for part in (net.stem[3], net.transitions[0])] == [4_672, 13_952 + 512 + 64]
    assert [type(block) for block in create_model("resnet10").blocks] == [PostActResidualBlock, PostActResidualBlock]


def test_the_table_of_models_shows_our_count_and_the_printed_one(capsys):
    assert main(["models", "resnet4*"]) == 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    row = next(row for row in rows if row[0] == "resnet4_anodev2_c1")
    assert row[3:5] == ["8,154", "8.23K"]


@pytest.mark.parametrize("name", [model for model in MODELS if "_" in model])
def test_a_model_trains_a_step_with_statistics_per_step(name):
    net, images = tiny(name), torch.rand(4, 3, 16, 16)
    assert net.blocks[0].field.norm == "batch"
    before = {key: p.detach().clone() for key, p in net.named_parameters()}
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    net(images).logsumexp(1).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    optimiser.step()
    moved = [key for key, p in net.named_parameters() if not torch.equal(p, before[key])]
    assert len(moved) > 0.8 * len(before)
    if "anodev2" in name:
        assert {"tau", "v", "rho"} <= {key.split(".")[-1] for key in moved}
    assert net.stats[0].nfe == net.options.steps


@pytest.mark.parametrize("name", ["resnet4_anodev2_c1", "alexnet_anodev2_c2"])
def test_options_reach_the_evolution(name):
    options = dict(nonlinearity="softsign", around="rate", wave_numbers="radian", antidiffusion=0.2)
    net = tiny(name, steps=3, **options)
    evolved = net.blocks[0].field.convs[0].filter
    made = evolved.evolutions["weight"]
    assert isinstance(made, RDA)
    assert (made.sigma_name, made.around, made.wave_numbers, made.antidiffusion) == tuple(options.values())
    assert (evolved.grid.steps, evolved.clock) == ((3, 1.0) if "c1" in name else (10, 1.5))
    assert len(net.blocks[0].field.norms[0].sets) == 3
    remembering = tiny(name, memory={"kind": "exponential", "rate": 4.0}, nonlinearity="identity")
    assert isinstance(remembering.blocks[0].field.convs[0].filter.evolutions["weight"], Remembering)


@pytest.mark.parametrize("evolution", ["static", "linear", "conv", "hyper"])
def test_any_evolution_trains(evolution):
    net = tiny("resnet4_anodev2_c1", evolution=evolution, steps=2)
    net(torch.rand(3, 3, 12, 12)).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_starting_from_zero_the_evolution_of_configuration_one_is_tanh_again_and_again():
    net = tiny("resnet4_anodev2_c1")
    filter: Evolved = net.blocks[0].field.convs[0].filter
    nodes = filter.evolutions["weight"].nodes(filter.inner.weight, filter.grid)
    torch.testing.assert_close(nodes[2], torch.tanh(torch.tanh(filter.inner.weight)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(coupling=3), "expected 1, 2 or 'free'"),
        (dict(coupling="c2"), "_anodev2_c2; did you mean coupling=2"),
        (dict(coupling=1, weight_steps=10), "share one grid"),
        (dict(coupling=2, steps=1), "at least 2"),
        (dict(steps=0), "at least 1"),
        (dict(filters="wavelet"), "unknown filters"),
        (dict(channels=(4, 4)), "1 width"),
        (dict(filters="njet"), "acts on the pixels"),
        (dict(solver=dict(method="dopri5")), "needs fixed steps"),
    ],
)
def test_what_cannot_be_built_is_refused_with_its_reason(options, message):
    with pytest.raises(ConfigError, match=message):
        create_model("resnet4_anodev2_c1", **options)


def test_evolution_parameters_have_a_weight_decay_and_a_learning_rate_of_their_own():
    net = tiny("resnet4_anodev2_c1", filters="njet", evolution={"alpha": "linear", "s": "diffusion"}, norm="group")
    groups = {name: len(parameters) for name, parameters in parameter_groups(net).items()}
    assert (groups["evolution"], groups["scales"]) == (4, 2)
    recipe = load_recipe("anodev2_resnet", {"optimiser": {"evolution_weight_decay": 0.1, "evolution_lr_factor": 0.5}})
    optimiser = build_optimiser(tiny("resnet4_anodev2_c1"), recipe.optimiser)
    found = {group["name"]: (group["weight_decay"], group["lr"], len(group["params"])) for group in optimiser.param_groups}
    assert found["evolution"] == (0.1, 0.05, 6)
    assert found["weights"][:2] == (5e-4, 0.1)


def test_the_recipes_are_the_published_set_ups():
    assert {"anodev2_alexnet", "anodev2_resnet"} <= set(recipe_names())
    alex, res = load_recipe("anodev2_alexnet"), load_recipe("anodev2_resnet")
    assert (alex.epochs, alex.schedule.milestones) == (120, (40.0, 80.0, 100.0))
    assert (res.epochs, res.schedule.milestones) == (350, (150.0, 300.0))
    for recipe in (alex, res):
        assert (recipe.batch_size, recipe.optimiser.lr, recipe.optimiser.momentum, recipe.optimiser.weight_decay) == (256, 0.1, 0.9, 5e-4)
        assert (recipe.augmentation.crop_padding, recipe.augmentation.flip) == (4, True)
        assert recipe.augmentation.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_a_step_through_its_recipe(name, tmp_path):
    recipe = "anodev2_alexnet" if name.startswith("alexnet") else "anodev2_resnet"
    small = dict(channels=[4, 6] if "resnet10" in name else [4])
    grey = dict(crop_padding=1, flip=False, mean=[0.3], std=[0.3])
    changes = dict(model=name, model_options=small, data="digits", per_class=2, epochs=1, batch_size=16, augmentation=grey)
    changes |= dict(schedule=dict(kind="constant", milestones=[]))
    train(load_recipe(recipe, changes), tmp_path / "run", QUIET)
    run = Run(tmp_path / "run")
    assert next(line for line in run.lines() if line["event"] == "epoch")["loss"] > 0
    twin = from_pretrained(run.best)
    assert twin.config["model"] == name


def test_a_trained_network_exports_with_its_weights_evolved():
    net = tiny("resnet4_anodev2_c1", steps=2, solver=dict(method="euler", steps=2, gradient="direct"))
    with torch.no_grad():
        for parameter in net.blocks[0].parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for _ in range(3):
            net(torch.rand(8, 3, 12, 12))
        images = torch.rand(2, 3, 12, 12)
        expected = net.eval()(images)
        torch.testing.assert_close(export_program(net, (3, 12, 12)).module()(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_entries_say_what_the_paper_prints(name):
    entry = model_entry(name)
    assert entry.paper == "ANODEV2"
    printed = float(entry.printed.removesuffix("K"))
    assert abs(entry.parameters / 1000 / printed - 1) < 0.021, "the adopted reading is at most 2 % from the printed count"
    assert json.dumps(dict(entry.tiny))
