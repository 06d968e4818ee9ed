"""A run directory: what was asked, where it ran, what happened, what came out. One training at a time may write to it."""

import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, typed
from continua.files import ForeignFile, Json, append_below, make_folder, open_below, read_below, truncate_below, write_synced
from continua.reading import UnreadableFile, read_json_object
from continua.runs.loading import stored_recipe, write_yaml
from continua.runs.recipe import Recipe
from continua.runs.records import read_environment, read_metrics, read_run_result


class Run:
    """The files of one training.

    config.yaml (the resolved recipe), metrics.jsonl (one line per epoch or event, only ever appended), checkpoints/, best/ (weights for
    `from_pretrained`), environment.json, where.json (on this machine: where its images lie), log.txt, result.json (once finished).
    """

    def __init__(self, folder: "str | Path") -> None:
        self.folder = Path(folder)
        self.config, self.metrics = self.folder / "config.yaml", self.folder / "metrics.jsonl"
        self.checkpoints, self.best = self.folder / "checkpoints", self.folder / "best"
        self.environment, self.result_file = self.folder / "environment.json", self.folder / "result.json"
        self._log, self._where = self.folder / "log.txt", self.folder / "where.json"
        self._held: tuple[int, int] | None = None  # device and number of the folder, while it is locked

    @property
    def exists(self) -> bool:
        return self.config.is_file()

    @property
    def recipe(self) -> Recipe:
        """What config.yaml says."""
        if not self.exists:
            reason = "it has no config.yaml" if self.folder.is_dir() else "there is no such folder"
            raise ConfigError(f"{self.folder} is not a run: {reason}")
        return stored_recipe(self.config)

    @property
    def result(self) -> Json | None:
        """What came out, once the run has finished. A file that is damaged is no result, and is named in a warning."""
        if not os.path.lexists(self.result_file):
            return None
        try:
            return read_run_result(self.result_file, self.folder)
        except UnreadableFile as error:
            warnings.warn(f"{error}. Until then the run counts as not finished", ContinuaWarning, stacklevel=2)
            return None

    @property
    def machine(self) -> Json:
        """What it ran on, from environment.json; empty where that was not written down or is damaged, which a warning says."""
        if not os.path.lexists(self.environment):
            return {}
        try:
            return read_environment(self.environment, self.folder)
        except UnreadableFile as error:
            warnings.warn(str(error), ContinuaWarning, stacklevel=2)
            return {}

    @property
    def data_dir(self) -> Path | None:
        """The folder of data sets it was given, where it was given one. No part of its identity."""
        if not os.path.lexists(self._where):
            return None
        try:
            noted = read_json_object(self._where, self.folder).get("data_dir")
        except UnreadableFile as error:
            warnings.warn(str(error), ContinuaWarning, stacklevel=2)
            return None
        return Path(noted) if isinstance(noted, str) else None

    def note_data_dir(self, data_dir: "str | Path | None") -> None:
        """Remember where the images lie, for whoever goes on with the run or looks at it."""
        if data_dir is not None:
            self.write_json(self._where, {"data_dir": str(Path(data_dir).absolute())})

    def lines(self) -> list[Json]:
        """All lines of metrics.jsonl."""
        return read_metrics(self.metrics, self.folder) if os.path.lexists(self.metrics) else []

    def create(self, recipe: Recipe) -> None:
        """Begin a run in a folder that holds none."""
        if self.exists:
            state = "is finished" if self.result is not None else f"can go on: continua train --resume {typed(self.folder)}"
            raise ConfigError(f"{self.folder} already holds a run, which {state}; choose another --out for a new one")
        self.write(self.config, write_yaml(recipe))

    def write(self, path: Path, text: str) -> None:
        """A small file, whole or not at all."""
        with readable_errors(path):
            self.check_held()
            make_folder(path.parent)
            write_synced(path, text.encode(), self.folder)

    def write_json(self, path: Path, data: Mapping[str, object]) -> None:
        self.write(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def append(self, line: Mapping[str, object]) -> None:
        """One more line of metrics, on the disk when this returns."""
        with readable_errors(self.metrics):
            self.check_held()
            append_below(self.metrics, json.dumps(line, ensure_ascii=False).encode() + b"\n", self.folder)

    def metrics_length(self) -> int:
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def metrics_bytes(self) -> bytes:
        """metrics.jsonl as it is."""
        return read_below(self.metrics, self.folder) if os.path.lexists(self.metrics) else b""

    def restore_metrics(self, kept: bytes) -> None:
        """Make metrics.jsonl begin and end with the lines that a checkpoint kept; a file that held others is damaged, which is said."""
        with readable_errors(self.metrics):
            held = self.metrics_bytes()
            if held.startswith(kept):
                self.truncate_metrics(len(kept))
                return
            warnings.warn(f"{self.metrics} is damaged, and is written again from the checkpoint", ContinuaWarning, stacklevel=2)
            write_synced(self.metrics, kept, self.folder)

    def truncate_metrics(self, length: int) -> None:
        """Forget lines written after a checkpoint: they will be written again."""
        if self.metrics_length() < length:
            raise ContinuaError(f"{self.metrics} is shorter than when its checkpoint was written: lines were removed from it by hand")
        if self.metrics.exists():
            with readable_errors(self.metrics):
                truncate_below(self.metrics, length, self.folder)

    def log(self, text: str) -> None:
        """A dated line in log.txt, for people."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n"
        with readable_errors(self._log):
            self.check_held()
            append_below(self._log, line.encode("utf-8", errors="replace"), self.folder, synced=False)

    def owner(self) -> str | None:
        """Who is training in this folder at this moment."""
        try:
            handle = open_below(self.folder / ".lock", self.folder, os.O_RDONLY)
        except (OSError, ForeignFile):
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(handle, 200).decode(errors="replace").strip() or "another process"
        finally:
            os.close(handle)
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder. The system lets go of the lock when its process ends, however it ends, so no lock is ever stale."""
        path = self.folder / ".lock"
        with readable_errors(path):
            make_folder(self.folder)
            handle = open_below(path, self.folder, os.O_RDWR | os.O_CREAT)
        about = self.folder.stat()
        self._held = (about.st_dev, about.st_ino)
        try:
            try:
                _take(handle)
            except BlockingIOError:
                owner = os.read(handle, 200).decode(errors="replace").strip() or "another process"
                raise ConfigError(f"{self.folder} is being trained in by {owner}; wait for it, or choose another --out") from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield
        finally:
            self._held = None
            os.close(handle)

    def remove_if_empty(self) -> None:
        """Remove the folder if nothing but the lock is in it: of a training that never began."""
        if self.folder.is_dir() and os.listdir(self.folder) == [".lock"]:
            (self.folder / ".lock").unlink()
            self.folder.rmdir()

    def check_held(self) -> None:
        """Whether the folder is still the one that is held: it may have been renamed or removed, and must not be made a second time."""
        if self._held is None:
            return
        try:
            about = self.folder.stat()
            same = (about.st_dev, about.st_ino) == self._held
        except OSError:
            same = False
        if not same:
            raise ContinuaError(
                f"{self.folder} was moved, renamed or removed while it was being trained in; nothing was written in its old place. "
                "What had been saved is in it: go on with `continua train --resume` and where it is now"
            )


def _take(handle: int, trials: int = 5) -> None:
    """The exclusive lock. Someone who only looks (`Run.owner`) holds it for an instant, which must not refuse a training."""
    for left in reversed(range(trials)):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """What the system says about a file, as an error that names it.

    Args:
        path: the file.

    Returns:
        A context.

    Raises:
        ContinuaError: what the system said.

    Examples:
        >>> from pathlib import Path
        >>> from continua.runs import readable_errors
        >>> with readable_errors(Path("x")): pass
    """
    try:
        yield
    except OSError as error:
        raise ContinuaError(
            f"{path} cannot be written ({error.strerror or error}); make room, give write access or choose another folder. "
            "A run that had begun goes on with --resume"
        ) from error
