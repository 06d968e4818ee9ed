"""DenseNet to ERKNet, CliqueNet to IRKNet: the paper's examples, the rules that real networks break, and the weights carried over."""

import pytest
import torch
from torch import nn

from continua import ConfigError
from continua.models import CliqueNet, CliqueNetSpec, DenseNet, DenseNetSpec, from_cliquenet, from_densenet, model_entry
from continua.models.rknet.config import BrokenRule

SMALL = DenseNetSpec(layers=(4, 8), growth=3, stem_channels=6, num_classes=5, stem="small")  # 6 → 18 → 9 = 3·3: 8 growths break rule 3
GOOD = DenseNetSpec(layers=(4, 6), growth=3, stem_channels=6, num_classes=5, stem="small")


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def shaken(net: nn.Module) -> nn.Module:
    """Every number away from its start, one batch seen, in evaluation mode."""
    for p in net.parameters():
        p.data.add_(0.1 * torch.randn_like(p))
    net.train()(torch.rand(8, 3, 12, 12))
    return net.eval()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("densenet121", 7_978_856), ("densenet169", 14_149_480), ("densenet201", 20_013_928), ("densenet161", 28_681_000)],
)
def test_our_densenets_have_the_known_counts(name, parameters):
    with torch.device("meta"):
        assert count(DenseNet(name)) == parameters


@pytest.mark.parametrize(("growth", "nodes", "parameters"), [(36, 4, 935_994), (64, 5, 4_485_706), (80, 5, 6_937_546), (80, 6, 10_135_594)])
def test_our_cliquenets_have_the_published_counts(growth, nodes, parameters):
    with torch.device("meta"):
        assert count(CliqueNet(CliqueNetSpec(nodes=(nodes,) * 3, growth=growth))) == parameters


def test_densenet_121_becomes_the_first_row_of_table_3():
    with torch.device("meta"):
        net, report = from_densenet("densenet121")
    assert net.spelling == report.name == "ERKNet-3×1_3×1_3×1_1×1-B"
    assert count(net) == model_entry("erknet_imagenet_3x1_3x1_3x1_1x1_b").parameters
    assert [block.first.channels for block in net.blocks] == [64, 128, 256, 512]
    assert report.carried == ()


@pytest.mark.parametrize(
    ("source", "rule", "said"),
    [
        ("densenet169", 3, r"period 4 .*32 growths.*m = 20; nearest valid: 40 growths \(2 stages\) or 20 growths \(1 stage\)"),
        ("densenet201", 3, r"period 4 .*nearest valid: 28 growths \(1 stage\) or 56 growths \(2 stages\)"),
        ("densenet161", 3, r"period 3 .*36 growths.*m = 8; nearest valid: 40 growths \(5 stages\) or 32 growths \(4 stages\)"),
        (DenseNetSpec(layers=(4, 4), growth=12, stem_channels=16), 1, r"period 1 .*16 channels.*12 channels \(m = 1\) or 24"),
        (SMALL, 3, r"period 2 .*8 growths.*m = 3; nearest valid: 9 growths \(3 stages\) or 6"),
    ],
)
def test_a_densenet_that_breaks_a_rule_is_refused_with_the_repair(source, rule, said):
    with pytest.raises(BrokenRule, match=said) as refused:
        from_densenet(source)
    assert refused.value.rule == rule


def test_the_nearest_network_of_densenet_169_is_the_second_row_of_table_3():
    with torch.device("meta"):
        net, _ = from_densenet("densenet169", nearest=True)
    assert net.spelling == "ERKNet-3×1_3×1_4×1_2×1-B"
    assert count(net) == model_entry("erknet_imagenet_3x1_3x1_4x1_2x1_b").parameters


@pytest.mark.parametrize("bottleneck", [None, 4])
@torch.no_grad()
def test_converted_periods_compute_what_the_dense_blocks_did(bottleneck):
    from dataclasses import replace

    source = shaken(DenseNet(replace(GOOD, bottleneck=bottleneck)))
    net, report = from_densenet(source)
    net.eval()
    assert net.spelling == "ERKNet-2×1_2×1" + ("-B" if bottleneck else "")
    y = torch.randn(2, 6, 8, 8)
    dense = source.features.denseblock1(y)
    groups = dense[:, 6:].split(6, 1)
    for ours, theirs in zip(net.blocks[0].first.increments(y), groups, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.blocks[0](y), y + sum(groups), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.stem(torch.ones(1, 3, 8, 8)), source.features.conv0(torch.ones(1, 3, 8, 8)))
    inside = {key for key in net.state_dict() if key.startswith("blocks.")}
    assert inside <= set(report.carried)
    assert all(key.startswith(("transitions.", "head.")) for key in report.new)
    assert any(key.startswith("features.transition1") for key in report.left)
    assert 0 < report.carried_values < report.values


class Stranger(nn.Module):
    """A DenseNet that is not our class, known by the names of its weights alone."""

    def __init__(self, inner: DenseNet) -> None:
        super().__init__()
        self.features, self.classifier = inner.features, inner.classifier


