"""Retrieval: whether the images whose features are nearest are of the same class, for the features at each time.

The outlook of Carrara et al. 2019, who tell classes apart by linear machines. Here nothing is learnt: each image asks all others, which are
put in order by the cosine between features, and one counts how many of the nearest are of its class.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from continua.analysis.question import Plotted, Question, Subject, no_progress, register_question
from continua.analysis.questions.features import FeatureOptions, Features, chosen_times, features, images_for
from continua.errors import ConfigError
from continua.options import option
from continua.report import Axis, Column, Figure, Page, Series, Table
from continua.showing import Shown

BLOCK = 512  # images whose neighbours are looked for at a time


@dataclass(frozen=True, repr=False)
class Retrieved(Shown):
    """The features at one time: share of the nearest that are of the same class, mean average precision over all images that ask.

    `precision` is over the `nearest` first of the order; `first` is that of the very first alone. `by_half`: the same precision over every
    other image that asks, and over those between, so that a time can be chosen on one half and judged on the other.
    """

    name: str
    at: float
    first: float
    precision: float
    average_precision: float
    by_half: tuple[float, float]


@dataclass(frozen=True, repr=False)
class Retrieval(Plotted):
    """The answer of `retrieval`; `chance` is the precision of a random order; `timed`: whether points are times.

    `pixels`: what the images themselves give in place of features, where they were asked too.
    """

    data: str
    images: int
    nearest: int
    chance: float
    points: list[Retrieved]
    timed: bool = True
    pixels: Retrieved | None = None


def retrieval(taken: Features, *, nearest: int = 10, data: str = "", advance: Callable[[int], None] = no_progress) -> Retrieval:
    """How well nearest neighbours by the cosine of features agree in class, for each point of `taken`; nothing is learnt.

    Every image with another of its class asks all the others. Ties keep the order of the images.

    Args:
        taken: what `features` gave, with labels.
        nearest: how many of the first are counted in `precision`.
        data: name of the data set, for the page.
        advance: called with 1 after each point.

    Returns:
        Precision and mean average precision of each point, and what chance would give.

    Raises:
        ConfigError: There are no labels, or no two images of one class.

    Examples:
        >>> import numpy as np
        >>> from continua.analysis import Features, retrieval
        >>> taken = Features([0.0], ["t = 0"], np.array([[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]]), np.array([0, 0, 1, 1]))
        >>> retrieval(taken, nearest=1).points[0].precision
        1.0
    """
    labels = np.asarray(taken.labels)
    if (labels < 0).any():
        raise ConfigError("the features have no labels; give batches of (images, labels) rather than images alone")
    if not 1 <= nearest < len(labels):
        raise ConfigError(f"nearest is {nearest} of {len(labels)} images; expected at least 1, and fewer than there are others")
    _, group, counts = np.unique(labels, return_inverse=True, return_counts=True)
    others = counts[group] - 1
    if not others.any():
        raise ConfigError("no two images are of the same class, so there is nothing to retrieve")
    asking = np.flatnonzero(others)
    points = []
    for name, at, values in zip(taken.names, taken.points, taken.values, strict=True):
        points.append(Retrieved(name, at, *_precisions(np.asarray(values), group, asking, nearest)))
        advance(1)
    chance = float((others[asking] / (len(labels) - 1)).mean())
    return Retrieval(data, len(labels), nearest, chance, points, taken.timed)


def _precisions(values: np.ndarray, group: np.ndarray, asking: np.ndarray, nearest: int) -> tuple[float, float, float, tuple[float, float]]:
    """Of the first, of the first `nearest`, and average precision; means over all images that ask. Then the second over each half."""
    norms = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    unit = values / np.where(norms > 0, norms, 1.0)
    found: list[np.ndarray] = []
    for start in range(0, len(asking), BLOCK):
        rows = asking[start : start + BLOCK]
        cosines = unit[rows] @ unit.T
        cosines[np.arange(len(rows)), rows] = -np.inf  # an image is not its own neighbour: last of its order, and left out of it
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :-1]
        same = group[order] == group[rows][:, None]
        ranks = np.arange(1, same.shape[1] + 1)
        average = (same * same.cumsum(1) / ranks).sum(1) / same.sum(1)
        found.append(np.stack([same[:, 0], same[:, :nearest].mean(1), average]))
    each = np.concatenate(found, 1)
    first, precision, average = each.mean(1)
    halves = (float(each[1, ::2].mean()), float(each[1, 1::2].mean()))
    return float(first), float(precision), float(average), halves


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(FeatureOptions):
    """Whose images ask each other, and how far down the order one looks."""

    per_class: int | None = option(None, "take this many images of each class only")
    nearest: int = option(10, "how many of the nearest are counted")


def ask(subject: Subject, options: Options) -> Retrieval:
    images = images_for(subject, options, per_class=options.per_class)
    times = chosen_times(subject.model, options)
    with subject.progress("features", images.count) as advance:
        taken = features(subject.model, images, times, block=options.block, pool=options.pool, advance=advance)
    with subject.progress("neighbours", len(taken.points)) as advance:
        answer = retrieval(taken, nearest=options.nearest, data=options.data or subject.data, advance=advance)
    pixels = np.concatenate([batch.flatten(1).float().cpu().numpy() for batch, _ in images])
    (baseline,) = retrieval(Features([0.0], ["pixels"], pixels[None], taken.labels, timed=False), nearest=options.nearest).points
    return replace(answer, pixels=baseline)


def present(result: Retrieval) -> Page:
    best = max(result.points, key=lambda point: point.precision)
    text = (
        f"{result.images:,} images of {result.data} ask each other, in the order of the cosine between features. Of the {result.nearest} "
        f"nearest {best.precision:.2%} are of the same class with the features at {best.name}, the best; by chance {result.chance:.2%}."
    )
    if result.pixels is not None:
        text += f" The pixels themselves give {result.pixels.precision:.2%}."
    places = [point.at for point in result.points]
    curves = [
        Series(f"of the {result.nearest} nearest", places, [100 * point.precision for point in result.points], style="both"),
        Series("mean average precision", places, [100 * point.average_precision for point in result.points], style="line", dashed=True),
    ]
    axis = Axis("time t" if result.timed else "depth, input to last block")
    columns = [
        "features",
        Column("nearest", "%", 2),
        Column(f"of {result.nearest} nearest", "%", 2),
        Column("mean average precision", "%", 2),
    ]
    asked = result.points if result.pixels is None else [*result.points, result.pixels]
    rows = [(point.name, 100 * point.first, 100 * point.precision, 100 * point.average_precision) for point in asked]
    figure = Figure("retrieval", "Neighbours of the same class", axis, Axis("precision", "%"), curves)
    return Page("Retrieval", [text, figure, Table("retrieval", "All points", columns, rows)])


register_question(Question("retrieval", __doc__ or "", Options, ask, present, version=2))
