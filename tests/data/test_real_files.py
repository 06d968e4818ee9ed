"""The official files themselves, where they are at hand: below CONTINUA_DATA, or packed in a folder beside this clone."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from continua import DataError
from continua.cli import main
from continua.data import load
from continua.data.sources import CONTENTS_MD5

PACKED = Path(__file__).parents[3] / "shared" / "data" / "unpack.py"


@pytest.fixture
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder that has an official set, given the name of its own folder; skips the test where there is none."""

    def find(folder: str, packed_name: str) -> Path:
        configured = os.environ.get("CONTINUA_DATA")
        if configured and (Path(configured) / folder).is_dir():
            return Path(configured)
        if not PACKED.is_file():
            pytest.skip(f"{folder} is not here: set CONTINUA_DATA to a folder that has it")
        unpacked = tmp_path_factory.mktemp("real")
        subprocess.run([sys.executable, str(PACKED), str(unpacked), packed_name], check=True, capture_output=True)
        return unpacked

    return find


def test_cifar10_is_the_official_one_in_both_layouts(real: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = real("cifar-10-batches-py", "cifar10")
    assert main(["data", "check", "cifar10", "--data-dir", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "0.4914, 0.4822, 0.4465" in shown
    assert shown.count("official") == 7

    found = load("cifar10", root, splits=["test"])
    assert found.classes == ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    test = found["test"]
    rows = np.concatenate([test.labels.numpy().astype(np.uint8)[:, None], test.images.flatten(1).numpy()], axis=1).tobytes()
    assert hashlib.md5(rows).hexdigest() == CONTENTS_MD5["cifar10"]["test_batch.bin"]  # the published sum of the binary version
    binary = tmp_path / "cifar-10-batches-bin"
    binary.mkdir()
    (binary / "batches.meta.txt").write_text("\n".join(found.classes) + "\n\n")
    (binary / "test_batch.bin").write_bytes(rows)
    again = load("cifar10", tmp_path, splits=["test"])
    assert again.classes == found.classes
    assert torch.equal(again["test"].images, test.images)
    assert torch.equal(again["test"].labels, test.labels)


def test_tiny_imagenet_val_is_read_and_train_is_refused_where_it_is_not(
    real: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = real("tiny-imagenet-200", "tiny-imagenet-200")
    if (root / "tiny-imagenet-200" / "train").is_dir():
        pytest.skip("this copy is whole: reading all of it takes minutes")
    assert main(["data", "check", "tiny_imagenet_200", "--data-dir", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "3×64×64" in shown
    assert "this copy has no train split" in shown
    with pytest.raises(DataError, match="lacks its train split"):
        load("tiny_imagenet_200", root, splits=["train"])
