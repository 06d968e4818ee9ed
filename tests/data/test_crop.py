"""Random crops of whole batches against the same crops made one by one with Pillow."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from scipy import stats

from continua import ConfigError
from continua.data.crop import ResizedCrop, crop_and_resize, shift_and_flip
from continua.data.draws import Draws


def noise(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def to_pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_every_shift_and_flip_equals_pillows(device):
    padding, (height, width) = 4, (10, 13)
    cases = list(itertools.product(range(9), range(9), (False, True)))
    rows, columns, mirrored = (torch.tensor(values, device=device) for values in zip(*cases, strict=True))
    images = noise(len(cases), 3, height, width)
    out = shift_and_flip(images.to(device), rows, columns, mirrored, padding).cpu()
    for image, result, (row, column, mirror) in zip(images, out, cases, strict=True):
        expected = ImageOps.expand(to_pillow(image), padding).crop((column, row, column + width, row + height))
        assert torch.equal(result, from_pillow(ImageOps.mirror(expected) if mirror else expected))


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)), channels=st.sampled_from([1, 3]), data=st.data(), seed=st.integers(0, 2**32 - 1)
)
def test_resized_boxes_equal_pillows_pixel_for_pixel(size, channels, data, seed):
    height, width = size
    tall, wide = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - tall)), data.draw(st.integers(0, width - wide))
    image = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (1, channels, height, width), dtype=np.uint8))
    out = crop_and_resize(image, torch.tensor([[top, left, tall, wide]]))[0]
    for result, channel in zip(out, image[0], strict=True):
        expected = (
            Image.fromarray(channel.numpy()).crop((left, top, left + wide, top + tall)).resize((width, height), Image.Resampling.BILINEAR)
        )
        assert np.array_equal(result.numpy(), np.array(expected))


def test_whole_image_as_box_changes_nothing():
    images = noise(4, 3, 20, 30)
    assert torch.equal(crop_and_resize(images, torch.tensor([[0, 0, 20, 30]] * 4)), images)


@given(height=st.integers(1, 300), width=st.integers(1, 300), seed=st.integers(0, 100))
def test_boxes_lie_inside_the_image(height, width, seed):
    top, left, tall, wide = ResizedCrop().boxes(Draws(seed, 0, torch.arange(50)), height, width).unbind(1)
    assert (torch.minimum(top, left) >= 0).all()
    assert (torch.minimum(tall, wide) >= 1).all()
    assert (top + tall <= height).all()
    assert (left + wide <= width).all()


def test_boxes_have_the_areas_and_aspect_ratios_asked_for():
    crop = ResizedCrop(area=(0.1, 0.5), aspect=(0.5, 2.0))
    # In a large square image every first rectangle fits, so nothing but rounding disturbs the two distributions.
    top, left, tall, wide = crop.boxes(Draws(0, 0, torch.arange(4000)), 2000, 2000).double().unbind(1)
    area = tall * wide / 2000**2
    assert stats.kstest(area.numpy(), stats.uniform(0.1, 0.4).cdf).pvalue > 1e-4
    assert stats.kstest(torch.log2(wide / tall).numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
    assert stats.kstest(((top + 0.5) / (2000 - tall + 1)).numpy(), "uniform").pvalue > 1e-4
    assert stats.kstest(((left + 0.5) / (2000 - wide + 1)).numpy(), "uniform").pvalue > 1e-4


def test_an_image_too_elongated_for_any_box_gives_its_centre():
    crop = ResizedCrop(area=(0.9, 1.0), aspect=(1.0, 1.0))
    assert crop.boxes(Draws(0, 0, torch.arange(3)), 100, 1000).tolist() == [[0, 450, 100, 100]] * 3
    assert crop.boxes(Draws(0, 0, torch.arange(3)), 1000, 100).tolist() == [[450, 0, 100, 100]] * 3


@pytest.mark.parametrize(
    "options", [{"area": (0.0, 1.0)}, {"area": (0.5, 0.1)}, {"area": (0.5, 1.5)}, {"aspect": (2.0, 1.0)}, {"aspect": (0.0, 1.0)}]
)
def test_impossible_ranges_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        ResizedCrop(**options)
