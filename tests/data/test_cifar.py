"""CIFAR-10 and CIFAR-100 in both layouts, right and wrong."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from official import (
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    py2_pickle,
    py3_pickle,
    random_bytes,
    write_cifar10_binary,
    write_cifar10_python,
    write_cifar100,
)

from continua import ConfigError, DataError

PIXELS = random_bytes(30, 3072)
LABELS = [i % 10 for i in range(30)]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return write_cifar10_python(tmp_path, PIXELS, LABELS)


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return write_cifar10_binary(tmp_path, PIXELS, LABELS)


@pytest.mark.parametrize("layout", ["python 2", "python 3", "binary"])
def test_cifar10_is_the_same_in_every_layout(tmp_path: Path, layout: str) -> None:
    if layout == "binary":
        write_cifar10_binary(tmp_path, PIXELS, LABELS)
    else:
        write_cifar10_python(tmp_path, PIXELS, LABELS, py2_pickle if layout == "python 2" else py3_pickle)
    found = SMALL_CIFAR10.load(tmp_path, "fetch it")
    assert found.classes == tuple(f"class {i}" for i in range(10))
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        assert torch.equal(found[split].images, torch.from_numpy(PIXELS[part].reshape(-1, 3, 32, 32)))
        assert found[split].labels.tolist() == LABELS[part]


@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_takes_the_fine_labels(tmp_path: Path, binary: bool) -> None:
    pixels, fine, coarse = random_bytes(300, 3072), [i % 100 for i in range(300)], [(i % 100) // 5 for i in range(300)]
    write_cifar100(tmp_path, pixels, fine, coarse, binary=binary)
    found = SMALL_CIFAR100.load(tmp_path, "fetch it")
    assert len(found.classes) == 100
    assert found["train"].labels.tolist() == fine[:200]
    assert torch.equal(found["test"].images, torch.from_numpy(pixels[200:].reshape(-1, 3, 32, 32)))


def test_planes_are_red_green_blue_row_by_row(tmp_path: Path) -> None:
    pixels = np.zeros((30, 3072), dtype=np.uint8)
    pixels[0, 1024 + 5 * 32 + 7] = 255  # the official description: the second 1024 entries are green, the first 32 the first row
    write_cifar10_binary(tmp_path, pixels, LABELS)
    assert SMALL_CIFAR10.load(tmp_path, "")["train"].images[0].nonzero().tolist() == [[1, 5, 7]]


def test_only_the_split_asked_for_is_read(python: Path) -> None:
    (python / "data_batch_3").unlink()
    assert list(SMALL_CIFAR10.load(python.parent, "fetch it", ["test"]).splits) == ["test"]
    with pytest.raises(ConfigError, match=r"unknown split of cifar10 'val'; known: train, test"):
        SMALL_CIFAR10.load(python.parent, "fetch it", ["val"])


def test_a_whole_layout_is_preferred_to_one_that_lacks_files(python: Path, binary: Path) -> None:
    assert SMALL_CIFAR10.locate(python.parent) == python
    (python / "test_batch").unlink()
    assert SMALL_CIFAR10.missing(python) == ["test_batch"]
    assert SMALL_CIFAR10.locate(python.parent) == binary


def test_a_set_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar-10-batches-py or .*cifar-10-batches-bin; fetch it"):
        SMALL_CIFAR10.load(tmp_path, "fetch it")


def test_a_missing_file_is_named(python: Path) -> None:
    (python / "data_batch_4").unlink()
    with pytest.raises(DataError, match=r"data_batch_4 is missing; fetch it"):
        SMALL_CIFAR10.load(python.parent, "fetch it")


@pytest.mark.parametrize("size", [0, 5, 3072, 4 * 3073 - 1, 3 * 3073, 4 * 3073 + 1, 5 * 3073])
def test_a_binary_file_of_another_size_is_refused(binary: Path, size: int) -> None:
    (binary / "data_batch_2.bin").write_bytes(bytes(size))
    with pytest.raises(DataError, match=r"data_batch_2\.bin holds .* bytes, expected 12,292.*fetch it"):
        SMALL_CIFAR10.load(binary.parent, "fetch it")


def test_a_label_out_of_range_is_named_with_its_place(python: Path, binary: Path) -> None:
    contents = bytearray((binary / "test_batch.bin").read_bytes())
    contents[2 * 3073] = 10
    (binary / "test_batch.bin").write_bytes(contents)
    (python / "batches.meta").unlink()
    with pytest.raises(DataError, match=r"test_batch\.bin: label 2 is 10, expected 0 … 9; fetch it"):
        SMALL_CIFAR10.load(binary.parent, "fetch it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1, 2]}, r"holds 3 labels, expected 4"),
        ({"labels": [0, 1, 2, 99]}, r"label 3 is 99"),
        ({"labels": ["cat"] * 4}, r"label 0 is b'cat'"),
        ({"labels": "0123"}, r"expected an array 'data' and a list 'labels'"),
        ({"data": random_bytes(4, 3071)}, r"images of shape \(4, 3071\), expected \(4, 3072\)"),
        ({"data": random_bytes(5, 3072)}, r"images of shape \(5, 3072\)"),
        ({"data": [1, 2]}, r"expected an array 'data'"),
    ],
)
def test_a_batch_with_other_contents_is_refused(python: Path, change: dict, message: str) -> None:
    (python / "data_batch_1").write_bytes(py2_pickle({"labels": [0, 1, 2, 3], "data": random_bytes(4, 3072)} | change))
    with pytest.raises(DataError, match=f"data_batch_1.*{message}.*fetch it"):
        SMALL_CIFAR10.load(python.parent, "fetch it")


@pytest.mark.parametrize("found", [{"label_names": ["one"]}, {"other": 1}, {"label_names": [1] * 10}])
def test_wrong_class_names_are_refused(python: Path, found: dict) -> None:
    (python / "batches.meta").write_bytes(py2_pickle(found))
    with pytest.raises(DataError, match=r"batches\.meta .*class names, expected 10"):
        SMALL_CIFAR10.load(python.parent, "fetch it")


def test_class_names_that_are_not_text_are_refused(binary: Path) -> None:
    (binary / "batches.meta.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"batches\.meta\.txt is not text"):
        SMALL_CIFAR10.load(binary.parent, "fetch it")


@given(file=st.sampled_from(["test_batch.bin", "batches.meta.txt"]), contents=st.binary(max_size=100))
def test_random_bytes_in_a_file_are_a_data_error(tmp_path_factory: pytest.TempPathFactory, file: str, contents: bytes) -> None:
    folder = write_cifar10_binary(tmp_path_factory.mktemp("noise"), PIXELS, LABELS)
    (folder / file).write_bytes(contents)
    with pytest.raises(DataError, match=file):
        SMALL_CIFAR10.load(folder.parent, "fetch it", ["test"])
