"""Who is asked: a run, with what an analysis needs besides: a progress bar, a place to keep pieces, perhaps another solver."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from continua.analysis.question import DataOptions
from continua.data import Advance, Augmentation, DataSet, progress_bar
from continua.runs import Images, RunView

T = TypeVar("T")
Keep = Callable[[str, Callable[[], T]], T]


def ask_anew(name: str, make: Callable[[], T]) -> T:
    """The `keep` of an analysis whose pieces nobody stores: makes each of them."""
    return make()


def no_progress(amount: int) -> None:
    """The `advance` of an analysis that nobody watches."""


@dataclass(frozen=True)
class Subject:
    """A run as an analysis sees it.

    `solver`: options of another solver than the network was trained with. `keep(name, make)` returns a piece of plain data that an
    interrupted analysis already made, or makes and stores it.
    """

    run: RunView
    solver: Mapping[str, Any] | None = None
    quiet: bool = False
    keep: Keep = ask_anew

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def data(self) -> str:
        """The name of the run's data set."""
        return self.run.data

    @property
    def data_dir(self) -> "str | Path | None":
        return self.run.data_dir

    @property
    def preprocess(self) -> Augmentation:
        """How images of bytes become what the network reads."""
        return self.run.preprocess

    @property
    def batch_size(self) -> int:
        return self.run.batch_size

    @property
    def device(self) -> str:
        return self.run.device

    @property
    def recipe(self) -> dict[str, Any]:
        """config.yaml as plain data."""
        return self.run.config

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return self.run.metrics

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """Those of them that end an epoch."""
        return self.run.epochs

    @property
    def result(self) -> dict[str, Any] | None:
        """result.json."""
        return self.run.result

    @cached_property
    def weights(self) -> str:
        """What tells its network from others: the SHA-256 of the weights, and the other solver where there is one."""
        return self.run.weights if self.solver is None else f"{self.run.weights} {sorted(self.solver.items(), key=str)}"

    @cached_property
    def model(self) -> Any:
        """The network, in evaluation mode, on the device."""
        network: Any = self.run.network
        return network if self.solver is None else network.with_solver(**self.solver).eval()

    def dataset(self, name: str | None = None) -> DataSet:
        """The run's data set with its own training images (subset and hold-out as it was trained), or another one by name."""
        return self.run.dataset(name)

    def images(self, options: DataOptions | None = None, **changes: Any) -> Images:
        """Images of a split with the run's own preprocessing. Keywords are fields of `DataOptions`: images(split="train", limit=100)."""
        chosen = options or DataOptions()
        asked: dict[str, Any] = dict(data=chosen.data, split=chosen.split, limit=chosen.limit, batch_size=chosen.batch_size)
        return self.run.images(**(asked | changes))

    def progress(self, what: str, total: int) -> AbstractContextManager[Advance]:
        """A progress bar: `with subject.progress("contrast", 30) as advance: … advance(1)`."""
        return nullcontext(no_progress) if self.quiet else progress_bar(f"{self.name}: {what}", total)


def subject_of(folder: "str | Path", *, device: str = "auto", data_dir: "str | Path | None" = None, quiet: bool = False) -> Subject:
    """The network of a finished run with its data, for a question."""
    run = RunView(folder, device=device, data_dir=data_dir)
    run.weights_file()  # where there are none yet, that is said at once
    return Subject(run, quiet=quiet)
