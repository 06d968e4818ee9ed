"""A run directory: what was asked, what happened, what came out. One training at a time may write to it."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from continua.errors import ConfigError, ContinuaError
from continua.models import write_synced
from continua.runs.loading import stored_recipe, write_yaml
from continua.runs.recipe import Recipe


class Run:
    """The files of one training.

    config.yaml (the resolved recipe), metrics.jsonl (one line per epoch or event, only ever appended), checkpoints/, best/ (weights for
    `from_pretrained`), environment.json, log.txt, result.json (once finished).
    """

    def __init__(self, folder: "str | Path") -> None:
        self.folder = Path(folder)
        self.config, self.metrics = self.folder / "config.yaml", self.folder / "metrics.jsonl"
        self.checkpoints, self.best = self.folder / "checkpoints", self.folder / "best"
        self.environment, self.result_file = self.folder / "environment.json", self.folder / "result.json"
        self._log = self.folder / "log.txt"

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
    def result(self) -> dict[str, Any] | None:
        """What came out, once the run has finished."""
        return json.loads(self.result_file.read_text("utf-8")) if self.result_file.is_file() else None

    def lines(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl."""
        if not self.metrics.is_file():
            return []
        return [json.loads(line) for line in self.metrics.read_text("utf-8").splitlines()]

    def create(self, recipe: Recipe) -> None:
        """Begin a run in a folder that holds none."""
        if self.exists:
            state = "is finished" if self.result is not None else f"can go on: continua train --resume {self.folder}"
            raise ConfigError(f"{self.folder} already holds a run, which {state}; choose another --out for a new one")
        self.write(self.config, write_yaml(recipe))

    def write(self, path: Path, text: str) -> None:
        """A small file, whole or not at all."""
        with readable_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, text.encode())

    def write_json(self, path: Path, data: Mapping[str, Any]) -> None:
        self.write(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def append(self, line: Mapping[str, Any]) -> None:
        """One more line of metrics, on the disk when this returns."""
        with readable_errors(self.metrics), open(self.metrics, "ab") as file:
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics_length(self) -> int:
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def truncate_metrics(self, length: int) -> None:
        """Forget lines written after a checkpoint: they will be written again."""
        if self.metrics_length() < length:
            raise ContinuaError(f"{self.metrics} is shorter than when its checkpoint was written: lines were removed from it by hand")
        if self.metrics.exists():
            os.truncate(self.metrics, length)

    def log(self, text: str) -> None:
        """A dated line in log.txt, for people."""
        with readable_errors(self._log), open(self._log, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def owner(self) -> str | None:
        """Who is training in this folder at this moment."""
        try:
            handle = os.open(self.folder / ".lock", os.O_RDONLY)
        except OSError:
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
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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
            os.close(handle)


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
    """What the system says about a file, as an error that names it."""
    try:
        yield
    except OSError as error:
        raise ContinuaError(
            f"{path} cannot be written ({error.strerror or error}); make room, give write access or choose another folder. "
            "A run that had begun goes on with --resume"
        ) from error


def runs_folder(given: "str | Path | None" = None) -> Path:
    """The folder of all runs: the one asked for, else `CONTINUA_RUNS`, else ./runs."""
    return Path(given or os.environ.get("CONTINUA_RUNS") or "runs").expanduser()
