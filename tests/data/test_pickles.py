"""The reader of CIFAR's pickles builds what CIFAR files contain, refuses everything else by name, and runs nothing."""

import os
import pickle
import shlex
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from official import py2, py2_pickle, py3_pickle, random_bytes

from continua import DataError
from continua.data.pickles import GLOBALS, read_pickle

VALID = py2_pickle({"data": random_bytes(4, 6), "labels": [0, 3, 300, 1], "batch_label": "training batch 1 of 5"})


def written(tmp_path: Path, contents: bytes) -> Path:
    path = tmp_path / "data_batch_1"
    path.write_bytes(contents)
    return path


@pytest.mark.parametrize("dumps", [py2_pickle, py3_pickle])
def test_what_a_cifar_file_contains_is_read(tmp_path: Path, dumps) -> None:
    pixels = random_bytes(4, 6)
    found = read_pickle(written(tmp_path, dumps({"data": pixels, "labels": [0, 3, 300, 1]})), "fetch it")
    assert np.array_equal(found["data"], pixels)
    assert found["labels"] == [0, 3, 300, 1]


def test_our_python_2_pickles_are_what_pythons_own_reader_takes_them_for() -> None:
    pixels = random_bytes(4, 6)
    found = pickle.loads(py2_pickle({"data": pixels, "labels": [0, 300], "name": "x"}), encoding="bytes")
    assert np.array_equal(found[b"data"], pixels)
    assert (found[b"labels"], found[b"name"]) == ([0, 300], b"x")


def test_a_fortran_ordered_array_is_read_as_it_is_meant(tmp_path: Path) -> None:
    pixels = np.asfortranarray(random_bytes(4, 6))
    assert np.array_equal(read_pickle(written(tmp_path, py3_pickle({"data": pixels})), "")["data"], pixels)


class Call:
    """Pickles as a call of `function` with `arguments`."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(tmp: str) -> dict[str, tuple[bytes, str]]:
    """Pickles that would make a folder, change a global or take all memory, with what their refusal must name."""
    mark = os.path.join(tmp, "it-ran")
    command = f"mkdir {shlex.quote(mark)}".encode()
    unicode = b"X" + struct.pack("<I", len(command)) + command
    system = os.system.__module__  # posix, or nt
    return {
        "reduce": (pickle.dumps({"data": Call(os.mkdir, mark)}, 2), "mkdir"),
        "reduce, protocol 4": (pickle.dumps(Call(os.mkdir, mark), 4), "mkdir"),
        "eval": (pickle.dumps(Call(eval, f"__import__('os').mkdir({mark!r})"), 2), "eval"),
        "getattr": (pickle.dumps(Call(getattr, 1, "real"), 2), "getattr"),
        "protocol 0": (pickle.dumps(Call(os.mkdir, mark), 0), ""),
        "inst": (b"(" + unicode + f"i{system}\nsystem\n.".encode(), "INST"),
        "obj": (b"(" + f"c{system}\nsystem\n".encode() + unicode + b"o.", "system"),
        "dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93" + unicode + b"\x85R.", "numpy.f2py"),
        "other numpy global": (b"\x80\x02cnumpy\nload\n" + unicode + b"\x85R.", "numpy.load"),
        "extension registry": (b"\x80\x02\x82\x01.", "EXT1"),
        "persistent id": (b"\x80\x02Pmine\n.", "PERSID"),
        "new object": (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        "call of ndarray": (b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.", "numpy.ndarray"),
        "codec": (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.", "zlib"),
        "state for a global": (b"\x80\x02cnumpy\ndtype\n}(X\x04\x00\x00\x00makeNub.", "change"),
        "slot state for a global": (b"\x80\x02cnumpy\ndtype\nN}(X\x04\x00\x00\x00makeNu\x86b.", "change"),
        "array of objects": (b"\x80\x02" + py2({"data": random_bytes(1, 8)}).replace(b"U\x02u1", b"U\x02O8") + b".", "O8"),
        "byte array of a terabyte": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "BYTEARRAY8"),
        "memo of 64 gigabytes": (b"\x80\x02Nr\xff\xff\xff\xff.", "NoneType"),
    }


@pytest.mark.parametrize("kind", hostile("x"))
def test_a_hostile_pickle_is_refused_by_name_and_nothing_in_it_runs(tmp_path: Path, kind: str) -> None:
    contents, named = hostile(str(tmp_path))[kind]
    before = {name: stand_in.make for name, stand_in in GLOBALS.items()}
    with pytest.raises(DataError, match=r"data_batch_1.*fetch it") as refusal:
        read_pickle(written(tmp_path, contents), "fetch it")
    assert named in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data_batch_1"]
    assert {name: stand_in.make for name, stand_in in GLOBALS.items()} == before


@pytest.mark.parametrize("kind", ["reduce", "reduce, protocol 4", "eval", "protocol 0", "inst", "obj"])
def test_the_hostile_pickles_do_run_under_pythons_own_reader(tmp_path: Path, kind: str) -> None:
    pickle.loads(hostile(str(tmp_path))[kind][0])
    assert (tmp_path / "it-ran").is_dir()


@given(cut=st.integers(0, len(VALID) - 1))
def test_a_truncated_pickle_is_a_data_error(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    with pytest.raises(DataError):
        read_pickle(written(tmp_path_factory.mktemp("cut"), VALID[:cut]), "fetch it")


@given(contents=st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b"\x80\x02}" + tail))
def test_random_bytes_give_a_dictionary_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, contents: bytes) -> None:
    with suppress(DataError):
        assert isinstance(read_pickle(written(tmp_path_factory.mktemp("noise"), contents), "fetch it"), dict)


@given(position=st.integers(0, len(VALID) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_dictionary_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, position: int, byte: int) -> None:
    changed = VALID[:position] + bytes([byte]) + VALID[position + 1 :]
    with suppress(DataError):
        assert isinstance(read_pickle(written(tmp_path_factory.mktemp("flip"), changed), "fetch it"), dict)
