"""What a person sees of a sweep: on a terminal a table that changes in place, elsewhere a line for every change."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from continua.train.sweeps.status import Status

ORDER = ("running", "failed", "queued", "elsewhere", "stopped", "missing", "done")
STYLES = {"running": "cyan", "failed": "red", "done": "green", "queued": "yellow", "elsewhere": "magenta", "stopped": "yellow"}


def summary(statuses: Sequence[Status]) -> str:
    """`3 done, 1 running of 8 cells`."""
    counts = Counter(one.state for one in statuses)
    found = [f"{counts[state]} {state}" for state in (*reversed(ORDER),) if counts[state]]
    return f"{', '.join(found) or 'no'} of {len(statuses)} cells"


def row(one: Status) -> list[str]:
    """State, epoch, accuracy, job and note of a cell."""
    reached, result = one.cell.reached(), one.cell.result
    accuracy = ""
    if result is not None:
        accuracy = f"test {result['test_accuracy']:.2%}" if "test_accuracy" in result else f"test error {result['test_loss']:.4g}"
    elif reached.accuracy is not None:
        accuracy = f"train {reached.accuracy:.2%}"
    epochs = f"{reached.epoch}/{one.cell.recipe.epochs}"
    tries = f"try {one.failures + 1}" if one.failures and one.state in ("running", "queued") else ""
    job = one.job or "" if one.state in ("running", "queued", "failed") else ""
    return [one.state, epochs, accuracy, job, "; ".join(part for part in (tries, one.said, one.error) if part)]


def table_of(statuses: Sequence[Status], title: str, rows: int | None = None) -> Any:
    """A rich table; where there is no room for all cells, those that someone would look for first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    axes = list(dict.fromkeys(name for one in statuses for name in one.cell.label))
    chosen = list(statuses)
    if rows is not None and len(chosen) > rows:
        chosen = sorted(chosen, key=lambda one: ORDER.index(one.state))[: max(1, rows)]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=Text(f"{title}: {summary(statuses)}"), title_justify="left")
    for name in (*axes, "state", "epoch", "accuracy", "job"):
        table.add_column(Text(name), no_wrap=True)
    table.add_column(Text("note"), overflow="fold", ratio=1)
    for one in chosen:
        state, *rest = row(one)
        labels = [Text(str(one.cell.label.get(name, ""))) for name in axes]
        table.add_row(*labels, Text(state, style=STYLES.get(state, "")), *map(Text, rest))
    if len(chosen) < len(statuses):
        table.caption = Text(f"and {len(statuses) - len(chosen)} more; --status shows all", style="dim")
    return table


class View:
    """Shows every look at a sweep: `with View(name) as view: run_sweep(..., watch=view)`."""

    def __init__(self, title: str) -> None:
        self.title, self.live, self.before = title, sys.stderr.isatty(), {}
        self._live: Any = None

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

    def __call__(self, statuses: Sequence[Status]) -> None:
        if self._live is not None:
            self._live.update(table_of(statuses, self.title, rows=self._live.console.height - 6), refresh=True)
            return
        for one in statuses:
            state, epoch, accuracy, job, note = row(one)
            seen = (state, one.job, one.failures, one.said)
            if self.before.get(one.cell.identity) != seen and not (one.cell.identity not in self.before and state == "missing"):
                parts = [f"{one.cell.name}:", state, *([f"job {job}"] if job else []), *([f"epoch {epoch}"] if state != "missing" else [])]
                print(" ".join([*parts, accuracy, f"({note})" if note else ""]).rstrip(), file=sys.stderr, flush=True)
            self.before[one.cell.identity] = seen


def show_status(statuses: Sequence[Status], title: str) -> None:
    """The whole table, once."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(table_of(statuses, title))
