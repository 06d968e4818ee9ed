"""Augmented batches: which numbers they depend on, what they do, what they refuse."""

import colorsys
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from continua import ConfigError, DataError
from continua.data.augment import IMAGENET_EIGENVALUES, IMAGENET_EIGENVECTORS, Augmentation, add_pca_noise, distort, greyscale, rotate_hue
from continua.data.crop import ResizedCrop, shift_and_flip

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
N = 23
IMAGES = torch.randint(0, 256, (N, 3, 11, 13), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
ALL = torch.arange(N)

DCN = Augmentation(crop_padding=4, flip=True)
FEATURES = Augmentation(crop_padding=4, hue=0.05, saturation=0.05, flip=True, **CIFAR)
IMAGENET = Augmentation(resized_crop=ResizedCrop(), brightness=0.4, contrast=0.4, saturation=0.4, pca=0.1, flip=True, **CIFAR)


STRENGTHS = st.sampled_from([0.0, 0.05, 0.4, 1.5])
OPTIONS = st.fixed_dictionaries(
    {
        "crop_padding": st.integers(0, 5),
        "resized": st.booleans(),
        "flip": st.booleans(),
        "brightness": STRENGTHS,
        "contrast": STRENGTHS,
        "saturation": STRENGTHS,
        "hue": st.sampled_from([0.0, 0.05, 0.5]),
        "pca": st.sampled_from([0.0, 0.1]),
    }
)


def built(options: dict) -> Augmentation:
    """One way to crop at a time."""
    options = dict(options)
    if options.pop("resized"):
        options |= {"crop_padding": 0, "resized_crop": ResizedCrop()}
    return Augmentation(**options, **CIFAR)


@given(options=OPTIONS, seed=st.integers(-(2**63), 2**63 - 1), epoch=st.integers(0, 10_000), data=st.data())
@settings(max_examples=60)
def test_an_image_is_augmented_alike_in_every_batch(options, seed, epoch, data):
    """Any order of the samples, cut into any batches, gives each sample the same bits as one batch of all of them."""
    augmentation = built(options)
    whole = augmentation.apply(IMAGES, seed, epoch, ALL)
    order = torch.tensor(data.draw(st.permutations(range(N))))
    cuts = sorted(data.draw(st.sets(st.integers(1, N - 1), max_size=4)))
    for indices in order.tensor_split(cuts):
        assert torch.equal(augmentation.apply(IMAGES[indices], seed, epoch, indices), whole[indices])


@given(options=OPTIONS, world=st.integers(2, 6), seed=st.integers(0, 2**31))
@settings(max_examples=25)
def test_ranks_together_see_what_one_process_sees(options, world, seed):
    augmentation = built(options)
    whole = augmentation.apply(IMAGES, seed, 3, ALL)
    for rank in range(world):
        mine = ALL[rank::world]
        assert torch.equal(augmentation.apply(IMAGES[mine], seed, 3, mine), whole[mine])


@pytest.mark.parametrize("augmentation", [DCN, FEATURES, IMAGENET], ids=["dcn", "features", "imagenet"])
def test_seed_epoch_and_index_each_change_the_picture(augmentation):
    same = IMAGES[:1].expand(64, -1, -1, -1).contiguous()
    indices = torch.arange(64)
    one = augmentation.apply(same, 0, 0, indices)
    for other in (
        augmentation.apply(same, 1, 0, indices),
        augmentation.apply(same, 0, 1, indices),
        augmentation.apply(same, 0, 0, indices + 64),
    ):
        assert (one != other).flatten(1).any(1).float().mean() > 0.9


def test_devices_agree_with_the_cpu(device):
    if device.type == "cpu":
        pytest.skip("needs a device other than the CPU")
    for augmentation in (DCN, FEATURES, IMAGENET):
        here = augmentation.apply(IMAGES.to(device), 0, 0, ALL).cpu()
        assert torch.allclose(here, augmentation.apply(IMAGES, 0, 0, ALL), atol=1e-4)


def test_everything_off_only_scales_to_the_unit_interval():
    assert torch.equal(Augmentation().apply(IMAGES, 0, 0, ALL), IMAGES.float() / 255)


def test_normalisation_subtracts_the_mean_and_divides_by_the_deviation():
    out = Augmentation(**CIFAR).apply(IMAGES, 0, 0, ALL)
    for channel, (mean, std) in enumerate(zip(CIFAR["mean"], CIFAR["std"], strict=True)):
        assert torch.allclose(out[:, channel], (IMAGES[:, channel].double() / 255 - mean).div(std).float(), atol=1e-5)


def test_evaluation_keeps_the_normalisation_and_nothing_random():
    assert IMAGENET.evaluation() == Augmentation(**CIFAR)
    assert DCN.evaluation() == Augmentation()


def test_crop_and_flip_give_every_window_both_ways_equally_often():
    """2 · 9 · 9 windows of one image, each a picture of its own."""
    image = IMAGES[:1]
    n = 162 * 60
    out = DCN.apply(image.expand(n, -1, -1, -1).contiguous(), 0, 0, torch.arange(n))
    counts = Counter(bytes((picture * 255).round().byte().numpy()) for picture in out)
    cases = list(itertools.product(range(9), range(9), (False, True)))
    rows, columns, mirrored = map(torch.tensor, zip(*cases, strict=True))
    windows = shift_and_flip(image.expand(162, -1, -1, -1), rows, columns, mirrored, 4)
    assert set(counts) == {bytes(window.numpy()) for window in windows}
    # 161 degrees of freedom: chi-square of 240 has a probability of 5e-5.
    assert sum((count - 60) ** 2 / 60 for count in counts.values()) < 240


def test_flip_then_crop_has_the_same_pictures_as_crop_then_flip():
    image = IMAGES[:1].expand(81, -1, -1, -1)
    rows, columns = (values.flatten() for values in torch.meshgrid(torch.arange(9), torch.arange(9), indexing="ij"))
    always, never = torch.ones(81, dtype=torch.bool), torch.zeros(81, dtype=torch.bool)
    crop_then_flip = shift_and_flip(image, rows, columns, always, 4)
    flip_then_crop = shift_and_flip(image.flip(-1), rows, columns, never, 4)
    assert Counter(bytes(x.numpy()) for x in crop_then_flip) == Counter(bytes(x.numpy()) for x in flip_then_crop)


def test_flip_commutes_with_the_colour_steps():
    colours = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "pca": 0.1}
    plain, flipping = Augmentation(**colours), Augmentation(flip=True, **colours)
    mirrored = Augmentation(flip=True).apply(IMAGES, 0, 0, ALL) != Augmentation().apply(IMAGES, 0, 0, ALL)
    mirrored = mirrored.flatten(1).any(1)
    assert 0 < mirrored.sum() < N
    expected = plain.apply(IMAGES, 0, 0, ALL)
    expected[mirrored] = expected[mirrored].flip(-1)
    assert torch.equal(flipping.apply(IMAGES, 0, 0, ALL), expected)


