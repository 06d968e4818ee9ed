"""What is particular to the DCN family: counts of its parts, its options, end times and input scale."""

import pytest
import torch

from continua import ConfigError, create_model, from_pretrained, list_models
from continua.filters import NJet, Pixel, ScheduledNJet
from continua.models.dcn import DCN, JetODEConfig
from continua.models.reconstruction import Reconstructor

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")  # tiny maps: a kernel may outgrow them

SMALL = dict(channels=(4, 8), solver=dict(method="rk4", steps=1))
IMAGES = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "stem", "blocks", "downs"),
    [
        ("resnet_blocks", 896, (18_560, 73_984, 295_424), (64 + 32_832, 128 + 131_200)),
        ("resnet_srf_blocks", 896, (12_418, 49_410, 197_122), (64 + 32_832, 128 + 131_200)),
        ("resnet_srf_full", 577, (12_418, 49_410, 197_122), (64 + 12_289, 128 + 49_153)),
        ("odenet", 896, (19_264, 75_392, 298_240), (64 + 32_832, 128 + 131_200)),
        ("dcn_ode", 896, (12_866, 50_306, 198_914), (64 + 32_832, 128 + 131_200)),
        ("dcn_full", 577, (12_866, 50_306, 198_914), (64 + 12_289, 128 + 49_153)),
        ("dcn_sigma_ji", 896, (14_976, 58_624, 231_936), (64 + 32_832, 128 + 131_200)),
        ("dcn_sigma_t", 896, (12_868, 50_308, 198_916), (64 + 32_832, 128 + 131_200)),
        ("dcn_sigma_t2", 896, (12_870, 50_310, 198_918), (64 + 32_832, 128 + 131_200)),
        ("dcn_sigma_alpha_t", 896, (25_540, 100_228, 397_060), (64 + 32_832, 128 + 131_200)),
    ],
)
def test_every_part_has_the_count_of_its_formula(name, stem, blocks, downs):
    with torch.device("meta"):
        net = create_model(name)
    assert count(net.stem) == stem
    assert tuple(count(block) for block in net.blocks) == blocks
    assert tuple(count(down) for down in net.transitions) == downs
    assert count(net.head) == 256 + 1290


def test_the_ten_models_of_the_paper_are_registered():
    assert len(list_models("*dcn*")) == 6
    assert {"resnet_blocks", "resnet_srf_blocks", "resnet_srf_full", "odenet"} <= set(list_models())


@pytest.mark.parametrize(
    ("name", "kind", "activation", "t1"),
    [
        ("odenet", Pixel, "relu", 1.0),
        ("dcn_ode", NJet, "celu", 2.0),
        ("dcn_sigma_t2", ScheduledNJet, "celu", 2.0),
        ("resnet_srf_blocks", NJet, "relu", None),
    ],
)
def test_models_differ_as_the_paper_says(name, kind, activation, t1):
    net = create_model(name, channels=(4, 8))
    field = net.blocks[0] if t1 is None else net.blocks[0].field
    assert type(field.conv1.filter) is kind
    assert field.act.name == activation
    assert t1 is None or net.blocks[0].t1 == t1
    assert (field.conv1.bias is not None) is (name == "odenet")


def test_groups_of_the_norms_are_32_except_in_dcn_full():
    with torch.device("meta"):
        assert create_model("dcn_ode").head.norm.num_groups == 32
        assert create_model("dcn_full").head.norm.num_groups == 128


def test_spatial_sizes_follow_the_paper():
    with torch.no_grad():
        image = torch.rand(1, 3, 32, 32)
        options = dict(channels=(2, 2, 2), solver=dict(method="euler", steps=1))
        assert create_model("dcn_ode", **options).forward_features(image).shape[-1] == 7
        assert create_model("dcn_full", **options).forward_features(image).shape[-1] == 8
        assert create_model("dcn_ode", stem_padding=1, **options).forward_features(image).shape[-1] == 8


@torch.no_grad()
def test_options_do_what_they_say():
    net = create_model("dcn_ode", in_channels=1, num_classes=3, order=3, activation="tanh", norm_groups=2, t1=1.5, **SMALL)
    assert net(IMAGES[:, :1]).shape == (3, 3)
    assert net.blocks[0].field.conv1.filter.alpha.shape == (10, 5, 4)
    assert net.blocks[0].t1 == 1.5
    assert net.blocks[1].field.norm1.num_groups == 2
    wide = create_model("dcn_ode", augment_channels=2, **SMALL)
    assert wide.blocks[0].field.conv1.out_channels == 6
    assert wide(IMAGES).shape == (3, 10)
    dense = create_model("dcn_ode", conv_options=dict(route="dense"), **SMALL)
    dense(IMAGES)
    assert dense.stats[0].routes == {"conv1": "dense", "conv2": "dense"}
    bounded = create_model("dcn_ode", filter_options=dict(sigma_bounds=(0.5, 2.0)), **SMALL)
    assert 0.5 < float(bounded.blocks[0].field.conv1.filter.sigma) < 2.0


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="augment_channels"):
        create_model("resnet_blocks", augment_channels=2)
    with pytest.raises(ConfigError, match="unknown filters"):
        DCN(filters="wavelet")
    with pytest.raises(ConfigError, match="no ODE block"):
        create_model("resnet_blocks", channels=(4, 8)).with_solver(method="rk4", steps=1)
    with pytest.raises(ConfigError, match="which has no time"):
        create_model("resnet_blocks", channels=(4, 8))(IMAGES, t1={0: 1.0})
    with pytest.raises(ConfigError, match="there is no block 5"):
        create_model("dcn_ode", **SMALL)(IMAGES, t1={5: 1.0})


