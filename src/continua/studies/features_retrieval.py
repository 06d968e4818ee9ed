"""Retrieval by the features of ODE networks, as image representations (Carrara et al. 2019, §6): nearest neighbours, nothing learnt."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from continua.analysis import Answer, find_question
from continua.report import Axis, Cell, Claim, Column, Figure, Series, Table
from continua.studies.claims import claim_above
from continua.studies.compare import mean_series, over_seeds
from continua.studies.features import NAMES, PAPER
from continua.studies.features import STUDIES as OF_PAPER
from continua.studies.runs import Runs
from continua.studies.study import ADAPTIVE, Finding, Row, Study

RETRIEVAL = find_question("retrieval")
TABLE1 = next(study for study in OF_PAPER if study.id == "features/table1")
RESIDUAL = "Residual Net"


def _rows(scale: str) -> Sequence[Row]:
    """Those of Table 1, so that nothing is trained twice."""
    return TABLE1.rows(scale)


def _retrieval(runs: Runs) -> Finding:
    solvers = {label: None if label == RESIDUAL else ADAPTIVE for label in NAMES}
    answers = {label: runs.ask_each(RETRIEVAL, label, solver) for label, solver in solvers.items()}
    parts = [_over_time(answers), _table(answers)]
    return Finding(parts, [claim for label in answers if label != RESIDUAL for claim in _claims(label, answers[label])])


def _claims(label: str, by_seed: Mapping[int, Answer]) -> list[Claim]:
    halves = [np.array([point.by_half for point in answer.result.points]) for answer in by_seed.values()]
    pixels = [np.array(answer.result.pixels.by_half) for answer in by_seed.values()]
    before = [100 * float((judged(table[:-1]) - table[-1]).mean()) for table in halves]
    learnt = [100 * float((judged(table) - baseline).mean()) for table, baseline in zip(halves, pixels, strict=True)]
    of = "precision at the time that the other half of the queries chooses, minus that of"
    return [
        claim_above(f"features of {label} from before the end find more of the same class than its last", before,
                    of=f"{of} the last features", unit="points"),
        claim_above(f"features of {label} find more of the same class than raw pixels do", learnt, of=f"{of} the pixels", unit="points"),
    ]  # fmt: skip


def judged(table: np.ndarray) -> np.ndarray:
    """Of precisions (times, 2 halves): for each half that of the time which is best on the other, so that the largest of many noisy
    numbers is not taken for a better one."""
    return table[table.argmax(0)[::-1], [0, 1]]


def _over_time(answers: Mapping[str, Mapping[int, Answer]]) -> Figure:
    series = []
    for place, (label, by_seed) in enumerate(answers.items()):
        results = [answer.result for answer in by_seed.values()]
        means = [over_seeds([100 * result.points[point].precision for result in results]) for point in range(len(results[0].points))]
        series.append(mean_series(label, [point.at for point in results[0].points], means, style="both", colour=place))
    everyone = [answer.result for by_seed in answers.values() for answer in by_seed.values()]
    for name, value, dash in (
        ("raw pixels", fmean(result.pixels.precision for result in everyone), 1),
        ("chance", fmean(result.chance for result in everyone), 2),
    ):
        series.append(Series(name, [0.0, 1.0], [100 * value] * 2, colour=len(answers) + dash - 1, dash=dash))
    axis, title = Axis("time t, or depth from first to last block"), f"Images of the same class among the {everyone[0].nearest} nearest"
    return Figure("over_time", title, axis, Axis("precision", "%"), series, "Mean and standard deviation over seeds.")


def _table(answers: Mapping[str, Mapping[int, Answer]]) -> Table:
    rows: list[list[Cell]] = []
    for label, by_seed in answers.items():
        results = [answer.result for answer in by_seed.values()]
        halves = [np.array([point.by_half for point in result.points]) for result in results]
        chosen = over_seeds([100 * float(judged(table).mean()) for table in halves])
        best = max(results[0].points, key=lambda point: point.precision).name
        last = over_seeds([100 * result.points[-1].precision for result in results])
        average = over_seeds([100 * result.points[-1].average_precision for result in results])
        pixels, chance = over_seeds([100 * result.pixels.precision for result in results]), 100 * results[0].chance
        rows.append([label, chosen, best, last, average, pixels, chance, len(results)])
    columns = [
        "model",
        Column("best, chosen on the other half", "%", 2),
        "where, first seed",
        Column("last features", "%", 2),
        Column("last, mean average precision", "%", 2),
        Column("raw pixels", "%", 2),
        Column("chance", "%", 2),
        "seeds",
    ]
    caption = (
        "Every test image asks the others by the cosine between features. The best time is chosen on one half of the queries and judged on "
        "the other, both ways round. Pixels are those that the networks read. The paper prints no retrieval."
    )
    return Table("retrieval", "Precision by features, pixels and chance", columns, rows, caption)


STUDIES = [
    Study("features/retrieval", f"{PAPER}, §6", "nearest neighbours by features",
          "Are the images with the nearest features of the same class, and at which time most?",
          TABLE1.settings, _retrieval, _rows, claims=4, printed="none: the paper measures transfer only"),
]  # fmt: skip
