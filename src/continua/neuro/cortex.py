"""What has been published about cells in the primary visual cortex of monkeys, to be set beside a network's units.

Only figures that the papers' public abstracts state are here; medians and histograms of their full texts are not. A unit of a network
has no firing threshold, no noise and no eccentricity: compare distributions rather than single numbers.
"""

from dataclasses import dataclass

from continua.errors import unknown_name


@dataclass(frozen=True)
class Published:
    """A statement about cells, with its source.

    Attributes:
        measure: The instrument of `continua.neuro` that measures the same.
        says: What was found.
        source: Authors, year, journal.
        unit: Of the numbers.
        typical: The median or mean that is stated, if one is.
        low, high: The range that is stated, if one is.
    """

    measure: str
    says: str
    source: str
    unit: str = ""
    typical: float | None = None
    low: float | None = None
    high: float | None = None


RINGACH = "Ringach, Shapley and Hawken 2002, J. Neurosci. 22:5639"
DE_VALOIS = "De Valois, Albrecht and Thorell 1982, Vision Res. 22:545"
DE_VALOIS_YUND = "De Valois, Yund and Hepler 1982, Vision Res. 22:531"
JONES = "Jones, Grieve, Wang and Sillito 2001, J. Neurophysiol. 86:2011"
KAGAN = "Kagan, Gur and Snodderly 2002, J. Neurophysiol. 88:2557"

MACAQUE_V1: tuple[Published, ...] = (
    Published(
        "orientation_bandwidth",
        "full width at half amplitude from 6° to none at all (360°), median near 40°, alike for simple and complex cells",
        DE_VALOIS_YUND,
        "°",
        typical=40.0,
        low=6.0,
        high=360.0,
    ),
    Published("circular_variance", "broadly distributed, in every layer; weakly tuned cells are found throughout", RINGACH),
    Published("circular_variance", "higher in cells whose F1/F0 is low", RINGACH),
    Published("direction_selectivity", "two groups: cells that prefer a direction, and cells that do not", DE_VALOIS_YUND),
    Published("modulation", "F1/F0 separates two classes at 1: simple above, complex below", "Skottun et al. 1991, Vision Res. 31:1079"),
    Published(
        "modulation",
        "two peaks over the population, which a threshold alone can make: they need not be two kinds of cells",
        "Mechler and Ringach 2002, Vision Res. 42:1017",
    ),
    Published(
        "modulation",
        "complex cells of alert monkeys: means from 0.6 ± 0.4 to 1.1 ± 0.5 (SD), by stimulus and correction for eye movements",
        KAGAN,
        low=0.6,
        high=1.1,
    ),
    Published("peak_frequency", "covers a wide range at one eccentricity", DE_VALOIS),
    Published("octaves", "many cells have quite narrow bandwidths; sharp for frequency goes with sharp for orientation", DE_VALOIS),
    Published(
        "surround_suppression",
        "of 105 cells of primates 94 % were suppressed by stimuli beyond the receptive field, by 67 % on average; 43 % by more than 70 %",
        JONES,
        typical=0.67,
    ),
    Published(
        "latency",
        "shortest in layers 4Cα and 4B; in 4Cβ on average 20 ms longer",
        "Nowak, Munk, Girard and Bullier 1995, Visual Neurosci.",
        "ms",
    ),
)
"""What public abstracts state about cells of primary visual cortex, measure by measure, with their sources."""


def published(measure: str) -> list[Published]:
    """What is known of a measure in V1 of monkeys.

    Args:
        measure: The name of an instrument: "orientation_bandwidth", "surround_suppression", …

    Returns:
        Statements with their sources; `population(...).figure(beside=published(...))` draws the numbers among them.

    Raises:
        ConfigError: an unknown measure.

    Examples:
        >>> from continua.neuro import published
        >>> [entry.typical for entry in published("surround_suppression")]
        [0.67]
    """
    known = dict.fromkeys(entry.measure for entry in MACAQUE_V1)
    if measure not in known:
        raise unknown_name("published measure", measure, known)
    return [entry for entry in MACAQUE_V1 if entry.measure == measure]
