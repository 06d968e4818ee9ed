"""Representational similarity: do two systems find the same stimuli alike? (Kriegeskorte et al. 2008; Kornblith et al. 2019)

Responses are (stimuli, units) of anything: a network's block, recordings. The two systems need the same stimuli, not the same units.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from continua.errors import ConfigError, unknown_name
from continua.report import Maps

Array = np.ndarray | Tensor
Distance = Literal["correlation", "cosine", "euclidean"]
Likeness = Literal["spearman", "pearson", "cosine"]


def as_responses(values: Array, what: str = "responses") -> np.ndarray:
    """Responses as float64 (stimuli, units), later axes flattened."""
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values, dtype=np.float64)
    if array.ndim < 2 or len(array) < 2:
        raise ConfigError(f"{what} have shape {array.shape}; expected (stimuli, units), at least 2 stimuli")
    array = array.reshape(len(array), -1)
    if not np.isfinite(array).all():
        raise ConfigError(f"{what} hold numbers that are not finite; leave out those stimuli or units")
    return array


@dataclass(frozen=True, eq=False)
class Dissimilarity:
    """The dissimilarity of each pair of stimuli, (stimuli, stimuli), and by which distance."""

    matrix: np.ndarray
    distance: str

    @property
    def pairs(self) -> np.ndarray:
        """Each pair once, (stimuli · (stimuli − 1) / 2,)."""
        return self.matrix[np.triu_indices(len(self.matrix), 1)]

    def picture(self, name: str = "system") -> Maps:
        """The matrix as a picture of `continua.report`."""
        return Maps(
            f"dissimilarity-{name}", f"Dissimilarity of stimuli: {name}", [""], [name], self.matrix[None, None], f"{self.distance} distance"
        )


def dissimilarity(responses: Array, distance: Distance = "correlation") -> Dissimilarity:
    """1 − correlation over units (or 1 − cosine, or the Euclidean distance) of the responses to each pair of stimuli.

    A stimulus to which all units respond alike has no correlation with others: its row is NaN.

    Args:
        responses: (stimuli, units).
        distance: between the responses to two stimuli.

    Returns:
        A symmetric matrix over stimuli.

    Raises:
        ConfigError: an unknown distance.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import dissimilarity
        >>> dissimilarity(np.random.default_rng(0).normal(size=(5, 20))).matrix.shape
        (5, 5)
    """
    given = as_responses(responses)
    if distance == "euclidean":
        squared = (given**2).sum(1)
        matrix = np.sqrt(np.clip(squared[:, None] + squared[None] - 2 * given @ given.T, 0, None))
    elif distance in ("correlation", "cosine"):
        centred = given - given.mean(1, keepdims=True) if distance == "correlation" else given
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        unit = centred / np.where(length > 1e-12 * np.abs(given).max(), length, np.nan)
        matrix = 1 - unit @ unit.T
    else:
        raise unknown_name("distance", distance, ["correlation", "cosine", "euclidean"])
    matrix[np.diag_indices(len(matrix))] = 0.0
    return Dissimilarity(matrix, distance)


def likeness(one: np.ndarray, other: np.ndarray, by: Likeness = "spearman") -> float:
    """How alike two lists of dissimilarities are; pairs that are NaN in either are left out."""
    from scipy.stats import rankdata

    good = np.isfinite(one) & np.isfinite(other)
    a, b = one[good], other[good]
    if len(a) < 2:
        return float("nan")
    if by == "spearman":
        a, b = rankdata(a), rankdata(b)
    elif by not in ("pearson", "cosine"):
        raise unknown_name("likeness", by, ["spearman", "pearson", "cosine"])
    if by != "cosine":
        a, b = a - a.mean(), b - b.mean()
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / size) if size > 0 else float("nan")


@dataclass(frozen=True)
class Ceiling:
    """What the best possible model could reach, given how much subjects differ: between `lower` and `upper` (Nili et al. 2014)."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Similarity:
    """A score with its 95 % interval (bootstrap over stimuli), and the noise ceiling where subjects were given."""

    score: float
    low: float
    high: float
    stimuli: int
    by: str
    ceiling: Ceiling | None = None

    @property
    def of_ceiling(self) -> float | None:
        """The score as a share of the ceiling's lower bound."""
        return None if self.ceiling is None else self.score / self.ceiling.lower


