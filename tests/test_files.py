"""A file is there whole, or as it was before."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from failing_disk import Ended, EndingDisk

from continua.files import own_folder, remove_leftovers, write_text, written_whole


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with written_whole(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
        assert temporary.suffix == ".txt"
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["a.txt"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("before")

    def fail() -> None:
        with written_whole(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits are those of POSIX")
def test_others_may_read_it_as_any_other_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with written_whole(tmp_path / "a.txt") as temporary:
        temporary.touch()
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_what_a_killed_process_left_beside_a_file_is_removed_and_what_another_one_writes_stays(tmp_path: Path) -> None:
    left, foreign = tmp_path / ".a.abcd1234.txt", tmp_path / ".a.of-mine.txt"
    left.write_text("half")
    foreign.write_text("mine")
    with written_whole(tmp_path / "a.txt") as first, written_whole(tmp_path / "a.txt") as second:
        assert not left.exists()
        first.write_text("1")
        second.write_text("2")
        assert first.exists()
    assert sorted(os.listdir(tmp_path)) == [".a.of-mine.txt", "a.txt"]
    assert (tmp_path / "a.txt").read_text() == "1"


def test_a_temporary_folder_goes_unless_it_was_renamed(tmp_path: Path) -> None:
    (tmp_path / ".set.abcd1234").mkdir()
    (tmp_path / ".set.abcd1234" / "half").touch()
    with own_folder(tmp_path, "set") as folder:
        (folder / "set").mkdir()
        (folder / "set").rename(tmp_path / "set")
    assert os.listdir(tmp_path) == ["set"]


@pytest.mark.parametrize("way", ["power", "torn"])
def test_a_file_is_whole_or_as_it_was_after_a_power_cut_at_any_point(way: str, tmp_path: Path) -> None:
    for at in range(1, 60):
        home = tmp_path / str(at)
        home.mkdir()
        (home / "a.txt").write_bytes(b"before")
        disk = EndingDisk(home, way, at, seed=at)
        with suppress(Ended), disk.installed():
            write_text(home / "a.txt", "after")
        assert (home / "a.txt").read_bytes() in (b"before", b"after")
        if disk.points < at:
            assert (home / "a.txt").read_bytes() == b"after"
            return
    pytest.fail("it never came to an end")


def test_two_that_write_the_same_file_leave_one_another_alone(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with written_whole(target) as first:
        first.write_text("first")
        with written_whole(target) as second:
            assert first.exists()
            second.write_text("second")
        assert target.read_text() == "second"
    assert target.read_text() == "first"


def test_leftovers_of_a_folder_go_and_what_is_called_otherwise_stays(tmp_path: Path) -> None:
    for name in (".set.abcd1234", ".set.abc", "set", ".other.abcd1234"):
        (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / ".set.link1234").symlink_to(tmp_path / "set")
    with own_folder(tmp_path, "set") as mine:
        remove_leftovers(tmp_path, "set")
        assert mine.exists(), "it is being filled"
    assert sorted(os.listdir(tmp_path)) == [".other.abcd1234", ".set.abc", ".set.link1234", "set"]
