"""Finding data sets by name, and where they live."""

from pathlib import Path

import pytest
from official import jpeg

from continua import ConfigError, DataError
from continua.data import CATALOGUE, ImageFolder, data_folder, load
from continua.data.catalogue import catalogue_entry


@pytest.mark.parametrize(("typed", "meant"), [("cifar01", "cifar10"), ("CIFAR-100", "cifar100"), ("tinyimagenet", "tiny_imagenet_200")])
def test_a_mistyped_name_suggests_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown data set '{typed}'; did you mean {meant}"):
        load(typed)


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(ConfigError, match="known: " + ", ".join(CATALOGUE)):
        catalogue_entry("zzzzzz")


def test_the_folder_is_the_option_then_the_environment_then_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUA_DATA", str(tmp_path / "configured"))
    assert data_folder(tmp_path / "asked") == tmp_path / "asked"
    assert data_folder() == tmp_path / "configured"
    assert data_folder("~/data") == Path.home() / "data"
    monkeypatch.delenv("CONTINUA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "continua" in data_folder().parts


def test_a_missing_set_says_how_to_get_it(tmp_path: Path) -> None:
    for name in ("cifar10", "mnist", "tiny_imagenet_200"):
        with pytest.raises(DataError, match=rf"{name} is not at .*run `continua data fetch {name}`.*, or name the folder"):
            load(name, tmp_path)


def test_a_folder_of_images_is_loaded_like_any_other_set(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("val", 1)):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(count):
                (tmp_path / split / label / f"{i}.jpg").write_bytes(jpeg(50))
    found = load("image_folder", tmp_path, per_class=3, holdout=0.34)
    assert found.classes == ("cat", "dog")
    assert [(split, len(part)) for split, part in found.splits.items()] == [("train", 4), ("val", 2), ("holdout", 2)]
    assert all(isinstance(part, ImageFolder) for part in found.splits.values())
    assert list(load("image_folder", tmp_path, splits=["val"]).splits) == ["val"]
    sizes = {name: load(name, tmp_path)["val"].size for name in ("image_folder", "image_folder32")}
    assert sizes == {"image_folder": 224, "image_folder32": 32}
    for name in sizes:
        with pytest.raises(ConfigError, match="a tree of your own"):
            catalogue_entry(name)
    for wrong in ("image_folder0", "image_folder-1", "image_folderx"):
        with pytest.raises(ConfigError, match="did you mean image_folder"):
            catalogue_entry(wrong)
