"""A page about trainings: what was asked, what came out, and how it went, epoch by epoch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from continua.errors import ConfigError
from continua.reading import read_json_object
from continua.report import Axis, Cell, Column, Figure, Look, Page, Part, Series, Table, page_from
from continua.runs import RunView

MOST_CURVES = 12  # runs; more lines in one figure nobody can follow
EPOCH = Axis("epoch", whole=True)


def runs_page(runs: Sequence[RunView], title: str | None = None) -> Page:
    """Table and curves of all runs, then what was analysed about each.

    Args:
        runs: finished runs.
        title: heading of the page.

    Returns:
        A page for `continua.report.write_html`.

    Examples:
        >>> from continua.analysis import runs_page
        >>> from continua.runs import RunView
        >>> runs_page([RunView("runs/demo/dcn_ode")])  # doctest: +SKIP
    """
    names = ", ".join(run.name for run in runs)
    unfinished = [run.name for run in runs if run.result is None]
    parts: list[Part] = [_table(runs)]
    if unfinished:
        parts.insert(0, f"Not finished: {', '.join(unfinished)}. Their curves end where they are now.")
    if len(runs) <= MOST_CURVES:
        parts += [figure for figure in _curves(runs) if figure.series]
    else:
        parts.append(f"Curves and analyses are shown of up to {MOST_CURVES} runs; name those that matter: continua report RUN...")
    shown = runs if len(runs) <= MOST_CURVES else ()
    sections = [Page(f"{run.name}: {page.title}", page.parts, page.sections) for run in shown for page in stored_pages(run.folder)]
    return Page(title or (f"Run {names}" if len(runs) == 1 else f"{len(runs)} runs"), parts, sections)


def stored_pages(folder: Path) -> list[Page]:
    """The newest answer to each question that was asked of a run."""
    newest: dict[str, Path] = {}
    for path in sorted((folder / "analysis").glob("*/*/page.json"), key=lambda path: path.stat().st_mtime):
        if (path.parent / "numbers.json").is_file():  # comparisons with other runs belong to no single one
            newest[path.parts[-3]] = path
    try:
        return [page_from(read_json_object(path, folder)) for _, path in sorted(newest.items())]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ConfigError(f"an answer under {folder / 'analysis'} cannot be read ({error}); remove it and ask again") from None


def curves_over_seeds(groups: Mapping[str, Sequence[RunView]]) -> list[Figure]:
    """Loss and accuracy through training, a curve for each group: the mean of its runs, with their standard deviation as a band.

    Args:
        groups: runs by the name that their curve gets.

    Returns:
        Figures of loss and accuracy, where the runs recorded them.

    Examples:
        >>> from continua.analysis import curves_over_seeds
        >>> from continua.runs import RunView
        >>> curves_over_seeds({"DCN-ODE": [RunView("runs/a"), RunView("runs/b")]})  # doctest: +SKIP
    """
    kinds = (
        ("loss", "Training loss", Axis("loss", "nats"), 1.0),
        ("train_accuracy", "Training accuracy", Axis("accuracy", "%"), 100.0),
        ("test_accuracy", "Test accuracy", Axis("accuracy", "%"), 100.0),
    )
    made = [
        Figure(
            key, title, EPOCH, axis, [curve for place, group in enumerate(groups.items()) if (curve := _mean(*group, key, scale, place))]
        )
        for key, title, axis, scale in kinds
    ]
    return [figure for figure in made if figure.series]


def _mean(name: str, runs: Sequence[RunView], key: str, scale: float, place: int) -> Series | None:
    """Over those epochs that every run of the group has."""
    curves = [{line["epoch"]: scale * line[key] for line in run.epochs if line.get(key) is not None} for run in runs]
    epochs = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)] if curves else []
    if not epochs:
        return None
    values = [[curve[epoch] for curve in curves] for epoch in epochs]
    spread = [stdev(seeds) for seeds in values] if len(curves) > 1 else None
    style = "both" if len(epochs) == 1 else "line"
    return Series(name, epochs, [fmean(seeds) for seeds in values], spread, style, "band", colour=place, dash=place)


def _table(runs: Sequence[RunView]) -> Table:
    columns = ["run", "model", "data", "images per class", "seed", "epochs", "parameters", Column("test accuracy", "%", 2)]
    columns += [Column("test loss", digits=4), Column("NFE per image", digits=1), Column("time", "s", 0)]
    return Table("runs", "Runs", columns, [_row(run) for run in runs], "NFE: evaluations of f in the last epoch, all blocks.")


def _row(run: RunView) -> list[Cell]:
    recipe, result, last = run.recipe, run.result or {}, run.epochs[-1] if run.epochs else {}
    accuracy, nfe = result.get("test_accuracy"), last.get("nfe")
    return [
        run.name,
        recipe.model,
        recipe.data,
        recipe.per_class or "all",
        str(recipe.seed),
        last.get("epoch", 0),
        result.get("parameters"),
        None if accuracy is None else 100 * accuracy,
        result.get("test_loss"),
        float(sum(nfe)) if nfe else None,
        result.get("seconds", last.get("seconds")),
    ]


def _curves(runs: Sequence[RunView]) -> list[Figure]:
    epoch, single = EPOCH, len(runs) == 1
    rejected = _by_block(runs, "rejected", single)
    rejected = rejected if any(value for curve in rejected for value in curve.y) else []  # nothing where every value is zero
    return [
        Figure("loss", "Training loss", epoch, Axis("loss", "nats"), _each(runs, "loss", "loss", single)),
        *_accuracies(runs, single),
        Figure("lr", "Learning rate", epoch, Axis("learning rate", log=True), _each(runs, "lr", "learning rate", single)),
        Figure("nfe", "Evaluations of f per solve", epoch, Axis("evaluations of f"), _by_block(runs, "nfe", single)),
        Figure("rejected", "Rejected steps per solve", epoch, Axis("rejected steps"), rejected),
        Figure("sigma", "Scales of N-jet layers", epoch, Axis("σ", "pixels"), _sigmas(runs, single)),
        Figure("gradient", "Norm of the gradient", epoch, Axis("gradient norm", log=True), _each(runs, "gradient_norm", "norm", single)),
        Figure("speed", "Speed", epoch, Axis("speed", "images/s"), _each(runs, "images_per_second", "speed", single)),
    ]


def _accuracies(runs: Sequence[RunView], single: bool) -> list[Figure]:
    """Of one run in one figure; of several in one figure for each kind, so that colour and dash both tell the runs apart."""
    looks: dict[str, Look] = {"train": {}, "holdout": {"dash": 1}, "test": {"style": "both"}}
    words = {"train": "training", "holdout": "held out", "test": "test"}
    axis = Axis("accuracy", "%")
    curves = {kind: _each(runs, f"{kind}_accuracy", words[kind], single, 100, looks[kind] if single else {}) for kind in words}
    if single:
        return [Figure("accuracy", "Accuracy", EPOCH, axis, [series for kind in curves.values() for series in kind])]
    return [Figure(f"accuracy_{kind}", f"Accuracy, {words[kind]}", EPOCH, axis, series) for kind, series in curves.items()]


def _each(runs: Sequence[RunView], key: str, what: str, single: bool, scale: float = 1.0, single_look: Look | None = None) -> list[Series]:
    """One curve per run that has this number; of several runs, each has its colour and dash."""
    curves = []
    for place, run in enumerate(runs):
        points = {line["epoch"]: scale * line[key] for line in run.epochs if line.get(key) is not None}
        look: Look = (single_look or {}) if single else {"colour": place, "dash": place}
        if points:
            curves.append(Series(what if single else run.name, list(points), list(points.values()), **look))
    return curves


def _by_block(runs: Sequence[RunView], key: str, single: bool) -> list[Series]:
    """One curve per block of each run that has a solver."""

    def blocks(line: dict[str, Any]) -> dict[str, float]:
        return {f"block {place + 1}": value for place, value in enumerate(line.get(key) or [])}

    return _many(runs, blocks, single)


def _sigmas(runs: Sequence[RunView], single: bool) -> list[Series]:
    """One curve per layer; the middle of three numbers is the mean, or σ in the middle of a schedule."""

    def layers(line: dict[str, Any]) -> dict[str, float]:
        scales = {name: value[1] if isinstance(value, list) else value for name, value in (line.get("sigma") or {}).items()}
        return {name.replace(".field", ""): value for name, value in scales.items()}

    return _many(runs, layers, single)


def _many(runs: Sequence[RunView], numbers: Callable[[dict[str, Any]], dict[str, float]], single: bool) -> list[Series]:
    curves = []
    for order, run in enumerate(runs):
        lines = [(line["epoch"], numbers(line)) for line in run.epochs]
        for name in dict.fromkeys(name for _, values in lines for name in values):
            points = [(epoch, values[name]) for epoch, values in lines if name in values]
            x, y = [epoch for epoch, _ in points], [value for _, value in points]
            curves.append(Series(name if single else f"{run.name}: {name}", x, y, dash=None if single else order))
    return curves
