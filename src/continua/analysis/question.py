"""What every analysis is to the rest of the house: a name, its options, how to ask it, how to present the answer; and which there are."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_type_hints

from continua.errors import ConfigError, unknown_name
from continua.options import option
from continua.report import Page


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


@dataclass(frozen=True)
class Question:
    """An analysis as `continua analyse` and the studies see it.

    summary  one sentence, for the list of all analyses
    ask      (subject, options) -> a frozen dataclass of plain numbers; its return annotation names that dataclass, which is how a stored
             answer is read back
    present  result -> Page
    runs     "one": asked of each run by itself, several are shown in one figure. "many": `ask` gets a list of subjects, at least one.
             "any": a list that may be empty
    version  raise it when the same options give other numbers than before: stored answers are then asked again
    """

    name: str
    summary: str
    Options: type
    ask: Callable[[Any, Any], Any]
    present: Callable[[Any], Page]
    runs: Literal["one", "many", "any"] = "one"
    version: int = 1

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


def register_question(question: Question) -> Question:
    """Make an analysis known by its name, to `continua analyse` and to studies; returns it. A second one of the same name is refused."""
    known = _REGISTERED.get(question.name)
    if known is not None and known.ask.__module__ != question.ask.__module__:
        raise ConfigError(f"there is an analysis {question.name!r} already, of {known.ask.__module__}; give this one another name")
    _REGISTERED[question.name] = question
    return question


def known_questions() -> dict[str, str]:
    """Name and summary of every analysis, by name."""
    return {name: _REGISTERED[name].summary for name in sorted(_REGISTERED)}


def find_question(name: str) -> Question:
    """The analysis of this name, or an error that suggests the nearest."""
    if name not in _REGISTERED:
        raise unknown_name("analysis", name, sorted(_REGISTERED))
    return _REGISTERED[name]
