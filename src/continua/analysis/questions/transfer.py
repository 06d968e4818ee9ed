"""Transfer: how well a linear SVM tells the classes of another data set from the features at each time (Carrara et al. 2019, Fig. 2)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from continua.analysis.question import Keep, Plotted, Question, Subject, ask_anew, no_progress, register_question
from continua.analysis.questions.features import FeatureOptions, Features, chosen_times, features, images_for
from continua.analysis.svm import fit_linear_machines
from continua.errors import ConfigError
from continua.options import option
from continua.report import Axis, Column, Figure, Page, PlusMinus, Series, Table
from continua.showing import Shown

CS = (0.01, 0.1, 1.0, 10.0, 100.0)
Solver = Literal["together", "liblinear"]
Fold = tuple[np.ndarray, np.ndarray]  # places of the images to train on, and to ask


@dataclass(frozen=True, repr=False)
class Point(Shown):
    """One grid search. `scores`: mean accuracy over the folds for each C, `spread` its standard deviation; `accuracy` is the best of them.

    `retrained`: accuracy on the whole set of the machine with the best C trained on the whole set, which is what the paper prints.
    `by_fold`: the accuracy of each fold with the best C.
    """

    name: str
    at: float
    scores: list[float]
    spread: list[float]
    best_c: float
    accuracy: float
    retrained: float
    by_fold: list[float]


@dataclass(frozen=True, repr=False)
class Transfer(Plotted):
    """The answer of `transfer`, one `Point` per time or block; `timed`: whether these are times."""

    data: str
    images: int
    classes: int
    width: int
    folds: int
    standardised: bool
    cs: list[float]
    points: list[Point]
    timed: bool = True


def transfer(
    taken: Features,
    *,
    cs: Sequence[float] = CS,
    folds: int = 5,
    standardise: bool = False,
    solver: Solver = "together",
    jobs: int = -1,
    data: str = "",
    keep: Keep = ask_anew,
    advance: Callable[[int], None] = no_progress,
) -> Transfer:
    """A linear SVM on the features of each point: grid over C, stratified `folds`, mean accuracy; then the best C on the whole set.

    Folds are scikit-learn's `StratifiedKFold` in the order of the images, ties go to the smaller C: as `GridSearchCV(LinearSVC())`.

    Args:
        taken: what `features` gave, with labels.
        cs: values of C to try.
        folds: of the cross-validation.
        standardise: features to mean 0 and variance 1, by the training images of each fold.
        solver: "together": all classes at once; "liblinear": scikit-learn's LinearSVC, the same machine and slower.
        jobs: processes; −1: one for each core.
        data: name of the data set, for the page.
        keep: stores pieces of the answer, so that an interrupted analysis can be continued.
        advance: called with the number of images after each batch.

    Returns:
        The cross-validated accuracy, the best C and the accuracy on the whole set, for each point.

    Examples:
        >>> from continua.analysis import transfer
        >>> transfer(features(net, batches))  # doctest: +SKIP
    """
    from sklearn.model_selection import StratifiedKFold

    labels = np.asarray(taken.labels)
    _check(labels, cs, folds)
    cs = sorted(map(float, cs))
    splits: list[Fold] = list(StratifiedKFold(folds).split(np.zeros(len(labels)), labels))
    done = {name: _stored(keep, name) for name in taken.names}
    advance((len(cs) * len(splits) + 1) * sum(piece is not None for piece in done.values()))
    open_points = [(name, values) for name, values in zip(taken.names, taken.values, strict=True) if done[name] is None]
    places = dict(zip(taken.names, taken.points, strict=True))
    for name, piece in _searched(open_points, labels, cs, splits, standardise, solver, jobs, advance):
        done[name] = keep(name, lambda piece=piece, name=name: {"name": name, "at": places[name], **piece})
    points = [Point(**piece) for piece in done.values() if piece is not None]
    shape = taken.values.shape
    return Transfer(data, shape[1], len(np.unique(labels)), shape[2], folds, standardise, cs, points, taken.timed)


class _NotStored(Exception):
    pass


def _stored(keep: Keep, name: str) -> "dict[str, Any] | None":
    """The piece an interrupted search has kept; asked without making it, so that all missing ones can be made in parallel."""

    def absent() -> Any:
        raise _NotStored

    try:
        return keep(name, absent)
    except _NotStored:
        return None


def _searched(
    points: Sequence[tuple[str, np.ndarray]],
    labels: np.ndarray,
    cs: Sequence[float],
    splits: Sequence[Fold],
    standardise: bool,
    solver: Solver,
    jobs: int,
    advance: Callable[[int], None],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and result of each point, in order, while workers are already at the next ones."""
    from joblib import Parallel, delayed

    tasks = (delayed(_accuracies)(values, labels, train, test, cs, standardise, solver) for _, values in points for train, test in splits)
    scores: Any = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    whole = np.arange(len(labels))
    for name, values in points:
        table = np.empty((len(cs), len(splits)))
        for fold in range(len(splits)):
            table[:, fold] = next(scores)
            advance(len(cs))
        best = int(table.mean(1).argmax())
        (retrained,) = _accuracies(np.asarray(values), labels, whole, whole, [cs[best]], standardise, solver)
        advance(1)
        means = table.mean(1).tolist()
        folds = table[best].tolist()
        yield (
            name,
            dict(scores=means, spread=table.std(1).tolist(), best_c=cs[best], accuracy=means[best], retrained=retrained, by_fold=folds),
        )


