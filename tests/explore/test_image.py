"""Uploads: every wrong file gets one friendly sentence, every odd one is put right and says so."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from continua.explore import image as module
from continua.explore.image import Picture, UploadError, fitted, from_data, read_upload


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gradient(width: int = 40, height: int = 24) -> np.ndarray:
    """Brighter to the right, redder to the bottom."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.dstack([y, x, x]).astype(np.uint8)


def refused(content: bytes, name: str = "file") -> str:
    with pytest.raises(UploadError) as error:
        read_upload(content, name)
    text = str(error.value)
    assert "\n" not in text
    assert name in text
    return text


def test_an_ordinary_image_comes_as_it_is() -> None:
    found = read_upload(encoded(Image.fromarray(gradient())), "a.png")
    assert (found.pixels == gradient()).all()
    assert found.notes == ()


@pytest.mark.parametrize(
    "content",
    [
        b"not an image at all",
        b"%PDF-1.7 and so on",
        b"import os; os.abort()",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"<svg/>",
    ],
)
def test_what_is_no_image_is_refused_with_the_kinds_that_can_be_read(content: bytes) -> None:
    assert "not an image" in refused(content)
    assert "PNG" in refused(content)


def test_an_empty_file_is_refused() -> None:
    assert "empty" in refused(b"")


def test_two_hundred_megabytes_are_refused_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("looked into the file"))
    assert "200 MB" in refused(bytes(200_000_000))


def test_a_bomb_is_refused_by_its_header_alone() -> None:
    for side in (7_000, 60_000):  # above our limit, and above Pillow's own
        header = bytearray(encoded(Image.new("1", (8, 8))))
        header[16:24] = struct.pack(">II", side, side)
        header[29:33] = struct.pack(">I", zlib.crc32(header[12:29]))
        assert "40 million" in refused(bytes(header))


def test_a_damaged_image_says_so() -> None:
    whole = encoded(Image.fromarray(gradient()))
    assert "damaged" in refused(whole[: len(whole) // 2])
    jpeg = encoded(Image.fromarray(gradient()), "JPEG")
    assert "damaged" in refused(jpeg[: len(jpeg) // 2])


@pytest.mark.parametrize("size", [(1, 1), (7, 100), (100, 3)])
def test_an_image_too_small_to_see_anything_is_refused(size: tuple[int, int]) -> None:
    assert "nothing to see" in refused(encoded(Image.new("RGB", size)))


def test_transparent_parts_become_white() -> None:
    clear = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    found = read_upload(encoded(clear), "a.png")
    assert (found.pixels == 255).all()
    assert "transparent" in found.notes[0]


def test_print_colours_become_screen_colours() -> None:
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    found = read_upload(encoded(cyan, "JPEG", quality=100), "a.jpg")
    red, green, blue = found.pixels.reshape(-1, 3).mean(0)
    assert red < 60 < 150 < min(green, blue)
    assert "CMYK" in found.notes[0]


def test_a_turned_photograph_stands_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held on its side: turn by 90 degrees
    found = read_upload(encoded(Image.fromarray(gradient(40, 24)), "JPEG", exif=turned), "a.jpg")
    assert found.pixels.shape == (40, 24, 3)
    assert found.pixels[-1].mean() > found.pixels[0].mean()  # what was to the right is below
    assert "upright" in found.notes[0]


def test_sixteen_bits_and_moving_pictures_are_read() -> None:
    deep = Image.fromarray(np.full((16, 16), 65_535, np.uint16))
    assert read_upload(encoded(deep), "a.png").pixels.max() == 255
    moving = encoded(Image.new("RGB", (16, 16), "red"), "GIF", save_all=True, append_images=[Image.new("RGB", (16, 16), "blue")])
    assert "first of its 2" in read_upload(moving, "a.gif").notes[0]


def test_a_large_photograph_is_kept_small() -> None:
    large = encoded(Image.new("RGB", (5000, 3000), "green"), "JPEG")
    assert max(read_upload(large, "a.jpg").pixels.shape) == module.LARGEST


def test_an_image_of_the_data_set_reaches_the_network_bit_for_bit() -> None:
    for channels in (1, 3):
        original = torch.randint(0, 256, (channels, 9, 9), dtype=torch.uint8)
        assert torch.equal(fitted(from_data(original, "x", None), (channels, 9, 9))[0], original)


def test_a_wide_image_loses_its_sides_not_its_form() -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 200  # the middle square
    assert (fitted(Picture("x", pixels), (1, 8, 8)) == 200).all()


def test_inverting_swaps_ink_and_paper() -> None:
    white = Picture("x", np.full((16, 16, 3), 255, np.uint8))
    assert (fitted(white, (1, 8, 8), inverted=True) == 0).all()


def test_a_network_of_other_channels_is_refused() -> None:
    with pytest.raises(module.DataError, match="4 channels"):
        fitted(Picture("x", gradient()), (4, 8, 8))
