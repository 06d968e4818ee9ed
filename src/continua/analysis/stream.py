"""Arrays larger than memory, written to a safetensors or .npz file as they are made; what an interrupted writing made is not made again."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from continua.errors import ConfigError
from continua.files import refuse_links
from continua.limits import JSON_BYTES
from continua.reading import UnreadableFile, parse_json, read_json_object, unreadable

CODES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
SUFFIXES = (".safetensors", ".npz")


class StreamedArrays:
    """Named arrays in a file under way. Write into `arrays`, say how far you are with `reached(n)`, and `finish()`.

    `key` says what is being written: a file left behind by an interrupted writing is gone on with only where its key is the same.
    """

    def __init__(self, target: Path, shapes: Mapping[str, tuple[str, tuple[int, ...]]], key: str) -> None:
        check_suffix(target)
        self.target = target
        self._part = target.with_name(f".{target.name}.part")
        self._mark = target.with_name(f".{target.name}.reached")
        for path in (self._part, self._mark):
            refuse_links(target.parent, path)
        header, offsets = _header(shapes)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.done = self._left_behind(key)
        if not self.done:
            with self._part.open("wb") as file:
                file.write(header)
                file.truncate(len(header) + max(end for _, end in offsets.values()))
        self.arrays: dict[str, np.ndarray] = {
            name: np.memmap(self._part, CODES[code], "r+", len(header) + offsets[name][0], shape)
            for name, (code, shape) in shapes.items()
            if math.prod(shape)
        }
        self._key = key

    def reached(self, done: int) -> None:
        """The first `done` items are written and on the disk."""
        for array in self.arrays.values():
            getattr(array, "flush")()  # noqa: B009 - of a memmap
        self._mark.write_text(json.dumps({"key": self._key, "done": done}), "utf-8")

    def finish(self) -> Path:
        """Give the file its name; .npz files are packed from the arrays."""
        if self.target.suffix == ".npz":
            with self._part.with_suffix(".npz").open("wb") as file:
                np.savez(file, **self.arrays)  # pyright: ignore[reportArgumentType]
            self._part.with_suffix(".npz").replace(self.target)
            self.arrays.clear()
            self._part.unlink()
        else:
            self._part.replace(self.target)
        self._mark.unlink(missing_ok=True)
        return self.target

    def _left_behind(self, key: str) -> int:
        if not (self._part.is_file() and self._mark.is_file()):
            return 0
        try:
            mark = read_json_object(self._mark, self._mark.parent)
        except UnreadableFile:  # the machine stopped while this was written
            return 0
        done = mark.get("done")
        return done if mark.get("key") == key and isinstance(done, int) else 0


def read_arrays(source: Path) -> dict[str, np.ndarray]:
    """The arrays of a finished file; those of a safetensors file stay on the disk until they are looked at."""
    check_suffix(source)
    if source.suffix == ".npz":
        return dict(np.load(source, allow_pickle=False))
    with source.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > JSON_BYTES.value:
            raise unreadable(source, f"its head claims {size:,} bytes")
        header = parse_json(file.read(size), source)
    try:
        return {
            name: np.memmap(source, CODES[about["dtype"]], "r", 8 + size + about["data_offsets"][0], tuple(about["shape"]))
            for name, about in header.items()
            if name != "__metadata__"
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        raise unreadable(source, f"it holds no arrays of ours ({type(error).__name__}: {error})") from None


def check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path.name!r} is no file for arrays; end it in {' or '.join(SUFFIXES)}")


def _header(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The head of a safetensors file: its length in 8 bytes, then JSON, padded so that the numbers begin at a multiple of 8."""
    offsets, start = {}, 0
    for name, (code, shape) in shapes.items():
        end = start + math.prod(shape) * np.dtype(CODES[code]).itemsize
        offsets[name], start = (start, end), end
    about = {name: {"dtype": code, "shape": list(shape), "data_offsets": offsets[name]} for name, (code, shape) in shapes.items()}
    text = json.dumps(about).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets
