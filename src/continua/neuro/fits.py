"""Curves of the field, fitted to tuning curves unit by unit (least squares), and the log-normal of a population.

von_mises       baseline + height · exp(sharpness · (cos 2(θ − preferred) − 1)), over 360° with a second height opposite
naka_rushton    baseline + largest · c^n / (c^n + half^n)                                 (Naka and Rushton 1966)
dog_frequency   centre · exp(−(π r_c f)²) − surround · exp(−(π r_s f)²)                   (Enroth-Cugell and Robson 1966)
dog_size        centre · erf(s / 2 r_c)² − surround · erf(s / 2 r_s)²: Gaussians integrated over a square patch of side s
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from continua.errors import ConfigError, unknown_name
from continua.neuro.cortex import Published
from continua.neuro.curves import PARAMETERS, TuningCurve
from continua.report import Axis, Figure, Series


def von_mises(angle: np.ndarray, baseline: float, height: float, preferred: float, sharpness: float) -> np.ndarray:
    """Over orientation, degrees.

    Args:
        angle: degrees.
        baseline: response to other orientations.
        height: of the peak above it.
        preferred: degrees.
        sharpness: of the peak.

    Returns:
        The response at each angle.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import von_mises
        >>> response = von_mises(np.arange(0.0, 180.0, 45.0), 0.0, 1.0, 90.0, 2.0)
    """
    return baseline + height * np.exp(sharpness * (np.cos(2 * np.deg2rad(angle - preferred)) - 1))


def von_mises_pair(angle: np.ndarray, baseline: float, height: float, opposite: float, preferred: float, sharpness: float) -> np.ndarray:
    """Over direction, degrees: two peaks half a turn apart.

    Args:
        angle: degrees.
        baseline: response to other directions.
        height: of the larger peak above it.
        opposite: height of the other peak.
        preferred: degrees.
        sharpness: of the peaks.

    Returns:
        The response at each angle.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import von_mises_pair
        >>> response = von_mises_pair(np.arange(0.0, 360.0, 90.0), 0.0, 1.0, 0.3, 90.0, 2.0)
    """
    turned = np.cos(np.deg2rad(angle - preferred))
    return baseline + height * np.exp(sharpness * (turned - 1)) + opposite * np.exp(sharpness * (-turned - 1))


def naka_rushton(contrast: np.ndarray, baseline: float, largest: float, half: float, exponent: float) -> np.ndarray:
    """Over contrast: half of `largest` is reached at the contrast `half`.

    Args:
        contrast: between 0 and 1.
        baseline: response to nothing.
        largest: response above it that is approached.
        half: contrast at which half of it is reached.
        exponent: steepness.

    Returns:
        The response at each contrast.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import naka_rushton
        >>> naka_rushton(np.array([0.2]), 0.0, 1.0, 0.2, 2.0).tolist()
        [0.5]
    """
    power = np.abs(contrast) ** exponent
    return baseline + largest * power / (power + half**exponent)


def dog_frequency(frequency: np.ndarray, centre: float, centre_radius: float, surround: float, surround_radius: float) -> np.ndarray:
    """Over spatial frequency, cycles per degree; radii in degrees. Also used over temporal frequency, where they are times.

    Args:
        frequency: cycles per degree.
        centre: strength of the centre.
        centre_radius: degrees.
        surround: strength of the surround.
        surround_radius: degrees.

    Returns:
        The response at each frequency.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import dog_frequency
        >>> response = dog_frequency(np.linspace(0, 4, 5), 1.0, 0.3, 0.5, 1.0)
    """
    return centre * np.exp(-((math.pi * centre_radius * frequency) ** 2)) - surround * np.exp(
        -((math.pi * surround_radius * frequency) ** 2)
    )


def dog_size(size: np.ndarray, centre: float, centre_radius: float, surround: float, surround_radius: float) -> np.ndarray:
    """Over size, degrees.

    Args:
        size: degrees.
        centre: strength of the centre.
        centre_radius: degrees.
        surround: strength of the surround.
        surround_radius: degrees.

    Returns:
        The response at each size.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import dog_size
        >>> response = dog_size(np.linspace(0, 4, 5), 1.0, 0.3, 0.5, 1.0)
    """
    from scipy.special import erf

    return centre * erf(size / (2 * centre_radius)) ** 2 - surround * erf(size / (2 * surround_radius)) ** 2


Curve = Callable[..., np.ndarray]
Starts = Callable[[np.ndarray, np.ndarray], tuple[list[list[float]], list[float], list[float]]]


@dataclass(frozen=True, eq=False)
class Fit:
    """A curve fitted to each unit: `parameters` (units, parameters) by their `names`, and R² of each unit; NaN where no fit was found."""

    model: str
    names: tuple[str, ...]
    parameters: np.ndarray
    r2: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        """A parameter of all units, (units,): fit["half"]."""
        if name not in self.names:
            raise unknown_name("parameter of the fit", name, self.names)
        return self.parameters[:, self.names.index(name)]

    def at(self, values: "Sequence[float] | np.ndarray") -> np.ndarray:
        """The fitted curves at some values, (values, units)."""
        curve, x = MODELS[self.model][0], np.asarray(values, float)
        return np.stack([curve(x, *parameters) for parameters in self.parameters], axis=1)

    def peak(self, low: float, high: float, points: int = 2001) -> np.ndarray:
        """Where each curve is largest between two values, (units,): on a grid, logarithmic for two positive values."""
        grid = np.geomspace(low, high, points) if low > 0 else np.linspace(low, high, points)
        return grid[self.at(grid).argmax(0)]

    def figure(self, curve: TuningCurve, chosen: Sequence[int] | None = None) -> Figure:
        """Measured points and fitted curves of some units (by default the first four)."""
        places = list(range(min(4, curve.units))) if chosen is None else list(chosen)
        x = np.linspace(curve.values.min(), curve.values.max(), 200)
        fitted = self.at(x)
        series = [
            part
            for colour, place in enumerate(places)
            for part in (
                Series(f"unit {place}", curve.values, curve.response[:, place], style="points", colour=colour),
                Series(f"unit {place}, fit", x, fitted[:, place], colour=colour),
            )
        ]
        words = curve.parameter.replace("_", " ")
        axis = Axis(words, PARAMETERS[curve.parameter])
        return Figure(f"fit-{self.model}", f"Tuning to {words}, {self.model.replace('_', ' ')}", axis, Axis("response"), series)


def fit(curve: TuningCurve, model: str | None = None) -> Fit:
    """Fit a tuning curve: by default the model that belongs to its parameter.

    Args:
        curve: what is fitted.
        model: name of the function; None: the usual one of the curve's parameter.

    Returns:
        Parameters of each unit, and how well they fit.

    Raises:
        ConfigError: an unknown model of a curve, or fewer points than it has parameters.

    Examples:
        >>> from continua.neuro import fit
        >>> fit(curve).r2  # doctest: +SKIP
    """
    name = OF_PARAMETER[curve.parameter] if model is None else model
    if name not in MODELS:
        raise unknown_name("model of a tuning curve", name, MODELS)
    function, names, starts = MODELS[name]
    x, y = np.asarray(curve.values, float), np.asarray(curve.response, float)
    if len(x) < len(names):
        raise ConfigError(f"{name} has {len(names)} parameters and the curve {len(x)} points; show more values of {curve.parameter}")
    results = [_fit_unit(function, starts, x, unit) for unit in y.T]
    return Fit(name, names, np.stack([parameters for parameters, _ in results]), np.array([r2 for _, r2 in results]))


def _fit_unit(function: Curve, starts: Starts, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """The best of several starts, of responses scaled to 1, bounded; NaN for a unit that does not respond."""
    from scipy.optimize import least_squares

    size = np.abs(y).max()
    first, low, high = starts(x, y / size if size > 0 else y)
    if not size > 0 or not np.isfinite(y).all():
        return np.full(len(low), np.nan), math.nan
    attempts = [
        least_squares(lambda p: function(x, *p) - y / size, np.clip(start, low, high), bounds=(low, high), xtol=1e-12, ftol=1e-12)
        for start in first
    ]
    best = min(attempts, key=lambda attempt: attempt.cost)
    spread = ((y / size - (y / size).mean()) ** 2).sum()
    scaled = np.array([value * size if height else value for value, height in zip(best.x, HEIGHTS[function], strict=True)])
    return scaled, float(1 - 2 * best.cost / spread) if spread > 0 else math.nan


def _angles(x: np.ndarray, y: np.ndarray) -> tuple[list[list[float]], list[float], list[float]]:
    best = float(x[y.argmax()])
    return [[y.min(), np.ptp(y), best, sharpness] for sharpness in (0.5, 3.0, 12.0)], [-2, 0, best - 90, 1e-3], [2, 4, best + 90, 300]


def _directions(x: np.ndarray, y: np.ndarray) -> tuple[list[list[float]], list[float], list[float]]:
    best = float(x[y.argmax()])
    first = [[y.min(), np.ptp(y), np.ptp(y) * other, best, sharpness] for sharpness in (1.0, 6.0) for other in (0.1, 0.9)]
    return first, [-2, 0, 0, best - 90, 1e-3], [2, 4, 4, best + 90, 300]


def _contrasts(x: np.ndarray, y: np.ndarray) -> tuple[list[list[float]], list[float], list[float]]:
    middle, top = float(np.median(x)), float(x.max())
    return [[y.min(), np.ptp(y), middle, n] for n in (1.0, 2.0, 4.0)], [-2, 0, 1e-4, 0.2], [2, 20, 20 * top, 10]


def _frequencies(x: np.ndarray, y: np.ndarray) -> tuple[list[list[float]], list[float], list[float]]:
    best, least = max(float(x[y.argmax()]), 1e-6), 1e-4 / x.max()
    first = [[1.5, ratio / (math.pi * best), 1.0, 2.5 * ratio / (math.pi * best)] for ratio in (0.4, 0.8)]
    return first, [0, least, 0, least], [200, 100 / best, 200, 100 / best]


def _sizes(x: np.ndarray, y: np.ndarray) -> tuple[list[list[float]], list[float], list[float]]:
    best, top = max(float(x[y.argmax()]), 1e-6), float(x.max())
    first = [[1.2, best / 3, 0.3, best], [1.0, best / 2, 0.05, top], [3.0, best / 2, 2.0, best]]
    return first, [0, 1e-3 * best, 0, 1e-3 * best], [200, 20 * top, 200, 20 * top]


DOG = ("centre", "centre_radius", "surround", "surround_radius")
MODELS: dict[str, tuple[Curve, tuple[str, ...], Starts]] = {
    "von_mises": (von_mises, ("baseline", "height", "preferred", "sharpness"), _angles),
    "von_mises_pair": (von_mises_pair, ("baseline", "height", "opposite", "preferred", "sharpness"), _directions),
    "naka_rushton": (naka_rushton, ("baseline", "largest", "half", "exponent"), _contrasts),
    "dog_frequency": (dog_frequency, DOG, _frequencies),
    "dog_size": (dog_size, DOG, _sizes),
}
OF_PARAMETER = {
    "orientation": "von_mises",
    "direction": "von_mises_pair",
    "contrast": "naka_rushton",
    "frequency": "dog_frequency",
    "temporal_frequency": "dog_frequency",
    "size": "dog_size",
}
# Which parameters grow with the responses, and are scaled back after a fit of responses scaled to 1.
HEIGHTS: dict[Curve, tuple[bool, ...]] = {
    function: tuple(name in ("baseline", "height", "opposite", "largest", "centre", "surround") for name in names)
    for function, names, _ in MODELS.values()
}


@dataclass(frozen=True, eq=False)
class Population:
    """A number of each unit of a population, and its log-normal (maximum likelihood): ln value ~ N(log_mean, log_std²).

    `distance` and `p` are of the test of Kolmogorov and Smirnov against that log-normal; p is too large, since the log-normal was fitted to
    the same values. Units whose number is not positive and finite are left out, and counted.
    """

    name: str
    values: np.ndarray
    left_out: int
    log_mean: float
    log_std: float
    distance: float
    p: float

    @property
    def median(self) -> float:
        """Half of the units have less."""
        return float(np.median(self.values))

    def figure(self, bins: int = 30, unit: str = "", beside: Sequence[Published] = ()) -> Figure:
        """The histogram and its log-normal, `beside` what was published about cells: medians or means as upright lines."""
        density, edges = np.histogram(self.values, bins=bins, density=True)
        x = np.linspace(edges[0], edges[-1], 200)[1:]
        series = [Series(self.name, (edges[1:] + edges[:-1]) / 2, density, style="steps")]
        if self.log_std > 0:
            fitted = np.exp(-0.5 * ((np.log(x) - self.log_mean) / self.log_std) ** 2) / (x * self.log_std * math.sqrt(2 * math.pi))
            series.append(Series("log-normal", x, fitted, dashed=True))
        title = f"{self.name} of {len(self.values)} units"
        for entry in beside:
            if entry.typical is not None:
                known = f"V1: {entry.source.split(',')[0]}"
                series.append(Series(known, [entry.typical, entry.typical], [0.0, float(density.max())], dashed=True))
        caption = " ".join(f"{entry.says} ({entry.source})." for entry in beside)
        return Figure(f"population-{self.name.replace(' ', '-')}", title, Axis(self.name, unit), Axis("density"), series, caption)


def population(values: "Sequence[float] | np.ndarray", name: str = "value") -> Population:
    """The distribution of a number over units.

    Args:
        values: one for each unit.
        name: what they are.

    Returns:
        Median, quartiles and histogram.

    Raises:
        ConfigError: fewer than two units have a positive, finite number.

    Examples:
        >>> from continua.neuro import population
        >>> found = population([1.0, 2.0, 3.0], "octaves")
    """
    from scipy.stats import kstest

    given = np.asarray(values, float).ravel()
    good = given[np.isfinite(given) & (given > 0)]
    if len(good) < 2:
        raise ConfigError(f"{name}: {len(good)} of {len(given)} units have a positive, finite number; expected at least 2")
    logs = np.log(good)
    mean, std = float(logs.mean()), float(logs.std())
    test = kstest(logs, "norm", args=(mean, std)) if std > 0 else None
    distance, p = (float(test.statistic), float(test.pvalue)) if test is not None else (math.nan, math.nan)
    return Population(name, good, len(given) - len(good), mean, std, distance, p)
