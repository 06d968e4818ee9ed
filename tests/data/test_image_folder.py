"""Class-per-folder trees: what is found, how a file becomes a tensor, what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from continua import ConfigError, DataError
from continua.data.crop import ResizedCrop, crop_and_resize
from continua.data.draws import Draws
from continua.data.image_folder import ImageFolder, UndecodableImage, load_image_folder


def save(path: Path, pixels: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def noise(height: int, width: int, *channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, *channels), dtype=np.uint8)


def only_image(path: Path, size: int, resize: int | None = None) -> ImageFolder:
    return ImageFolder(path.parent, np.array([path.name.encode()]), torch.tensor([0]), size, resize)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An ImageNet-like tree: two splits, class "b" written before "a", one class nested as Tiny-ImageNet's are."""
    for split, count in (("train", 3), ("val", 2)):
        for name in ("n02/images", "n01"):
            for i in range(count):
                save(tmp_path / split / name / f"{i}.{'JPEG' if i else 'png'}", noise(20, 30, 3))
    return tmp_path


def test_classes_and_files_come_in_an_order_that_is_the_same_everywhere(tree):
    data = load_image_folder(tree, size=8)
    assert data.classes == ("n01", "n02")
    assert list(data.splits) == ["train", "val"]
    train = data["train"]
    assert isinstance(train, ImageFolder)
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    names = [train.path(i).relative_to(tree / "train").as_posix() for i in range(6)]
    assert names == ["n01/0.png", "n01/1.JPEG", "n01/2.JPEG", "n02/images/0.png", "n02/images/1.JPEG", "n02/images/2.JPEG"]


def test_a_root_of_class_folders_is_one_training_split(tree):
    data = load_image_folder(tree / "val", size=8)
    assert list(data.splits) == ["train"]
    assert len(data["train"]) == 4


def test_select_keeps_files_with_their_labels(tree):
    train = load_image_folder(tree, size=8)["train"]
    chosen = train.select(torch.tensor([5, 0]))
    assert chosen.labels.tolist() == [1, 0]
    assert torch.equal(chosen.decode(0), train.decode(5))
    assert torch.equal(chosen.decode(1), train.decode(0))


def test_hidden_and_other_files_are_no_images(tree):
    (tree / "train" / "n01" / ".hidden.png").write_bytes(b"no")
    (tree / "train" / "n01" / "notes.txt").write_text("no")
    (tree / "train" / ".cache").mkdir()
    assert len(load_image_folder(tree)["train"]) == 6


def test_names_that_are_not_ascii_are_found_again(tmp_path):
    path = save(tmp_path / "Känguru 袋鼠" / "bild ü.png", noise(8, 8, 3))
    data = load_image_folder(tmp_path, size=8, resize=8)
    assert data.classes == ("Känguru 袋鼠",)
    assert data["train"].path(0) == path
    assert data["train"].decode(0).shape == (3, 8, 8)


def test_evaluation_takes_the_centre_of_the_image(tmp_path):
    pixels = noise(20, 31, 3)
    path = save(tmp_path / "x.png", pixels)
    # A shorter side of 20 is not resized at all, so the centre is known exactly.
    centre = only_image(path, size=12, resize=20).decode(0)
    assert torch.equal(centre, torch.from_numpy(pixels[4:16, 9:21]).permute(2, 0, 1))
    assert only_image(path, size=14).decode(0).shape == (3, 14, 14)
    assert only_image(path, size=300).decode(0).shape == (3, 300, 300)


def test_evaluation_resizes_the_shorter_side(tmp_path):
    """A ramp from left to right over twice as many columns keeps its values at the centre and doubles its slope."""
    ramp = np.repeat(np.linspace(0, 200, 80)[None].round().astype(np.uint8), 40, axis=0)
    path = save(tmp_path / "ramp.png", ramp)
    out = only_image(path, size=20, resize=20).decode(0).float()
    assert out.mean().item() == pytest.approx(100, abs=1)
    assert (out[0, :, -2] - out[0, :, 1]).mean().item() == pytest.approx(17 * 2 * 200 / 79, abs=1.5)


def test_training_crop_equals_the_batched_crop_of_the_same_image(tmp_path):
    pixels = noise(24, 24, 3)
    folder = only_image(save(tmp_path / "x.png", pixels), size=24)
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    crop = ResizedCrop()
    for epoch in range(5):
        boxes = crop.boxes(Draws(7, epoch, torch.tensor([0])), 24, 24)
        assert torch.equal(folder.decode(0, crop, seed=7, epoch=epoch), crop_and_resize(image, boxes)[0])


