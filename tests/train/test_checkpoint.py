"""Checkpoints are whole or not there, and reading one runs no code."""

import hashlib
import os
import pickle
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

from continua.errors import ContinuaError, ContinuaWarning
from continua.train.checkpoint import (
    CheckpointError,
    checkpoints,
    fitting_state,
    load_last_checkpoint,
    plain_number,
    read_checkpoint,
    save_checkpoint,
)


def state(value: float) -> dict:
    return {"net": {"w": torch.full((4,), value)}, "epoch": int(value), "best": None, "sums": {"nfe": [1.0, 2.0]}}


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 7, state(3.0))
    found, read = load_last_checkpoint(tmp_path)
    assert found == path
    assert torch.equal(read["net"]["w"], torch.full((4,), 3.0))
    assert (read["epoch"], read["best"], read["sums"]) == (3, None, {"nfe": [1.0, 2.0]})


def test_the_last_two_are_kept_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (5, 90, 100, 1000):
        save_checkpoint(tmp_path, step, state(step))
    assert [int(path.stem[5:]) for path in checkpoints(tmp_path)] == [100, 1000]
    assert len(list(tmp_path.iterdir())) == 4, "two checkpoints with their sums, nothing else"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "no sum"])
def test_a_damaged_last_one_falls_back_to_the_one_before_with_a_warning(damage: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1.0))
    last = save_checkpoint(tmp_path, 2, state(2.0))
    data = bytearray(last.read_bytes())
    if damage == "cut":
        last.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        last.write_bytes(data)
    elif damage == "empty":
        last.write_bytes(b"")
    else:
        last.with_suffix(".sha256").unlink()
    with pytest.warns(ContinuaWarning, match=last.name):
        _, read = load_last_checkpoint(tmp_path)
    assert read["epoch"] == 1


class Hostile:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_hostile_file_is_refused_and_does_nothing(form: str, tmp_path: Path) -> None:
    path, trap = tmp_path / "step-000000001.pt", tmp_path / "made by the file"
    if form == "pickle":
        path.write_bytes(pickle.dumps({"net": Hostile(trap)}))
    else:
        torch.save({"net": Hostile(trap)}, path)
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())  # its sum is right: that is not what saves us
    with pytest.raises(CheckpointError, match="more than tensors and plain data"):
        read_checkpoint(path)
    assert not trap.exists()
    with pytest.warns(ContinuaWarning), pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        load_last_checkpoint(tmp_path)


