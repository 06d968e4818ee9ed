"""Colour distortions of whole batches against Pillow and the standard library's colorsys."""

import colorsys
import itertools

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from continua.data.augment import add_pca_noise, distort, greyscale, rotate_hue


def noise(n: int = 6, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (n, channels, 12, 10)).float()


def in_order(n: int, *order: int) -> torch.Tensor:
    return torch.tensor([order] * n)


def pillow(enhance, images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    results = []
    for image, factor in zip(images, factors.tolist(), strict=True):
        result = enhance(Image.fromarray(image.permute(1, 2, 0).byte().numpy())).enhance(factor)
        results.append(torch.from_numpy(np.array(result)).permute(2, 0, 1))
    return torch.stack(results).float()


@pytest.mark.parametrize(
    ("kind", "enhance"), [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)]
)
def test_each_distortion_equals_pillows_to_its_rounding(kind, enhance):
    images, factors = noise(), torch.tensor([0.0, 0.4, 0.95, 1.0, 1.3, 2.0], dtype=torch.float64)
    arguments = {"brightness": None, "contrast": None, "saturation": None, kind: factors}
    result = distort(images, **arguments, order=in_order(6, 0))
    # Pillow drops the fraction of each pixel, and for saturation also rounds the grey it blends with.
    assert (result - pillow(enhance, images, factors)).abs().max() <= 2.0
    assert torch.equal(result[3], images[3])


def test_distortions_follow_each_images_own_order():
    images = noise()
    brightness, contrast, saturation = (torch.tensor(f, dtype=torch.float64).expand(6) for f in (1.4, 0.7, 1.5))
    orders = list(itertools.permutations(range(3)))
    together = distort(images, brightness, contrast, saturation, torch.tensor(orders))
    singles = [(brightness, None, None), (None, contrast, None), (None, None, saturation)]
    for i, order in enumerate(orders):
        one = images
        for kind in order:
            one = distort(one, *singles[kind], order=in_order(6, 0))
        assert torch.equal(together[i], one[i])
    assert (
        len(
            {
                tuple(image.flatten().tolist())
                for image in distort(images[:1].expand(6, -1, -1, -1), brightness, contrast, saturation, torch.tensor(orders))
            }
        )
        == 6
    )


def test_order_counts_only_the_distortions_that_are_given():
    images, factor = noise(), torch.full((6,), 1.3, dtype=torch.float64)
    both = distort(images, factor, None, factor, in_order(6, 1, 0))
    saturated = distort(images, None, None, factor, in_order(6, 0))
    assert torch.equal(both, distort(saturated, factor, None, None, in_order(6, 0)))


def test_zero_saturation_is_grey_and_zero_contrast_is_flat():
    images, zero = noise(), torch.zeros(6, dtype=torch.float64)
    assert torch.equal(distort(images, None, None, zero, in_order(6, 0)), greyscale(images).expand(-1, 3, -1, -1))
    assert distort(images, None, zero, None, in_order(6, 0)).flatten(1).std(1).max() == 0


def test_brightness_and_contrast_work_on_one_channel():
    images, factor = noise(channels=1), torch.full((6,), 0.5, dtype=torch.float64)
    assert torch.equal(distort(images, factor, None, None, in_order(6, 0)), images * 0.5)


def test_hue_rotation_equals_colorsys():
    images = noise(4)
    images[0, :, 0] = images[0, :1, 0]  # greys have no hue to turn
    images[1, 0] = images[1, 1]  # ties between the two largest channels
    turns = torch.tensor([0.05, -0.05, 0.5, -0.3], dtype=torch.float64)
    result = rotate_hue(images, turns)
    for image, turned, turn in zip(images, result, turns.tolist(), strict=True):
        for pixel, out in zip(image.flatten(1).T.tolist(), turned.flatten(1).T.tolist(), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in pixel))
            expected = [255 * c for c in colorsys.hsv_to_rgb((h + turn) % 1.0, s, v)]
            assert out == pytest.approx(expected, abs=1e-3)


def test_turning_the_hue_back_or_a_full_turn_restores_the_image():
    images = noise()
    turn = torch.linspace(-0.5, 0.5, 6, dtype=torch.float64)
    assert torch.allclose(rotate_hue(rotate_hue(images, turn), -turn), images, atol=1e-3)
    assert torch.allclose(rotate_hue(images, torch.ones(6, dtype=torch.float64)), images, atol=1e-3)


def test_pca_noise_has_the_covariance_of_its_components():
    values, vectors = (0.2, 0.02, 0.005), tuple(map(tuple, torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q.T.tolist()))
    strengths = 0.1 * torch.randn(50_000, 3, dtype=torch.float64)
    shift = add_pca_noise(torch.zeros(50_000, 3, 2, 2), strengths, values, vectors) / 255
    assert (shift == shift[:, :, :1, :1]).all()
    basis = torch.tensor(vectors, dtype=torch.float64)
    expected = basis.T @ torch.diag((0.1 * torch.tensor(values, dtype=torch.float64)) ** 2) @ basis
    assert torch.allclose(torch.cov(shift[:, :, 0, 0].double().T), expected, rtol=0.05, atol=1e-6)
