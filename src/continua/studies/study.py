"""A study: which runs, which question, which published values. Plain declarations; carrying them out is another file's business."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from continua.errors import ConfigError
from continua.report import Part

SCALES = ("smoke", "cpu", "paper")


@dataclass(frozen=True)
class Setting:
    """How a study is scaled: fields of the recipe that differ from the published setting, and the sentences that say so.

    `by_model` holds further changes for some models. `look` holds options of the analyses (fewer images, fewer values); `threads` are part
    of what makes a run repeatable bit for bit.
    """

    seeds: int = 3
    threads: int | None = None
    change: Mapping[str, Any] = field(default_factory=dict)
    by_model: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    look: Mapping[str, Any] = field(default_factory=dict)
    reduced: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    """Runs that differ by their seed only. `change` are fields of the recipe; `encoder` names the row whose network is decoded."""

    label: str
    recipe: str
    change: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | None = None


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether our numbers say the same; None where they cannot tell."""

    text: str
    holds: bool | None


@dataclass(frozen=True)
class Finding:
    """What a study found: parts of a page, and what became of the paper's claims."""

    parts: Sequence[Part]
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class Study:
    """`rows(scale)`: the runs wanted, none for studies of formulas. `ask(runs)`: from finished runs to a finding."""

    id: str
    paper: str
    title: str
    question: str
    settings: Mapping[str, Setting]
    ask: Callable[[Any], Finding]
    rows: Callable[[str], Sequence[Row]] = lambda scale: ()
    printed: str = ""  # the published value in one line, for the front page; whose it is, in brackets
    headline: tuple[str, str] | None = None  # row and column of ours beside it; None: the row in the brackets, the column "ours"
    shows_images: bool = False  # of the data set, which are not ours to publish

    @property
    def compared(self) -> tuple[str, str]:
        """Row and column, in the study's tables, of what stands beside the printed value."""
        return self.headline or (self.printed.partition(" (")[2].removesuffix(")"), "ours")

    def setting(self, scale: str) -> Setting:
        if scale not in self.settings:
            raise ConfigError(f"{self.id} has no scale {scale!r}; it has {', '.join(self.settings)}")
        return self.settings[scale]
