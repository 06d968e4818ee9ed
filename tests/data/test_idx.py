"""MNIST and Fashion-MNIST: idx files, gzipped or not, right and wrong."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from official import SMALL_MNIST, idx_bytes, random_bytes, write_mnist

from continua import DataError
from continua.data.idx import read_idx

IMAGES, LABELS = random_bytes(30, 28, 28), np.arange(30, dtype=np.uint8) % 10
ARRAY = random_bytes(3, 4, 5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_mnist_is_read_packed_or_not(tmp_path: Path, packed: bool, folder: str) -> None:
    write_mnist(tmp_path, IMAGES, LABELS, packed=packed, folder=folder)
    found = SMALL_MNIST.load(tmp_path, "fetch it")
    assert found.classes == tuple("0123456789")
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        assert torch.equal(found[split].images, torch.from_numpy(IMAGES[part])[:, None])
        assert found[split].labels.tolist() == LABELS[part].tolist()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mnist is not at .*mnist or .*MNIST.raw; fetch it"):
        SMALL_MNIST.load(tmp_path, "fetch it")
    (write_mnist(tmp_path, IMAGES, LABELS, packed=True) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz is missing; fetch it"):
        SMALL_MNIST.load(tmp_path, "fetch it")


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, IMAGES, LABELS + 1, packed=True)
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz: label 9 is 10, expected 0 … 9"):
        SMALL_MNIST.load(tmp_path, "fetch it")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "ends within its header"),
        (idx_bytes(ARRAY)[:10], "ends within its header"),
        (idx_bytes(ARRAY)[:-1], "holds 59 elements, expected 60"),
        (idx_bytes(ARRAY) + b"x", "holds more than 60 elements"),
        (idx_bytes(ARRAY[0]), "begins with 00000802, expected 00000803"),
        (b"\x00\x00\x0d\x03" + idx_bytes(ARRAY)[4:], "begins with 00000d03"),
        (idx_bytes(ARRAY[:2]), r"shape \(2, 4, 5\), expected \(3, 4, 5\)"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 5), r"shape \(4294967295, 4294967295, 5\)"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_file_is_refused(tmp_path: Path, contents: bytes, message: str, packed: bool) -> None:
    path = tmp_path / ("file.gz" if packed else "file")
    path.write_bytes(gzip.compress(contents) if packed else contents)
    with pytest.raises(DataError, match=f"{path.name} .*{message}.*fetch it"):
        read_idx(path, ARRAY.shape, "fetch it")


@given(cut=st.integers(0, len(gzip.compress(idx_bytes(ARRAY))) - 1), noise=st.binary(max_size=40))
def test_a_cut_or_overwritten_gzip_file_is_a_data_error(tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes) -> None:
    path, whole = tmp_path_factory.mktemp("noise") / "file.gz", gzip.compress(idx_bytes(ARRAY))
    for contents in (whole[:cut], noise, whole[:cut] + noise):
        path.write_bytes(contents)
        try:  # only the gzip header's idle bytes (time, system) can change unnoticed
            assert np.array_equal(read_idx(path, ARRAY.shape, "fetch it"), ARRAY)
            assert len(contents) >= len(whole)
        except DataError:
            pass


@given(contents=st.binary(max_size=200))
def test_random_bytes_are_a_data_error(tmp_path_factory: pytest.TempPathFactory, contents: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "file"
    path.write_bytes(contents)
    with pytest.raises(DataError):
        read_idx(path, ARRAY.shape, "fetch it")
