"""A run directory: what was asked, where it ran, what happened, what came out; and the index that finds the run of a recipe.

One training at a time may write to a run directory. Sweeps and studies share runs through the index.
"""

import fcntl
import json
import os
import platform
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, typed
from continua.files import ForeignFile, Json, append_below, make_folder, open_below, read_below, truncate_below, write_synced
from continua.limits import YAML_BYTES
from continua.machine import cpu_name, machine_facts
from continua.native import kernels_text
from continua.reading import UnreadableFile, read_json_object, read_utf8
from continua.runs.loading import FORMAT, identities, identity, resolve, stored_recipe, write_yaml
from continua.runs.recipe import Recipe
from continua.runs.records import read_environment, read_metrics, read_run_result

PACKAGES = ("continua", "torch", "numpy", "lightning-fabric", "jsonargparse", "safetensors")


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


# --- where the run of a recipe is: finished, begun or not yet begun -----------------------------------------------------


def runs_folder(given: "str | Path | None" = None) -> Path:
    """The folder of all runs: the one asked for, else `CONTINUA_RUNS`, else ./runs.

    Args:
        given: the folder asked for.

    Returns:
        The folder.

    Examples:
        >>> from continua.runs import runs_folder
        >>> runs_folder("here").name
        'here'
    """
    return Path(given or os.environ.get("CONTINUA_RUNS") or "runs").expanduser()


def run_folder(recipe: Recipe, runs: "str | Path | None" = None) -> Path:
    """The folder that the run of a resolved recipe gets where none is asked for.

    Args:
        recipe: resolved.
        runs: folder of all runs.

    Returns:
        The folder; it need not exist.

    Examples:
        >>> from continua.runs import load_recipe, resolve, run_folder
        >>> folder = run_folder(resolve(load_recipe("demo")))
    """
    return runs_folder(runs) / f"{recipe.model}-{recipe.data}-seed{recipe.seed}-{identity(recipe)[:8]}"


def find_run(recipe: Recipe, runs: "str | Path | None" = None, device: str = "cpu", data_dir: "str | Path | None" = None) -> Run | None:
    """The run of this recipe, resolved or not, under the folder of all runs, whatever its own folder is called; a finished one first.

    Args:
        recipe: resolved or not.
        runs: folder of all runs.
        device: decides "auto".
        data_dir: folder of all data sets.

    Returns:
        The run, or None.

    Examples:
        >>> from continua.runs import find_run, load_recipe
        >>> find_run(load_recipe("demo"), "nowhere") is None
        True
    """
    recipe = resolve(recipe, device, data_dir)
    return RunIndex(runs).find(recipe)


class RunIndex:
    """Every run in the folder of all runs and in its folders, by identity. Made once, it answers for many recipes."""

    def __init__(self, runs: "str | Path | None" = None) -> None:
        self.runs = runs_folder(runs)
        self.known: dict[str, Run] = {}
        self.skipped: dict[Path, str] = {}  # folders that look like runs and cannot be read, with the reason
        for run in map(Run, run_folders(self.runs)):
            try:
                name = _identity_of(run)
            except ContinuaError as error:  # one bad folder must not hide the others
                self.skipped[run.folder] = str(error)
                warnings.warn(f"{run.folder} is passed over: {error}", ContinuaWarning, stacklevel=2)
                continue
            if name not in self.known or run.result is not None:
                self.known[name] = run

    def find(self, recipe: Recipe) -> Run | None:
        """The run of a resolved recipe."""
        return next((self.known[name] for name in identities(recipe) if name in self.known), None)


def stored_identities(run: Run) -> tuple[str, ...]:
    """What the run is called, and was called by the version that began it: later ones may spell its options otherwise.

    Args:
        run: any run.

    Returns:
        Identities.

    Examples:
        >>> from continua.runs import Run, stored_identities
        >>> stored_identities(Run("runs/demo/dcn_ode"))  # doctest: +SKIP
    """
    return *identities(run.recipe), *identities(stored_recipe(run.config, upgrade=False))


def run_folders(folder: Path) -> Iterator[Path]:
    """Every run in a folder and in its folders.

    Args:
        folder: where to look.

    Returns:
        Their paths.

    Examples:
        >>> from pathlib import Path
        >>> from continua.runs import run_folders
        >>> list(run_folders(Path("nowhere")))
        []
    """
    for pattern in ("*/config.yaml", "*/*/config.yaml"):
        yield from (path.parent for path in sorted(folder.glob(pattern)))


def _identity_of(run: Run) -> str:
    """What the run says it is; an error where its files are not a run's, or are damaged."""
    # What it came to is far quicker to read than the recipe, and as good where this format wrote both.
    current = read_utf8(run.config, YAML_BYTES, run.folder).startswith(f"format: {FORMAT}\n")
    result = run.result if current else None
    return result["identity"] if result is not None and "identity" in result else identity(run.recipe)


# --- where a run computes: enough to say why two machines might differ --------------------------------------------------


def chosen_device(asked: str) -> str:
    """A device that is here; "auto" is cuda where there is one, else cpu.

    Args:
        asked: "auto", "cpu", "cuda" (NVIDIA, AMD), "mps" (Apple) or "xpu" (Intel).

    Returns:
        Its name, without "auto".

    Raises:
        ConfigError: there is no such device here.

    Examples:
        >>> from continua.runs import chosen_device
        >>> chosen_device("cpu")
        'cpu'
    """
    there = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "xpu": torch.xpu.is_available,
    }
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked not in there:
        raise ConfigError(f"device is {asked!r}; expected auto, {', '.join(there)}")
    if not there[asked]():
        raise ConfigError(f"device is {asked!r}, but PyTorch finds no such GPU here; use --device cpu")
    return asked


def describe_environment(device: torch.device, world_size: int) -> Json:
    """Versions, commit, processor, threads, determinism flags and what `continua doctor` says of the machine, as JSON holds them.

    No probe is made for it: a run in float32 has no use for one.

    Args:
        device: on which the run is trained.
        world_size: number of processes.

    Returns:
        Facts by name.

    Examples:
        >>> import torch
        >>> from continua.runs import describe_environment
        >>> facts = describe_environment(torch.device("cpu"), 1)
    """
    described: Json = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "ranks": world_size,
        "device": str(device),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "machine": machine_facts(),
        "native_kernels": kernels_text(),
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
        described["cuda"] = torch.version.cuda
    return described


def _commit() -> str | None:
    """The commit of the source, with "+" where files differ from it; None outside a clone."""
    here = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*here, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run([*here, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else None
