"""The dial of speed and accuracy: accuracy, evaluations of f and time as the tolerance or the method changes, without retraining."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from continua.analysis.measure import evaluated
from continua.analysis.question import DataOptions, Keep, Plotted, Question, Subject, ask_anew, no_progress, register_question
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import Network
from continua.ode import SolverConfig
from continua.options import option
from continua.report import Axis, Column, Figure, Page, Part, Series, Table
from continua.runs import Batches
from continua.showing import Shown

COSTS = ("accuracy", "nfe", "seconds", "failed")  # of a setting, as measured
TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
FIXED = ("rk4:1", "rk4:2", "rk4:4")
OWN = "own"


@dataclass(frozen=True, repr=False)
class ToleranceSetting(Shown):
    """One position of the dial: a tolerance, or a number of fixed `steps`.

    `nfe`: evaluations of f per block, mean over images. `same`: share of images whose predicted class is that of the first setting.
    `failed`: images of batches whose solve did not reach its end; they count as wrong.
    """

    name: str
    method: str
    tolerance: float | None
    steps: int | None
    accuracy: float
    same: float
    nfe: list[float]
    seconds: float
    failed: int


@dataclass(frozen=True, repr=False)
class Tolerance(Plotted):
    """The answer of `tolerance`; `trained` names the network's own solver."""

    images: int
    trained: str
    settings: list[ToleranceSetting]


def tolerance(
    model: Network,
    batches: Batches,
    *,
    tolerances: Sequence[float] = TOLERANCES,
    method: str | None = None,
    fixed: Sequence[str] = FIXED,
    keep: Keep = ask_anew,
    advance: Callable[[int], None] = no_progress,
) -> Tolerance:
    """Accuracy and cost for each tolerance of an adaptive `method` (default: the network's, or dopri5), then of `fixed` steps, "rk4:2".

    rtol = atol = tolerance. `batches` are gone through once per setting, so they must not be an iterator that is used up.

    Args:
        model: a network with ODE blocks.
        batches: pairs (images, labels); gone through once for each setting.
        tolerances: values of rtol = atol.
        method: an adaptive method; None: the network's own, or dopri5.
        fixed: fixed steps to compare with, METHOD:STEPS; "own" for those that the network was trained with.
        keep: stores pieces of the answer, so that an interrupted analysis can be continued.
        advance: called with the number of images after each batch.

    Returns:
        Accuracy, evaluations and time of each setting.

    Raises:
        ConfigError: the network has no ODE block.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import tolerance
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> batches = [(torch.rand(2, 1, 16, 16), torch.zeros(2, dtype=torch.long))]
        >>> found = tolerance(net, batches, tolerances=[1e-2], fixed=["rk4:1"])
    """
    block = next((block for block in model.blocks if isinstance(block, ODEBlock)), None)
    if block is None:
        raise ConfigError(f"{model.name or 'this network'} has no ODE block, so no tolerance to change")
    settings = _settings(block.solver, tolerances, method, fixed)
    pieces: list[dict[str, Any]] = []
    for name, changes in settings:
        pieces.append(keep(name, lambda changes=changes: _measure(model.with_solver(**changes).eval(), batches)))
        advance(1)
    predictions = [np.array(piece["predictions"]) for piece in pieces]
    same = [float((predicted == predictions[0]).mean()) for predicted in predictions]
    solver = block.solver
    trained = f"{solver.tableau.name}, " + (
        f"{solver.count} step{'s' * (solver.count != 1)}" if solver.count else f"rtol {solver.rtol:g}, atol {solver.atol:g}"
    )
    positions = [
        ToleranceSetting(
            name,
            changes.get("method", solver.tableau.name),
            changes.get("rtol"),
            changes.get("steps", solver.count),
            same=share,
            **{key: piece[key] for key in COSTS},
        )
        for (name, changes), share, piece in zip(settings, same, pieces, strict=True)
    ]
    return Tolerance(len(predictions[0]), trained, positions)


