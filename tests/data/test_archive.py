"""Archives: all below one folder, or nothing at all."""

import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official import tar_gz

from continua import DataError
from continua.data.fetch import unpack


def zip_bytes(members: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, contents in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            pack.writestr(entry, contents)
    return stream.getvalue()


def tar_with(kind: bytes, link: str = "", name: str = "set/two") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as pack:
        pack.addfile(tarfile.TarInfo("set/one"))
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        pack.addfile(entry)
    return stream.getvalue()


def placed(tmp_path: Path, contents: bytes, name: str) -> tuple[Path, Path]:
    """The archive, and an empty folder deep enough that an escape would show."""
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    archive = tmp_path / name
    archive.write_bytes(contents)
    return archive, root


@pytest.mark.parametrize("make", [tar_gz, zip_bytes])
def test_files_and_folders_come_out_as_they_went_in(tmp_path: Path, make) -> None:
    members = {"set/one": b"1" * 3_000_000, "set/deep/er/two": b"2", "set/empty": b""}
    archive, root = placed(tmp_path, make(members), "set.zip" if make is zip_bytes else "set.tar.gz")
    assert unpack(archive, root, "set") == root / "set"
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert found == members


@pytest.mark.parametrize(
    "name", ["../evil", "set/../../evil", "/tmp/evil-of-continua", "elsewhere/evil", "evil", "set\\..\\evil", "C:evil"]
)
@pytest.mark.parametrize("make", [tar_gz, zip_bytes])
def test_a_name_outside_the_folder_is_refused_and_nothing_is_written(tmp_path: Path, make, name: str) -> None:
    archive, root = placed(tmp_path, make({"set/one": b"1", name: b"evil"}), "set.zip" if make is zip_bytes else "set.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"evil.*not below set/: refused, nothing was unpacked"):
        unpack(archive, root, "set")
    assert sorted(tmp_path.rglob("*")) == before
    assert not os.path.exists("/tmp/evil-of-continua")


@pytest.mark.parametrize(
    ("contents", "name", "kind"),
    [
        (tar_with(tarfile.SYMTYPE, "/etc"), "set.tar.gz", "link"),
        (tar_with(tarfile.LNKTYPE, "set/one"), "set.tar.gz", "link"),
        (tar_with(tarfile.FIFOTYPE), "set.tar.gz", "device"),
        (tar_with(tarfile.CHRTYPE), "set.tar.gz", "device"),
        (zip_bytes({"set/two": b"/etc"}, stat.S_IFLNK | 0o777), "set.zip", "link"),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, contents: bytes, name: str, kind: str) -> None:
    archive, root = placed(tmp_path, contents, name)
    with pytest.raises(DataError, match=f"the {kind} 'set/two', expected only files and folders"):
        unpack(archive, root, "set")
    assert list(root.iterdir()) == []


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as pack:
        for _ in range(2):
            pack.addfile(tarfile.TarInfo("set/one"))
    archive, root = placed(tmp_path, stream.getvalue(), "set.tar.gz")
    with pytest.raises(DataError, match=r"cannot be unpacked"):
        unpack(archive, root, "set")
    assert list(root.iterdir()) == []


def test_what_exists_is_never_overwritten(tmp_path: Path) -> None:
    archive, root = placed(tmp_path, tar_gz({"set/one": b"1"}), "set.tar.gz")
    (root / "set").mkdir()
    with pytest.raises(DataError, match=r"set exists already; move it away"):
        unpack(archive, root, "set")


@settings(max_examples=30)
@given(data=st.data(), kind=st.sampled_from(["tar.gz", "zip"]))
def test_a_cut_or_overwritten_archive_leaves_all_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    members = {"set/one": b"one" * 50, "set/two": b"two" * 50}
    whole = tar_gz(members) if kind == "tar.gz" else zip_bytes(members)
    cut = data.draw(st.integers(0, len(whole)))
    noise = data.draw(st.binary(max_size=20))
    archive, root = placed(tmp_path_factory.mktemp("noise"), whole[:cut] + noise + whole[cut + len(noise) :], f"set.{kind}")
    try:
        unpack(archive, root, "set")
    except DataError:
        assert list(root.iterdir()) == []
    else:
        assert [path.name for path in root.iterdir()] == ["set"]
