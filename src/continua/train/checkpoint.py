"""Checkpoints that survive a power cut: written whole or not at all, checked by their sum when read, never a way to run code."""

import hashlib
import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from continua.errors import ContinuaError, ContinuaWarning
from continua.files import ForeignFile, Json, make_folder, read_below, refuse_links, write_synced
from continua.limits import STATE_BYTES

KEPT = 2
_NAME = re.compile(r"step-(\d+)\.pt")


class CheckpointError(ContinuaError):
    """No checkpoint could be written, or none could be read."""


def save_checkpoint(folder: Path, step: int, state: Mapping[str, object], spare: int | None = None) -> Path:
    """Write the state after `step` steps; only then let go of all but the last two, and of the one after `spare` steps."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    data = buffer.getbuffer()
    path = checkpoint_path(folder, step)
    try:
        make_folder(refuse_links(folder.parent, folder))
        # The sum goes first: a .pt without one can then only be a foreign file, and a sum without a .pt is waste.
        write_synced(_sum_of(path), f"{hashlib.sha256(data).hexdigest()}\n".encode(), folder.parent)
        write_synced(path, data, folder.parent)
    except OSError as error:
        earlier = checkpoints(folder)
        kept = f"the checkpoint before it is intact: {earlier[-1]}" if earlier else "there is no earlier one"
        raise CheckpointError(
            f"checkpoint {path} could not be written ({error}); {kept}. Make room or give write access, then --resume"
        ) from error
    saved = checkpoints(folder)
    # A later one is damaged: the training would have gone on from it. Kept, it would count as one of the two and cost us a whole one.
    later = saved[saved.index(path) + 1 :]
    for old in [*saved[: saved.index(path) + 1][:-KEPT], *later]:
        if spare is not None and old == checkpoint_path(folder, spare) and old not in later:
            continue
        old.unlink(missing_ok=True)
        _sum_of(old).unlink(missing_ok=True)
    return path


def load_last_checkpoint(folder: Path) -> tuple[Path, Json]:
    """The newest checkpoint that is whole; a damaged one is passed over with a warning."""
    saved = checkpoints(refuse_links(folder.parent, folder))
    if not saved:
        raise CheckpointError(f"{folder} holds no checkpoint to go on from; start the training anew")
    problems = []
    for path in reversed(saved):
        try:
            return path, read_checkpoint(path)
        except CheckpointError as error:
            problems.append(str(error))
            warnings.warn(f"{error}; trying the one before", ContinuaWarning, stacklevel=2)
    raise CheckpointError(f"none of the {len(saved)} checkpoints in {folder} can be read: {'; '.join(problems)}")


# What torch.load raises for bytes that it cannot read.
_UNREADABLE = (
    *(pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError),
    *(LookupError, TypeError, AttributeError, ArithmeticError, AssertionError),
)


def read_checkpoint(path: Path) -> Json:
    """Tensors and plain data of a file whose checksum is right."""
    try:
        data = read_below(path, path.parents[1], limit=STATE_BYTES)
        expected = read_below(_sum_of(path), path.parents[1], 200).decode().strip()
    except (OSError, UnicodeDecodeError, ForeignFile) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read ({error})") from None
    if hashlib.sha256(data).hexdigest() != expected:
        raise CheckpointError(f"checkpoint {path} is damaged: its checksum differs from {_sum_of(path).name}")
    _refuse_packed(data, path)
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        reason = str(error).split("\n")[0]
        raise CheckpointError(f"checkpoint {path} holds more than tensors and plain data, and was not loaded ({reason})") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"checkpoint {path} holds {type(state).__name__}, not the state of a training")
    return state


@contextmanager
def fitting_state(path: Path) -> Iterator[None]:
    """Around the use of a checkpoint: one whose contents are not those of this training is an error that names it."""
    try:
        yield
    except ContinuaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, ArithmeticError) as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"checkpoint {path} does not hold the state of this training ({type(error).__name__}: {said}); remove it to go on from the one "
            "before, or train anew"
        ) from error


def plain_number(name: str, value: object) -> object:
    """A counter, a time or a loss of a checkpoint; what else stands under its name is refused."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{name} is {type(value).__name__}, expected a number")
    return value


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}.pt"


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in a folder, oldest first."""
    steps = {int(name[1]): path for path in folder.glob("step-*.pt") if (name := _NAME.fullmatch(path.name))}
    return [path for _, path in sorted(steps.items())]


def _refuse_packed(data: bytes, path: Path) -> None:
    """PyTorch writes its archives without compression; one that is compressed could unpack to any size."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return  # torch.load says what it is instead
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            packed = [entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
    except (zipfile.BadZipFile, ValueError, LookupError, NotImplementedError):
        packed = ["its list of files"]
    if packed:
        raise CheckpointError(f"checkpoint {path} is compressed or damaged ({packed[0]!r}), which no training writes; it was not loaded")


def _sum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")