def _accuracies(
    values: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray, cs: Sequence[float], standardise: bool, solver: Solver
) -> list[float]:
    """Train on some images, count right answers on others, for each C from the smallest."""
    seen, asked = np.asarray(values[train]), np.asarray(values[test])
    if standardise:
        mean, std = seen.mean(0, dtype=np.float64), seen.std(0, dtype=np.float64)
        std[std <= 10 * np.finfo(seen.dtype).eps * np.abs(mean)] = 1.0  # a constant feature
        seen, asked = (((part - mean) / std).astype(values.dtype) for part in (seen, asked))
    if solver == "liblinear":
        from sklearn.svm import LinearSVC

        machines: Any = [LinearSVC(C=c, dual=False).fit(seen, labels[train]) for c in cs]  # pyright: ignore[reportArgumentType]
    else:
        machines = fit_linear_machines(seen, labels[train], cs)
    return [float(np.mean(machine.predict(asked) == labels[test])) for machine in machines]


def _check(labels: np.ndarray, cs: Sequence[float], folds: int) -> None:
    names, counts = np.unique(labels, return_counts=True)
    if (names < 0).any():
        raise ConfigError("the features have no labels; give batches of (images, labels) rather than images alone")
    if len(names) < 2:
        raise ConfigError(f"all {len(labels)} images are of class {names[0] if len(names) else '—'}; transfer needs at least two classes")
    if folds < 2:
        raise ConfigError(f"folds is {folds}; expected at least 2")
    if counts.min() < folds:
        name = names[counts.argmin()]
        raise ConfigError(f"class {name} has {counts.min()} images, fewer than the {folds} folds; take more images or fewer folds")
    if not cs or min(cs) <= 0:
        raise ConfigError(f"C in {list(cs)}; expected at least one value, all above 0")


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(FeatureOptions):
    """The target set, its features, the search."""

    data: str | None = option("tiny_imagenet_200", "the data set whose classes are to be told apart")
    per_class: int | None = option(None, "take this many images of each class only")
    cs: tuple[float, ...] = option(CS, "values of C")
    folds: int = option(5, "folds of the cross-validation")
    standardise: bool = option(False, "features to mean 0 and variance 1")
    solver: Solver = option("together", "together: all classes at once; liblinear: scikit-learn's LinearSVC, slower")
    jobs: int = option(-1, "processes (-1: one per core)")


def ask(subject: Subject, options: Options) -> Transfer:
    images = images_for(subject, options, per_class=options.per_class)
    _check(images.labels.numpy(), options.cs, options.folds)  # before minutes of extraction
    times = chosen_times(subject.model, options)
    with subject.progress("features", images.count) as advance:
        taken = features(subject.model, images, times, block=options.block, pool=options.pool, advance=advance)
    with subject.progress("linear SVMs", len(taken.points) * (len(options.cs) * options.folds + 1)) as advance:
        return transfer(
            taken,
            cs=options.cs,
            folds=options.folds,
            standardise=options.standardise,
            solver=options.solver,
            jobs=options.jobs,
            data=options.data or subject.data,
            keep=subject.keep,
            advance=advance,
        )


def present(result: Transfer) -> Page:
    best = max(result.points, key=lambda point: point.accuracy)
    text = (
        f"Linear SVMs on {result.width} features of {result.images:,} images of {result.data}, {result.classes} classes (chance "
        f"{1 / result.classes:.2%}), {result.folds}-fold cross-validation{', features standardised' if result.standardised else ''}. "
        f"The best features are those at {best.name}: {best.accuracy:.2%}, with C = {best.best_c:g}."
    )
    places = [point.at for point in result.points]
    spread = [100 * point.spread[point.scores.index(point.accuracy)] for point in result.points]
    curve = Series("cross-validated", places, [100 * point.accuracy for point in result.points], error=spread, style="both")
    again = Series("retrained on the whole set", places, [100 * point.retrained for point in result.points], style="line", dashed=True)
    axis = Axis("time t" if result.timed else "depth, input to last block")
    rows = [
        (point.name, PlusMinus(100 * point.accuracy, error), point.best_c, 100 * point.retrained, *(100 * score for score in point.scores))
        for point, error in zip(result.points, spread, strict=True)
    ]
    columns = ["features", Column("cross-validated", "%", 2), "best C", Column("retrained", "%", 2)]
    columns += [Column(f"C = {c:g}", "%", 2) for c in result.cs]
    return Page(
        "Transfer",
        [
            text,
            Figure("transfer", f"Accuracy on {result.data} of a linear SVM on the features", axis, Axis("accuracy", "%"), [curve]),
            Figure("retrained", "The same, and retrained on the whole set (seen images)", axis, Axis("accuracy", "%"), [curve, again]),
            Table("transfer", "All features", columns, rows, "± is the standard deviation over the folds."),
        ],
    )


register_question(Question("transfer", __doc__ or "", Options, ask, present, version=3))