def test_colour_factors_stay_within_their_strength():
    grey = torch.full((4000, 1, 2, 2), 100, dtype=torch.uint8)
    bright = Augmentation(brightness=0.3).apply(grey, 0, 0, torch.arange(4000))[:, 0, 0, 0] * 2.55
    assert 0.7 <= bright.min() < 0.705
    assert 1.295 < bright.max() <= 1.3


def test_strengths_above_one_never_turn_dark_into_light():
    half_light = torch.tensor([[[100, 140]]], dtype=torch.uint8).expand(500, 1, 1, 2)
    dark, light = Augmentation(contrast=2.0).apply(half_light, 0, 0, torch.arange(500))[:, 0, 0].unbind(1)
    assert (light >= dark).all()
    assert (light - dark).min() < 0.005


def test_imagenets_colour_components_are_orthonormal():
    vectors = torch.tensor(IMAGENET_EIGENVECTORS)
    assert torch.allclose(vectors @ vectors.T, torch.eye(3), atol=1e-3)
    assert sorted(IMAGENET_EIGENVALUES, reverse=True) == list(IMAGENET_EIGENVALUES)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hue": 0.6}, "hue"),
        ({"contrast": -0.1}, "contrast"),
        ({"crop_padding": -1}, "crop_padding"),
        ({"crop_padding": 4, "resized_crop": ResizedCrop()}, "choose one"),
        ({"mean": (0.5,)}, "both or neither"),
        ({"mean": (0.5, 0.5), "std": (0.5,)}, "as many"),
        ({"mean": (0.5,), "std": (0.0,)}, "above 0"),
        ({"pca_eigenvalues": (1.0, 2.0)}, "three eigenvalues"),
    ],
)
def test_impossible_settings_are_refused_when_made(options, word):
    with pytest.raises(ConfigError, match=word):
        Augmentation(**options)


@pytest.mark.parametrize(
    ("augmentation", "images", "error", "word"),
    [
        (Augmentation(), IMAGES.float(), DataError, "torch.float32"),
        (Augmentation(), IMAGES[0], DataError, r"\(3, 11, 13\)"),
        (Augmentation(), IMAGES[:5], DataError, "one index per image"),
        (Augmentation(crop_padding=11), IMAGES, ConfigError, "11×13"),
        (Augmentation(hue=0.1), IMAGES[:, :1], ConfigError, "3 colour channels"),
        (Augmentation(mean=(0.5, 0.5), std=(1.0, 1.0)), IMAGES, ConfigError, "3 channels; give one value per channel"),
    ],
)
def test_images_that_do_not_fit_are_refused_by_name(augmentation, images, error, word):
    with pytest.raises(error, match=word):
        augmentation.apply(images, 0, 0, ALL)


# --- colour distortions of whole batches against Pillow and the standard library's colorsys


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
