"""A contact sheet shows the images it is given, class by class, unchanged but for their size."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from continua.report import contact_sheet


def flat(colours: list[tuple[int, int, int]], size: int) -> np.ndarray:
    return np.repeat(np.repeat(np.array(colours, dtype=np.uint8)[:, :, None, None], size, 2), size, 3)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


@pytest.mark.parametrize("size", [8, 16, 100])
def test_every_row_holds_its_class_in_order(tmp_path: Path, size: int) -> None:
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0), (0, 200, 200)]
    labels = np.array([1, 0, 1, 0, 1])
    sheet = contact_sheet(tmp_path / "a.png", flat(colours, size), labels, ("first", "second"), title="two classes", per_class=2, thumb=48)
    seen = pixels(sheet)
    places = {}
    for index, colour in enumerate(colours):
        rows, columns = np.nonzero((seen == colour).all(axis=2))
        if len(rows):
            places[index] = (rows.min(), columns.min())
            assert len(rows) == 48 * 48  # the whole thumb, and nothing else, has this colour
    assert set(places) == {0, 1, 2, 3}  # the third image of the second class is one too many
    assert places[1][0] == places[3][0] < places[0][0] == places[2][0]
    assert places[1][1] == places[0][1] < places[3][1] == places[2][1]


def test_small_images_are_enlarged_by_whole_pixels(tmp_path: Path) -> None:
    image = np.array([[[[0, 255], [255, 0]]]], dtype=np.uint8)
    seen = pixels(contact_sheet(tmp_path / "a.png", image, np.array([0]), ("x",), title="", thumb=48))
    rows, columns = np.nonzero((seen == 0).all(axis=2))
    top, left = rows.min(), columns.min()
    block = seen[top : top + 48, left : left + 48, 0]
    assert np.array_equal(block, np.kron([[0, 255], [255, 0]], np.ones((24, 24))))


def test_grey_and_colour_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 2 channels, expected 1"):
        contact_sheet(tmp_path / "a.png", np.zeros((1, 2, 4, 4), np.uint8), np.array([0]), ("x",), title="")
    assert list(tmp_path.iterdir()) == []


def test_a_class_without_images_has_an_empty_row(tmp_path: Path) -> None:
    single = contact_sheet(tmp_path / "a.png", flat([(9, 9, 9)], 8), np.array([0]), ("x",), title="t")
    two = contact_sheet(tmp_path / "b.png", flat([(9, 9, 9)], 8), np.array([0]), ("x", "y"), title="t")
    assert pixels(two).shape[0] == pixels(single).shape[0] + 48 + 4
