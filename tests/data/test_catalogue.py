"""Finding data sets by name, and where they live."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from official import SMALL_CIFAR10, SMALL_MNIST, SMALL_TINY, jpeg, py2_pickle, random_bytes, write_cifar10_python, write_mnist, write_tiny

from continua import ConfigError, DataError
from continua.data import CATALOGUE, ImageFolder, data_folder, load
from continua.data.catalogue import catalogue_entry, check_data
from continua.data.digits import DIGITS
from continua.data.sources import CONTENTS_MD5, REMOTES


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


# --- checking a data set on disk: everything that is wrong is found and named


PIXELS, LABELS = random_bytes(30, 3072), [i % 10 for i in range(30)]


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small CIFAR-10 whose own sums stand in for the official ones."""
    folder = write_cifar10_python(tmp_path, PIXELS, LABELS)
    monkeypatch.setitem(CONTENTS_MD5, "cifar10", {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    return folder


def test_a_right_set_has_no_problems(cifar: Path) -> None:
    found = check_data(SMALL_CIFAR10, cifar.parent)
    assert found.problems == []
    assert len(found.files) == 7
    assert all(file.official for file in found.files)
    assert [(split.split, split.shape, split.counts) for split in found.splits] == [
        ("train", (3, 32, 32), (2,) * 10),
        ("test", (3, 32, 32), (1,) * 10),
    ]
    assert found.splits[0].means == pytest.approx(PIXELS[:20].reshape(20, 3, -1).mean(axis=(0, 2)) / 255, abs=1e-6)


def test_a_changed_file_is_found_though_it_reads_well(cifar: Path) -> None:
    contents = bytearray((cifar / "data_batch_2").read_bytes())
    contents[contents.index(PIXELS[4].tobytes()) + 100] ^= 1
    (cifar / "data_batch_2").write_bytes(contents)
    found = check_data(SMALL_CIFAR10, cifar.parent)
    assert [file.path.name for file in found.files if file.official is False] == ["data_batch_2"]
    assert len(found.problems) == 1
    assert "data_batch_2 has MD5" in found.problems[0]
    assert "continua data fetch cifar10" in found.problems[0]


def test_a_wrong_count_per_class_is_found(cifar: Path) -> None:
    (cifar / "data_batch_1").write_bytes(py2_pickle({"data": PIXELS[:4], "labels": [7, 1, 2, 3]}))
    problems = check_data(SMALL_CIFAR10, cifar.parent).problems
    assert any("train has 1 images of class 0, expected 2" in problem for problem in problems)
    assert any("train has 3 images of class 7, expected 2" in problem for problem in problems)


def test_a_wrong_shape_is_found() -> None:
    """Were the reader to give other shapes than the catalogue promises, check would say so."""
    promised = replace(DIGITS, shape=(1, 9, 9))
    object.__setattr__(promised, "load", DIGITS.load)
    problems = check_data(promised, Path("nowhere")).problems
    assert len(problems) == 2
    assert "train images have shape (1, 8, 8), expected (1, 9, 9)" in problems[0]


def test_a_truncated_file_is_found(cifar: Path) -> None:
    (cifar / "test_batch").write_bytes((cifar / "test_batch").read_bytes()[:-1])
    problems = check_data(SMALL_CIFAR10, cifar.parent).problems
    assert any("test_batch is truncated or damaged" in problem for problem in problems)


def test_a_missing_file_is_said_once(cifar: Path) -> None:
    (cifar / "data_batch_5").unlink()
    problems = check_data(SMALL_CIFAR10, cifar.parent).problems
    assert len(problems) == 1
    assert "data_batch_5 is missing" in problems[0]


def test_a_set_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cifar10 is not at"):
        check_data(SMALL_CIFAR10, tmp_path)


def test_packed_contents_are_compared_not_the_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write_mnist(tmp_path / "plain", random_bytes(30, 28, 28), random_bytes(30) % 10, packed=False)
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in plain.iterdir()}
    monkeypatch.setitem(CONTENTS_MD5, "mnist", sums)
    write_mnist(tmp_path / "packed", random_bytes(30, 28, 28), random_bytes(30) % 10, packed=True)
    for root in (tmp_path / "plain", tmp_path / "packed"):
        assert all(file.official for file in check_data(SMALL_MNIST, root).files)


def test_what_a_copy_lacks_is_said_and_is_no_problem(tmp_path: Path) -> None:
    write_tiny(tmp_path, ("val",))
    found = check_data(SMALL_TINY, tmp_path)
    assert (found.absent, found.problems) == (["train"], [])
    assert all(file.official is None for file in found.files)


def test_the_embedded_digits_pass() -> None:
    assert check_data(CATALOGUE["digits32"], Path("nowhere")).problems == []


def test_the_table_of_sources_is_in_order() -> None:
    """Every set can be fetched or is embedded; sums are MD5s, none of them twice; addresses end in the file's name."""
    assert set(REMOTES) | {"digits", "digits16", "digits32"} == set(CATALOGUE)
    remotes = [remote for layouts in REMOTES.values() for layout in layouts.values() for remote in layout]
    sums = [remote.md5 for remote in remotes] + [md5 for files in CONTENTS_MD5.values() for md5 in files.values()]
    assert len(set(sums)) == len(sums)
    assert all(len(md5) == 32 and set(md5) <= set("0123456789abcdef") for md5 in sums)
    assert all(address.startswith("http") and address.endswith("/" + remote.file) for remote in remotes for address in remote.addresses)
    for name, known in CATALOGUE.items():
        assert len({len(counts) for counts in known.counts.values()}) == 1, name
    totals = {name: [sum(counts) for counts in known.counts.values()] for name, known in CATALOGUE.items()}
    assert totals["mnist"] == totals["fashion_mnist"] == [60_000, 10_000]
    assert totals["cifar10"] == totals["cifar100"] == [50_000, 10_000]
    assert totals["tiny_imagenet_200"] == [100_000, 10_000]
