"""Who is asked: a trained network with the data it was trained for, as an analysis sees it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from continua.analysis.question import DataOptions
from continua.data import Advance, Augmentation, DataSet, Loader, Split, load, permutation, progress_bar
from continua.errors import ConfigError

T = TypeVar("T")
Keep = Callable[[str, Callable[[], T]], T]


def ask_anew(name: str, make: Callable[[], T]) -> T:
    """The `keep` of an analysis whose pieces nobody stores: makes each of them."""
    return make()


def no_progress(amount: int) -> None:
    """The `advance` of an analysis that nobody watches."""


class Images:
    """Batches (images, labels) of a split, as the network expects them. Can be gone through many times; streams sets that are large."""

    def __init__(
        self, split: Split, batch_size: int, preprocess: Augmentation, device: "torch.device | str", classes: tuple[str, ...]
    ) -> None:
        self.split, self.classes = split, classes
        self._loader = Loader(split, batch_size, augmentation=preprocess, device=device)

    def __len__(self) -> int:
        """Batches."""
        return len(self._loader)

    @property
    def count(self) -> int:
        """Images."""
        return len(self.split)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._loader.epoch(0):
            if bool(batch.valid.all()):
                yield batch.images, batch.labels
            elif bool(batch.valid.any()):  # images that could not be decoded are left out
                yield batch.images[batch.valid], batch.labels[batch.valid]

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` images and labels in one batch."""
        images, labels, have = [], [], 0
        for some, names in self:
            images.append(some)
            labels.append(names)
            have += len(some)
            if have >= count:
                break
        return torch.cat(images)[:count], torch.cat(labels)[:count]


@dataclass(frozen=True)
class Subject:
    """A run as an analysis sees it. `load_model` is called when the network is first wanted.

    `recipe`, `metrics` and `result` are config.yaml, metrics.jsonl and result.json as plain data; `weights` is the SHA-256 of the weights.
    `keep(name, make)` returns a piece of plain data that an interrupted analysis already made, or makes and stores it.
    """

    name: str
    folder: Path
    weights: str
    load_model: Callable[[], Any]
    data: str
    preprocess: Augmentation
    batch_size: int
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    device: str = "cpu"
    data_dir: Path | None = None
    quiet: bool = False
    keep: Keep = ask_anew

    @cached_property
    def model(self) -> Any:
        """The network, in evaluation mode, on the device."""
        return self.load_model().to(self.device).eval()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The lines of metrics that end an epoch."""
        return [line for line in self.metrics if line.get("event") == "epoch"]

    def dataset(self, name: str | None = None) -> DataSet:
        """The run's data set with its own training images (subset and hold-out as it was trained), or another one by name."""
        if name is not None and name != self.data:
            return load(name, self.data_dir)
        own = {key: self.recipe[key] for key in ("per_class", "seed", "holdout") if self.recipe.get(key) is not None}
        return load(self.data, self.data_dir, **own)

    def images(self, options: DataOptions | None = None, **changes: Any) -> Images:
        """Images of a split with the run's own preprocessing. Keywords are fields of `DataOptions`: images(split="train", limit=100)."""
        chosen = options or DataOptions()
        asked = {name: changes.get(name, getattr(chosen, name)) for name in ("data", "split", "limit", "batch_size")}
        found = self.dataset(asked["data"])
        split = found[asked["split"] or reported_split(found)]
        limit = asked["limit"]
        if limit is not None and limit < len(split):
            # Drawn, not the first: folders of images are sorted by class.
            split = split.select(permutation(len(split), 0, 0)[:limit].sort().values)
        size = asked["batch_size"] or self.batch_size
        return Images(split, min(size, len(split)), self.preprocess, self.device, found.classes)

    def progress(self, what: str, total: int) -> AbstractContextManager[Advance]:
        """A progress bar: `with subject.progress("contrast", 30) as advance: … advance(1)`."""
        return nullcontext(no_progress) if self.quiet else progress_bar(f"{self.name}: {what}", total)


def reported_split(data: DataSet) -> str:
    """The split that results are reported on: "test", or "val" for sets whose test labels are not public."""
    found = [name for name in ("test", "val") if name in data.splits]
    if not found:
        raise ConfigError(f"{data.name} has no test or val split here; choose with --split from {', '.join(data.splits)}")
    return found[0]
