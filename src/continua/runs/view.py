"""A run as everyone reads it: report, analyses, studies, the explorer and the demo. Nothing here writes or trains."""

import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from continua.data import Augmentation, DataSet, load
from continua.errors import ConfigError
from continua.models import CONFIG_FILE, WEIGHTS_FILE, Network
from continua.runs.environment import chosen_device
from continua.runs.folder import Run
from continua.runs.images import Images, drawn, reported_split
from continua.runs.recipe import Recipe
from continua.runs.tasks import task_of


class RunView:
    """One run, finished or not, from the files in its folder; each is read when it is first wanted, and only once."""

    def __init__(self, folder: "str | Path", *, device: str = "auto", data_dir: "str | Path | None" = None) -> None:
        self._run, self._device = Run(folder), device
        self.folder, self.data_dir = self._run.folder, data_dir
        self.recipe: Recipe = self._run.recipe  # at once: what is no run is refused here

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def device(self) -> str:
        """Where the network computes: "cpu" or "cuda"."""
        return chosen_device(self._device)

    # --- what was asked, what happened, what came out -----------------------------------------------------------------

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved recipe as plain data."""
        return asdict(self.recipe)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl."""
        return self._run.lines()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The lines of metrics that end an epoch."""
        return [line for line in self.metrics if line.get("event") == "epoch"]

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """What came out; None while the run is not finished."""
        return self._run.result

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What it ran on; empty where that was not written down."""
        file = self._run.environment
        return json.loads(file.read_text("utf-8")) if file.is_file() else {}

    # --- the network --------------------------------------------------------------------------------------------------

    def weights_file(self) -> Path:
        """The weights that were selected; an error where there are none yet."""
        path = self._run.best / WEIGHTS_FILE
        if not path.is_file():
            raise ConfigError(f"{self.folder} has no weights in best/ yet; `continua train --resume {self.folder}` goes on with it")
        return path

    @cached_property
    def weights(self) -> str:
        """The SHA-256 of weights and configuration, which tells networks apart."""
        path = self.weights_file()
        return hashlib.sha256(path.read_bytes() + path.with_name(CONFIG_FILE).read_bytes()).hexdigest()

    @cached_property
    def network(self) -> Network:
        """The network, in evaluation mode, on the device."""
        return self.load_network()

    def load_network(self) -> Network:
        """A copy of the network that is the caller's own."""
        return task_of(self.recipe).load(self.weights_file().parent).to(self.device).eval()

    # --- its images ---------------------------------------------------------------------------------------------------

    @property
    def data(self) -> str:
        """The name of its data set."""
        return self.recipe.data

    @property
    def preprocess(self) -> Augmentation:
        """How images of bytes become what the network reads."""
        return self.recipe.augmentation.evaluation()

    @property
    def batch_size(self) -> int:
        """Images at a time where nothing is learnt."""
        return self.recipe.evaluation_batch_size

    def dataset(self, name: str | None = None) -> DataSet:
        """The run's data set with its own training images (subset and hold-out as it was trained), or another one by name."""
        if name is not None and name != self.data:
            return load(name, self.data_dir)
        own = {key: self.config[key] for key in ("per_class", "seed", "holdout") if self.config[key] is not None}
        return load(self.data, self.data_dir, **own)

    def images(
        self,
        *,
        data: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        batch_size: int | None = None,
        own: bool = True,
    ) -> Images:
        """Images of a split (else the one that results are reported on) with the run's own preprocessing.

        `own`: of the run's data set, the training images as it was trained on them; else the whole set as it was published.
        """
        dataset = self.dataset(data) if own else load(data or self.data, self.data_dir)
        name = split or reported_split(dataset)
        size = batch_size or self.batch_size
        return Images(drawn(dataset[name], limit), size, self.preprocess, self.device, dataset.classes, data=dataset.name, name=name)