def test_a_forged_reference_to_a_tensor_is_refused(tmp_path: Path) -> None:
    """Found by the fuzz: PyTorch asserts that such a reference is a tuple."""
    path = tmp_path / "step-000000001.pt"
    torch.save({"net": torch.zeros(2)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, b"\x80\x02K\x01Q." if name.endswith("data.pkl") else data)  # "tensor 1", a plain number
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(CheckpointError, match="more than tensors and plain data"):
        read_checkpoint(path)


def test_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_last_checkpoint(tmp_path)


@pytest.mark.parametrize("stage", ["write", "replace"])
def test_a_write_that_fails_leaves_the_earlier_one_and_no_litter(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save_checkpoint(tmp_path, 1, state(1.0))

    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync" if stage == "write" else "replace", no_room)
        with pytest.raises(CheckpointError, match=r"No space left on device.*is intact") as refused:
            save_checkpoint(tmp_path, 2, state(2.0))
    assert str(first) in str(refused.value)
    assert load_last_checkpoint(tmp_path)[1]["epoch"] == 1
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        save_checkpoint(small, 1, state(1.0))
        with pytest.raises(CheckpointError, match="the checkpoint before it is intact"):
            save_checkpoint(small, 2, {"net": {"w": torch.zeros(100_000)}})
        assert load_last_checkpoint(small)[1]["epoch"] == 1
        save_checkpoint(small, 3, state(3.0))
        assert load_last_checkpoint(small)[1]["epoch"] == 3
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_damaged_checkpoint_of_a_later_step_does_not_count_as_one_of_the_two(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_checkpoint(tmp_path, step, state(step))
    checkpoints(tmp_path)[-1].write_bytes(b"damaged")
    with pytest.warns(ContinuaWarning, match="step-000000030"):
        assert load_last_checkpoint(tmp_path)[1]["epoch"] == 20
    for step in (22, 24):
        save_checkpoint(tmp_path, step, state(step))
    assert [read_checkpoint(path)["epoch"] for path in checkpoints(tmp_path)] == [22, 24]


def test_a_checkpoint_that_claims_a_terabyte_is_passed_over_unread(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, step, state(step))
    os.truncate(checkpoints(tmp_path)[-1], 10**12)
    with pytest.warns(
        ContinuaWarning, match=r"step-000000020\.pt has 1,000,000,000,000 bytes and was not read; the limit is .*CONTINUA_MAX_STATE"
    ):
        assert load_last_checkpoint(tmp_path)[1]["epoch"] == 10


def test_checkpoints_of_a_run_that_is_reached_by_a_link_are_read(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run" / "checkpoints", 10, state(10))
    (tmp_path / "short").symlink_to(tmp_path / "run")
    assert load_last_checkpoint(tmp_path / "short" / "checkpoints")[1]["epoch"] == 10


def test_checkpoints_that_are_a_link_are_not_read(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "elsewhere", 10, state(10))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ContinuaError, match="is a link"):
        load_last_checkpoint(tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize("said", ["one line", "a first line\nand a second one"])
def test_an_error_of_pytorch_is_told_by_its_first_line(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise RuntimeError(said)

    path = save_checkpoint(tmp_path, 10, state(10))
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(CheckpointError, match=rf"was not loaded \({said.splitlines()[0]}\)$"):
        read_checkpoint(path)


def test_numbers_of_a_checkpoint_are_numbers_or_missing() -> None:
    assert [plain_number("step", value) for value in (3, 0.5, None)] == [3, 0.5, None]
    for value in (True, "3", [3], torch.tensor(3)):
        with pytest.raises(ValueError, match=f"^step is {type(value).__name__}, expected a number$"):
            plain_number("step", value)


def test_a_state_that_does_not_fit_is_an_error_that_names_the_checkpoint_and_ours_stay_as_they_are(tmp_path: Path) -> None:
    for error in (
        KeyError("net"),
        TypeError("x"),
        ValueError("x"),
        AttributeError("x"),
        IndexError("x"),
        RuntimeError("x"),
        OverflowError("x"),
    ):
        with (
            pytest.raises(CheckpointError, match=rf"{tmp_path} does not hold the state of this training \({type(error).__name__}: "),
            fitting_state(tmp_path),
        ):
            raise error
    with pytest.raises(ContinuaError, match=r"^as it is$"), fitting_state(tmp_path):
        raise ContinuaError("as it is")


def test_the_spare_one_is_kept_beside_the_last_two_unless_it_is_a_damaged_later_one(tmp_path: Path) -> None:
    def kept() -> list[str]:
        return [path.stem[-2:] for path in checkpoints(tmp_path)]

    for step in (10, 20, 30, 40):
        save_checkpoint(tmp_path, step, state(step), spare=20)
    assert kept() == ["20", "30", "40"]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".pt"] * 3 + [".sha256"] * 3
    save_checkpoint(tmp_path, 35, state(35), spare=40)
    assert kept() == ["30", "35"], "one after the step that was gone on from is not whole, spare or not"


def test_when_none_can_be_read_each_is_named_with_its_reason(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path, step, state(step))
    for path in checkpoints(tmp_path):
        path.write_bytes(b"damaged")
    with (
        pytest.warns(ContinuaWarning),
        pytest.raises(CheckpointError, match=r"none of the 2 .*step-000000020\.pt is damaged.*step-000000010\.pt is damaged"),
    ):
        load_last_checkpoint(tmp_path)
