"""Ours beside what is printed: means over seeds, and differences in standard errors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Unpack

from continua.report import Axis, Cell, Column, Figure, Look, PlusMinus, Series, Table

PRINTED_RUNS = 3  # the papers' ± is taken as the standard deviation over this many runs where they do not say otherwise


def over_seeds(values: Sequence[float]) -> PlusMinus | None:
    """Mean and standard deviation over seeds; of a single run there is no spread; None of no run. NaN among them leaves neither.

    Args:
        values: one for each seed.

    Returns:
        Mean and spread, or None.

    Examples:
        >>> from continua.studies import over_seeds
        >>> over_seeds([1.0, 3.0]).value
        2.0
    """
    if not values:
        return None
    if any(map(math.isnan, values)):  # on which the standard library's stdev fails
        return PlusMinus(math.nan, math.nan)
    return PlusMinus(fmean(values), stdev(values) if len(values) > 1 else math.nan)


def mean_series(name: str, x: Sequence[float] | Sequence[str], means: Iterable[PlusMinus | None], **look: Unpack[Look]) -> Series:
    """Means with their spread against x; a gap where there is none."""
    known = [mean or PlusMinus(math.nan, math.nan) for mean in means]
    return Series(name, x, [mean.value for mean in known], [mean.error for mean in known], **look)


GREY = 6  # the place of grey among the colours of series


def every_seed(name: str, title: str, by_seed: Mapping[str, Mapping[int, float]], axis: Axis, caption: str = "") -> list[Figure]:
    """Each run as a point, beside the mean of its row: how large a difference is, held against the spread of the seeds.

    Printed values are left to the table beside it: where networks are reduced, they lie so far off that nothing else could be seen.

    Args:
        name: of the figure's files.
        title: heading.
        by_seed: values of each row, by seed.
        axis: what the values are.
        caption: below the figure.

    Returns:
        One figure, or none where nothing is finished.

    Examples:
        >>> from continua.report import Axis
        >>> from continua.studies import every_seed
        >>> figures = every_seed("seeds", "Accuracy", {"A": {0: 41.0, 1: 42.0}}, Axis("accuracy", "%"))
    """
    known = {label: list(values.values()) for label, values in by_seed.items() if values}
    if not known:
        return []
    labels = [label for label, values in known.items() for _ in values]
    runs = Series("each seed", labels, [value for values in known.values() for value in values], style="points", colour=GREY)
    means = mean_series("mean ± standard deviation", list(known), map(over_seeds, known.values()), style="points", colour=0)
    return [Figure(name, title, Axis("model"), axis, [runs, means], caption)]


def in_standard_errors(ours: Sequence[float], printed: "PlusMinus | float | None", printed_runs: int = PRINTED_RUNS) -> float | None:
    """(our mean − printed) / its standard error, from our seeds and the printed ±; None where there is no spread to measure by.

    Args:
        ours: values, one for each seed.
        printed: the paper's value.
        printed_runs: over how many runs its ± is.

    Returns:
        The difference, or None.

    Examples:
        >>> from continua.studies import in_standard_errors
        >>> difference = in_standard_errors([1.0, 2.0, 3.0], 1.5)
    """
    theirs = _plus_minus(printed)
    if not ours or theirs is None:
        return None
    variance = stdev(ours) ** 2 / len(ours) if len(ours) > 1 else math.nan
    if not math.isnan(theirs.error):
        variance += theirs.error**2 / printed_runs
    return (fmean(ours) - theirs.value) / math.sqrt(variance) if variance > 0 else None


def comparison(
    name: str,
    title: str,
    ours: Mapping[str, Sequence[float]],
    printed: Mapping[str, "PlusMinus | float | None"],
    *,
    label: str,
    unit: str,
    digits: int,
    printed_runs: int = PRINTED_RUNS,
    extra: Mapping[str, Mapping[str, Cell]] | None = None,
    caption: str = "",
) -> Table:
    """One row for each label in `printed` and in `ours`: ours ± over seeds, how many, printed ±, the difference in standard errors.

    Args:
        name: of the table's files.
        title: heading.
        ours: values of each row, one for each seed.
        printed: what the paper prints for each row.
        label: what is compared.
        unit: of it.
        digits: after the point.
        printed_runs: over how many runs the printed ± is.
        extra: further cells, by row and head.
        caption: below the table.

    Returns:
        The table.

    Examples:
        >>> from continua.studies import comparison
        >>> table = comparison("t", "T", {"A": [1.0, 2.0]}, {"A": 1.2}, label="accuracy", unit="%", digits=1)
    """
    labels = [*printed, *(row for row in ours if row not in printed)]
    more = extra or {}
    rows: list[list[Cell]] = []
    for row in labels:
        values, theirs = list(ours.get(row, ())), _plus_minus(printed.get(row))
        difference = in_standard_errors(values, theirs, printed_runs)
        rows.append([row, over_seeds(values), len(values), theirs, difference, *(column.get(row) for column in more.values())])
    columns: list[Column | str] = [
        "model",
        Column(f"ours, {label}", unit, digits),
        "seeds",
        Column(f"printed, {label}", unit, digits),
        Column("difference", "standard errors", 1),
    ]
    return Table(name, title, [*columns, *more], rows, caption)


def _plus_minus(printed: "PlusMinus | float | None") -> PlusMinus | None:
    return printed if printed is None or isinstance(printed, PlusMinus) else PlusMinus(float(printed), math.nan)
