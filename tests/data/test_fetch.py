"""Fetching from a server that behaves, and from servers that truncate, corrupt, stall, ignore Range or are not there."""

import hashlib
import io
import os
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official import random_bytes, tar_gz

from continua import DataError
from continua.data.fetch import Patience, download, fetch_data, unpack
from continua.data.sources import Remote

CONTENTS = random_bytes(300_000).tobytes()
HURRIED = Patience(timeout=0.25, attempts=2, pause=0.0)


@dataclass
class Server:
    """A local server. Each request for a file takes the next of its `moods`; when they run out it behaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    moods: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # path and Range header


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted, asked = self.path.lstrip("/"), self.headers.get("Range", "")
            state.requests.append((wanted, asked))
            mood = state.moods[wanted].pop(0) if state.moods.get(wanted) else ""
            contents = state.files.get(wanted)
            if contents is None or mood.isdigit():
                self.send_error(int(mood or 404))
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and mood != "ignores range" else 0
            if start >= len(contents):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if mood not in ("no length", "never ends"):
                self.send_header("Content-Length", str(len(contents) - start))
            if start:
                shift = 1 if mood == "shifts range" else 0
                self.send_header("Content-Range", f"bytes {start + shift}-{len(contents) - 1}/{len(contents)}")
            self.end_headers()
            rest = contents[start:]
            if mood == "truncates":
                rest = rest[: len(rest) // 2]
            elif mood == "corrupts":
                rest = rest[:-1] + bytes([rest[-1] ^ 1])
            elif mood == "never ends":
                with suppress(ConnectionError):
                    while not over.is_set():
                        self.wfile.write(bytes(1 << 16))
                return
            elif mood == "drips":
                with suppress(ConnectionError):
                    for place in range(len(rest)):
                        self.wfile.write(rest[place : place + 1])
                        self.wfile.flush()
                        if over.wait(0.02):
                            break
                return
            elif mood == "stalls":
                self.wfile.write(rest[: len(rest) // 2])
                self.wfile.flush()
                over.wait(5)
                return
            self.wfile.write(rest)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.address = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    over.set()
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def remote(server: Server) -> Remote:
    server.files["file.bin"] = CONTENTS
    return remote_of(CONTENTS, server.address + "/file.bin")


def remote_of(contents: bytes, *addresses: str, file: str = "file.bin", size: int | None = None, folder: str = "") -> Remote:
    return Remote(file, addresses, hashlib.md5(contents).hexdigest(), size, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_arrives_whole_and_is_not_fetched_twice(tmp_path: Path, server: Server, remote: Remote) -> None:
    target = tmp_path / "deep" / "file.bin"
    for _ in range(2):
        assert download(remote, target, patience=HURRIED).read_bytes() == CONTENTS
    assert len(server.requests) == 1
    assert names(target.parent) == ["file.bin"]


@pytest.mark.parametrize("mood", ["truncates", "stalls"])
def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path: Path, server: Server, remote: Remote, mood: str) -> None:
    server.moods["file.bin"] = [mood] * 3
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS
    assert [asked for _, asked in server.requests] == ["", "bytes=150000-", "bytes=225000-", "bytes=262500-"]


def test_a_part_of_an_earlier_attempt_is_taken_up(tmp_path: Path, server: Server, remote: Remote) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENTS[:1000])
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS
    assert server.requests == [("file.bin", "bytes=1000-")]
    assert names(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("mood", ["ignores range", "shifts range"])
def test_a_server_that_does_not_serve_the_range_asked_for_sends_all_again(
    tmp_path: Path, server: Server, remote: Remote, mood: str
) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENTS[:1000])
    server.moods["file.bin"] = [mood]
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


@pytest.mark.parametrize("length", [100, len(CONTENTS), len(CONTENTS) + 5])
def test_a_part_that_is_not_a_beginning_of_the_file_is_thrown_away(tmp_path: Path, remote: Remote, length: int) -> None:
    (tmp_path / "file.bin.part").write_bytes(bytes(length))
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


@pytest.mark.parametrize("size", [None, len(CONTENTS)])
def test_a_part_that_is_already_whole_needs_only_its_name(tmp_path: Path, server: Server, size: int | None) -> None:
    server.files["file.bin"] = CONTENTS
    (tmp_path / "file.bin.part").write_bytes(CONTENTS)
    remote = remote_of(CONTENTS, server.address + "/file.bin", size=size)
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


def test_a_corrupt_file_is_a_checksum_error_and_leaves_nothing(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.moods["file.bin"] = ["corrupts"]
    with pytest.raises(DataError, match=rf"wrong checksum: MD5 [0-9a-f]{{32}}, expected {remote.md5}"):
        download(remote, tmp_path / "file.bin", patience=HURRIED)
    assert names(tmp_path) == []


def test_a_server_that_always_truncates_and_corrupts_is_given_up(tmp_path: Path, server: Server, remote: Remote) -> None:
    (tmp_path / "file.bin.part").write_bytes(bytes(10))
    server.moods["file.bin"] = ["truncates", "corrupts"] * 50
    with pytest.raises(DataError, match="wrong checksum"):
        download(remote, tmp_path / "file.bin", patience=HURRIED)
    assert names(tmp_path) == []
    assert len(server.requests) <= 5


def test_a_server_that_sends_nothing_more_is_given_up_and_the_part_is_kept(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.moods["file.bin"] = ["truncates"] + ["500"] * 50
    with pytest.raises(DataError, match=r"HTTP 500 .*2 times without a byte arriving.*put the file at .*file\.bin yourself"):
        download(remote, tmp_path / "file.bin", patience=HURRIED)
    assert names(tmp_path) == ["file.bin.part"]
    server.moods.clear()
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


def test_a_stalled_server_is_given_up_in_bounded_time(tmp_path: Path, server: Server) -> None:
    server.files["file.bin"] = b"x"  # of which half, so nothing, arrives
    server.moods["file.bin"] = ["stalls"] * 50
    began = time.monotonic()
    with pytest.raises(DataError, match=r"nothing arrived for 0\.25 s, 2 times"):
        download(remote_of(b"x", server.address + "/file.bin"), tmp_path / "file.bin", patience=HURRIED)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("trouble", ["404", "corrupts", "nobody there", "other size"])
def test_the_next_mirror_is_tried(tmp_path: Path, server: Server, trouble: str) -> None:
    server.files |= {"good/file.bin": CONTENTS, "bad/file.bin": CONTENTS + b"!" if trouble == "other size" else CONTENTS}
    server.moods["bad/file.bin"] = [] if trouble in ("nobody there", "other size") else [trouble]
    bad = "http://127.0.0.1:9" if trouble == "nobody there" else server.address + "/bad"
    remote = remote_of(CONTENTS, f"{bad}/file.bin", f"{server.address}/good/file.bin", size=len(CONTENTS))
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


def test_a_mirror_given_by_hand_comes_first(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.files["mine/file.bin"] = CONTENTS
    download(remote, tmp_path / "file.bin", mirrors=[server.address + "/mine/"], patience=HURRIED)
    assert [path for path, _ in server.requests] == ["mine/file.bin"]


def test_all_mirrors_failing_names_each_and_why(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.moods["file.bin"] = ["403"]
    mirrors = [f"{server.address}/nowhere", f"{server.address}/none"]
    with pytest.raises(DataError, match=r"/nowhere/file\.bin: HTTP 404.*; http.*/none/file\.bin: HTTP 404.*: HTTP 403"):
        download(remote, tmp_path / "file.bin", mirrors, HURRIED)


def test_a_server_that_does_not_say_the_length_is_read_to_the_end(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.moods["file.bin"] = ["no length"]
    assert download(remote, tmp_path / "file.bin", patience=HURRIED).read_bytes() == CONTENTS


def test_a_wrong_file_that_is_already_there_is_not_touched(tmp_path: Path, server: Server, remote: Remote) -> None:
    (tmp_path / "file.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"file\.bin has MD5 .*, expected .*; delete it"):
        download(remote, tmp_path / "file.bin", patience=HURRIED)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"
    assert server.requests == []


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a usable address"):
        download(remote_of(b"", "nonsense"), tmp_path / "file.bin", patience=HURRIED)


def test_an_archive_is_unpacked_and_then_removed(tmp_path: Path, server: Server) -> None:
    archive = server.files["set.tar.gz"] = tar_gz({"set/one": b"1", "set/deep/two": b"2"})
    remote = remote_of(archive, server.address + "/set.tar.gz", file="set.tar.gz", folder="set")
    assert fetch_data([remote], tmp_path / "new", patience=HURRIED) == [tmp_path / "new" / "set"]
    assert names(tmp_path / "new") == ["set", "set/deep", "set/deep/two", "set/one"]


def test_an_archive_put_there_by_hand_is_used_without_the_network_and_stays(tmp_path: Path) -> None:
    archive = tar_gz({"set/one": b"1"})
    (tmp_path / "set.tar.gz").write_bytes(archive)
    fetch_data([remote_of(archive, "http://127.0.0.1:9/set.tar.gz", file="set.tar.gz", folder="set")], tmp_path, patience=HURRIED)
    assert names(tmp_path) == ["set", "set.tar.gz", "set/one"]


def test_a_folder_that_is_already_there_is_not_replaced(tmp_path: Path, server: Server) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match=r"set exists already; move it away"):
        fetch_data([remote_of(b"", server.address, file="set.tar.gz", folder="set")], tmp_path, patience=HURRIED)
    assert server.requests == []


def test_several_plain_files_go_to_their_folder(tmp_path: Path, server: Server) -> None:
    server.files |= {"a.gz": b"aa", "b.gz": b"bb"}
    remotes = [remote_of(server.files[name], f"{server.address}/{name}", file=name, folder="mnist") for name in ("a.gz", "b.gz")]
    assert fetch_data(remotes, tmp_path, patience=HURRIED) == [tmp_path / "mnist" / "a.gz", tmp_path / "mnist" / "b.gz"]


# --- archives: all below one folder, or nothing at all


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


# --- servers without end ----------------------------------------------------


def test_a_response_that_never_ends_is_given_up(tmp_path: Path, server: Server, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUA_MAX_DOWNLOAD", "5000000")
    server.moods["file.bin"] = ["never ends"] * 5
    with pytest.raises(DataError, match=r"more than 5,000,000 bytes.*CONTINUA_MAX_DOWNLOAD"):
        download(remote, tmp_path / "file.bin", patience=HURRIED)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0


def test_a_server_that_drips_is_given_up(tmp_path: Path, server: Server, remote: Remote) -> None:
    server.moods["file.bin"] = ["drips"] * 5
    with pytest.raises(DataError, match=r"bytes arrived in .* s, less than 10000 a second"):
        download(remote, tmp_path / "file.bin", patience=Patience(timeout=5.0, slowest=10_000.0, grace=0.5))