def test_grey_and_palette_images_become_rgb(tmp_path):
    grey = noise(8, 8)
    out = only_image(save(tmp_path / "grey.png", grey), 8, 8).decode(0)
    assert torch.equal(out, torch.from_numpy(grey).expand(3, 8, 8))

    Image.fromarray(noise(8, 8, 3)).quantize(16).save(tmp_path / "palette.png")
    expected = np.array(Image.open(tmp_path / "palette.png").convert("RGB"))
    assert torch.equal(only_image(tmp_path / "palette.png", 8, 8).decode(0), torch.from_numpy(expected).permute(2, 0, 1))


def test_sixteen_bit_grey_keeps_its_high_byte(tmp_path):
    wide = np.arange(0, 65536, 1024, dtype=np.uint16).reshape(8, 8)
    out = only_image(save(tmp_path / "wide.png", wide), 8, 8).decode(0)
    assert torch.equal(out[0], torch.from_numpy((wide >> 8).astype(np.uint8)))


def test_transparent_pixels_are_white(tmp_path):
    pixels = noise(8, 8, 4)
    pixels[..., 3] = 255
    pixels[:4, :, 3] = 0
    out = only_image(save(tmp_path / "alpha.png", pixels), 8, 8).decode(0)
    assert (out[:, :4] == 255).all()
    assert torch.equal(out[:, 4:], torch.from_numpy(pixels[4:, :, :3]).permute(2, 0, 1))


def test_cmyk_becomes_the_colour_it_prints(tmp_path):
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    cyan.save(tmp_path / "cyan.jpg", quality=95)
    red, green, blue = only_image(tmp_path / "cyan.jpg", 8).decode(0).float().mean((1, 2)).tolist()
    assert red < 20
    assert min(green, blue) > 235


def test_rotation_by_exif_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown rotated by 90° clockwise
    pixels = noise(8, 8, 3)
    path = save(tmp_path / "turned.png", pixels, exif=exif)
    assert torch.equal(only_image(path, 8, 8).decode(0), torch.from_numpy(np.rot90(pixels, -1).copy()).permute(2, 0, 1))


def test_a_missing_root_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        load_image_folder(tmp_path / "nowhere")


def test_a_root_without_class_folders_is_named(tmp_path):
    save(tmp_path / "lonely.png", noise(8, 8, 3))
    with pytest.raises(DataError, match="holds no class folders"):
        load_image_folder(tmp_path)


def test_an_empty_class_folder_is_named_with_what_it_holds(tree):
    empty = tree / "train" / "n03"
    empty.mkdir()
    with pytest.raises(DataError, match=r"n03 holds no images: found nothing, expected files ending in .*remove the folder"):
        load_image_folder(tree)
    (empty / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"found 1 file\(s\) with \.txt"):
        load_image_folder(tree)


def test_splits_with_different_classes_are_refused_by_name(tree):
    save(tree / "val" / "n99" / "0.png", noise(8, 8, 3))
    with pytest.raises(DataError, match=r"val has 3 classes, .*train has 2; .*: n99"):
        load_image_folder(tree)


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "float"])
def test_a_file_that_is_no_image_is_named_with_what_to_do(tmp_path, damage):
    path = save(tmp_path / "bad.jpg", noise(64, 64, 3))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:700])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("<html>404</html>")
    else:
        Image.fromarray(np.zeros((8, 8), np.float32)).save(path, format="TIFF")
    with pytest.raises(UndecodableImage, match=r"cannot decode .*bad\.jpg: found \d+ bytes .* expected an image; .*on_bad_image='skip'"):
        only_image(path, 32).decode(0)


def test_a_program_for_a_printer_is_not_run_whatever_its_name(tmp_path):
    """Pillow hands PostScript to Ghostscript, a program; only formats of pixels are read."""
    path = tmp_path / "harmless.png"
    Image.new("RGB", (8, 8)).save(path, format="EPS")
    with pytest.raises(UndecodableImage, match="cannot identify image"):
        only_image(path, 8).decode(0)


def test_a_file_that_has_gone_is_not_called_undecodable(tmp_path):
    path = save(tmp_path / "gone.png", noise(8, 8, 3))
    folder = only_image(path, 8)
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*gone\.png: No such file") as caught:
        folder.decode(0)
    assert not isinstance(caught.value, UndecodableImage)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 8, "resize": 7}])
def test_impossible_sizes_are_refused(tree, options):
    with pytest.raises(ConfigError, match="size"):
        load_image_folder(tree, **options)
