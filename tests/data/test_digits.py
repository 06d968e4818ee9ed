"""The embedded digits: real, the same everywhere, split fairly."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
import torch

from continua.data import load
from continua.data.digits import DIGITS, DIGITS32, resized


@pytest.fixture(scope="module")
def original():
    from sklearn.datasets import load_digits

    return load_digits()


@pytest.mark.parametrize("known", [DIGITS, DIGITS32])
def test_every_digit_is_in_exactly_one_split(original, known) -> None:
    found = load(known.name)
    whole = resized(torch.from_numpy(original.images), known.shape[-1])
    both = torch.cat([found["train"].images, found["test"].images])
    assert both.shape == (1797, *known.shape)
    assert sorted(image.numpy().tobytes() for image in both) == sorted(image.numpy().tobytes() for image in whole)
    for split, counts in known.counts.items():
        assert found[split].labels.bincount().tolist() == list(counts)


@pytest.mark.parametrize("size", [16, 32])
def test_all_sizes_have_the_same_split(size: int) -> None:
    small, large = load("digits"), load(f"digits{size}")
    for split in ("train", "test"):
        assert torch.equal(small[split].labels, large[split].labels)
        assert torch.equal(resized((small[split].images[:, 0] * 16.0 / 255).round(), size), large[split].images)


def test_the_split_never_changes() -> None:
    digest = hashlib.sha256(load("digits")["test"].images.numpy().tobytes()).hexdigest()
    assert digest == "970697c82e9a2ebc2ca50d64258a5bc47f75d56e3c4a6299ea061bfbf75ced0f"


def test_grey_values_keep_their_proportions(original) -> None:
    assert np.array_equal(resized(torch.from_numpy(original.images), 8)[:, 0].numpy(), np.rint(original.images * 255 / 16).astype(np.uint8))


def test_enlarging_is_exact_bilinear_interpolation(original) -> None:
    """Against rational arithmetic: source position (i + 1/2) / 4 − 1/2, held at the border, halves rounded to even."""
    image = original.images[3].astype(int)
    enlarged = resized(torch.from_numpy(original.images[3:4]), 32)[0, 0]

    def neighbours(i: int) -> tuple[int, int, Fraction]:
        position = min(max(Fraction(2 * i + 1, 8) - Fraction(1, 2), Fraction(0)), Fraction(7))
        low = int(position)
        return low, min(low + 1, 7), position - low

    for i in range(32):
        for j in range(32):
            (top, bottom, y), (left, right, x) = neighbours(i), neighbours(j)
            upper = (1 - x) * int(image[top, left]) + x * int(image[top, right])
            lower = (1 - x) * int(image[bottom, left]) + x * int(image[bottom, right])
            assert enlarged[i, j] == round(((1 - y) * upper + y * lower) * 255 / 16)
