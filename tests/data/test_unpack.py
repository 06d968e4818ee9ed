"""Archives that would unpack to too much, and what a killed unpacking leaves."""

import fcntl
import os
from pathlib import Path

import pytest
from official import tar_gz

from continua import DataError
from continua.data import REMOTES
from continua.data.fetch import forget_fetched, unpack


def test_an_archive_that_holds_more_than_the_limit_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar_gz({"set/zeros": bytes(100_000), "set/more": bytes(100_000)}))
    monkeypatch.setenv("CONTINUA_MAX_UNPACKED", "150000")
    with pytest.raises(DataError, match=r"nothing was unpacked.*CONTINUA_MAX_UNPACKED"):
        unpack(archive, tmp_path, "set")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_what_a_killed_unpacking_left_is_removed_and_what_another_one_fills_is_not(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar_gz({"set/file": b"contents"}))
    for name in (".set.abandond", ".set.fillings", ".set.mine"):
        (tmp_path / name / "set").mkdir(parents=True)
        (tmp_path / name / "set" / "half").write_text("half")
    busy = os.open(tmp_path / ".set.fillings", os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)
    unpack(archive, tmp_path, "set")
    os.close(busy)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".set.fillings", ".set.mine", "a.tar.gz", "set"]


def test_what_is_left_beside_data_that_are_there_goes_with_the_next_fetch(tmp_path: Path) -> None:
    """A disk may fail while a leftover is removed, and the unpacking succeed all the same."""
    (remote,) = (remote for remote in REMOTES["cifar10"]["python"] if remote.is_archive)
    left = tmp_path / f".{remote.folder}.abandond" / remote.folder
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    (tmp_path / remote.folder).mkdir()
    forget_fetched([remote], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [remote.folder]
