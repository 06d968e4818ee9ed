"""Image files from anyone: no decoder that starts a program, no image that fills the memory."""

import ast
import io
import os
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from continua.data import load_image_folder
from continua.data.image_folder import UndecodableImage, read_rgb
from continua.data.pictures import TooManyPixels, open_image
from continua.errors import ConfigError, DataError

SOURCE = Path(__file__).parents[2] / "src" / "continua"
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%touch started) (w) file\nshowpage\n%%EOF\n"


def png_of(width: int, height: int) -> bytes:
    """The head of a PNG of any size, with rows that are all alike: a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes((width // 8 + 2) * min(height, 10)), 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def folder_with(content: bytes, tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "x.png").write_bytes(content)
    return tmp_path


def test_images_are_opened_in_one_place_and_by_named_formats_only() -> None:
    opened = [
        (path.relative_to(SOURCE).as_posix(), [word.arg for word in node.keywords])
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open")
    ]
    assert opened == [("data/pictures.py", ["formats"])]


def test_postscript_called_png_is_refused_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    from PIL import EpsImagePlugin

    programs = list[object]()

    def started(*words: object, **options: object) -> None:
        programs.append(words)
        raise OSError("not here")

    monkeypatch.setattr(subprocess, "check_call", started)
    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", "gs")  # as where Ghostscript is installed
    data = load_image_folder(folder_with(POSTSCRIPT, tmp_path))["train"]
    with pytest.raises(UndecodableImage, match="cannot decode"):
        data.decode(0)
    assert programs == []


@pytest.mark.parametrize(("width", "height", "size"), [(60_000, 1, 224), (1, 3_000_000, 32), (12_000, 12_000, 224)])
def test_a_small_file_of_many_pixels_is_refused_with_its_name_and_how_to_raise_the_limit(
    width: int, height: int, size: int, tmp_path: Path
) -> None:
    data = load_image_folder(folder_with(png_of(width, height), tmp_path), size=size)["train"]
    with pytest.raises(UndecodableImage, match=r"x\.png .*pixels.*CONTINUA_MAX_PIXELS") as refused:
        data.decode(0)
    assert isinstance(refused.value, DataError)


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (30, 20)).save(path)
    monkeypatch.setenv("CONTINUA_MAX_PIXELS", "599")
    with pytest.raises(UndecodableImage, match=r"30×20 pixels.*599 pixels"):
        read_rgb(path)
    monkeypatch.setenv("CONTINUA_MAX_PIXELS", "6e2")
    assert read_rgb(path).size == (30, 20)
    monkeypatch.setenv("CONTINUA_MAX_PIXELS", "many")
    with pytest.raises(ConfigError, match="CONTINUA_MAX_PIXELS is 'many'"):
        read_rgb(path)


def test_of_a_moving_picture_the_first_frame_is_read(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_rgb(tmp_path / "a.gif").getpixel((0, 0)) == (255, 0, 0)


def test_a_pipe_called_png_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    os.mkfifo(tmp_path / "class" / "x.png")
    with pytest.raises(DataError, match="no regular file"):
        load_image_folder(tmp_path)["train"].decode(0)


def test_what_opens_knows_the_size_before_pixels_are_decoded() -> None:
    with pytest.raises(TooManyPixels), open_image(png_of(100_000, 100_000), "bomb"):
        pytest.fail("the image must not be given out")
    file = io.BytesIO()
    Image.new("L", (4, 5)).save(file, "PNG")
    with open_image(file.getvalue(), "honest") as image:
        assert image.size == (4, 5)
