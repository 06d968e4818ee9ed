"""Files below a folder that may be a stranger's, function by function: what is written, synced, refused, and let go of."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from continua.files import (
    ForeignFile,
    append_below,
    folder_below,
    make_folder,
    read_below,
    refuse_links,
    truncate_below,
    write_synced,
    write_text,
)
from continua.limits import Limit


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, in order: names of files and folders."""
    names: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_appended_is_added_and_synced_with_the_name_of_a_new_file(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "lines"
    append_below(path, b"one\n", tmp_path)
    assert path.read_bytes() == b"one\n"
    assert synced == ["lines", tmp_path.name]
    append_below(path, b"two\n", tmp_path)
    assert path.read_bytes() == b"one\ntwo\n"
    assert synced == ["lines", tmp_path.name, "lines"], "the name is on the disk already"
    append_below(tmp_path / "others", b"three\n", tmp_path, synced=False)
    assert (tmp_path / "others").read_bytes() == b"three\n"
    assert len(synced) == 3


def test_a_file_is_synced_before_its_folder(tmp_path: Path, synced: list[str]) -> None:
    write_synced(tmp_path / "state", b"whole", tmp_path)
    assert (tmp_path / "state").read_bytes() == b"whole"
    assert synced == [".state.part", tmp_path.name]
    assert os.listdir(tmp_path) == ["state"]


def test_files_have_the_rights_that_the_user_gives_to_new_files(tmp_path: Path) -> None:
    write_synced(tmp_path / "a", b"", tmp_path)
    append_below(tmp_path / "b", b"", tmp_path)
    (tmp_path / "as usual").touch()
    usual = (tmp_path / "as usual").stat().st_mode
    assert [(tmp_path / name).stat().st_mode for name in "ab"] == [usual, usual]


def test_new_folders_are_synced_by_name(tmp_path: Path, synced: list[str]) -> None:
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path.name, "a"]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_what_is_read_cut_and_returned(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "0123456789")
    assert path == tmp_path / "a"
    assert read_below(path, tmp_path) == b"0123456789"
    assert read_below(path, tmp_path, 4) == b"0123"
    truncate_below(path, 3, tmp_path)
    assert path.read_bytes() == b"012"
    assert refuse_links(tmp_path, path) == path


def test_a_file_at_its_limit_is_read_and_one_beyond_is_not(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "0123456789")
    assert read_below(path, limit=Limit(10, "bytes", "CONTINUA_MAX_NOTHING")) == b"0123456789"
    with pytest.raises(ForeignFile, match=r"a has 10 bytes and was not read; the limit is 9 bytes; CONTINUA_MAX_NOTHING=NUMBER raises it"):
        read_below(path, limit=Limit(9, "bytes", "CONTINUA_MAX_NOTHING"))


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "append": lambda path, root: append_below(path, b"x", root),
    "truncate": lambda path, root: truncate_below(path, 0, root),
}


@pytest.mark.parametrize("how", WRITERS)
def test_a_file_of_two_names_is_read_and_not_written_to(how: str, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a", "precious")
    os.link(path, tmp_path / "b")
    assert read_below(path, tmp_path) == b"precious"
    with pytest.raises(ForeignFile, match="one file under 2 names"):
        WRITERS[how](path, tmp_path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("made", ["pipe", "link", "link on the way", "folder"])
def test_what_is_no_plain_file_of_the_folder_is_refused_and_nothing_stays_open(made: str, tmp_path: Path) -> None:
    root, path = tmp_path / "root", tmp_path / "root" / "inner" / "a"
    (tmp_path / "elsewhere").mkdir()
    write_text(tmp_path / "elsewhere" / "a", "precious")
    path.parent.mkdir(parents=True)
    if made == "pipe":
        os.mkfifo(path)
    elif made == "link":
        path.symlink_to(tmp_path / "elsewhere" / "a")
    elif made == "folder":
        path.mkdir()
    else:
        path.parent.rmdir()
        path.parent.symlink_to(tmp_path / "elsewhere")
    before = descriptors()
    for act in (lambda: read_below(path, root), *(lambda write=write: write(path, root) for write in WRITERS.values())):
        with pytest.raises(IsADirectoryError if made == "folder" else ForeignFile):
            act()
    assert descriptors() == before
    assert (tmp_path / "elsewhere" / "a").read_text() == "precious"
    if made.startswith("link"):
        with pytest.raises(ForeignFile, match="is a link"):
            refuse_links(root, path)


def test_a_folder_is_held_while_the_block_lasts_and_then_let_go(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = descriptors()
    with folder_below(tmp_path, tmp_path / "a" / "b") as folder:
        assert descriptors() == before + 1
        assert stat.S_ISDIR(os.fstat(folder).st_mode)
        assert os.path.samestat(os.fstat(folder), (tmp_path / "a" / "b").stat())
    assert descriptors() == before


def test_the_root_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    write_text(tmp_path / "root" / "a", "mine")
    (tmp_path / "short").symlink_to(tmp_path / "root")
    assert read_below(tmp_path / "short" / "a", tmp_path / "short") == b"mine"
