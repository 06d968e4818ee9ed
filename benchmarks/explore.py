"""How quickly the explorer answers a change, for every panel, with the demo network.

Each round moves one control to a value it has not had, so that nothing is remembered, and runs the whole page once: what is computed, drawn
and made ready to send. In the browser only the open panel runs again, so people wait less than this. Train the network first, with
`continua explore` or `continua demo`.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from streamlit.testing.v1 import AppTest

import continua.explore
from _common import machine, options, show_all
from continua.errors import ConfigError
from continua.explore import answers
from continua.explore.demo_networks import demos

PAGE = Path(continua.explore.__file__).with_name("page.py")
LIMIT = 0.3  # seconds
# panel, what is moved, the key of its control (of the first that begins with it), values
CHANGES: list[tuple[str, str, str, list[Any]]] = [
    ("Depth", "mask", "depth-mask", [1, 2, 4, 5, 7, 8]),
    ("Depth", "another image", "image-place", [2, 3, 4, 5, 6, 7]),
    ("Space", "σ", "space-sigma", [0.5, 0.8, 1.6, 2.0, 2.5, 3.0]),
    ("Space", "rotation", "space-turn", [10, 20, 45, 60, 90, 135]),
    ("Weight", "another image", "image-place", [8, 9, 10, 11, 12, 13]),
    ("Stimulus", "orientation", "stimulus-orientation", [10, 30, 50, 70, 110, 130]),
    ("Stimulus", "σ of the filters", "stimulus-sigma", [0.5, 0.6, 0.8, 1.2, 1.5, 2.0]),
    ("Perturb", "contrast", "perturb-contrast", [0.5, 0.6, 0.7, 0.8, 1.5, 2.0]),
    ("Perturb", "noise", "perturb-noise", [0.1, 0.12, 0.14, 0.16, 0.18, 0.2]),
    ("Perturb", "place of the mask", "perturb-x", [10, 20, 30, 60, 70, 80]),
    ("Compare", "mask", "compare-mask", [10, 25, 30, 35, 45, 50]),  # per cent; each is another number of pixels
]


class Counted(answers.Job):
    """A computation that is counted: what nothing is computed for was remembered, and says nothing about how long an answer takes."""

    started = 0

    def __init__(self, make: Callable[[], Any]) -> None:
        Counted.started += 1
        super().__init__(make)


def folders() -> list[str]:
    """Networks of `continua demo`, else those the explorer trained."""
    made = [Path("runs/demo") / name for name in ("dcn_ode", "odenet")]
    found = [folder for folder in made if (folder / "result.json").is_file()] or [demo.folder for demo in demos() if demo.ready]
    if not found:
        raise ConfigError("no demo network is trained yet; open one with `continua explore`, or run `continua demo`")
    return [str(folder) for folder in found]


def measured(app: AppTest, panel: str, key: str, values: list[Any]) -> tuple[list[float], list[int]]:
    """Seconds and computations of each change."""
    app.segmented_control(key="panel").set_value(panel).run()
    seconds, computed = [], []
    for value in values:
        control = next(slider for slider in app.slider if str(slider.key).startswith(key))
        control.set_value(value)
        before, start = Counted.started, time.perf_counter()
        app.run()
        seconds.append(time.perf_counter() - start)
        computed.append(Counted.started - before)
        if app.exception:
            raise RuntimeError(f"{panel}: {app.exception[0].message}")
    return seconds, computed


def main() -> None:
    chosen = options(__doc__, repeats=6)
    chosen.add_argument("runs", nargs="*", help="folders of runs (else the demo networks)")
    given = chosen.parse_args()
    torch.set_num_threads(given.threads)
    sys.argv = [str(PAGE), *(given.runs or folders()), "--runs=none"]
    answers.Job = Counted
    app = AppTest.from_file(str(PAGE), default_timeout=120).run()
    rows = []
    for panel, what, key, values in CHANGES:
        if panel == "Compare" and len(sys.argv) < 4:
            continue
        seconds, computed = measured(app, panel, key, values[: given.repeats])
        if panel != "Space" and not all(computed):  # that panel asks nothing of the network beside the page
            raise RuntimeError(f"{panel}, {what}: of {values}, some were remembered: {computed} computations")
        median = statistics.median(seconds)
        verdict = "yes" if median < LIMIT else "NO"
        rows.append({"panel": panel, "what is moved": what, "ms": 1000 * median, "slowest ms": 1000 * max(seconds), "< 300 ms": verdict})
    show_all({"Answer to one change, whole page": rows}, machine("streamlit", "plotly"), given.json)


if __name__ == "__main__":
    main()
