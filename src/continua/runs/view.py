"""A run as everyone reads it (report, analyses, studies, explorer, demo), with images as its network expects them. Nothing here writes."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from continua.data import Augmentation, DataSet, Loader, Split, load, permutation
from continua.errors import ConfigError, DataError, typed
from continua.files import Json, refuse_links
from continua.models import CONFIG_FILE, WEIGHTS_FILE, Network, Reconstructor, from_pretrained, network_digest
from continua.reading import read_json_object
from continua.runs.environment import chosen_device
from continua.runs.folder import Run
from continua.runs.recipe import Recipe
from continua.showing import Shown


class Images:
    """Batches (images, labels) of a split, as the network expects them. Can be gone through many times; streams sets that are large."""

    def __init__(
        self,
        split: Split,
        batch_size: int,
        preprocess: Augmentation,
        device: "torch.device | str",
        classes: tuple[str, ...],
        *,
        data: str = "",
        name: str = "",
    ) -> None:
        self.split, self.batch_size, self.classes, self.data, self.name = split, batch_size, classes, data, name
        self.loader = Loader(split, batch_size, augmentation=preprocess, device=device)

    def __len__(self) -> int:
        """Batches."""
        return len(self.loader)

    @property
    def count(self) -> int:
        """Images."""
        return len(self.split)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.loader.epoch(0):
            if bool(batch.valid.all()):
                yield batch.images, batch.labels
            elif bool(batch.valid.any()):  # images that could not be decoded are left out
                yield batch.images[batch.valid], batch.labels[batch.valid]

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` images and labels in one batch."""
        images, labels, have = [], [], 0
        for batch, classes in self:
            images.append(batch)
            labels.append(classes)
            have += len(batch)
            if have >= count:
                break
        return torch.cat(images)[:count], torch.cat(labels)[:count]


def reported_split(data: DataSet) -> str:
    """The split that results are reported on: "test", "val" for sets whose test labels are not public, else the images held out.

    Args:
        data: the data set.

    Returns:
        The name of the split.

    Raises:
        ConfigError: the data have no images to report on.

    Examples:
        >>> from continua.data import load
        >>> from continua.runs import reported_split
        >>> reported_split(load("digits"))
        'test'
    """
    for name in ("test", "val", "holdout"):
        if name in data.splits:
            return name
    raise ConfigError(
        f"{data.name} has no test or val images here, so no result can be reported; put some of each class in a folder test/ beside "
        "train/, or hold some back: --holdout 0.2"
    )


def drawn(split: Split, limit: int | None) -> Split:
    """At most `limit` images, drawn once for all; not the first, as folders of images are sorted by class."""
    if limit is None or limit >= len(split):
        return split
    return split.select(permutation(len(split), 0, 0)[:limit].sort().values)


# --- the run -----------------------------------------------------------------------------------------------------------


class RunView(Shown):
    """One run, finished or not, from the files in its folder; each is read when it is first wanted, and only once."""

    def __init__(self, folder: "str | Path", *, device: str = "auto", data_dir: "str | Path | None" = None) -> None:
        self._run, self._device = Run(folder), device
        self.folder = self._run.folder
        self.data_dir = data_dir if data_dir is not None else self._run.data_dir
        self.recipe: Recipe = self._run.recipe  # at once: what is no run is refused here

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def shown(self) -> dict[str, object]:
        """What a prompt shows: model, data, how far it is and what came out."""
        recipe, done = self.recipe, self.epochs
        images = f"{recipe.data}, {recipe.per_class} per class" if recipe.per_class else recipe.data
        known: dict[str, object] = {"run": self.name, "model": recipe.model, "data": images, "seed": recipe.seed}
        known["epochs"] = f"{len(done)} of {recipe.epochs}"
        if self.result is not None:
            known |= {name: value for name, value in self.result.items() if name in ("parameters", "test_accuracy", "test_loss", "seconds")}
        return known

    @cached_property
    def device(self) -> str:
        """Where the network computes: "cpu" or "cuda"."""
        return chosen_device(self._device)

    # --- what was asked, what happened, what came out -----------------------------------------------------------------

    @cached_property
    def config(self) -> Json:
        """The resolved recipe as plain data."""
        return asdict(self.recipe)

    @cached_property
    def metrics(self) -> list[Json]:
        """All lines of metrics.jsonl."""
        return self._run.lines()

    @property
    def epochs(self) -> list[Json]:
        """The lines of metrics that end an epoch."""
        return [line for line in self.metrics if line.get("event") == "epoch"]

    @cached_property
    def result(self) -> Json | None:
        """What came out; None while the run is not finished."""
        return self._run.result

    @cached_property
    def environment(self) -> Json:
        """What it ran on; empty where that was not written down."""
        return self._run.machine

    # --- the network --------------------------------------------------------------------------------------------------

    def weights_file(self) -> Path:
        """The weights that were selected; an error where there are none yet."""
        path = refuse_links(self.folder, self._run.best / WEIGHTS_FILE)
        if not path.is_file():
            raise ConfigError(f"{self.folder} has no weights in best/ yet; `continua train --resume {typed(self.folder)}` goes on with it")
        refuse_links(self.folder, self._run.best / CONFIG_FILE)
        return path

    @cached_property
    def weights(self) -> str:
        """A digest of the tensors and the configuration, which tells networks apart."""
        path = self.weights_file()
        return network_digest(path, read_json_object(path.with_name(CONFIG_FILE), self.folder))

    @cached_property
    def former_weights(self) -> str:
        """What `weights` was in versions that looked at the bytes of both files: answers that they kept are known by it."""
        path = self.weights_file()
        return hashlib.sha256(path.read_bytes() + path.with_name(CONFIG_FILE).read_bytes()).hexdigest()

    @cached_property
    def network(self) -> Network:
        """The network, in evaluation mode, on the device."""
        return self.load_network()

    def load_network(self) -> Network:
        """A copy of the network that is the caller's own."""
        read = load_reconstructor if self.recipe.task == "reconstruct" else from_pretrained
        return read(self.weights_file().parent).to(self.device)

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
            return self._load(name)
        own = {key: self.config[key] for key in ("per_class", "seed", "holdout") if self.config[key] is not None}
        return self._load(self.data, **own)

    def _load(self, name: str, **own: Any) -> DataSet:
        try:
            return load(name, self.data_dir, **own)
        except DataError as error:
            if self.data_dir is None or Path(self.data_dir).is_dir():
                raise
            moved = f"the images of {self.folder} were in {self.data_dir}, which is not there; say with --data-dir where they are now"
            raise DataError(moved) from error

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
        dataset = self.dataset(data) if own else self._load(data or self.data)
        if not own and not {"test", "val"} & dataset.splits.keys():  # of a folder without them, the images that this run held out
            dataset = self.dataset(data)
        name = split or reported_split(dataset)
        size = batch_size or self.batch_size
        return Images(drawn(dataset[name], limit), size, self.preprocess, self.device, dataset.classes, data=dataset.name, name=name)


def load_reconstructor(folder: "str | Path") -> Reconstructor:
    """The encoder and decoder that a run with task 'reconstruct' saved in its best/ folder.

    Args:
        folder: of the run.

    Returns:
        The network with its decoder.

    Raises:
        ConfigError: the run trained no decoder.

    Examples:
        >>> from continua.runs import load_reconstructor
        >>> load_reconstructor("runs/decoder")  # doctest: +SKIP
    """
    net = from_pretrained(folder)
    if not isinstance(net, Reconstructor):
        raise ConfigError(f"{folder} holds no reconstructor but {net.name}; expected best/ of a run with task 'reconstruct'")
    return net
