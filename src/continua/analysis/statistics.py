"""What is said of many numbers: skewness, distance to a normal distribution, rank correlation."""

import math
from collections.abc import Sequence

import numpy as np


def skewness(values: np.ndarray) -> float:
    """The third standardised moment; NaN where all values are equal."""
    centred = values - values.mean()
    spread = float(np.mean(centred**2))
    return float(np.mean(centred**3)) / spread**1.5 if spread > 0 else math.nan


def ks_distance(values: np.ndarray, mean: float, std: float) -> float:
    """Kolmogorov and Smirnov's: the largest difference between the empirical distribution of sorted values and the normal one."""
    if std == 0:
        return math.nan
    normal = np.array([0.5 * (1 + math.erf((value - mean) / (std * math.sqrt(2)))) for value in values])
    below, above = np.arange(len(values)) / len(values), np.arange(1, len(values) + 1) / len(values)
    return float(max((normal - below).max(), (above - normal).max()))


def rank_correlation(x: "Sequence[float] | np.ndarray", y: "Sequence[float] | np.ndarray") -> float:
    """Spearman's: Pearson's of the ranks, equal values sharing their mean rank; NaN where one side is constant, or of fewer than three."""
    first, second = _ranks(np.asarray(x)), _ranks(np.asarray(y))
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
