"""Tiny-ImageNet-200 in its official layout, whole, with only val/, and damaged."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from official import SMALL_TINY, jpeg, tiny_colour, write_tiny

from continua import DataError
from continua.data.tiny_imagenet import decoded


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def val_only(tmp_path: Path) -> Path:
    return write_tiny(tmp_path, ("val",))


def test_every_image_has_the_label_of_its_class(whole: Path) -> None:
    found = SMALL_TINY.load(whole.parent, "fetch it")
    wnids = sorted((whole / "wnids.txt").read_text().split())
    assert found.classes == tuple(f"thing {wnid[-3:]}" for wnid in wnids)
    for split, count in (("train", 3), ("val", 1)):
        assert found[split].images.shape == (200 * count, 3, 64, 64)
        assert found[split].labels.bincount().tolist() == [count] * 200
        colours = torch.tensor([c if isinstance(c := tiny_colour(wnid), tuple) else (c, c, c) for wnid in wnids])
        seen = found[split].images.double().mean(dim=(2, 3))
        assert (seen - colours[found[split].labels]).abs().max() < 4  # JPEG is lossy, a flat colour barely


def test_a_copy_with_only_val_serves_val_and_says_why_it_has_no_train(val_only: Path) -> None:
    found = SMALL_TINY.load(val_only.parent, "fetch it")
    assert len(found["val"]) == 200
    with pytest.raises(DataError, match=r"tiny-imagenet-200 has no train/ folder: this copy .* lacks its train split; fetch it"):
        found["train"]
    with pytest.raises(DataError, match="has no train/ folder"):
        SMALL_TINY.load(val_only.parent, "fetch it", ["train"])
    assert SMALL_TINY.missing(val_only) == ["train"]


def test_only_the_split_asked_for_is_decoded(whole: Path) -> None:
    assert list(SMALL_TINY.load(whole.parent, "fetch it", ["val"]).splits) == ["val"]


def test_a_folder_with_neither_split_is_refused(val_only: Path) -> None:
    (val_only / "val").rename(val_only / "elsewhere")
    with pytest.raises(DataError, match="has no train/ folder"):
        SMALL_TINY.load(val_only.parent, "fetch it")


def test_a_class_folder_with_too_few_images_is_named(whole: Path) -> None:
    wnid = (whole / "wnids.txt").read_text().split()[5]
    image = whole / "train" / wnid / "images" / f"{wnid}_1.JPEG"
    contents = image.read_bytes()
    image.unlink()
    try:
        with pytest.raises(DataError, match=rf"{wnid}.images holds 2 images, expected 3; fetch it"):
            SMALL_TINY.load(whole.parent, "fetch it", ["train"])
    finally:
        image.write_bytes(contents)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, "val_7.JPEG is missing"),
        (b"", "val_7.JPEG cannot be decoded"),
        (b"not an image", "val_7.JPEG cannot be decoded"),
        (jpeg((1, 2, 3))[:-200], "val_7.JPEG cannot be decoded"),
        (jpeg((1, 2, 3), (64, 32)), "val_7.JPEG is 64×32, expected 64×64"),
    ],
)
def test_one_bad_image_among_many_is_named(val_only: Path, contents: bytes | None, message: str) -> None:
    image = val_only / "val" / "images" / "val_7.JPEG"
    image.unlink()
    if contents is not None:
        image.write_bytes(contents)
    with pytest.raises(DataError, match=f"{message}.*fetch it"):
        SMALL_TINY.load(val_only.parent, "fetch it")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_0.JPEG\tn99999999\t0\t0\t1\t1", "line 201"),
        ("val_0.JPEG", "line 201"),
        ("../../../secret.JPEG\tn00001000", "line 201"),
        ("val_0.JPEG\tn00001000", "lists 201 images, expected 200"),
    ],
)
def test_wrong_annotations_are_refused(val_only: Path, line: str, message: str) -> None:
    with (val_only / "val" / "val_annotations.txt").open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(DataError, match=rf"val_annotations\.txt.*{message}"):
        SMALL_TINY.load(val_only.parent, "fetch it")


def test_too_few_classes_are_refused(val_only: Path) -> None:
    (val_only / "wnids.txt").write_text("n00001000\nn00001001\n")
    with pytest.raises(DataError, match=r"wnids\.txt names 2 classes, expected 200"):
        SMALL_TINY.load(val_only.parent, "fetch it")


@settings(max_examples=40)
@given(position=st.integers(0, len(jpeg(7)) - 1), noise=st.binary(min_size=1, max_size=20))
def test_an_overwritten_jpeg_decodes_or_is_a_data_error(tmp_path_factory: pytest.TempPathFactory, position: int, noise: bytes) -> None:
    path, whole = tmp_path_factory.mktemp("noise") / "a.JPEG", jpeg(7)
    path.write_bytes(whole[:position] + noise + whole[position + len(noise) :])
    with suppress(DataError):
        assert decoded([path], (64, 64), "noise", "").shape == (1, 3, 64, 64)