def rsa(
    one: Array,
    other: "Array | Sequence[Array]",
    *,
    distance: Distance = "correlation",
    by: Likeness = "spearman",
    resamples: int = 500,
    seed: int = 0,
) -> Similarity:
    """Representational similarity of a system with another, or with several subjects: then the mean over them, with a noise ceiling.

    Args:
        one: Responses (stimuli, units) of the model.
        other: Those of the other system; or a list, one for each subject.
        distance: Between responses to two stimuli.
        by: How the two matrices are compared.
        resamples: Bootstrap samples of stimuli for the interval; pairs of a stimulus with itself are left out.
        seed: Of the bootstrap.

    Returns:
        The score with its interval, and the noise ceiling where there are several subjects.

    Raises:
        ConfigError: the two have different numbers of stimuli.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import rsa
        >>> x = np.random.default_rng(0).normal(size=(10, 5))
        >>> round(rsa(x, x, resamples=10).score, 3)
        1.0
    """
    mine = dissimilarity(one, distance).matrix
    subjects = [dissimilarity(part, distance).matrix for part in ([other] if isinstance(other, np.ndarray | Tensor) else other)]
    if not subjects or any(len(matrix) != len(mine) for matrix in subjects):
        sizes = [len(matrix) for matrix in subjects]
        raise ConfigError(
            f"{len(mine)} stimuli on one side and {sizes} on the other; expected responses to the same stimuli, in the same order"
        )

    def score(chosen: np.ndarray) -> float:
        rows, columns = np.triu_indices(len(chosen), 1)
        rows, columns = chosen[rows], chosen[columns]
        different = rows != columns
        rows, columns = rows[different], columns[different]
        return float(np.mean([likeness(mine[rows, columns], matrix[rows, columns], by) for matrix in subjects]))

    low, high = bootstrap(score, len(mine), resamples, seed)
    everything = np.arange(len(mine))
    ceiling = noise_ceiling([Dissimilarity(matrix, distance) for matrix in subjects], by) if len(subjects) > 1 else None
    return Similarity(score(everything), low, high, len(mine), f"rsa: {distance} distance, {by}", ceiling)


def noise_ceiling(subjects: Sequence[Dissimilarity], by: Likeness = "spearman") -> Ceiling:
    """Upper: each subject against the mean of all, itself among them. Lower: against the mean of the others.

    Args:
        subjects: one matrix for each.
        by: how matrices are compared.

    Returns:
        The lower and upper bound.

    Raises:
        ConfigError: fewer than two subjects.

    Examples:
        >>> from continua.neuro import noise_ceiling
        >>> noise_ceiling(matrices)  # doctest: +SKIP
    """
    if len(subjects) < 2:
        raise ConfigError(f"a noise ceiling needs at least 2 subjects; got {len(subjects)}")
    pairs = np.stack([_comparable(subject.pairs, by) for subject in subjects])
    total = pairs.sum(0)
    upper = np.mean([likeness(own, total / len(pairs), by) for own in pairs])
    lower = np.mean([likeness(own, (total - own) / (len(pairs) - 1), by) for own in pairs])
    return Ceiling(float(lower), float(upper))


def _comparable(pairs: np.ndarray, by: Likeness) -> np.ndarray:
    """Dissimilarities on a scale that subjects share, so that their mean is the best single model: ranks, z-scores, or of length 1."""
    from scipy.stats import rankdata

    if by == "spearman":
        return rankdata(pairs)
    return (pairs - pairs.mean()) / pairs.std() if by == "pearson" else pairs / np.linalg.norm(pairs)


def linear_cka(one: Array, other: Array) -> float:
    """Linear centred kernel alignment, ‖X'Y‖² / (‖X'X‖ ‖Y'Y‖) of centred responses: 1 for the same up to rotation and scale.

    Args:
        one: responses (stimuli, units).
        other: responses of another system to the same stimuli.

    Returns:
        Between 0 and 1.

    Raises:
        ConfigError: the two have different numbers of stimuli.

    Examples:
        >>> import numpy as np
        >>> from continua.neuro import linear_cka
        >>> x = np.random.default_rng(0).normal(size=(20, 5))
        >>> round(linear_cka(x, 2 * x), 6)
        1.0
    """
    x, y = as_responses(one), as_responses(other)
    if len(x) != len(y):
        raise ConfigError(f"{len(x)} and {len(y)} stimuli; expected responses to the same stimuli, in the same order")
    x, y = x - x.mean(0), y - y.mean(0)
    if max(x.shape[1], y.shape[1]) > len(x):  # Gram matrices over stimuli are the smaller ones
        k, m = x @ x.T, y @ y.T
        size, shared = np.linalg.norm(k) * np.linalg.norm(m), (k * m).sum()
    else:
        size, shared = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y), (np.linalg.norm(x.T @ y)) ** 2
    return float(shared / size) if size > 0 else float("nan")


def bootstrap(score: Callable[[np.ndarray], float], count: int, resamples: int, seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of score(indices) over samples with replacement; NaN without resamples."""
    if resamples < 1:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    scores = np.array([score(random.integers(0, count, count)) for _ in range(resamples)])
    good = scores[np.isfinite(scores)]
    return (float("nan"), float("nan")) if not len(good) else (float(np.quantile(good, 0.025)), float(np.quantile(good, 0.975)))
