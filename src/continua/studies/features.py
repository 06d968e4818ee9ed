"""The table and the figures of the ODE-Net feature study (Carrara, Amato, Falchi, Gennaro 2019)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from continua.analysis import find_question
from continua.models import model_entry
from continua.report import Column, Maps, Part, PlusMinus, Printed, Table, overlaid
from continua.studies.compare import claim_above, over_seeds
from continua.studies.runs import Runs
from continua.studies.study import ADAPTIVE, FIXED_STEPS, Finding, Row, Setting, Study, smoke

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

# A quarter of the width, a tenth of the images.
SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(
        model_options=dict(width=8, norm_groups=4),
        holdout=0.2,
        look=dict(data="digits", times=3, folds=2, cs=(0.1, 1.0), jobs=1, limit=60),
    ),
    "cpu": Setting(
        seeds=1,
        threads=1,
        change=dict(
            model_options=dict(width=64, norm_groups=8),  # 8 channels in a group, as with 256 in 32
            per_class=250,
            epochs=12,
            batch_size=32,
            optimiser=dict(lr=0.025),
            schedule=dict(kind="cosine"),
        ),
        look=dict(limit=2000, jobs=1),
        reduced=[
            "width 64 instead of 256, in groups of as many channels",
            "250 training images per class instead of 5,000",
            "12 epochs instead of 200",
            "batches of 32 at learning rate 0.025 instead of 128 at 0.1, falling by a cosine instead of on a plateau",
            "two steps of rk4 with the direct gradient in training instead of dopri5 with the adjoint",
            "2,000 images instead of 10,000 for steps and transfer",
            "one seed, float32, one thread per run",
        ],
    ),
    "paper": Setting(seeds=1),
}
# As many images of each of the 200 classes: of 2,000 drawn at random some classes would have too few to be cut into folds.
_BY_CLASS = {**SETTINGS, "cpu": replace(SETTINGS["cpu"], look=dict(per_class=10, jobs=1))}


def _rows(scale: str) -> list[Row]:
    return [Row(label, "features", dict(model=name, **_solver(label, scale))) for label, name in NAMES.items()]


def _solver(label: str, scale: str) -> dict[str, Any]:
    """Fixed steps in training where it must be quick; steps are counted, and features taken, with the paper's solver at every scale."""
    return {} if scale == "paper" or label == "Residual Net" else dict(model_options=dict(solver=FIXED_STEPS))


def _ode_rows(scale: str) -> list[Row]:
    return [row for row in _rows(scale) if row.label != "Residual Net"]


def _table1(runs: Runs) -> Finding:
    errors = runs.errors()
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
    more = mean["ODE-only Net"].value - mean["Res-ODE Net"].value
    spread = mean["ODE-only Net"].error - mean["Res-ODE Net"].error
    return Finding(
        [Table("table1", "Error, parameters and solver steps", columns, rows, "± of the steps is over images.")],
        [
            claim_above("ODE-only Net takes more steps than Res-ODE Net", more, test="difference of the mean steps per image"),
            claim_above("its steps vary more from image to image", spread, test="difference of the standard deviations over images"),
        ],
    )


def _fig1(runs: Runs) -> Finding:
    parts: list[Part] = []
    for place, row in enumerate(_ode_rows(runs.scale)):
        page = runs.ask(STEPS, runs.subjects(row.label, solver=ADAPTIVE)[:1]).page
        named = [part for part in page.parts if not isinstance(part, str)]
        parts += [replace(part, name=f"{part.name}_{place}", title=f"{row.label}: {part.title}") for part in named]
    return Finding(parts)


def _fig2(runs: Runs) -> Finding:
    solvers = {label: None if label == "Residual Net" else ADAPTIVE for label in NAMES}
    answers = {label: runs.ask(TRANSFER, runs.subjects(label, solver=solver)[:1]) for label, solver in solvers.items()}
    page = overlaid({label: answer.page for label, answer in answers.items()})
    best = {label: max(answer.result.points, key=lambda point: point.accuracy) for label, answer in answers.items()}
    last = {label: answer.result.points[-1] for label, answer in answers.items()}
    claims, ahead = [], []
    for label in ("Res-ODE Net", "ODE-only Net"):
        mid = f"mid-features of {label} transfer better than its last ones (best at {best[label].name})"
        claims.append(claim_above(mid, last[label].at - best[label].at, test="time from the best features to the last"))
        more, test = best[label].accuracy - best["Residual Net"].accuracy, "difference of the best accuracies"
        ahead.append(claim_above(f"{label} transfers better than Residual Net, each at its best", more, test=test))
    rows = [[label, 100 * best[label].accuracy, printed, best[label].name, at] for label, (printed, at) in FIGURE2.items()]
    columns = ["model", Column("best, ours", "%", 2), Column("best, printed", "%", 1), "where, ours", "t, printed"]
    table = Table("best", "The features that transfer best", columns, rows, "Chance and the number of images are in the sentences below.")
    return Finding([table, *(part for part in page.parts if not isinstance(part, Maps))], claims + ahead)


STUDIES = [
    Study("features/table1", f"{PAPER}, Table 1", "error, parameters, steps per image", "What does continuous depth cost and save?",
          SETTINGS, _table1, _rows, printed=Printed(7.80, "Res-ODE Net", "error, ours", unit="%")),
    Study("features/fig1", f"{PAPER}, Figure 1", "the most and least demanding images", "Which images take many steps?",
          SETTINGS, _fig1, _ode_rows, shows_images=True),
    Study("features/fig2", f"{PAPER}, Figure 2", "transfer accuracy over t", "Which features transfer best to other images?",
          _BY_CLASS, _fig2, _rows, printed=Printed(21, "ODE-only Net", "best, ours", unit="%", digits=0, note="at t = 0.45", about=True)),
]  # fmt: skip
