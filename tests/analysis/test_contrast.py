"""Contrast: the right numbers reach the network, and the curves mean what they say."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import continua
from continua import create_model
from continua.analysis import Contrast, contrast
from continua.analysis.measure import Measured, black, measured
from continua.analysis.questions.contrast import MODES, Curve, log_spaced, modes_of, present
from continua.data import Augmentation
from continua.errors import ConfigError, SolverError
from continua.report import Figure

TINY = dict(channels=(4, 4), in_channels=1, num_classes=3, stem_padding=1)
ADAPTIVE = dict(method="bosh3", rtol=1e-2, atol=1e-2)


def some_batches(count: int = 2, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [(torch.rand(size, 1, 8, 8), torch.randint(0, 3, (size,))) for _ in range(count)]


def small_net(name: str = "odenet", **options: object) -> continua.Network:
    solver = {"solver": ADAPTIVE} if "resnet" not in name else {}
    return continua.create_model(name, **{**TINY, **solver, **options}).eval()


class Spy(torch.nn.Module):
    """A network that answers by the mean of its input and remembers how it was called."""

    def __init__(self, net: continua.Network) -> None:
        super().__init__()
        self.blocks, self.stats, self.calls = net.blocks, [None] * len(net.blocks), []

    def forward(self, images: Tensor, **options: object) -> Tensor:
        self.calls.append((images, options))
        return torch.eye(3)[torch.zeros(len(images), dtype=torch.long)]


def test_the_papers_contrasts() -> None:
    values = log_spaced()
    assert len(values) == 30
    assert values[0] == pytest.approx(0.001)
    assert values[-1] == pytest.approx(5.01187, rel=1e-5)
    assert [b / a for a, b in pairwise(values)] == pytest.approx([values[1] / values[0]] * 29)


def test_each_mode_changes_what_it_says_and_nothing_else() -> None:
    spy, batches = Spy(small_net(t1=1.5)), some_batches(1)
    images = batches[0][0]
    contrast(spy, batches, contrasts=[0.5])
    plain, naive, scaled, inputs, alone = spy.calls
    assert torch.equal(plain[0], images)
    assert not plain[1]
    assert torch.equal(naive[0], 0.5 * images)
    assert not naive[1]
    assert torch.equal(scaled[0], 0.5 * images)
    assert scaled[1]["t1"][0].tolist() == [0.75] * 4
    assert list(scaled[1]) == ["t1"]
    assert torch.equal(inputs[0], images)
    assert inputs[1]["input_scale"] == 0.5
    assert {index: end.tolist() for index, end in inputs[1]["t1"].items()} == {0: [0.75] * 4, 1: [0.75] * 4}
    assert torch.equal(alone[0], images)
    assert alone[1] == {"t1": None, "input_scale": 0.5}, "the paper's words: inputs, and not T"


def test_contrast_of_normalised_images_is_that_of_their_pixels() -> None:
    preprocess = Augmentation(mean=(0.3,), std=(0.2,))
    pixels = torch.rand(4, 1, 8, 8)
    spy = Spy(small_net())
    contrast(spy, [((pixels - 0.3) / 0.2, torch.zeros(4))], contrasts=[0.25], modes=["naive"], zero=black(preprocess))
    torch.testing.assert_close(spy.calls[1][0], (0.25 * pixels - 0.3) / 0.2)
    assert black(Augmentation()).item() == 0.0


def test_at_contrast_one_all_modes_are_the_plain_network() -> None:
    net, batches = small_net(), some_batches()
    result = contrast(net, batches, contrasts=[1.0], per_sample=False)
    assert [curve.mode for curve in result.curves] == list(MODES)
    for curve in result.curves:
        assert curve.accuracy == [result.plain.accuracy]
        assert curve.nfe == [result.plain.nfe]
    assert result.images == 8


def test_an_end_time_per_image_gives_the_states_of_one_for_the_batch() -> None:
    net = small_net(solver=dict(method="rk4", steps=3))
    images, end = torch.rand(4, 1, 8, 8), 0.3
    together, apart = net(images, t1={0: end}), net(images, t1={0: torch.full((4,), end, dtype=torch.float64)})
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-6)
    batches = some_batches()
    shared, each = (contrast(net, batches, contrasts=[end], modes=["scaled"], per_sample=p).curves[0] for p in (False, True))
    assert shared.accuracy == each.accuracy


def test_less_time_costs_fewer_evaluations() -> None:
    net = small_net(t1=4.0, solver=dict(method="bosh3", rtol=1e-3, atol=1e-3))
    curve = contrast(net, some_batches(1), contrasts=[0.05, 1.0], modes=["scaled"]).curves[0]
    assert curve.nfe[0][0] < curve.nfe[1][0]


def test_a_network_without_time_has_two_modes() -> None:
    net = small_net("resnet_blocks")
    assert modes_of(net) == ["naive", "inputs"]
    result = contrast(net, some_batches(), contrasts=[0.5, 2.0])
    assert result.plain.nfe == [0.0, 0.0]
    assert [figure.name for figure in present(result).every(Figure)] == ["accuracy"]
    with pytest.raises(ConfigError, match="has none"):
        contrast(net, some_batches(), modes=["scaled"])
    with pytest.raises(ConfigError, match="unknown mode 'louder'"):
        contrast(net, some_batches(), modes=["louder"])


def test_a_batch_that_cannot_be_solved_counts_as_wrong() -> None:
    net = small_net()

    def forward(images: Tensor) -> Tensor:
        if len(images) == 2:
            raise SolverError("no")
        return torch.eye(3)[torch.ones(len(images), dtype=torch.long)]

    batches = [(torch.rand(n, 1, 8, 8), torch.ones(n, dtype=torch.long)) for n in (2, 6)]
    net(batches[0][0])
    result = measured(net, batches, forward=forward)
    assert (result.images, result.failed, result.accuracy) == (8, 2, 0.75)
    with pytest.raises(ConfigError, match="no images"):
        measured(net, [])


def test_the_page_names_the_cheapest_harmless_scale() -> None:
    page = present(contrast(small_net(), some_batches(1, 2), contrasts=[0.5, 1.0]))
    assert [figure.name for figure in page.every(Figure)] == ["accuracy", "nfe_block_1", "nfe_all"]
    assert "Scaling inputs and T of all blocks" in str(page.parts[1])


def test_halves_are_the_images_at_even_and_at_odd_places() -> None:
    labels = torch.tensor([1, 0, 1, 0, 0, 0])
    batches = [(torch.rand(3, 1, 8, 8), labels[:3]), (torch.rand(3, 1, 8, 8), labels[3:])]
    net = small_net()
    net(batches[0][0])
    result = measured(net, batches, forward=lambda images: torch.eye(3)[torch.zeros(len(images), dtype=torch.long)])
    assert result.halves == pytest.approx([1 / 3, 1.0])
    assert result.accuracy == pytest.approx(sum(result.halves) / 2)


def judged(halves: list[list[float]], costs: list[float]) -> Contrast:
    """Of a network that is right for 80 % of either half at 100 evaluations."""
    curve = Curve("inputs", [sum(half) / 2 for half in halves], [[cost] for cost in costs], [0] * len(costs), halves)
    return Contrast([0.1, 0.5][: len(costs)], 200, Measured(200, 0.8, [100.0], 0, [0.8, 0.8]), [curve])


def test_a_contrast_that_is_harmless_by_chance_on_one_half_shows_its_loss_on_the_other() -> None:
    saving = judged([[0.80, 0.70], [0.70, 0.80]], [40.0, 60.0]).saving("inputs")
    assert saving is not None
    assert saving.contrasts == [0.1, 0.5]
    assert saving.saved == pytest.approx(0.5)
    assert saving.lost == pytest.approx(0.1)


def test_nothing_is_saved_where_no_contrast_is_harmless_and_nothing_said_of_what_was_not_asked() -> None:
    result = judged([[0.5, 0.5]], [40.0])
    saving = result.saving("inputs")
    assert saving is not None
    assert (saving.contrasts, saving.saved, saving.lost) == ([1.0, 1.0], 0.0, 0.0)
    assert result.saving("inputs_only") is None


def test_scaling_inputs_and_time_alike_changes_no_prediction_of_a_normalised_autonomous_field() -> None:
    """f(c h) = f(h), so c h(t / c) solves the equation too; Runge–Kutta steps have the same symmetry, to rounding."""
    net = small_net(t1=2.0, solver=dict(method="rk4", steps=3)).double()
    for module in net.modules():
        if isinstance(module, torch.nn.GroupNorm):
            module.eps = 1e-20
    for block in net.blocks:
        for conv in (block.field.conv1, block.field.conv2):
            with torch.no_grad():
                conv.filter.weight[:, 0] = 0.0  # the time channel
    images = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    ends = dict.fromkeys(range(len(net.blocks)), 2.0 * 0.01)
    torch.testing.assert_close(net(images, t1=ends, input_scale=0.01), net(images), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(net(images, input_scale=0.01), net(images), rtol=1e-2), "inputs alone are not enough"


@pytest.mark.parametrize("model", ["odenet", "dcn_ode"])
def test_without_explicit_time_the_symmetry_of_contrast_is_exact(model: str) -> None:
    """No weight is touched: a field that does not read t has f(c h) = f(h) by itself, up to the ε of its norms, which is none here."""
    torch.manual_seed(0)
    images, ends = torch.rand(4, 1, 16, 16, dtype=torch.float64), {0: 2.0 * 0.01, 1: 2.0 * 0.01}
    found = {}
    for explicit in (False, True):
        net = create_model(
            model, in_channels=1, channels=(4, 6), norm_groups=2, t1=2.0, explicit_time=explicit, solver=dict(method="rk4", steps=3)
        )
        net = net.double().eval()
        for module in net.modules():
            if isinstance(module, torch.nn.GroupNorm):
                module.eps = 1e-20
        with torch.no_grad():
            found[explicit] = float((net(images, t1=ends, input_scale=0.01) - net(images)).abs().max())
    assert found[False] < 1e-9
    assert found[True] > 1e-4, "with t among its inputs the field tells the two apart"