def _settings(
    solver: SolverConfig, tolerances: Sequence[float], method: str | None, fixed: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    adaptive = method or (solver.tableau.name if solver.steps is None else "dopri5")
    gradient: dict[str, Any] = dict(gradient="checkpoint")  # none is taken; every method allows this one
    settings: list[tuple[str, dict[str, Any]]] = [
        (f"{adaptive}, {tol:g}", dict(method=adaptive, steps=None, rtol=tol, atol=tol, **gradient)) for tol in sorted(tolerances)
    ]
    for text in fixed:
        if text == OWN:
            settings.append(("as trained", {}))
            continue
        name, _, count = text.partition(":")
        if not count.isdigit() or int(count) < 1:
            raise ConfigError(f"fixed steps {text!r}; expected a method and a number of steps, for example rk4:2")
        together, name_of = solver.control.replace(per="batch"), f"{name}, {count} step{'s' * (int(count) != 1)}"
        settings.append((name_of, dict(method=name, steps=int(count), control=together, **gradient)))
    if not settings:
        raise ConfigError("nothing to compare: give some tolerances or some fixed steps")
    return settings


def _measure(net: Network, batches: Batches) -> dict[str, Any]:
    """Predictions (−1 where the solve failed), accuracy, cost and time of one setting."""
    whole, short = evaluated(net, batches)
    return dict(predictions=whole.predictions, accuracy=short.accuracy, nfe=short.nfe, seconds=whole.seconds, failed=short.failed)


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(DataOptions):
    """Which images, which positions of the dial."""

    tolerances: tuple[float, ...] = option(TOLERANCES, "rtol = atol, without retraining")
    method: str | None = option(None, "solve adaptively by this method (else the network's own, or dopri5 if it takes fixed steps)")
    fixed: tuple[str, ...] = option(FIXED, "methods with fixed steps, as rk4:2")


def ask(subject: Subject, options: Options) -> Tolerance:
    images = subject.images(options)
    with subject.progress("speed and accuracy", len(options.tolerances) + len(options.fixed)) as advance:
        return tolerance(subject.model, images, keep=subject.keep, advance=advance, **options.own())


def present(result: Tolerance) -> Page:
    adaptive = [setting for setting in result.settings if setting.tolerance is not None]
    fixed = [setting for setting in result.settings if setting.tolerance is None]
    parts: list[Part] = [
        f"{result.images:,} images; the network was trained with {result.trained}, and only its solver is changed.",
        *_advice(result),
    ]
    if adaptive:
        x = [setting.tolerance or 0.0 for setting in adaptive]
        axis = Axis("tolerance (rtol = atol)", log=True)
        accuracy = Series(adaptive[0].method, x, [100 * s.accuracy for s in adaptive], style="both")
        parts.append(Figure("accuracy", "Accuracy against tolerance", axis, Axis("accuracy", "%"), [accuracy]))
        cost = Series(adaptive[0].method, x, [sum(s.nfe) for s in adaptive], style="both")
        parts.append(Figure("nfe", "Cost against tolerance", axis, Axis("evaluations of f per image"), [cost]))
    groups = {name: [s for s in result.settings if s.method == name] for name in dict.fromkeys(s.method for s in result.settings)}
    series = [Series(name, [sum(s.nfe) for s in group], [100 * s.accuracy for s in group], style="both") for name, group in groups.items()]
    dial = Figure("dial", "Accuracy for the evaluations paid", Axis("evaluations of f per image"), Axis("accuracy", "%"), series)
    rows = [(s.name, 100 * s.accuracy, 100 * s.same, sum(s.nfe), 1000 * s.seconds / result.images, s.failed) for s in [*adaptive, *fixed]]
    columns = ["solver", Column("accuracy", "%", 2), Column("same class as the first", "%", 2), Column("NFE", digits=1)]
    columns += [Column("time per image", "ms", 2), "failed"]
    return Page("Tolerance", [*parts, dial, Table("tolerance", "Every setting", columns, rows)])


def _advice(result: Tolerance) -> list[str]:
    """The cheapest setting that costs less than half a per cent of accuracy against the first."""
    first = result.settings[0]
    warning = _dependence(result)
    if warning:
        return [warning]
    fine = [setting for setting in result.settings if setting.accuracy > first.accuracy - 0.005 and not setting.failed]
    if not fine:
        return []
    best = min(fine, key=lambda setting: sum(setting.nfe))
    return [
        f"{best.name} takes {sum(best.nfe):.1f} evaluations of f per image instead of the {sum(first.nfe):.1f} of {first.name}, "
        f"at an accuracy of {best.accuracy:.2%} instead of {first.accuracy:.2%}."
    ]


def _dependence(result: Tolerance) -> str:
    """A warning where what the network predicts is decided by how it is solved."""
    exact = min((s for s in result.settings if s.tolerance is not None), key=lambda s: s.tolerance or 0.0, default=None)
    if exact is None:
        return ""
    best = max(result.settings, key=lambda setting: setting.accuracy)
    if best.accuracy - exact.accuracy < 0.05:
        return ""
    return (
        f"This network depends on the errors of its solver: {best.name} reaches {best.accuracy:.2%}, and the most accurate solve "
        f"({exact.name}) only {exact.accuracy:.2%}. It is a network of those steps rather than of its equation; train it with more steps, "
        "or with adaptive ones, if h(t) is to mean anything."
    )


register_question(Question("tolerance", __doc__ or "", Options, ask, present))
