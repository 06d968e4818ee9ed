"""A page about trainings: what was asked, what came out, and how it went, epoch by epoch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from continua.report.page import Axis, Column, Figure, Page, Series, Table


@dataclass(frozen=True)
class RunFacts:
    """One training as plain data: its resolved recipe, its lines of metrics, its result (None while it runs), pages of its analyses."""

    name: str
    recipe: dict[str, Any]
    metrics: Sequence[dict[str, Any]]
    result: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    analyses: Sequence[Page] = ()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        return [line for line in self.metrics if line.get("event") == "epoch"]


def runs_page(runs: Sequence[RunFacts], title: str | None = None) -> Page:
    """Table and curves of all runs, then what was analysed about each."""
    names = ", ".join(run.name for run in runs)
    unfinished = [run.name for run in runs if run.result is None]
    parts: list[Any] = [_table(runs)]
    if unfinished:
        parts.insert(0, f"Not finished: {', '.join(unfinished)}. Their curves end where they are now.")
    parts += [figure for figure in _curves(runs) if figure.series]
    sections = [Page(f"{run.name}: {page.title}", page.parts, page.sections) for run in runs for page in run.analyses]
    return Page(title or (f"Run {names}" if len(runs) == 1 else f"{len(runs)} runs"), parts, sections)


def _table(runs: Sequence[RunFacts]) -> Table:
    columns = ["run", "model", "data", "images per class", "seed", "epochs", "parameters", Column("test accuracy", "%", 2)]
    columns += [Column("test loss", digits=4), Column("NFE per image", digits=1), Column("time", "s", 0)]
    return Table("runs", "Runs", columns, [_row(run) for run in runs], "NFE: evaluations of f in the last epoch, all blocks.")


def _row(run: RunFacts) -> list[Any]:
    recipe, result, last = run.recipe, run.result or {}, run.epochs[-1] if run.epochs else {}
    accuracy, nfe = result.get("test_accuracy"), last.get("nfe")
    return [
        run.name,
        recipe.get("model"),
        recipe.get("data"),
        recipe.get("per_class") or "all",
        str(recipe.get("seed")),
        last.get("epoch", 0),
        result.get("parameters"),
        None if accuracy is None else 100 * accuracy,
        result.get("test_loss"),
        float(sum(nfe)) if nfe else None,
        result.get("seconds", last.get("seconds")),
    ]


def _curves(runs: Sequence[RunFacts]) -> list[Figure]:
    epoch = Axis("epoch")
    single = len(runs) == 1
    accuracies = [
        *_each(runs, "train_accuracy", "train", single, scale=100),
        *_each(runs, "holdout_accuracy", "held out", single, scale=100, dashed=True),
        *_each(runs, "test_accuracy", "test", single, scale=100, style="both"),
    ]
    return [
        Figure("loss", "Training loss", epoch, Axis("loss", "nats"), _each(runs, "loss", "loss", single)),
        Figure("accuracy", "Accuracy", epoch, Axis("accuracy", "%"), accuracies),
        Figure("lr", "Learning rate", epoch, Axis("learning rate", log=True), _each(runs, "lr", "learning rate", single)),
        Figure("nfe", "Evaluations of f per solve", epoch, Axis("evaluations of f"), _by_block(runs, "nfe", single)),
        Figure("rejected", "Rejected steps per solve", epoch, Axis("rejected steps"), _if_any(_by_block(runs, "rejected", single))),
        Figure("sigma", "Scales of N-jet layers", epoch, Axis("σ", "pixels"), _sigmas(runs, single)),
        Figure("gradient", "Norm of the gradient", epoch, Axis("gradient norm", log=True), _each(runs, "gradient_norm", "norm", single)),
        Figure("speed", "Speed", epoch, Axis("speed", "images/s"), _each(runs, "images_per_second", "speed", single)),
    ]


def _each(runs: Sequence[RunFacts], key: str, what: str, single: bool, scale: float = 1.0, **look: Any) -> list[Series]:
    """One curve per run that has this number; colours are for runs."""
    found = []
    for place, run in enumerate(runs):
        lines = [line for line in run.epochs if line.get(key) is not None]
        if lines:
            name = what if single else f"{run.name}: {what}" if what in ("train", "held out", "test") else run.name
            y = [scale * line[key] for line in lines]
            found.append(Series(name, [line["epoch"] for line in lines], y, colour=None if single else place, **look))
    return found


def _by_block(runs: Sequence[RunFacts], key: str, single: bool) -> list[Series]:
    """One curve per block of each run that has a solver."""

    def blocks(line: dict[str, Any]) -> dict[str, float]:
        return {f"block {place + 1}": value for place, value in enumerate(line.get(key) or [])}

    return _many(runs, blocks, single)


def _sigmas(runs: Sequence[RunFacts], single: bool) -> list[Series]:
    """One curve per layer; the middle of three numbers is the mean, or σ in the middle of a schedule."""

    def layers(line: dict[str, Any]) -> dict[str, float]:
        found = {name: value[1] if isinstance(value, list) else value for name, value in (line.get("sigma") or {}).items()}
        return {name.replace(".field", ""): value for name, value in found.items()}

    return _many(runs, layers, single)


def _many(runs: Sequence[RunFacts], numbers: Callable[[dict[str, Any]], dict[str, float]], single: bool) -> list[Series]:
    found = []
    for run in runs:
        lines = [(line["epoch"], numbers(line)) for line in run.epochs]
        for name in dict.fromkeys(name for _, values in lines for name in values):
            points = [(epoch, values[name]) for epoch, values in lines if name in values]
            x, y = [epoch for epoch, _ in points], [value for _, value in points]
            found.append(Series(name if single else f"{run.name}: {name}", x, y))
    return found


def _if_any(series: list[Series]) -> list[Series]:
    """Nothing where every value is zero."""
    return series if any(value for one in series for value in one.y) else []
