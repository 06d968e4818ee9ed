"""Runge–Kutta networks: counts, arithmetic, spelling, rules, and what their options do."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from continua import ConfigError, create_model, from_pretrained, list_models
from continua.blocks import IRKStep
from continua.models import frozen, model_entry
from continua.models.describe import describe, describe_model
from continua.models.rknet.config import BrokenRule, Spelling, parse_name, rule_2_even
from continua.train import load_recipe, train
from continua.train.optimiser import build_optimiser

# By arithmetic from the layers, in GFLOPs of 2 per multiply–add; the paper prints two digits of these.
GFLOPS = {
    "erknet_k36_6x1_6x1_6x1": 0.6637,
    "erknet_k36_7x1_6x1_6x1": 0.8309,
    "erknet_k36_7x1_7x1_6x1": 0.8727,
    "erknet_k36_7x1_7x1_7x1": 0.8832,
    "irknet_k36_3x1_3x1_3x1": 0.3815,
    "irknet_k36_4x1_3x1_3x1": 0.6204,
    "irknet_k36_4x1_4x1_3x1": 0.6801,
    "irknet_k36_4x1_4x1_4x1": 0.6951,
    "irknet_k150_5x1_5x1_5x1_ab": 7.626,
    "irknet_k180_5x1_5x1_5x1_ab": 10.979,
    "erknet_imagenet_3x1_3x1_3x1_1x1_b": 5.205,
    "erknet_imagenet_3x1_3x1_4x1_2x1_b": 6.3596,
    "erknet_imagenet_3x1_3x1_6x1_2x1_b": 8.5084,
}


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_every_row_of_the_tables_is_registered():
    assert set(list_models("?rknet_*")) == set(GFLOPS)


@pytest.mark.parametrize("name", GFLOPS)
@torch.no_grad()
def test_flops_are_the_papers_by_pytorchs_counter(name):
    size = model_entry(name).image_size
    with torch.device("meta"):
        net, image = create_model(name).eval(), torch.zeros(1, 3, size, size)
        with FlopCounterMode(display=False) as counter:
            net(image)
    assert counter.get_total_flops() / 1e9 == pytest.approx(GFLOPS[name], abs=0.01)


def test_counts_follow_the_formulas_at_other_sizes():
    def erk(k: int, stages: list[int]) -> int:
        return 27 * k + sum(9 * k * k * s * (s + 1) // 2 + k * s * (s + 1) + 2 * k for s in stages) + 2 * (2 * k + k * k) + 30 * k + 10

    def irk(k: int, stages: list[int]) -> int:
        blocks = sum(9 * k * k * s * s + k * s * (s + 1) + 2 * k * s * (s - 1) + 2 * k for s in stages)
        return 27 * k + blocks + 2 * (2 * k + k * k) + 30 * k + 10

    assert count(create_model("erknet", growth=5, stages="2x1_3x1_4x1")) == erk(5, [2, 3, 4])
    assert count(create_model("irknet", growth=5, stages="2x1_3x1_4x1")) == irk(5, [2, 3, 4])


@pytest.mark.parametrize(("growth", "parameters"), [(150, 4_906_600), (180, 7_043_500)])
def test_a_head_for_100_classes(growth, parameters):
    with torch.device("meta"):
        assert count(create_model(f"irknet_k{growth}_5x1_5x1_5x1_ab", num_classes=100)) == parameters


# --- the paper's spelling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ERKNet-3×2_4×1_2×5_1×1", "IRKNet-5×1_5×1_5×1-AB", "ERKNet-3×1_3×1_3×1_1×1-B", "IRKNet-2×1-A"])
def test_the_papers_names_are_read_and_printed_back(name):
    assert str(parse_name(name)) == name
    assert str(parse_name(name.replace("×", "x").lower())) == name
    net = create_model(name, growth=2)
    assert net.spelling == name
    assert name in repr(net)
    assert len(net.blocks) == name.count("×")


def test_a_spelled_name_builds_what_it_says():
    net = create_model("ERKNet-3x2_4x1_2x5_1x1", growth=2)
    steps = [(block.first.stages, len(block.taken)) for block in net.blocks]
    assert steps == [(3, 2), (4, 1), (2, 5), (1, 1)]
    assert net.config["model"] == "erknet"
    assert parse_name("IRKNet-4x1_3x1-AB") == Spelling("II", ((4, 1), (3, 1)), attention=True, bottleneck=True)
    images = torch.rand(2, 3, 16, 16)
    assert [len(net.states(images, block)) for block in range(4)] == [3, 2, 6, 2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ERKNet-3", "one term per period"),
        ("ERKNet-3x0_2x1", "each at least 1"),
        ("IRKNet-3x1-C", "then nothing, -A, -B or -AB"),
        ("ERKNet-", "is not a network's name"),
        ("RKNet-3x1", "an E or an I before each"),
        ("ERKNet_3x1", "expected ERKNet- or IRKNet-"),
        ("IRKNet 3x1_3x1-AB", "expected ERKNet- or IRKNet-"),
        ("erknet_k36_7x1", "did you mean erknet_k36_7x1"),
    ],
)
def test_a_name_that_is_none_says_what_is_expected(name, said):
    with pytest.raises(ConfigError, match=said):
        create_model(name)


def test_explicit_and_implicit_periods_in_one_network():
    net = create_model("RKNet-E3×2_I4×1_e2x1-B", growth=8)
    assert net.spelling == "RKNet-E3×2_I4×1_E2×1-B"
    assert [type(block.first).__name__ for block in net.blocks] == ["ERKStep", "IRKStep", "ERKStep"]
    assert [block.first.bottleneck for block in net.blocks] == [32, 8, 32]
    assert net(torch.rand(2, 3, 16, 16)).shape == (2, 10)
    for one, same in (("RKNet-E3x1_E2x1", "ERKNet-3×1_2×1"), ("RKNet-I3x1_I2x1", "IRKNet-3×1_2×1")):
        assert create_model(one, growth=4).spelling == same, "of one kind it is the network that it always was"
    k, explicit, implicit = 36, 9 * 36**2 * 28 + 36 * 56 + 72, 9 * 36**2 * 16 + 36 * 20 + 2 * 36 * 12 + 72
    assert model_entry("rknet").parameters == 27 * k + explicit + 2 * implicit + 2 * (2 * k + k**2) + 30 * k + 10


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("RKNet-3x2_4x1", {}, "an E or an I before each"),
        ("rknet", dict(kinds="EI"), "for each of the 3 periods"),
        ("rknet", dict(kinds="EXI"), "an E or an I"),
        ("rknet", dict(kinds="EII", m=[2, 2, 1]), "breaks rule 4"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(name, options, said):
    with pytest.raises(ConfigError, match=said):
        create_model(name, **options)


def test_a_name_and_an_option_must_not_disagree():
    assert create_model("ERKNet-2x1", stages="2x1", growth=2).spelling == "ERKNet-2×1"
    with pytest.raises(ConfigError, match="the name says stages='2x1'"):
        create_model("ERKNet-2x1", stages="3x1")


# --- rules 1–4 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "rule", "said"),
    [
        ("erknet", dict(stages="2x1", growth=36, channels=64), 1, r"64 channels.*k = 36.*nearest valid: 72 channels \(m = 2\) or 36"),
        ("erknet", dict(stages="2x1", growth=36, channels=20), 1, r"nearest valid: 36 channels \(m = 1\)"),
        ("erknet", dict(stages="2x1_2x1", growth=32, channels=[64, 128], m=[2, 2]), 2, r"period 2.*groups of 64.*nearest valid: m = 4"),
        ("erknet", dict(growths=[6, 10], growth=32, channels=[64, 128]), 3, r"period 2.*10 growths.*12 growths \(3 stages\) or 8 growths"),
        ("erknet", dict(growths=[1], growth=32, m=4), 3, r"nearest valid: 4 growths \(1 stage\)"),
        ("irknet", dict(stages="2x1", m=2), 4, r"m = 1, and here m = 2; nearest valid: m = 1, so y_n has k = 36 channels"),
        ("irknet", dict(stages="2x1", growth=32, channels=64), 4, "m = 1"),
    ],
)
def test_a_broken_rule_is_named_with_the_nearest_valid_setting(model, options, rule, said):
    with pytest.raises(BrokenRule, match=said) as refused:
        create_model(model, **options)
    assert refused.value.rule == rule
    assert f"rule {rule}" in str(refused.value)


def test_uneven_growths_break_rule_2():
    assert rule_2_even(0, [4, 4, 4]) == 4
    with pytest.raises(BrokenRule, match=r"growth 3 has 5 channels.*nearest valid: k = 4"):
        rule_2_even(0, [4, 4, 5, 4])


def test_growths_and_channels_say_the_same_as_stages_and_m():
    given = create_model("erknet", growths=[4, 6], growth=2, channels=[4, 6], multiscale=False)
    assert given.spelling == "ERKNet-2×1_2×1"
    same = create_model("erknet", stages="2x1_2x1", growth=2, m=[2, 3], multiscale=False)
    assert {k: v.shape for k, v in given.state_dict().items()} == {k: v.shape for k, v in same.state_dict().items()}
    twin = create_model(given.config["model"], **given.config["options"])
    assert twin.spelling == given.spelling


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(stages=None), "give one"),
        (dict(stages="2x1_2x1", growth=[4]), "2 of them, one per period"),
        (dict(stem="big"), "stem small or imagenet"),
        (dict(attention="no"), "attention is 'no'; expected true or false"),
        (dict(filters="jets"), "filters pixel or njet"),
        (dict(stages="2x1", activation="rleu"), "did you mean relu"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        create_model("erknet", **options)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("erknet", dict(stages="2x1_1x2", growth=[2, 3], m=[2, 1], dropout=0.2, attention=True)),
        ("erknet", dict(stages="1x1", growth=2, stem="imagenet", multiscale=False)),
        ("erknet", dict(stages="2x1_1x1", growth=3, bottleneck=True, bottleneck_width=2, norm="group", activation="celu")),
        ("erknet", dict(stages="2x2", growth=3, norm="identity", activation="tanh")),
        ("erknet", dict(stages="2x1", growth=3, filters="njet", filter_options=dict(order=1))),
        ("irknet", dict(stages="2x2_3x1", growth=3, loops=2, order="jacobi", state_in_update=True, share_steps=True)),
        ("irknet", dict(stages="2x1", growth=3, bottleneck=True, loops=0)),
    ],
)
def test_every_option_trains_and_is_saved(model, options, tmp_path):
    net, images = create_model(model, **options), torch.rand(3, 3, 12, 12)
    net(images).square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())
    net.eval().save_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(from_pretrained(tmp_path)(images), net(images), rtol=0, atol=0)


def test_shared_steps_have_the_weights_of_one():
    one, shared, own = (
        create_model("erknet", growth=3, stages=stages, share_steps=share)
        for stages, share in (("2x1", False), ("2x3", True), ("2x3", False))
    )
    assert count(one) == count(shared) < count(own)
    assert len(shared.states(torch.rand(2, 3, 8, 8))) == 4


def test_memory_efficient_is_the_same_network():
    torch.manual_seed(0)
    plain = create_model("irknet", growth=4, stages="2x1_2x1")
    thrifty = create_model("irknet", growth=4, stages="2x1_2x1", memory_efficient=True)
    thrifty.load_state_dict(plain.state_dict())
    images, gradients = torch.rand(3, 3, 8, 8), []
    for net in (plain, thrifty):
        net(images).square().sum().backward()
        gradients.append([p.grad for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_initialisation_is_he_for_convolutions_and_xavier_for_the_head():
    net = create_model("irknet", growth=24, stages="3x1")
    for step in net.modules():
        if isinstance(step, IRKStep):
            weight = step.nodes[0].conv.filter.weight
            assert float(weight.detach().std()) == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.05)
    assert not bool(net.head.linear.bias.any())


@torch.no_grad()
def test_frozen_networks_give_the_same_logits():
    net, images = create_model("erknet", growth=3, stages="2x1", filters="njet").eval(), torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(frozen(net)(images), net(images), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_one_graph_of_an_rknet_gives_the_same_logits():
    from continua.models import export_program

    net = create_model("irknet", growth=3, stages="2x1").eval()
    images = torch.rand(3, 3, 8, 8)
    torch.testing.assert_close(export_program(net, (3, 8, 8)).module()(images), net(images), rtol=1e-4, atol=1e-5)


# --- drawing and recipes ----------------------------------------------------------------------------------------------


def test_the_drawing_says_what_a_stage_reads():
    parts = describe_model("erknet_k36_7x1_6x1_6x1").parts
    assert parts[1].kind == "period"
    assert parts[1].layers[:2] == ("z₁: 3×3 of y", "z₂: 3×3 of y, z₁")
    assert parts[1].layers[-2:] == ("z₇: 3×3 of y, z₁…z₆", "y + Σ z")
    assert describe_model("erknet_k36_7x1_6x1_6x1").multiscale
    implicit = describe(create_model("irknet", growth=2, stages="3x2"), (3, 8, 8)).parts[1]
    assert implicit.note == "2 such time-steps"
    assert implicit.layers[3:] == ("update", "z₁: 3×3 of z₂, z₃", "z₂: 3×3 of z₁, z₃", "z₃: 3×3 of z₁, z₂", "y + Σ z")
    coarse = describe_model("erknet_imagenet_3x1_3x1_3x1_1x1_b").parts[3]
    assert coarse.layers[0] == "z₁: 4 × (1×1, 3×3) of y"


@pytest.mark.parametrize("name", ["ERKNet-2x1_1x1", "irknet_k36_3x1_3x1_3x1"])
def test_a_network_trains_through_the_recipe(name, tmp_path):
    from training import QUIET

    options = dict(growth=4, **({} if name.startswith("ERK") else dict(stages="2x1_2x1")))
    changes = dict(
        model=name, model_options=options, data="digits", per_class=4, epochs=1, batch_size=20, augmentation=dict(mean=None, std=None)
    )
    run = train(load_recipe("rknet_cifar", changes), tmp_path / "run", QUIET)
    assert run.result is not None
    assert run.lines()[-1]["event"]
    assert from_pretrained(run.best).spelling == ("ERKNet-2×1_1×1" if name.startswith("ERK") else "IRKNet-2×1_2×1")
    assert run.recipe.model_options["dropout"] == 0.2


def test_the_imagenet_recipe_trains_a_step():
    recipe = load_recipe("rknet_imagenet")
    net = create_model(recipe.model, **{**model_entry(recipe.model).tiny, **recipe.model_options})
    optimiser = build_optimiser(net, recipe.optimiser)
    before = [p.detach().clone() for p in net.parameters()]
    torch.nn.functional.cross_entropy(net(torch.rand(4, 3, 64, 64)), torch.arange(4)).backward()
    optimiser.step()
    assert sum(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)) > 0.9 * len(before)


def test_recipes_are_the_published_set_ups():
    cifar, imagenet = load_recipe("rknet_cifar"), load_recipe("rknet_imagenet")
    for recipe in (cifar, imagenet):
        optimiser = recipe.optimiser
        assert (optimiser.lr, optimiser.momentum, optimiser.nesterov, optimiser.weight_decay) == (0.1, 0.9, True, 1e-4)
    assert (cifar.epochs, cifar.batch_size, cifar.schedule.milestones) == (300, 64, (150.0, 225.0))
    assert (cifar.augmentation.crop_padding, cifar.augmentation.flip) == (0, False)
    assert cifar.model_options["dropout"] == 0.2
    assert (imagenet.epochs, imagenet.batch_size, imagenet.schedule.every) == (90, 256, 30)
    assert imagenet.augmentation.resized_crop is not None
