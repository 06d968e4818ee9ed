"""The table and the figures of the ODE-Net feature study (Carrara, Amato, Falchi, Gennaro 2019)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from continua.analysis import Point, find_question
from continua.models import model_entry
from continua.report import Axis, Cell, Claim, Column, Figure, Maps, Part, PlusMinus, Printed, Series, Table, overlaid
from continua.studies.claims import claim_above, claim_ahead, claim_behind
from continua.studies.compare import every_seed, mean_series, over_seeds
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
STEPS, TRANSFER, TOLERANCE = find_question("steps"), find_question("transfer"), find_question("tolerance")

# A quarter of the width, a fifth of the images.
SETTINGS: Mapping[str, Setting] = {
    "smoke": smoke(
        model_options=dict(width=8, norm_groups=4),
        holdout=0.2,
        look=dict(data="digits", times=3, folds=2, cs=(0.1, 1.0), jobs=1, limit=60),
    ),
    "cpu": Setting(
        seeds=3,
        threads=1,
        change=dict(
            model_options=dict(width=64, norm_groups=8),  # 8 channels in a group, as with 256 in 32
            per_class=1000,
            epochs=12,
            batch_size=32,
            optimiser=dict(lr=0.025),
            schedule=dict(kind="cosine"),
            channels_last=True,
        ),
        look=dict(limit=2000, jobs=1),
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
    rows: list[list[Cell]] = []
    steps_of: dict[str, dict[str, PlusMinus]] = {"ours": {}, "printed": {}}
    mean: dict[str, dict[int, float]] = {}
    spread: dict[str, dict[int, float]] = {}
    for label, (error, steps) in TABLE1.items():
        counted = None
        if steps is not None:
            tried = {seed: answer.result.tried for seed, answer in runs.ask_each(STEPS, label, ADAPTIVE).items()}
            mean[label] = {seed: float(each.mean()) for seed, each in tried.items()}
            spread[label] = {seed: float(each.std()) for seed, each in tried.items()}
            counted = PlusMinus(fmean(mean[label].values()), fmean(spread[label].values()))
            steps_of["ours"][label], steps_of["printed"][label] = counted, steps
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
    only, res = "ODE-only Net", "Res-ODE Net"
    caption = "± of the steps is over images. The parameters are those of the paper's width, the errors those of the networks as trained."
    table = Table("table1", "Error, parameters and solver steps", columns, rows, caption)
    bars = [mean_series(whose, list(each), each.values(), style="bars") for whose, each in steps_of.items()]
    figure = Figure(
        "steps", "Steps of the solver", Axis("model"), Axis("steps per image"), bars, "± is the standard deviation over images."
    )
    each_error = {label: {seed: 100 - value for seed, value in row.items()} for label, row in runs.by_seed("test_accuracy", 100).items()}
    return Finding(
        [table, figure, *every_seed("errors", "Test error of each network", each_error, Axis("test error", "%"))],
        [
            claim_ahead("ODE-only Net takes more steps than Res-ODE Net", mean[only], mean[res], unit="steps"),
            claim_ahead(
                "the steps of ODE-only Net vary more from image to image than those of Res-ODE Net", spread[only], spread[res], unit="steps"
            ),
        ],
    )


def _fig1(runs: Runs) -> Finding:
    parts: list[Part] = []
    for place, row in enumerate(_ode_rows(runs.scale)):
        page = runs.ask(STEPS, runs.subjects(row.label, solver=ADAPTIVE)[:1]).page
        named = [part for part in page.parts if not isinstance(part, str)]
        parts += [replace(part, name=f"{part.name}_{place}", title=f"{row.label}: {part.title}") for part in named]
    return Finding(parts)


TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
USUAL, LOOSE = 1e-3, 1e-1  # tolerances: the paper's, and one that is turned up after training
HARMLESS = 1.0  # points of accuracy that may be lost
WORTHWHILE = 100 / 3  # per cent of the evaluations: that a looser tolerance saves some is no question


def _tolerance(runs: Runs) -> Finding:
    """The dial that the paper names: at a looser tolerance the same network answers in fewer evaluations. What it costs is measured."""
    rows: list[list[Cell]] = []
    claims: list[Claim] = []
    curves: list[Series] = []
    for row in _ode_rows(runs.scale):
        answers = runs.ask_each(TOLERANCE, row.label, ADAPTIVE, tolerances=TOLERANCES, fixed=())
        by_tolerance = {
            tolerance: {seed: _setting(answer.result.settings, tolerance) for seed, answer in answers.items()} for tolerance in TOLERANCES
        }
        found = by_tolerance.values()
        accuracy = [over_seeds([100 * setting.accuracy for setting in settings.values()]) for settings in found]
        evaluations = [over_seeds([sum(setting.nfe) for setting in settings.values()]) for settings in found]
        rows += [[row.label, *cells] for cells in zip(TOLERANCES, accuracy, evaluations, strict=True)]
        curves.append(mean_series(row.label, [mean.value for mean in evaluations if mean], accuracy, style="both"))
        usual, loose = by_tolerance[USUAL], by_tolerance[LOOSE]
        saved = [100 * (1 - sum(loose[seed].nfe) / sum(usual[seed].nfe)) for seed in usual]
        change = f"a tolerance of {LOOSE:g} instead of {USUAL:g}"
        said = f"{change} saves {row.label} at least a third of its evaluations of f"
        claims.append(claim_above(said, saved, WORTHWHILE, of="share of the evaluations that is saved", unit="%"))
        accuracies = [{seed: 100 * setting.accuracy for seed, setting in each.items()} for each in (usual, loose)]
        claims.append(claim_behind(f"{change} costs {row.label} less than a point of accuracy", *accuracies, margin=HARMLESS))
    columns = ["model", "tolerance", Column("accuracy", "%", 2), Column("evaluations", digits=1)]
    caption = "dopri5; the networks are as they were trained, only the tolerance is another."
    table = Table("dial", "Accuracy and evaluations by tolerance", columns, rows, caption)
    title, axes = "Accuracy for the evaluations paid, by tolerance", (Axis("evaluations of f per image", log=True), Axis("accuracy", "%"))
    return Finding([table, Figure("paid", title, *axes, curves, "From left to right: tolerances from 0.1 to 0.00001.")], claims)


def _setting(settings: Sequence[Any], tolerance: float) -> Any:
    return next(setting for setting in settings if setting.tolerance == tolerance)


def _fig2(runs: Runs) -> Finding:
    solvers = {label: None if label == "Residual Net" else ADAPTIVE for label in NAMES}
    answers = {label: runs.ask_each(TRANSFER, label, solver) for label, solver in solvers.items()}
    page = overlaid({label: next(iter(by_seed.values())).page for label, by_seed in answers.items()})
    claims, ahead = [], []
    best = {label: {seed: _best(answer.result.points) for seed, answer in by_seed.items()} for label, by_seed in answers.items()}
    chosen = {
        label: {seed: 100 * float(cross_fitted(answer.result.points).mean()) for seed, answer in by_seed.items()}
        for label, by_seed in answers.items()
    }
    for label in ("Res-ODE Net", "ODE-only Net"):
        gain = [100 * before_the_end(answer.result.points) for answer in answers[label].values()]
        of = "accuracy of features from before the end, chosen on the other folds, minus that of the last"
        hypothesis = f"features from before the end of the ODE block of {label} transfer better than those at its end"
        claims.append(claim_above(hypothesis, gain, of=of, unit="points"))
        hypothesis = f"features of {label} transfer better than those of Residual Net, each from where the other folds say is best"
        ahead.append(claim_ahead(hypothesis, chosen[label], chosen["Residual Net"]))
    rows = []
    for label, (printed, at) in FIGURE2.items():
        points = list(best[label].values())
        ours = [over_seeds([100 * getattr(point, which) for point in points]) for which in ("accuracy", "retrained")]
        rows.append([label, over_seeds(list(chosen[label].values())), *ours, printed, points[0].name, at])
    columns = [Column(f"{how}, ours", "%", 2) for how in ("chosen on other folds", "cross-validated", "retrained")]
    columns = ["model", *columns, Column("retrained, printed", "%", 1)]
    caption = (
        "Retrained: on all images, which is then what it is measured on; this is what the paper prints. Cross-validated: on images unseen, "
        "the largest of all places. Chosen on other folds: for each fold at the place that is best on the others; this is what is compared."
    )
    table = Table("best", "The features that transfer best", [*columns, "where, first seed", "t, printed"], rows, caption)
    return Finding([table, *(part for part in page.parts if not isinstance(part, Maps))], claims + ahead)


def _best(points: Sequence[Point]) -> Point:
    return max(points, key=lambda point: point.accuracy)


def before_the_end(points: Sequence[Point]) -> float:
    """How much better features from before the end transfer: for each fold the time is chosen on the other folds, so that the largest of
    many noisy numbers is not taken for a better one. nan where the folds were not kept."""
    return float((cross_fitted(points[:-1]) - np.array(points[-1].by_fold or [math.nan])).mean())


def cross_fitted(points: Sequence[Point]) -> np.ndarray:
    """For each fold the accuracy at the place that the other folds say is best, so that who has more places has no advantage by chance."""
    table = np.array([point.by_fold for point in points])
    if table.ndim != 2 or table.shape[1] < 2:
        return np.array([math.nan])
    others = table.sum(1, keepdims=True) - table
    return table[others.argmax(0), np.arange(table.shape[1])]


STUDIES = [
    Study("features/table1", f"{PAPER}, Table 1", "error, parameters, steps per image", "What does continuous depth cost and save?",
          SETTINGS, _table1, _rows, claims=2, printed=Printed(7.80, "Res-ODE Net", "error, ours", unit="%")),
    Study("features/tolerance", f"{PAPER}, §1", "accuracy and evaluations by tolerance",
          "What does a looser tolerance save, and what does it cost?",
          SETTINGS, _tolerance, _ode_rows, claims=4, printed="less accurate solutions, faster"),
    Study("features/fig1", f"{PAPER}, Figure 1", "the most and least demanding images", "Which images take many steps?",
          SETTINGS, _fig1, _ode_rows, shows_images=True),
    Study("features/fig2", f"{PAPER}, Figure 2", "transfer accuracy over t", "Which features transfer best to other images?",
          _BY_CLASS, _fig2, _rows, claims=4,
          printed=Printed(21, "ODE-only Net", "retrained, ours", unit="%", digits=0, note="at t = 0.45", about=True)),
]  # fmt: skip
