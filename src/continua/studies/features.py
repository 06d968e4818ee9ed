"""The table and the figures of the ODE-Net feature study (Carrara, Amato, Falchi, Gennaro 2019)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from continua.analysis import find_question
from continua.models import model_entry
from continua.report import Column, Maps, Part, PlusMinus, Table, overlaid
from continua.studies.compare import over_seeds
from continua.studies.runs import Runs
from continua.studies.settings import FEATURES_SETTINGS, FIXED_STEPS
from continua.studies.study import Claim, Finding, Row, Study

PAPER = "ODE-Net features"
NAMES = {"Residual Net": "residual_net", "Res-ODE Net": "res_ode_net", "ODE-only Net": "ode_only_net"}
# test error (%), steps per image
TABLE1: Mapping[str, tuple[float, PlusMinus | None]] = {
    "Residual Net": (7.28, None),
    "Res-ODE Net": (7.80, PlusMinus(3.8, 0.4)),
    "ODE-only Net": (9.17, PlusMinus(7.8, 1.5)),
}
# best transfer accuracy (%) and its t, as far as the text gives them
FIGURE2: Mapping[str, tuple[float | None, float | None]] = {
    "Residual Net": (None, None),
    "Res-ODE Net": (19.5, 0.1),
    "ODE-only Net": (21.0, 0.45),
}
STEPS, TRANSFER = find_question("steps"), find_question("transfer")
ADAPTIVE: Mapping[str, Any] = dict(method="dopri5", rtol=1e-3, atol=1e-3, steps=None)


def _rows(scale: str) -> list[Row]:
    return [Row(label, "features", dict(model=name, **_solver(label, scale))) for label, name in NAMES.items()]


def _solver(label: str, scale: str) -> dict[str, Any]:
    """Fixed steps in training where it must be quick; steps are counted, and features taken, with the paper's solver at every scale."""
    return {} if scale == "paper" or label == "Residual Net" else dict(model_options=dict(solver=FIXED_STEPS))


def _ode_rows(scale: str) -> list[Row]:
    return [row for row in _rows(scale) if row.label != "Residual Net"]


def _table1(runs: Runs) -> Finding:
    errors = {label: [100 - value for value in values] for label, values in runs.values("test_accuracy", 100).items()}
    rows, mean = [], {}
    for label, (error, steps) in TABLE1.items():
        counted = None
        if steps is not None:
            tried = [runs.ask(STEPS, [subject]).result.tried for subject in runs.subjects(label, solver=ADAPTIVE)]
            counted = PlusMinus(float(tried[0].mean()), float(tried[0].std()))
            mean[label] = counted
        entry = model_entry(NAMES[label])
        rows.append([label, over_seeds(errors.get(label, [])), error, entry.parameters, entry.printed, counted, steps])
    columns = [
        "model",
        Column("error, ours", "%", 2),
        Column("error, printed", "%", 2),
        "parameters at the paper's width",
        "parameters, printed",
        Column("steps per image, ours", digits=1),
        Column("steps per image, printed", digits=1),
    ]
    more = mean["ODE-only Net"].value > mean["Res-ODE Net"].value
    spread = mean["ODE-only Net"].error > mean["Res-ODE Net"].error
    return Finding(
        [Table("table1", "Error, parameters and solver steps", columns, rows, "± of the steps is over images.")],
        [Claim("ODE-only Net takes more steps than Res-ODE Net", more), Claim("its steps vary more from image to image", spread)],
    )


def _fig1(runs: Runs) -> Finding:
    parts: list[Part] = []
    for place, row in enumerate(_ode_rows(runs.scale)):
        page = runs.ask(STEPS, runs.subjects(row.label, solver=ADAPTIVE)[:1]).page
        parts += [_own(part, row.label, place) for part in page.parts if not isinstance(part, str)]
    return Finding(parts)


def _own(part: Any, label: str, place: int) -> Any:
    return replace(part, name=f"{part.name}_{place}", title=f"{label}: {part.title}")


def _fig2(runs: Runs) -> Finding:
    solvers = {label: None if label == "Residual Net" else ADAPTIVE for label in NAMES}
    answers = {label: runs.ask(TRANSFER, runs.subjects(label, solver=solver)[:1]) for label, solver in solvers.items()}
    page = overlaid({label: found.page for label, found in answers.items()})
    best = {label: max(found.result.points, key=lambda point: point.accuracy) for label, found in answers.items()}
    last = {label: found.result.points[-1] for label, found in answers.items()}
    claims = [
        Claim(f"mid-features of {label} transfer better than its last ones (best at {best[label].name})", best[label].at < last[label].at)
        for label in ("Res-ODE Net", "ODE-only Net")
    ]
    claims += [
        Claim(f"{label} transfers better than Residual Net, each at its best", best[label].accuracy > best["Residual Net"].accuracy)
        for label in ("Res-ODE Net", "ODE-only Net")
    ]
    rows = [[label, 100 * best[label].accuracy, printed, best[label].name, at] for label, (printed, at) in FIGURE2.items()]
    columns = ["model", Column("best, ours", "%", 2), Column("best, printed", "%", 1), "where, ours", "t, printed"]
    table = Table("best", "The features that transfer best", columns, rows, "Chance and the number of images are in the sentences below.")
    return Finding([table, *(part for part in page.parts if not isinstance(part, Maps))], claims)


_CPU = FEATURES_SETTINGS["cpu"]
# As many images of each of the 200 classes: of 2,000 drawn at random some classes would have too few to be cut into folds.
_BY_CLASS = {**FEATURES_SETTINGS, "cpu": replace(_CPU, look=dict(per_class=10, jobs=1))}

STUDIES = [
    Study("features/table1", f"{PAPER}, Table 1", "error, parameters, steps per image", "What does continuous depth cost and save?",
          FEATURES_SETTINGS, _table1, _rows, printed="7.80 % (Res-ODE Net)", headline=("Res-ODE Net", "error, ours")),
    Study("features/fig1", f"{PAPER}, Figure 1", "the most and least demanding images", "Which images take many steps?",
          FEATURES_SETTINGS, _fig1, _ode_rows, shows_images=True),
    Study("features/fig2", f"{PAPER}, Figure 2", "transfer accuracy over t", "Which features transfer best to other images?",
          _BY_CLASS, _fig2, _rows, printed="about 21 % at t = 0.45 (ODE-only Net)",
          headline=("ODE-only Net", "best, ours")),
]  # fmt: skip
