"""Which gradient to follow: that of the loss which was computed, or a discretisation of the optimality system (ANODEV2 §1, §2.1).

The paper discretises first and then optimises, because the adjoint of Chen et al. 2018, which solves for the gradient and for the state
backwards in time, "could lead to incorrect gradients". The loss that each gradient reaches could fall either way.
"""

from collections.abc import Mapping
from statistics import fmean

from continua.analysis import compare_gradients
from continua.report import Axis, Column, Figure, Series, Table
from continua.studies.claims import claim_above, claim_behind
from continua.studies.compare import over_seeds
from continua.studies.runs import Runs
from continua.studies.study import Finding, Setting, Study

STEPS, FINER = 5, (5, 10, 20, 40)
NAMES = {
    "discretise, then optimise": "the gradient of the computed loss",
    "optimality system": "the gradient of the optimality system",
    "adjoint, states solved again": "the gradient of the adjoint that solves the states again",
}


def _setting(networks: int, updates: int) -> Setting:
    """The paper gives no numbers for its statement, so the experiment is ours at every scale."""
    reduced = [
        "the paper makes the statement without an experiment",
        f"ours trains {networks} first weights of ResNet-4 with one block of 8 channels, group norms and free weights "
        f"on the embedded digits for {updates} updates",
    ]
    return Setting(seeds=0, look=dict(networks=networks, updates=updates), reduced=reduced)


FULL = _setting(networks=8, updates=60)
SETTINGS: Mapping[str, Setting] = {"smoke": _setting(networks=2, updates=2), "cpu": FULL, "paper": FULL}


def _ask(runs: Runs) -> Finding:
    updates = int(runs.setting.look["updates"])
    found = compare_gradients(range(int(runs.setting.look["networks"])), updates=updates, steps=STEPS, finer=FINER)
    apart = {name: {steps: [100 * value for value in each] for steps, each in by.items()} for name, by in found.distance.items()}
    first, *_ = found.loss
    rows = [
        [name, over_seeds(list(loss.values())), over_seeds(apart[name][STEPS]) if name in apart else 0.0]
        for name, loss in found.loss.items()
    ]
    columns = ["gradient", Column("training loss reached", digits=4), Column(f"distance at {STEPS} steps", "%", 1)]
    caption = f"After {updates} updates; distance from the gradient of the loss that was computed, relative to its size, before training."
    table = Table("gradients", "What each gradient reaches", columns, rows, caption)
    series = [Series(name, list(FINER), [fmean(by[steps]) for steps in FINER], style="both") for name, by in apart.items()]
    x, y = Axis("Euler steps", log=True, whole=True), Axis("distance", "%", log=True)
    claims = []
    for name in apart:
        hypothesis = f"training by {NAMES[first]} reaches a lower training loss than by {NAMES[name]}"
        claims.append(claim_behind(hypothesis, found.loss[first], found.loss[name], unit="in loss"))
        gap = f"with {STEPS} Euler steps, {NAMES[name]} is more than 10 % away from {NAMES[first]}"
        claims.append(claim_above(gap, apart[name][STEPS], 10.0, of="relative distance before training", unit="%"))
    return Finding([table, Figure("distance", "Distance of gradients by steps", x, y, series)], claims)


STUDIES = [
    Study(
        "anodev2/gradients",
        "ANODEV2, §1 and §2.1",
        "discretise then optimise, or the other way round",
        "Is the gradient of the computed loss the better one to follow?",
        SETTINGS,
        _ask,
        claims=4,
        printed="the adjoint could lead to incorrect gradients",
    )
]
