"""Where the numbers of a training go besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow, trackio, or a tracker of one's own.

A tracker has three methods and is given plain numbers once an epoch. Each of ours needs its own package, which is imported when it is
asked for; project, server and offline mode are set as its users know it, by its own environment variables (`WANDB_MODE=offline`,
`MLFLOW_TRACKING_URI`, ...). A run that is resumed goes on under the same name. A tracker that fails is left out, with a warning: the
training goes on, and metrics.jsonl holds everything.
"""

import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from continua.errors import ConfigError, ContinuaWarning, unknown_name
from continua.files import Json, refuse_links
from continua.reading import read_json_object
from continua.runs import Run, plain_recipe

PROJECT = "continua"
NAMES_FILE = "trackers.json"  # by which names trackers know the run


@runtime_checkable
class Tracker(Protocol):
    """Follows a training from outside: `RunOptions(track=[MyTracker()])`."""

    def start(self, run: Run, epoch: int) -> None:
        """Before the first numbers. `epoch`: theirs; later ones that an interrupted training wrote are to be forgotten."""
        ...

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """The numbers of an epoch by name: loss, train_accuracy, nfe/0, sigma/..."""
        ...

    def finish(self, result: Json | None) -> None:
        """At the end: what result.json holds, or None where the training was interrupted or stopped."""
        ...


class TensorBoard:
    """Files in the run's folder `tensorboard/`."""

    def __init__(self) -> None:
        self._writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._board: Any = None

    def start(self, run: Run, epoch: int) -> None:
        self._board = self._writer(str(refuse_links(run.folder, run.folder / "tensorboard")), purge_step=epoch)

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self._board.add_scalar(name, value, epoch)
        self._board.flush()

    def finish(self, result: Json | None) -> None:
        self._board.close()


class WeightsAndBiases:
    """A run of the project WANDB_PROJECT, else "continua"; `WANDB_MODE=offline` keeps it in the run's folder `wandb/`."""

    def __init__(self) -> None:
        self._wandb, self._run = _package("wandb", "wandb"), None

    def start(self, run: Run, epoch: int) -> None:
        name = known_name(run, "wandb", lambda: secrets.token_hex(4))
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        config = plain_recipe(run.recipe)
        refuse_links(run.folder, run.folder / "wandb")
        self._run = self._wandb.init(project=project, id=name, name=run.folder.name, resume="allow", config=config, dir=str(run.folder))

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        if self._run is not None:
            self._run.log(dict(numbers), step=epoch)

    def finish(self, result: Json | None) -> None:
        if self._run is not None:
            self._run.summary.update(_plain_numbers(result))
            self._run.finish(exit_code=0 if result is not None else 1)


class MLflow:
    """A run of the experiment MLFLOW_EXPERIMENT_NAME, else "continua", where MLFLOW_TRACKING_URI says."""

    def __init__(self) -> None:
        self._mlflow = _package("mlflow", "mlflow-skinny")
        self._client: Any = None
        self._id = ""

    def start(self, run: Run, epoch: int) -> None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        self._client = self._mlflow.MlflowClient()  # here, where a store that it does not know costs no training
        known = self._client.get_experiment_by_name(name)

        def begin() -> str:
            experiment = known.experiment_id if known is not None else self._client.create_experiment(name)
            made: str = self._client.create_run(experiment, run_name=run.folder.name).info.run_id
            for key, value in _flat(plain_recipe(run.recipe)).items():
                self._client.log_param(made, key, value)
            return made

        self._id = known_name(run, "mlflow", begin)
        self._client.update_run(self._id, status="RUNNING")

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._id, name, value, step=epoch)

    def finish(self, result: Json | None) -> None:
        for name, value in _plain_numbers(result).items():
            self._client.log_metric(self._id, f"result/{name}", value)
        self._client.set_terminated(self._id, status="FINISHED" if result is not None else "KILLED")


