"""Linear predictivity: how well a linear map from a model's responses predicts recorded neurons, on stimuli the map has not seen."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from continua.errors import ConfigError, DataError, unknown_name
from continua.neuro.similarity import Array, as_responses, bootstrap
from continua.report import Axis, Figure, Series

Regression = Literal["ridge", "pls"]
ALPHAS = np.logspace(-3, 6, 19)
LEAST_RELIABLE = 0.05
"""A neuron whose halves agree less than this has nothing to predict, and is left out of the corrected score."""


@dataclass(frozen=True, eq=False)
class Recordings:
    """Recorded responses (repeats, stimuli, neurons), one repeat where there was one, and what the file said besides."""

    responses: np.ndarray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        array = np.asarray(self.responses, dtype=np.float64)
        array = array[None] if array.ndim == 2 else array
        if array.ndim != 3 or min(array.shape) < 1:
            raise ConfigError(f"recordings have shape {array.shape}; expected (stimuli, neurons) or (repeats, stimuli, neurons)")
        object.__setattr__(self, "responses", array)

    @property
    def mean(self) -> np.ndarray:
        """The mean over repeats, (stimuli, neurons)."""
        return _known_mean(self.responses)

    def reliability(self, splits: int = 20, seed: int = 0) -> np.ndarray | None:
        """The correlation over stimuli of one half of the repeats with the other, (neurons,).

        The mean over random halves, corrected for the full number of repeats (Spearman–Brown); None with a single repeat.
        """
        count = len(self.responses)
        if count < 2:
            return None
        random, halves = np.random.default_rng(seed), []
        for _ in range(splits):
            order = random.permutation(count)
            one, other = (_known_mean(self.responses[part]) for part in (order[: count // 2], order[count // 2 : 2 * (count // 2)]))
            halves.append(correlations(one, other))
        half = _known_mean(np.stack(halves))
        return 2 * half / (1 + half)


def read_recordings(path: "str | Path", key: str = "responses") -> Recordings:
    """Recordings from an .npz file: the array `key`, (stimuli, neurons) or (repeats, stimuli, neurons), and `names` of neurons if there.

    Args:
        path: the file.
        key: name of the array.

    Returns:
        The recordings.

    Raises:
        DataError: the file has no such array, or one of another shape.

    Examples:
        >>> from continua.neuro import read_recordings
        >>> read_recordings("v1.npz")  # doctest: +SKIP
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):  # an .npy file
            raise DataError(f"{path} is an .npy file, a single array; use Recordings(numpy.load(path)), or write it with numpy.savez")
        with loaded as file:
            if key not in file:
                raise DataError(
                    f"{path} holds {', '.join(file.files) or 'nothing'}, not {key!r}; say which array: read_recordings(path, key=...)"
                )
            names = tuple(str(name) for name in file["names"]) if "names" in file else ()
            return Recordings(file[key], names)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise DataError(f"{path} cannot be read as recordings ({error}); write them with numpy.savez(path, responses=array)") from error


@dataclass(frozen=True, eq=False)
class Predictivity:
    """How well neurons are predicted.

    Attributes:
        correlation: of prediction and response on stimuli left out, the mean over folds, (neurons,); NaN for a neuron that never varies
        corrected: the same divided by the square root of each neuron's reliability; NaN where that is too low; None with a single repeat
        score: the median over neurons of what is corrected where it can be, else of the correlation; neurons with NaN do not count
        low, high: 95 % interval of the score, by bootstrap over neurons
    """

    method: str
    correlation: np.ndarray
    corrected: np.ndarray | None
    score: float
    low: float
    high: float

    def figure(self, bins: int = 20) -> Figure:
        """The distribution over neurons."""
        shown = self.correlation if self.corrected is None else self.corrected
        count, edges = np.histogram(shown[np.isfinite(shown)], bins=bins)
        series = [Series(self.method, (edges[1:] + edges[:-1]) / 2, count, style="steps")]
        return Figure("predictivity", f"Linear predictivity, median {self.score:.2f}", Axis("correlation"), Axis("neurons"), series)


