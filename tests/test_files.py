"""A file is there whole, or as it was before."""

import os
import stat
from pathlib import Path

import pytest

from continua.files import written_whole


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
