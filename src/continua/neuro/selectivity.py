"""Numbers read off tuning curves and time courses, one per unit, all units at once.

Negative responses count as none: a rate cannot be negative, and the measures are made for rates.
"""

from dataclasses import dataclass

import numpy as np

from continua.errors import ConfigError
from continua.neuro.curves import TuningCurve
from continua.report import Axis, Figure, Series


def circular_variance(curve: TuningCurve) -> np.ndarray:
    """1 − |Σ r e^(2iθ)| / Σ r, (units,): 0 for a response to one orientation only, 1 for none preferred.

    As Ringach et al. (2002, J. Neurosci. 22) have it. The values are equally spaced over 180° or, for directions, 360°. NaN for a unit that
    does not respond.

    Args:
        curve: over orientation or direction.

    Returns:
        One number for each unit.

    Examples:
        >>> from continua.neuro import circular_variance
        >>> circular_variance(curve)  # doctest: +SKIP
    """
    angles, rates = _round_trip(curve)
    return 1 - _vector_strength(angles, rates, 2)


def direction_variance(curve: TuningCurve) -> np.ndarray:
    """1 − |Σ r e^(iθ)| / Σ r over directions, (units,): 0 for one direction only, 1 for none preferred.

    Args:
        curve: over direction.

    Returns:
        One number for each unit.

    Examples:
        >>> from continua.neuro import direction_variance
        >>> direction_variance(curve)  # doctest: +SKIP
    """
    _require(curve, "direction")
    return 1 - _vector_strength(*_round_trip(curve), 1)


def preferred_orientation(curve: TuningCurve) -> np.ndarray:
    """The angle of Σ r e^(2iθ), in [0, 180) degrees, (units,). Of directions, the orientation of the stripes.

    Args:
        curve: over orientation or direction.

    Returns:
        Degrees, one for each unit.

    Examples:
        >>> from continua.neuro import preferred_orientation
        >>> preferred_orientation(curve)  # doctest: +SKIP
    """
    angles, rates = _round_trip(curve)
    vector = (rates * np.exp(2j * angles)[:, None]).sum(0)
    return np.rad2deg(np.angle(vector) / 2) % 180


def orientation_selectivity(curve: TuningCurve) -> np.ndarray:
    """(preferred − orthogonal) / (preferred + orthogonal), (units,); the response at right angles is read between the values shown.

    Args:
        curve: over orientation.

    Returns:
        One number for each unit.

    Examples:
        >>> from continua.neuro import orientation_selectivity
        >>> orientation_selectivity(curve)  # doctest: +SKIP
    """
    angles, rates = _round_trip(curve)
    period = np.pi if curve.parameter == "orientation" else 2 * np.pi
    best, there = angles[rates.argmax(0)], rates.max(0)
    across = (_between(angles, rates, best + np.pi / 2, period) + _between(angles, rates, best - np.pi / 2, period)) / 2
    return _contrast_of(there, across)


def direction_selectivity(curve: TuningCurve) -> np.ndarray:
    """(preferred − opposite) / (preferred + opposite) direction, (units,).

    Args:
        curve: over direction.

    Returns:
        One number for each unit.

    Examples:
        >>> from continua.neuro import direction_selectivity
        >>> direction_selectivity(curve)  # doctest: +SKIP
    """
    _require(curve, "direction")
    angles, rates = _round_trip(curve)
    best, there = angles[rates.argmax(0)], rates.max(0)
    return _contrast_of(there, _between(angles, rates, best + np.pi, 2 * np.pi))


def surround_suppression(curve: TuningCurve) -> np.ndarray:
    """(largest − response to the largest size) / largest, (units,): 0 without, 1 with complete suppression.

    Args:
        curve: over size.

    Returns:
        One number for each unit.

    Examples:
        >>> from continua.neuro import surround_suppression
        >>> surround_suppression(curve)  # doctest: +SKIP
    """
    _require(curve, "size")
    rates = np.clip(curve.response, 0, None)
    peak, last = rates.max(0), rates[curve.values.argmax()]
    return np.where(peak > 0, (peak - last) / np.where(peak > 0, peak, 1.0), np.nan)