def linear_predictivity(
    features: Array,
    recordings: "Recordings | Array",
    *,
    method: Regression = "ridge",
    components: int = 25,
    folds: int = 5,
    seed: int = 0,
    resamples: int = 1000,
) -> Predictivity:
    """Predict each neuron from a model's responses to the same stimuli, cross-validated.

    Args:
        features: The model's responses (stimuli, units), later axes flattened.
        recordings: Of the same stimuli in the same order.
        method: "ridge", its penalty chosen within each training part for each neuron (leave-one-out), or "pls" with `components`.
        components: How many of them for "pls".
        folds: Into how many parts the stimuli are dealt; each is predicted from the others.
        seed: Of the dealing and the bootstrap.
        resamples: Bootstrap samples of neurons for the interval.

    Returns:
        Correlation of each neuron, its noise ceiling and intervals.

    Raises:
        ConfigError: other stimuli than recorded, too few for the folds, or recordings that are missing or never vary.

    Examples:
        >>> from continua.neuro import linear_predictivity
        >>> linear_predictivity(features, recordings)  # doctest: +SKIP
    """
    recorded = recordings if isinstance(recordings, Recordings) else Recordings(as_responses(recordings, "recordings"))
    x, y = as_responses(features, "features"), recorded.mean
    if len(x) != len(y):
        raise ConfigError(f"features of {len(x)} stimuli and recordings of {len(y)}; expected the same stimuli, in the same order")
    if not 2 <= folds <= len(x) // 4:
        raise ConfigError(f"{folds} folds of {len(x)} stimuli; expected at least 2 folds, of at least 4 stimuli each")
    if not np.isfinite(y).all():
        raise ConfigError("some stimulus has no recorded response of some neuron in any repeat; leave it or the neuron out")
    if not (np.ptp(y, axis=0) > 0).any():
        raise ConfigError("no recorded neuron varies from stimulus to stimulus, so there is nothing to predict")
    order = np.random.default_rng(seed).permutation(len(x))
    parts = []
    for part in np.array_split(order, folds):
        rest = np.setdiff1d(order, part)
        # Within each fold: over all of them, the means of the training parts, opposite to those of the folds, would count against it.
        parts.append(correlations(_predict(x[rest], y[rest], x[part], method, components), y[part], flat=0.0))
    correlation = np.where(np.ptp(y, axis=0) > 0, np.mean(parts, axis=0), np.nan)
    reliability = recorded.reliability(seed=seed)
    corrected = None
    if reliability is not None:
        corrected = np.where(reliability > LEAST_RELIABLE, correlation / np.sqrt(np.clip(reliability, LEAST_RELIABLE, None)), np.nan)
    per_neuron = correlation if corrected is None else corrected
    low, high = bootstrap(lambda chosen: float(np.nanmedian(per_neuron[chosen])), len(per_neuron), resamples, seed)
    return Predictivity(method, correlation, corrected, float(np.nanmedian(per_neuron)), low, high)


def _predict(x: np.ndarray, y: np.ndarray, unseen: np.ndarray, method: Regression, components: int) -> np.ndarray:
    """Predictions for unseen stimuli, features scaled by what was seen."""
    mean, size = x.mean(0), x.std(0)
    size = np.where(size > 0, size, 1.0)
    x, unseen = (x - mean) / size, (unseen - mean) / size
    model: Any
    if method == "ridge":
        from sklearn.linear_model import RidgeCV

        model = RidgeCV(alphas=ALPHAS, alpha_per_target=True)
    elif method == "pls":
        from sklearn.cross_decomposition import PLSRegression

        model = PLSRegression(n_components=min(components, x.shape[1], len(x) - 1), scale=False)
    else:
        raise unknown_name("regression", method, ["ridge", "pls"])
    return np.asarray(model.fit(x, y).predict(unseen)).reshape(len(unseen), -1)


def _known_mean(values: np.ndarray) -> np.ndarray:
    """The mean over the first axis of what is not NaN; NaN where there is nothing, without numpy's warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        return np.nanmean(values, axis=0)


def correlations(one: np.ndarray, other: np.ndarray, flat: float = np.nan) -> np.ndarray:
    """The correlation over stimuli of each column; `flat` for one that does not vary."""
    a, b = one - one.mean(0), other - other.mean(0)
    size = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    return np.where(size > 0, (a * b).sum(0) / np.where(size > 0, size, 1.0), flat)
