"""Pattern completion: where the mask lies, what D(t) is, for blocks with and without time."""

import numpy as np
import pytest
import torch
from torch import Tensor

import continua
from continua.analysis import pattern_completion
from continua.analysis.questions.pattern_completion import completion, default_sizes, masked, present
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import Network
from continua.report import Figure, Maps

TINY = dict(channels=(3, 4), in_channels=1, num_classes=3, stem_padding=1)
RK4 = dict(method="rk4", steps=2)


def some_batches(size: int = 8) -> list[tuple[Tensor, Tensor]]:
    return [(torch.rand(3, 1, size, size), torch.randint(0, 3, (3,))) for _ in range(2)]


def test_the_mask_of_the_authors_lies_on_rows_9_to_22() -> None:
    result = masked(torch.ones(1, 3, 32, 32), 14)
    dark = (result[0, 0] == 0).nonzero()
    assert (dark.min().item(), dark.max().item(), len(dark)) == (9, 22, 14 * 14)
    assert torch.equal(result[:, 0], result[:, 2])


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 0), (9, 12, 4), (7, 7, 7)])
def test_a_mask_is_in_the_middle_of_any_image(height: int, width: int, size: int) -> None:
    image = torch.ones(1, 1, height, width)
    dark = masked(image, size)[0, 0] == 0
    assert int(dark.sum()) == size * size
    assert bool((image == 1).all()), "the image itself stays as it was"
    if size:
        rows, columns = dark.any(1).nonzero().flatten(), dark.any(0).nonzero().flatten()
        assert abs(int(rows[0]) - (height - 1 - int(rows[-1]))) <= 1
        assert abs(int(columns[0]) - (width - 1 - int(columns[-1]))) <= 1


def test_a_mask_has_the_value_of_a_black_pixel_and_must_fit() -> None:
    result = masked(torch.zeros(2, 3, 4, 4), 2, torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1))
    assert result[1, :, 1, 1].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ConfigError, match="does not fit"):
        masked(torch.zeros(1, 1, 4, 4), 5)


def test_sizes_follow_the_image() -> None:
    assert default_sizes(32) == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert default_sizes(64) == list(range(0, 33, 4))
    assert default_sizes(8) == [0, 2, 4]


class Decay(Network):
    """Stands for a network: one block whose state is h(t) = x e^(−t) + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([ODEBlock(lambda t, h: -h, t1=2.0)])

    def states(self, images: Tensor, block: int = 0, times: Tensor | None = None) -> Tensor:
        assert times is not None
        return torch.stack([images * torch.exp(-t) + 1 for t in times.float()])

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :3]


def test_the_difference_is_that_of_the_closed_form() -> None:
    images = torch.full((2, 1, 4, 4), 3.0)
    result = completion(Decay(), [(images, torch.zeros(2))], mask=2, times=3)
    assert result.times == pytest.approx([0.0, 1.0, 2.0])
    apart = [4 * 3 * np.exp(-t) for t in result.times]  # four of sixteen pixels lose 3 e^(−t)
    assert result.mean == pytest.approx([a / (16 * (3 * np.exp(-t) + 1)) for a, t in zip(apart, result.times, strict=True)], rel=1e-6)
    assert result.fixed_mean == pytest.approx([a / 64 for a in apart], rel=1e-6)
    assert result.std == pytest.approx([0.0] * 3, abs=1e-9)
    assert (result.falls, result.images) == (1.0, 2)


def test_the_difference_where_the_mask_is_counts_nothing_else() -> None:
    images = torch.arange(32.0).reshape(2, 1, 4, 4) + 1
    result = completion(Decay(), [(images, torch.zeros(2))], mask=2, times=3)
    each = images[:, :, 1:3, 1:3].flatten(1).mean(1).numpy() / images.flatten(1).std(1, correction=0).numpy()  # e^(−t) cancels
    assert result.inside_mean == pytest.approx([each.mean()] * 3, rel=1e-5)
    assert result.inside_std == pytest.approx([each.std()] * 3, rel=1e-5)


def test_the_spread_is_over_images_and_the_count_is_kept() -> None:
    images = torch.stack([torch.full((1, 4, 4), value) for value in (1.0, 2.0, 5.0, 100.0)])
    batches = [(images[:2], torch.zeros(2)), (images[2:], torch.zeros(2))]
    result = completion(Decay(), batches, mask=2, times=2, images=3)
    each = np.array([4 * v / (16 * (v + 1)) for v in (1.0, 2.0, 5.0)])
    assert result.images == 3
    assert (result.mean[0], result.std[0]) == pytest.approx((each.mean(), each.std()), rel=1e-6)


def test_no_mask_makes_no_difference_in_a_real_network() -> None:
    net = continua.create_model("odenet", solver=RK4, **TINY).eval()
    result = completion(net, some_batches(), mask=0, times=3)
    assert result.mean == [0.0] * 3
    assert completion(net, some_batches(), mask=4, times=3).mean[0] > 0


def test_a_continuous_network_from_accuracy_to_maps() -> None:
    net, batches = continua.create_model("odenet", solver=RK4, **TINY).eval(), some_batches()
    result = pattern_completion(net, batches, mask=2, times=3, example=4)
    with torch.no_grad():
        right = sum(int((net(images).argmax(1) == labels).sum()) for images, labels in batches)
    assert result.accuracies[0] == right / 6
    assert result.sizes == [0, 2, 4]
    assert result.example.maps.shape == (3, 6, 8, 8)
    with torch.no_grad():
        state = net.states(batches[1][0][1:2], block=0, times=[0.0])[0, 0, result.example.channel]
    np.testing.assert_allclose(result.example.maps[0, 0], state.double().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.example.maps[2], np.abs(result.example.maps[0] - result.example.maps[1]), atol=1e-6)
    page = present(result)
    assert [figure.name for figure in page.every(Figure)] == ["accuracy", "difference", "inside"]
    assert page.every(Maps)[0].columns[-1] == "t = 1"


def test_a_residual_network_has_the_state_before_and_after() -> None:
    net = continua.create_model("resnet_blocks", **TINY).eval()
    result = pattern_completion(net, some_batches(), sizes=[0], mask=2, block=1)
    assert result.difference.times == [0.0, 1.0]
    assert result.example.maps.shape == (3, 2, 4, 4)
    assert not result.continuous
    assert present(result).every(Maps)[0].columns == ("state 0", "state 1")
    with pytest.raises(ConfigError, match="channels 0 … 3"):
        pattern_completion(net, some_batches(), sizes=[0], mask=2, block=1, channel=9)