class Trackio:
    """A run of the project TRACKIO_PROJECT, else "continua", in trackio's own folder on this machine."""

    def __init__(self) -> None:
        self._trackio = _package("trackio", "trackio")

    def start(self, run: Run, epoch: int) -> None:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self._trackio.init(project=project, name=run.folder.name, config=plain_recipe(run.recipe), resume="allow")

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        own = {"step": "batches"}  # "step" is trackio's own word, for what we call the epoch
        self._trackio.log({own.get(name, name): value for name, value in numbers.items()}, step=epoch)

    def finish(self, result: Json | None) -> None:
        self._trackio.finish()


TRACKERS: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Experiment trackers by the names that `track` takes."""


def trackers_of(asked: "str | Sequence[str | Tracker]") -> list[Tracker]:
    """The trackers asked for, by name or objects of one's own. The package of each must be there."""
    made: list[Tracker] = []
    for word in dict.fromkeys([asked] if isinstance(asked, str) else asked):
        if isinstance(word, str):
            if word not in TRACKERS:
                raise unknown_name("tracker", word, TRACKERS)
            made.append(TRACKERS[word]())
        elif isinstance(word, Tracker):
            made.append(word)
        else:
            raise ConfigError(f"track: {word!r} is no tracker; expected {', '.join(TRACKERS)}, or an object with start, log and finish")
    return made


class Tracking:
    """All trackers of a run: started with the first numbers, left out when they fail."""

    def __init__(self, run: Run, trackers: Sequence[Tracker]) -> None:
        self.run, self.waiting = run, list(trackers)
        self.following: list[Tracker] = []

    def log(self, line: Json) -> None:
        """The line of an epoch. Trackers start with it: what an interrupted training wrote from here on is forgotten."""
        for tracker in self.waiting:
            if self._safely(tracker, lambda tracker=tracker: tracker.start(self.run, line["epoch"])):
                self.following.append(tracker)
        self.waiting = []
        numbers = dict(scalars(line))
        self.following = [one for one in self.following if self._safely(one, lambda one=one: one.log(numbers, line["epoch"]))]

    def finish(self, result: Json | None) -> None:
        """The end of the training, whole or not."""
        for tracker in self.following:
            self._safely(tracker, lambda tracker=tracker: tracker.finish(result))
        self.following = []

    def _safely(self, tracker: Tracker, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # of a package that is not ours, or of a server: no reason to lose a training
            name, why = type(tracker).__name__, " ".join(f"{type(error).__name__}: {error}".split())[:300]
            text = f"{name} failed and is left out from here on ({why}); the training goes on, and metrics.jsonl holds its numbers"
            warnings.warn(text, ContinuaWarning, stacklevel=2)
            return False
        return True


def known_name(run: Run, tracker: str, make: Callable[[], str]) -> str:
    """By which name a tracker knows the run: that of before, or a new one, which is written down."""
    path = run.folder / NAMES_FILE
    names = read_json_object(path, run.folder) if path.is_file() else {}
    if not isinstance(names.get(tracker), str):
        names[tracker] = make()
        run.write_json(path, names)
    return names[tracker]


def scalars(line: Json, prefix: str = "") -> "list[tuple[str, float]]":
    """Every number of a line by its path."""
    numbers: list[tuple[str, float]] = []
    for name, value in line.items():
        if isinstance(value, bool | str) or value is None:
            continue
        if isinstance(value, int | float):
            numbers.append((f"{prefix}{name}", value))
        else:
            items = value if isinstance(value, Mapping) else dict(enumerate(value))
            numbers += scalars({str(key): item for key, item in items.items()}, f"{prefix}{name}/")
    return numbers


def _plain_numbers(result: Json | None) -> dict[str, float]:
    return dict(scalars(result or {}))


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested mappings with dotted names."""
    flat: dict[str, object] = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {f"{prefix}{name}": value}
    return flat


def _package(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"tracking by {module} needs its package: pip install {package}") from None
