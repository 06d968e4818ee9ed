"""What every analysis is to the rest of the house: a name, its options, how to ask it, how to present the answer; and whom it is asked."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from continua.data import Advance, progress_bar
from continua.errors import ConfigError, refuse_second, unknown_name
from continua.models import Network
from continua.options import option
from continua.report import Figure, Maps, Page, matplotlib_figure
from continua.runs import Images, RunView
from continua.showing import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

T = TypeVar("T")
Keep = Callable[[str, Callable[[], T]], T]


@dataclass(frozen=True)
class DataOptions:
    """Which images: a base for the `Options` of analyses that look at some. `subject.images(options)` gives them."""

    data: str | None = option(None, "another data set (else the run's own)")
    split: str | None = option(None, "which of its splits (else test, or val)")
    limit: int | None = option(None, "look at this many images only, drawn once for all")
    batch_size: int | None = option(None, "images per batch (else the recipe's); adaptive steps over a batch depend on it")

    def __post_init__(self) -> None:
        for name in ("limit", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected at least 1")

    def own(self) -> dict[str, Any]:
        """What an analysis adds to these, as keywords of its function."""
        shared = {item.name for item in fields(DataOptions)}
        return {name: value for name, value in vars(self).items() if name not in shared}


@dataclass(frozen=True)
class Question:
    """An analysis as `continua analyse` and the studies see it.

    Attributes:
        summary: one sentence, for the list of all analyses; of a longer text, such as a module's docstring, its first line
        ask: (subject, options) -> a frozen dataclass of plain numbers; its return annotation names that dataclass, which is how a stored
            answer is read back
        present: result -> Page
        runs: "one": asked of each run by itself, several are shown in one figure. "many": `ask` gets a list of subjects, at least one.
            "any": a list that may be empty
        version: raise it when the same options give other numbers than before: stored answers are then asked again
    """

    name: str
    summary: str
    Options: type
    ask: Callable[[Any, Any], Any]
    present: Callable[[Any], Page]
    runs: Literal["one", "many", "any"] = "one"
    version: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", self.summary.partition("\n")[0])

    @property
    def result(self) -> type:
        """The dataclass of the answer."""
        annotated = get_type_hints(self.ask).get("return")
        if not isinstance(annotated, type):
            raise ConfigError(f"analysis {self.name}: annotate what `ask` returns with the dataclass of its result")
        return annotated

    def option_fields(self) -> list[tuple[str, Any, Any, str]]:
        """Name, type, default and help of each option."""
        hints = get_type_hints(self.Options)
        options = []
        for item in fields(self.Options):
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            options.append((item.name, hints[item.name], default, item.metadata.get("help", "")))
        return options


_REGISTERED: dict[str, Question] = {}


class Plotted(Shown):
    """A result of an analysis: shown in a few lines, and drawn by `plot`."""

    def plot(self, name: str | None = None) -> "Canvas":
        """A figure of the result, as one of matplotlib's.

        Args:
            name: Which figure, where there are several; None: the first. A wrong name is answered by those that there are.

        Returns:
            A matplotlib `Figure`: `result.plot().savefig("steps.pdf")`; in a notebook it is shown.
        """
        question = next(each for each in _REGISTERED.values() if each.result is type(self))
        return plotted(question.present(self), name)


def plotted(page: Page, name: str | None = None) -> "Canvas":
    """A figure of a page, by its name, else the first."""
    figures = {part.name: part for part in [*page.every(Figure), *page.every(Maps)]}
    if not figures:
        raise ConfigError(f"{page.title}: there is no figure, only text and tables; `print` shows them")
    if name is not None and name not in figures:
        raise unknown_name("figure", name, figures)
    return matplotlib_figure(figures[name] if name is not None else next(iter(figures.values())))


def register_question(question: Question) -> Question:
    """Make an analysis known by its name, to `continua analyse` and to studies; returns it. A second one of the same name is refused.

    Args:
        question: the analysis.

    Returns:
        The same analysis.

    Raises:
        ConfigError: there is one of this name already.

    Examples:
        >>> from continua.analysis import register_question
        >>> register_question(mine)  # doctest: +SKIP
    """
    known = _REGISTERED.setdefault(question.name, question)
    refuse_second("an analysis", question.name, known.ask, question.ask)
    _REGISTERED[question.name] = question
    return question


def known_questions() -> dict[str, str]:
    """Name and summary of every analysis, by name.

    Returns:
        Summaries by name.

    Examples:
        >>> from continua.analysis import known_questions
        >>> "scales" in known_questions()
        True
    """
    return {name: _REGISTERED[name].summary for name in sorted(_REGISTERED)}


def find_question(name: str) -> Question:
    """The analysis of this name, or an error that suggests the nearest.

    Args:
        name: a name that `known_questions` lists.

    Returns:
        The analysis.

    Raises:
        ConfigError: there is none of this name.

    Examples:
        >>> from continua.analysis import find_question
        >>> find_question("scales").name
        'scales'
    """
    if name not in _REGISTERED:
        raise unknown_name("analysis", name, sorted(_REGISTERED))
    return _REGISTERED[name]


# --- whom it is asked -------------------------------------------------------------------------------------------------------


def ask_anew(name: str, make: Callable[[], T]) -> T:
    """The `keep` of an analysis whose pieces nobody stores: makes each of them."""
    return make()


def no_progress(amount: int) -> None:
    """The `advance` of an analysis that nobody watches."""


@dataclass(frozen=True)
class Subject:
    """A run as an analysis sees it: the run itself, its network, images of its data, a progress bar and a place to keep pieces.

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

    @cached_property
    def weights(self) -> str:
        """What tells its network from others: the SHA-256 of the weights, and the other solver where there is one."""
        return self._with_solver(self.run.weights)

    @property
    def former_weights(self) -> str:
        """`weights` as earlier versions said it."""
        return self._with_solver(self.run.former_weights)

    def _with_solver(self, weights: str) -> str:
        return weights if self.solver is None else f"{weights} {sorted(self.solver.items(), key=str)}"

    @cached_property
    def model(self) -> Network:
        """The network, in evaluation mode, on the device."""
        return self.run.network if self.solver is None else self.run.network.with_solver(**self.solver).eval()

    def images(self, options: DataOptions | None = None, **changes: Any) -> Images:
        """Images of a split with the run's own preprocessing. Keywords are fields of `DataOptions`: images(split="train", limit=100)."""
        chosen = options or DataOptions()
        asked: dict[str, Any] = dict(data=chosen.data, split=chosen.split, limit=chosen.limit, batch_size=chosen.batch_size)
        return self.run.images(**(asked | changes))

    def progress(self, what: str, total: int) -> AbstractContextManager[Advance]:
        """A progress bar: `with subject.progress("contrast", 30) as advance: … advance(1)`."""
        return nullcontext(no_progress) if self.quiet else progress_bar(f"{self.name}: {what}", total)


def subject_of(folder: "str | Path", *, device: str = "auto", data_dir: "str | Path | None" = None, quiet: bool = False) -> Subject:
    """The network of a finished run with its data, for a question.

    Args:
        folder: that of a finished run.
        device: "auto", "cpu" or "cuda".
        data_dir: folder of all data sets; None: where the run found them.
        quiet: show no progress.

    Returns:
        The run as analyses see it.

    Raises:
        ConfigError: the folder holds no finished run.

    Examples:
        >>> from continua.analysis import subject_of
        >>> subject_of("runs/demo/dcn_ode").data  # doctest: +SKIP
    """
    run = RunView(folder, device=device, data_dir=data_dir)
    run.weights_file()  # where there are none yet, that is said at once
    return Subject(run, quiet=quiet)