@pytest.mark.parametrize("name", ["odenet", "dcn_sigma_t"])
@torch.no_grad()
def test_end_times_per_block_and_per_sample(name):
    net = create_model(name, **SMALL).double()
    images, times = IMAGES.double(), torch.tensor([0.5, 1.0, 1.7], dtype=torch.float64)
    together = net(images, t1={0: times, -1: 0.8})
    for k in range(3):
        torch.testing.assert_close(together[k : k + 1], net(images[k : k + 1], t1={0: float(times[k]), 1: 0.8}), rtol=1e-9, atol=1e-9)
    start = net.states(images, 0)[0]
    torch.testing.assert_close(net.states(images, 0, t1={0: times})[0], start)
    nothing = net(images, t1={0: 0.0, 1: 0.0})
    h = net.transitions[0](net.stem(images))
    torch.testing.assert_close(nothing, net.forward_head(h))


@torch.no_grad()
def test_the_input_scale_multiplies_the_input_of_every_block():
    net = create_model("dcn_ode", **SMALL)
    plain = net.states(IMAGES, 0)[0]
    torch.testing.assert_close(net.states(IMAGES, 0, input_scale=0.3)[0], 0.3 * plain)
    scales = torch.tensor([0.5, 1.0, 2.0])
    both = net.states(IMAGES, 1, input_scale=scales)[0]
    for k in range(3):
        alone = net.states(IMAGES[k : k + 1], 1, input_scale=float(scales[k]))[0]
        torch.testing.assert_close(both[:, k : k + 1][0] if both.ndim == 5 else both[k : k + 1], alone, rtol=1e-4, atol=1e-5)
    assert torch.equal(net(IMAGES, input_scale=1.0), net(IMAGES))


@pytest.mark.parametrize("conv_options", [dict(route="dense"), dict(route="separable")])
def test_second_derivatives_go_through_a_direct_solve(conv_options):
    net = create_model("dcn_ode", channels=(2,), conv_options=conv_options, solver=dict(method="euler", steps=2, gradient="direct"))
    images = IMAGES[:1, :, :8, :8].clone().requires_grad_()
    (first,) = torch.autograd.grad(net(images)[0, 0], images, create_graph=True)
    first.square().sum().backward()
    gradient = net.blocks[0].field.conv1.filter.alpha.grad
    assert gradient is not None
    assert bool((gradient != 0).any())


def test_a_network_made_without_its_name_takes_another_solver_too() -> None:
    net = DCN(JetODEConfig(channels=(4, 8)))
    assert net.with_solver(method="rk4", steps=2).blocks[0].solver.method == "rk4"


def test_whole_numbers_are_refused_before_they_reach_a_solver() -> None:
    with pytest.raises(ConfigError, match=r"uint8.*reads floats"):
        create_model("dcn_ode", channels=(4, 8))(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))


# --- a solver for each block --------------------------------------------------------------------------------------------


def evaluations(net) -> list[int]:
    net(IMAGES)
    return [stats.nfe for stats in net.stats]


def by_block(**options):
    return create_model("dcn_ode", **SMALL, block_solvers=[dict(steps=[1, 2, 4]), {}], **options)


def test_each_block_takes_the_steps_that_it_is_given():
    net = by_block()
    assert evaluations(net) == [12, 4]
    assert [block.solver.steps for block in net.blocks] == [(1.0, 2.0, 4.0), 1]


def test_another_solver_keeps_what_it_does_not_name():
    net = by_block()
    assert evaluations(net.with_solver(gradient="checkpoint")) == [12, 4]
    assert evaluations(net.with_solver(method="midpoint")) == [6, 2]
    for other in (net.with_solver(steps=2), net.with_solver(dict(method="rk4", steps=2))):
        assert evaluations(other) == [8, 8]
        assert other.options.block_solvers is None
    assert evaluations(net) == [12, 4]


@pytest.mark.parametrize("changes", [{}, dict(gradient="direct"), dict(steps=3)])
def test_a_saved_network_has_its_solvers_again(tmp_path, changes):
    net = by_block().eval().with_solver(**changes)
    net.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    assert [block.solver for block in again.blocks] == [block.solver for block in net.blocks]
    torch.testing.assert_close(again(IMAGES), net(IMAGES))


def test_a_decoder_solves_as_the_blocks_of_its_encoder_do():
    decoder = Reconstructor(create_model("dcn_ode", **SMALL, block_solvers=[dict(steps=3), dict(steps=2)]))
    assert [block.solver.steps for block in decoder.blocks] == [2, 3]


@pytest.mark.parametrize(
    ("given", "said"),
    [([{}], "1 entries.*2 blocks"), ([dict(step=2), {}], "step"), ([dict(steps=0), {}], "steps=0"), ([dict(steps=10**7), {}], "block 1")],
)
def test_solvers_that_do_not_fit_the_blocks_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        create_model("dcn_ode", **SMALL, block_solvers=given)
