"""A study: which runs, which question, which published values, plain declarations; and all studies by their names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from continua.errors import refuse_second, unknown_name
from continua.report import Claim, Part, Printed

if TYPE_CHECKING:
    from continua.studies.runs import Runs

SCALES = ("smoke", "cpu", "wide", "paper")
"""How large a study is carried out, smallest first. `wide`, which few studies have: as `cpu`, at the paper's widths."""
OWN = "Continua"
"""The `paper` of studies that we ask ourselves."""
BEYOND = "beyond "
"""How the `paper` of a study begins that asks a paper's networks what the paper does not."""
SMOKE_WORDS = "one epoch on a few embedded digits with tiny widths: this shows that the machinery works, and nothing else"
FIXED_STEPS: Mapping[str, Any] = dict(method="rk4", steps=2, gradient="direct")
ADAPTIVE: Mapping[str, Any] = dict(method="dopri5", rtol=1e-3, atol=1e-3, steps=None)  # where the cost of chosen steps is of interest


@dataclass(frozen=True)
class Setting:
    """How a study is scaled: fields of the recipe that differ from the published setting.

    What differs is computed from recipes; `reduced` holds the sentences about what no recipe tells, as of a study that trains nothing.
    `by_model` holds further changes for some models. `look` holds options of the analyses (fewer images, fewer values); `threads` are part
    of what makes a run repeatable bit for bit.
    """

    seeds: int = 3
    threads: int | None = None
    change: Mapping[str, Any] = field(default_factory=dict)
    by_model: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    look: Mapping[str, Any] = field(default_factory=dict)
    reduced: Sequence[str] = ()


def smoke(*, look: Mapping[str, Any] | None = None, **change: Any) -> Setting:
    """The scale that takes seconds: embedded digits, tiny widths, one seed.

    Args:
        look: options of the analyses.
        change: of the recipe.

    Returns:
        The setting.

    Examples:
        >>> from continua.studies import smoke
        >>> setting = smoke(epochs=1)
    """
    base: dict[str, Any] = dict(data="digits", per_class=6, epochs=1, batch_size=30, evaluation_batch_size=60, length_by_per_class={})
    base["augmentation"] = dict(mean=None, std=None, hue=0.0, saturation=0.0)  # the digits are grey
    options = {"limit": 30, "batch_size": 30, **(look or {})}
    return Setting(seeds=1, threads=1, change={**base, **change}, look=options, reduced=[SMOKE_WORDS])


# Of a study that trains nothing: the same at every scale.
OF_FORMULAS: Mapping[str, Setting] = {scale: Setting(seeds=0) for scale in SCALES}


@dataclass(frozen=True)
class Row:
    """Runs that differ by their seed only. `change` are fields of the recipe; `encoder` names the row whose network is decoded."""

    label: str
    recipe: str
    change: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | None = None


@dataclass(frozen=True)
class Finding:
    """The answer of a study: parts of a page, and what became of the paper's claims."""

    parts: Sequence[Part]
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class Study:
    """`rows(scale)`: the runs wanted, none for studies of formulas. `ask(runs)`: from finished runs to a finding.

    `printed` is the published number that stands for the whole on the front page, or a statement where the paper prints none. `claims`:
    how many it decides at `cpu`, to be counted as not run until it is.
    """

    id: str
    paper: str
    title: str
    question: str
    settings: Mapping[str, Setting]
    ask: "Callable[[Runs], Finding]"
    rows: Callable[[str], Sequence[Row]] = lambda scale: ()
    printed: Printed | str = ""
    claims: int = 0
    shows_images: bool = False  # of the data set, which are not ours to publish

    @property
    def published(self) -> str:
        """What the paper prints, as people read it."""
        return self.printed.text if isinstance(self.printed, Printed) else self.printed

    @property
    def own(self) -> bool:
        """Whether it asks what no paper claims."""
        return self.paper == OWN or self.paper.startswith(BEYOND)

    def setting(self, scale: str) -> Setting:
        """How the study is scaled."""
        if scale not in self.settings:
            raise unknown_name(f"scale of {self.id}", scale, self.settings)
        return self.settings[scale]


STUDIES: dict[str, Study] = {}
"""All studies by name: those of the papers, and those that were registered since."""


def register_study(study: Study) -> Study:
    """Make a study known by its name, to `continua reproduce` and `continua report`; returns it. A second one of that name is refused.

    Args:
        study: the study.

    Returns:
        The same study.

    Raises:
        ConfigError: there is one of this name already.

    Examples:
        >>> from continua.studies import register_study
        >>> register_study(mine)  # doctest: +SKIP
    """
    refuse_second("a study", study.id, STUDIES.setdefault(study.id, study).ask, study.ask)
    STUDIES[study.id] = study
    return study


def find_study(name: str) -> Study:
    """A study by its name.

    Args:
        name: PAPER/STUDY.

    Returns:
        The study.

    Raises:
        ConfigError: there is none; the nearest names are suggested.

    Examples:
        >>> from continua.studies import find_study
        >>> find_study("dcn/table2a").id
        'dcn/table2a'
    """
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES, see="`continua reproduce --list` shows all")
    return STUDIES[name]


def find_studies(name: str) -> list[Study]:
    """One study, or all of a paper's.

    Args:
        name: PAPER/STUDY, or PAPER.

    Returns:
        The studies.

    Raises:
        ConfigError: there is none; the nearest names are suggested.

    Examples:
        >>> from continua.studies import find_studies
        >>> len(find_studies("dcn/table2a"))
        1
    """
    return [study for study in STUDIES.values() if study.id.startswith(f"{name}/")] or [find_study(name)]
