"""What a sweep found: mean and standard deviation over seeds, as a table and as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from continua.train.sweeps.file import Sweep
from continua.train.sweeps.status import Status

METRICS = ("test_accuracy", "test_loss")


def summarise(statuses: Sequence[Status]) -> list[dict[str, Any]]:
    """For every point of the grid but the seed: how many seeds are finished, and mean and standard deviation (n − 1) of their result."""
    points: dict[str, dict[str, Any]] = {}
    for one in statuses:
        label = {name: value for name, value in one.cell.label.items() if name != "seed"}
        # Fields that are not axes of the sweep are the same in all cells of a point, so the label alone tells points apart.
        point = points.setdefault(json.dumps(label, sort_keys=True, default=str), {"label": label, "seeds": {}, "cells": 0})
        point["cells"] += 1
        result = one.cell.result
        if result is not None:
            point["metric"] = next(name for name in METRICS if name in result)
            point["parameters"] = result["parameters"]
            point["seeds"][str(one.cell.recipe.seed)] = result[point["metric"]]
    for point in points.values():
        values = list(point["seeds"].values())
        point["mean"] = fmean(values) if values else None
        point["std"] = stdev(values) if len(values) > 1 else None
    return list(points.values())


def write_results(sweep: Sweep, statuses: Sequence[Status]) -> Path:
    """results.json in the sweep's folder: the points of the grid, then every cell."""
    from continua.train.run import Run

    cells = [
        {"label": dict(one.cell.label), "identity": one.cell.identity, "folder": str(one.cell.folder), "state": one.state}
        | ({"error": one.error} if one.error else {})
        | ({"result": one.cell.result} if one.cell.result is not None else {})
        for one in statuses
    ]
    path = sweep.folder / "results.json"
    Run(sweep.folder).write_json(path, {"sweep": sweep.name, "points": summarise(statuses), "cells": cells})
    return path


def show_results(sweep: Sweep, statuses: Sequence[Status]) -> None:
    """The same as a table."""
    from continua.report import show_table

    points = [point for point in summarise(statuses) if point["seeds"]]
    if not points:
        return
    axes = list(dict.fromkeys(name for point in points for name in point["label"]))
    rows = [[*(str(point["label"].get(name, "")) for name in axes), *_shown(point)] for point in points]
    show_table(
        f"{sweep.name}: mean ± standard deviation over seeds",
        (*axes, "seeds", "result", "parameters"),
        rows,
        text=tuple(range(len(axes))),
    )


def _shown(point: dict[str, Any]) -> list[object]:
    if point["metric"] == "test_accuracy":
        mean, spread = f"{point['mean']:.2%}", f" ± {100 * point['std']:.2f}" if point["std"] is not None else ""
    else:
        mean, spread = f"{point['mean']:.5g}", f" ± {point['std']:.2g}" if point["std"] is not None else ""
    missing = f" of {point['cells']}" if len(point["seeds"]) < point["cells"] else ""
    return [f"{len(point['seeds'])}{missing}", mean + spread, point["parameters"]]