def octaves(curve: TuningCurve) -> np.ndarray:
    """The bandwidth of frequency tuning at half of the largest response, in octaves, (units,); infinite where it does not fall to half.

    Args:
        curve: over frequency.

    Returns:
        One number for each unit.

    Raises:
        ConfigError: the curve is not over frequency.

    Examples:
        >>> from continua.neuro import octaves
        >>> octaves(curve)  # doctest: +SKIP
    """
    if curve.parameter not in ("frequency", "temporal_frequency"):
        raise ConfigError(f"a bandwidth in octaves is that of a frequency; the curve is over {curve.parameter}")
    order = np.argsort(curve.values)
    logs, rates = np.log2(curve.values[order]), np.clip(curve.response[order], 0, None)
    widths = [_crossing(logs, rate, +1) - _crossing(logs, rate, -1) for rate in rates.T]
    return np.array(widths)


def orientation_bandwidth(curve: TuningCurve) -> np.ndarray:
    """The full width of orientation tuning at half of the largest response, degrees, (units,); infinite where it does not fall to half.

    Args:
        curve: Over orientations that cover half a turn, equally spaced.

    Returns:
        One number for each unit, read between the orientations shown along straight lines.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import TuningCurve, orientation_bandwidth, von_mises
        >>> angles = np.arange(0.0, 180.0, 5.0)
        >>> rates = von_mises(angles, 0.0, 1.0, 60.0, 2.0)[:, None]
        >>> curve = TuningCurve("orientation", angles, rates, 0 * rates, np.zeros(1))
        >>> orientation_bandwidth(curve).round().tolist()
        [49.0]
    """
    _require(curve, "orientation")
    angles, rates = _round_trip(curve)
    count = len(angles)
    beside = np.arange(-(count // 2), count // 2 + 1)  # a quarter turn to either side of the peak, where the curve begins again
    widths = []
    for rate in rates.T:
        turned = rate[(rate.argmax() + beside) % count]
        widths.append(_crossing(beside * 180 / count, turned, +1) - _crossing(beside * 180 / count, turned, -1))
    return np.array(widths)


def peak_frequency(curve: TuningCurve) -> np.ndarray:
    """The preferred frequency of each unit, read between those shown by a parabola over log frequency.

    A unit that prefers the first or last frequency shown has that one: its peak may lie beyond.

    Args:
        curve: Over frequency or temporal frequency.

    Returns:
        (units,); NaN for a unit that does not respond.

    Raises:
        ConfigError: the curve is not over frequency.

    Examples:
        >>> from continua import create_model
        >>> from continua.neuro import Screen, peak_frequency, tuning, units
        >>> net = create_model("dcn_ode", channels=(4,), norm_groups=2, in_channels=1).eval()
        >>> best = peak_frequency(tuning(units(net), Screen(16, 16), "frequency", [0.5, 1.0, 2.0]))
    """
    if curve.parameter not in ("frequency", "temporal_frequency"):
        raise ConfigError(f"a preferred frequency is read off a curve over frequency; the curve is over {curve.parameter}")
    order = np.argsort(curve.values)
    logs, rates = np.log2(curve.values[order]), np.clip(curve.response[order], 0, None)
    return np.array([_parabola_peak(logs, rate) for rate in rates.T])


@dataclass(frozen=True, eq=False)
class TimeCourse:
    """Responses over time: `rates` (time, units) at `times` in ms, of which those before `onset` are the baseline."""

    times: np.ndarray
    rates: np.ndarray
    onset: float = 0.0

    def __post_init__(self) -> None:
        times, rates = np.asarray(self.times, float), np.asarray(self.rates, float)
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "rates", rates)
        if rates.ndim != 2 or len(rates) != len(times) or not (times >= self.onset).any():
            raise ConfigError(f"rates {rates.shape} at {len(times)} times; expected (time, units), some of them after {self.onset} ms")

    @property
    def evoked(self) -> np.ndarray:
        """Rates minus the mean before the onset (or the first rate, where none is before it), (time, units)."""
        before = self.times < self.onset
        return self.rates - (self.rates[before].mean(0) if before.any() else self.rates[self.times >= self.onset][0])

    def latency(self, share: float = 0.5) -> np.ndarray:
        """ms from the onset until the response first reaches `share` of its largest deviation, read between the times, (units,)."""
        after = self.times >= self.onset
        times, size = self.times[after] - self.onset, np.abs(self.evoked[after])
        return np.array([_first_reaching(times, unit, share) for unit in size.T])

    def transience(self) -> np.ndarray:
        """1 − last / largest deviation, (units,): 0 for a sustained response, 1 for one that is gone at the end."""
        after = np.abs(self.evoked[self.times >= self.onset])
        peak = after.max(0)
        return np.where(peak > 0, 1 - after[-1] / np.where(peak > 0, peak, 1.0), np.nan)

    def figure(self, chosen: "list[int] | None" = None) -> Figure:
        """The courses of some units (by default the first eight)."""
        places = list(range(min(8, self.rates.shape[1]))) if chosen is None else chosen
        series = [Series(f"unit {place}", self.times, self.rates[:, place]) for place in places]
        return Figure("time-course", "Responses over time", Axis("time", "ms"), Axis("response"), series)


def _require(curve: TuningCurve, parameter: str) -> None:
    if curve.parameter != parameter:
        raise ConfigError(f"the curve is over {curve.parameter}; expected one over {parameter}")


def _round_trip(curve: TuningCurve) -> tuple[np.ndarray, np.ndarray]:
    """Angles in radians and rates of at least 0, if the angles go round once, equally spaced. Of directions, the angles of the stripes."""
    if curve.parameter not in ("orientation", "direction"):
        raise ConfigError(f"the curve is over {curve.parameter}; expected one over orientation or direction")
    period = 180.0 if curve.parameter == "orientation" else 360.0
    order = np.argsort(curve.values % period)
    values = (curve.values % period)[order]
    gaps = np.diff(values, append=values[0] + period)
    if len(values) < 3 or not np.allclose(gaps, period / len(values), atol=1e-6 * period):
        raise ConfigError(
            f"angles {curve.values.tolist()[:6]} … are not equally spaced over {period:g}°; use torch.arange(0, {period:g}, step)"
        )
    angles = values if curve.parameter == "orientation" else values + 90  # a grating drifts at right angles to its stripes
    return np.deg2rad(angles), np.clip(curve.response[order], 0, None)


def _vector_strength(angles: np.ndarray, rates: np.ndarray, order: int) -> np.ndarray:
    total = rates.sum(0)
    length = np.abs((rates * np.exp(1j * order * angles)[:, None]).sum(0))
    return np.where(total > 0, length / np.where(total > 0, total, 1.0), np.nan)


def _between(angles: np.ndarray, rates: np.ndarray, at: np.ndarray, period: float) -> np.ndarray:
    """Each unit's rate at its own angle, linear between those shown."""
    return np.array([np.interp(angle, angles, rate, period=period) for angle, rate in zip(at, rates.T, strict=True)])


def _contrast_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = one + other
    return np.where(total > 0, (one - other) / np.where(total > 0, total, 1.0), np.nan)


def _crossing(x: np.ndarray, rate: np.ndarray, side: int) -> float:
    """Where a curve first falls to half of its peak on one side of it; ± infinity where it does not."""
    peak, half = int(rate.argmax()), rate.max() / 2
    if half <= 0:
        return float("nan")
    place = peak
    while 0 <= place + side < len(x):
        if rate[place + side] <= half:
            share = (rate[place] - half) / (rate[place] - rate[place + side])
            return float(x[place] + share * (x[place + side] - x[place]))
        place += side
    return side * float("inf")


def _parabola_peak(logs: np.ndarray, rate: np.ndarray) -> float:
    place = int(rate.argmax())
    if rate[place] <= 0:
        return float("nan")
    if not 0 < place < len(logs) - 1:
        return float(2 ** logs[place])
    a, b, _ = np.polyfit(logs[place - 1 : place + 2] - logs[place], rate[place - 1 : place + 2], 2)
    return float(2 ** (logs[place] - (b / (2 * a) if a < 0 else 0.0)))


def _first_reaching(times: np.ndarray, size: np.ndarray, share: float) -> float:
    level = share * size.max()
    if level <= 0:
        return float("nan")
    place = int(np.argmax(size >= level))
    if place == 0:
        return float(times[0])
    low, high = size[place - 1], size[place]
    return float(times[place - 1] + (level - low) / (high - low) * (times[place] - times[place - 1]))
