"""Pictures that are nothing of the kind a network was trained on are told apart from those that are."""

import pytest
import torch

from continua.data import load
from continua.explore.frame import STRANGE
from continua.explore.usual import usual


@pytest.fixture(scope="module", params=["digits", "digits32"])
def digits(request: pytest.FixtureRequest):
    data = load(request.param)
    known = usual(data["train"].images)
    assert known is not None
    return known, data["test"].images


def test_no_test_digit_is_called_strange(digits) -> None:
    known, images = digits
    assert max(known.distance(image[None]) for image in images) < STRANGE


@pytest.mark.parametrize("what", ["noise", "white", "grey", "negative", "ramp"])
def test_what_is_no_digit_is_called_strange(digits, what: str) -> None:
    known, images = digits
    side = images.shape[-1]
    pictures = {
        "noise": torch.randint(0, 256, (side, side), generator=torch.Generator().manual_seed(0)),
        "white": torch.full((side, side), 255),
        "grey": torch.full((side, side), 128),
        "negative": 255 - images[0, 0].int(),
        "ramp": torch.linspace(0, 255, side).expand(side, side),
    }
    assert known.distance(pictures[what].byte()[None, None]) > 1.5 * STRANGE


def test_a_few_images_say_nothing() -> None:
    assert usual(torch.zeros(10, 1, 8, 8, dtype=torch.uint8)) is None
