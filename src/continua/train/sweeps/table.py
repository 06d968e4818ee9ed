"""What a person sees of a sweep: a table that changes in place, or a line for every change; at the end what the cells found over seeds."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from continua.files import Json
from continua.report import show_table
from continua.runs import Run
from continua.showing import harmless
from continua.train.sweeps.cells import CellStatus, Sweep

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

ORDER = ("running", "failed", "queued", "elsewhere", "stopped", "missing", "done")
STYLES = {"running": "cyan", "failed": "red", "done": "green", "queued": "yellow", "elsewhere": "magenta", "stopped": "yellow"}


def summary(statuses: Sequence[CellStatus]) -> str:
    """`3 done, 1 running of 8 cells`.

    Args:
        statuses: of the cells.

    Returns:
        The words.

    Examples:
        >>> from continua.train import summary
        >>> summary(read_statuses(sweep))  # doctest: +SKIP
    """
    counts = Counter(status.state for status in statuses)
    parts = [f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state]]
    return f"{', '.join(parts) or 'no'} of {len(statuses)} cells"


def row(status: CellStatus) -> list[str]:
    """State, epoch, accuracy, job and note of a cell."""
    reached, result = status.cell.reached(), status.cell.result
    accuracy = ""
    if result is not None:
        accuracy = f"test {result['test_accuracy']:.2%}" if "test_accuracy" in result else f"test error {result['test_loss']:.4g}"
    elif reached.accuracy is not None:
        accuracy = f"train {reached.accuracy:.2%}"
    epochs = f"{reached.epoch}/{status.cell.recipe.epochs}"
    tries = f"try {status.failures + 1}" if status.failures and status.state in ("running", "queued") else ""
    job = status.job or "" if status.state in ("running", "queued", "failed") else ""
    return [status.state, epochs, accuracy, job, "; ".join(part for part in (tries, status.said, status.error) if part)]


def table_of(statuses: Sequence[CellStatus], title: str, rows: int | None = None) -> "Table":
    """A rich table; where there is no room for all cells, those that someone would look for first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    axes = list(dict.fromkeys(name for status in statuses for name in status.cell.label))
    chosen = list(statuses)
    if rows is not None and len(chosen) > rows:
        chosen = sorted(chosen, key=lambda status: ORDER.index(status.state))[: max(1, rows)]
    table = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=Text(harmless(f"{title}: {summary(statuses)}")), title_justify="left"
    )
    for name in (*axes, "state", "epoch", "accuracy", "job"):
        table.add_column(Text(harmless(name)), no_wrap=True)
    table.add_column(Text("note"), overflow="fold", ratio=1)
    for status in chosen:
        state, *rest = row(status)
        labels = [Text(harmless(status.cell.label.get(name, ""))) for name in axes]
        table.add_row(*labels, Text(state, style=STYLES.get(state, "")), *(Text(harmless(word)) for word in rest))
    if len(chosen) < len(statuses):
        table.caption = Text(f"and {len(statuses) - len(chosen)} more; --status shows all", style="dim")
    return table


class View:
    """Shows every look at a sweep: `with View(name) as view: run_sweep(..., watch=view)`."""

    def __init__(self, title: str) -> None:
        self.title, self.live = title, sys.stderr.isatty()
        self.before: dict[str, tuple[object, ...]] = {}
        self._live: Live | None = None

    def __enter__(self) -> "View":
        if self.live:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, vertical_overflow="ellipsis")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, statuses: Sequence[CellStatus]) -> None:
        if self._live is not None:
            self._live.update(table_of(statuses, self.title, rows=self._live.console.height - 6), refresh=True)
            return
        for status in statuses:
            state, epoch, accuracy, job, note = row(status)
            seen = (state, status.job, status.failures, status.said)
            if self.before.get(status.cell.identity) != seen and not (status.cell.identity not in self.before and state == "missing"):
                parts = [
                    f"{status.cell.name}:",
                    state,
                    *([f"job {job}"] if job else []),
                    *([f"epoch {epoch}"] if state != "missing" else []),
                ]
                print(harmless(" ".join([*parts, accuracy, f"({note})" if note else ""]).rstrip()), file=sys.stderr, flush=True)
            self.before[status.cell.identity] = seen


