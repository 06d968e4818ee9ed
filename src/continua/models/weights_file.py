"""The file of a network's weights: the same bytes for the same network, checked by its sum when it is read, known by its tensors.

safetensors keeps the words about a file (its metadata) in any order, so two files of one network may differ. Here they are put in order,
and whoever asks which network a file holds gets a digest of the tensors, not of the bytes around them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from continua.errors import ConfigError
from continua.files import Json, read_below
from continua.limits import STATE_BYTES
from continua.reading import parse_json

HEAD_BYTES = 100_000_000  # more than safetensors itself allows


def packed(tensors: Mapping[str, Tensor], model: str) -> bytes:
    """The contents of a file of weights; equal networks give equal bytes."""
    from safetensors.torch import save

    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt", "model": model})
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    ordered = {"__metadata__": dict(sorted(head.pop("__metadata__").items()))} | head
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def sum_of(data: bytes) -> str:
    """The checksum of a file's contents, as config.json keeps it."""
    return hashlib.sha256(data).hexdigest()


def unpacked(path: Path, expected: object = None) -> dict[str, Tensor]:
    """The tensors of a file; one whose checksum is not the `expected` one is refused (None: none was kept, by versions before)."""
    from safetensors.torch import load

    try:
        data = read_below(path, limit=STATE_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    if expected is not None and sum_of(data) != expected:
        raise ConfigError(
            f"{path} is damaged: its checksum is not the one that config.json beside it keeps. Take both files from a copy; if the weights "
            "were changed on purpose, save them by save_pretrained, or remove weights_sha256 from config.json"
        )
    try:
        return load(data)
    except Exception as error:  # safetensors has its own errors for what is wrong with a file
        raise ConfigError(f"{path} cannot be read ({error}); the file is damaged or not safetensors") from None


def tensors_digest(path: Path) -> str:
    """The SHA-256 of names, types, shapes and numbers of all tensors of a file, whatever else is in it and in which order.

    What is no file of tensors is known by its bytes: whoever loads it is told what is wrong with it.

    Args:
        path: the file.

    Returns:
        The digest in hexadecimal digits.

    Examples:
        >>> from continua.models import tensors_digest
        >>> tensors_digest(folder / "model.safetensors")  # doctest: +SKIP
    """
    data = read_below(path, limit=STATE_BYTES)
    try:
        return _digest(data, path)
    except (ValueError, KeyError, TypeError, AttributeError):
        return sum_of(data)


def _digest(data: bytes, path: Path) -> str:
    size = int.from_bytes(data[:8], "little")
    if size > min(HEAD_BYTES, len(data) - 8):
        raise ValueError(f"its head claims {size:,} bytes")
    head: Json = parse_json(data[8 : 8 + size], path)
    numbers, digest = memoryview(data)[8 + size :], hashlib.sha256()
    for name in sorted(name for name in head if name != "__metadata__"):
        about, (start, end) = head[name], head[name]["data_offsets"]
        digest.update(json.dumps([name, about["dtype"], about["shape"]]).encode())
        digest.update(numbers[start:end])
    return digest.hexdigest()


def network_digest(weights: Path, config: Json) -> str:
    """What tells networks apart: the tensors and the configuration, however either is written down.

    Args:
        weights: the file of tensors.
        config: what config.json holds.

    Returns:
        A SHA-256 in hexadecimal digits.

    Examples:
        >>> from continua.models import network_digest
        >>> network_digest(folder / "model.safetensors", config)  # doctest: +SKIP
    """
    said = {name: value for name, value in config.items() if name != SUM}
    return hashlib.sha256((tensors_digest(weights) + json.dumps(said, sort_keys=True)).encode()).hexdigest()


SUM = "weights_sha256"
"""The name of the checksum of the weights in config.json."""