def test_a_foreign_module_is_read_by_the_names_of_its_weights():
    source = DenseNet(GOOD)
    net, report = from_densenet(Stranger(source))
    again, same = from_densenet(source)
    assert net.spelling == again.spelling
    assert report.carried == same.carried
    assert net.config["options"]["norm_eps"] == 1e-5
    with pytest.raises(ConfigError, match=r"give a continua\.models\.DenseNet"):
        from_densenet(nn.Linear(2, 2))
    uneven = DenseNet(GOOD)
    uneven.features.denseblock1.denselayer2.conv2 = nn.Conv2d(12, 4, 3)
    with pytest.raises(BrokenRule, match=r"rule 2.*growth 2 has 4 channels"):
        from_densenet(Stranger(uneven))


def test_nearest_carries_what_fits_and_says_what_does_not():
    net, report = from_densenet(DenseNet(SMALL), nearest=True)
    assert net.spelling == "ERKNet-2×1_3×1-B"
    assert "blocks.1.steps.0.growths.7.conv.filter.weight" in report.carried
    assert "blocks.1.steps.0.growths.8.conv.filter.weight" in report.new
    text = str(report)
    assert text.startswith("DenseNet → ERKNet-2×1_3×1-B: ")
    assert f"carried ({len(report.carried)}):" in text


@torch.no_grad()
def test_a_cliquenet_that_keeps_the_rules_is_carried_over_whole():
    source = shaken(CliqueNet(CliqueNetSpec(nodes=(3, 2), growth=4, stem_channels=4, transition=4, bottleneck=True, attention=True)))
    net, report = from_cliquenet(source)
    net.eval()
    assert net.spelling == report.name == "IRKNet-3×1_2×1-AB"
    y = torch.randn(2, 4, 6, 6)
    nodes = source.blocks[0].increments(y)
    torch.testing.assert_close(net.blocks[0](y), y + sum(nodes))
    assert {key for key in net.state_dict() if key.startswith("blocks.")} | {"stem.weight"} == set(report.carried)


@pytest.mark.parametrize(
    ("spec", "rule", "said"),
    [
        (CliqueNetSpec(), 1, r"period 1 .*64 channels.*k = 36; nearest valid: 72 channels \(m = 2\) or 36"),
        (CliqueNetSpec(growth=64), 4, r"period 2 .*m = 4; nearest valid: m = 1, so y_n has k = 64 channels"),
    ],
)
def test_the_published_cliquenets_break_rules(spec, rule, said):
    with pytest.raises(BrokenRule, match=said) as refused:
        from_cliquenet(spec)
    assert refused.value.rule == rule


@torch.no_grad()
def test_the_nearest_irknet_keeps_the_kernels_between_stages():
    source = CliqueNet(CliqueNetSpec(nodes=(3, 3), growth=4, stem_channels=10))
    net, report = from_cliquenet(source, nearest=True)
    assert net.spelling == "IRKNet-3×1_3×1"
    mine, theirs = net.blocks[0].first.nodes[1].conv.filter.weight, source.blocks[0].nodes[1].conv.filter.weight
    assert torch.equal(mine[:, 4:], theirs[:, 10:])
    assert "blocks.0.steps.0.nodes.1.conv.filter.weight: kernels between stages; those from y_n are new" in report.carried
    assert "blocks.0.steps.0.nodes.1.update.weight" in report.carried
    assert any(line.startswith("stem.weight: ") for line in report.new)
    assert net(torch.rand(2, 3, 8, 8)).shape == (2, 10)
    with pytest.raises(ConfigError, match="takes a CliqueNet"):
        from_cliquenet(nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DenseNetSpec(layers=()), "layers=\\(\\); expected whole numbers"),
        (lambda: DenseNetSpec(layers=(6, 0)), "one for each block"),
        (lambda: DenseNetSpec(growth=0), "growth=0; expected a whole number of at least 1"),
        (lambda: DenseNetSpec(growth=12.5), "growth=12.5"),  # pyright: ignore[reportArgumentType]
        (lambda: DenseNetSpec(compression=0.0), "compression=0.0; expected a number above 0"),
        (lambda: DenseNetSpec(stem_channels=1, growth=1, layers=(1, 1), compression=0.1), "leaves a block no channels"),
        (lambda: DenseNetSpec(stem="large"), "expected small or imagenet"),  # pyright: ignore[reportArgumentType]
        (lambda: DenseNetSpec(bottleneck=-1), "bottleneck=-1"),
        (lambda: CliqueNetSpec(nodes=(4, -4)), "nodes=\\(4, -4\\)"),
        (lambda: CliqueNetSpec(transition=0), "transition=0"),
        (lambda: CliqueNetSpec(norm_eps=0.0), "norm_eps=0.0"),
        (lambda: CliqueNetSpec(attention="no"), "attention='no'; expected true or false"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_numbers_that_build_no_network_are_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        make()