def show_status(statuses: Sequence[CellStatus], title: str) -> None:
    """The whole table, once.

    Args:
        statuses: of the cells.
        title: heading.

    Examples:
        >>> from continua.train import show_status
        >>> show_status(read_statuses(sweep), "my sweep")  # doctest: +SKIP
    """
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(table_of(statuses, title))


# --- what the cells found, over seeds -----------------------------------------------------------------------------------

METRICS = ("test_accuracy", "test_loss")


def summarise(statuses: Sequence[CellStatus]) -> list[Json]:
    """For every point of the grid but the seed: how many seeds are finished, and mean and standard deviation (n − 1) of their result."""
    points: dict[str, Json] = {}
    for status in statuses:
        label = {name: value for name, value in status.cell.label.items() if name != "seed"}
        # Fields that are not axes of the sweep are the same in all cells of a point, so the label alone tells points apart.
        point = points.setdefault(json.dumps(label, sort_keys=True, default=str), {"label": label, "seeds": {}, "cells": 0})
        point["cells"] += 1
        result = status.cell.result
        if result is not None:
            point["metric"] = next(name for name in METRICS if name in result)
            point["parameters"] = result["parameters"]
            point["seeds"][str(status.cell.recipe.seed)] = result[point["metric"]]
    for point in points.values():
        values = list(point["seeds"].values())
        point["mean"] = fmean(values) if values else None
        point["std"] = stdev(values) if len(values) > 1 else None
    return list(points.values())


def write_results(sweep: Sweep, statuses: Sequence[CellStatus]) -> Path:
    """results.json in the sweep's folder: the points of the grid, then every cell.

    Args:
        sweep: the sweep.
        statuses: of its cells.

    Returns:
        The file.

    Examples:
        >>> from continua.train import write_results
        >>> write_results(sweep, read_statuses(sweep))  # doctest: +SKIP
    """
    cells = [
        {"label": dict(status.cell.label), "identity": status.cell.identity, "folder": str(status.cell.folder), "state": status.state}
        | ({"error": status.error} if status.error else {})
        | ({"result": status.cell.result} if status.cell.result is not None else {})
        for status in statuses
    ]
    path = sweep.folder / "results.json"
    Run(sweep.folder).write_json(path, {"sweep": sweep.name, "points": summarise(statuses), "cells": cells})
    return path


def show_results(sweep: Sweep, statuses: Sequence[CellStatus]) -> None:
    """The same as a table.

    Args:
        sweep: the sweep.
        statuses: of its cells.

    Examples:
        >>> from continua.train import show_results
        >>> show_results(sweep, read_statuses(sweep))  # doctest: +SKIP
    """
    points = [point for point in summarise(statuses) if point["seeds"]]
    if not points:
        return
    axes = list(dict.fromkeys(name for point in points for name in point["label"]))
    rows = [[*(str(point["label"].get(name, "")) for name in axes), *_shown(point)] for point in points]
    show_table(
        f"{sweep.name}: mean ± standard deviation over seeds", (*axes, "seeds", "result", "parameters"), rows, text=tuple(range(len(axes)))
    )


def _shown(point: Json) -> list[object]:
    if point["metric"] == "test_accuracy":
        mean, spread = f"{point['mean']:.2%}", f" ± {100 * point['std']:.2f}" if point["std"] is not None else ""
    else:
        mean, spread = f"{point['mean']:.5g}", f" ± {point['std']:.2g}" if point["std"] is not None else ""
    missing = f" of {point['cells']}" if len(point["seeds"]) < point["cells"] else ""
    return [f"{len(point['seeds'])}{missing}", mean + spread, point["parameters"]]
