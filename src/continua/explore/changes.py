"""What a mask, contrast, noise, a solver and its tolerance do to a prediction and to its cost."""

import time
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from continua.blocks import ODEBlock
from continua.errors import ConfigError, ContinuaError, SolverError
from continua.models import Network
from continua.ode import METHODS
from continua.report import Axis, Column, Figure, Series, Table

ADAPTIVE = tuple(name for name, tableau in METHODS.items() if tableau.explicit and tableau.b_error is not None)
FIXED = tuple(name for name, tableau in METHODS.items() if tableau.explicit and tableau.b_error is None)


@dataclass(frozen=True)
class Change:
    """What is done to an image: a square of `mask` pixels set to black around (`y`, `x`), shares of the image's height and width; then
    `contrast` around black; then normal `noise`, its standard deviation in units of pixel values 0 … 1."""

    mask: int = 0
    y: float = 0.5
    x: float = 0.5
    contrast: float = 1.0
    noise: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Solver:
    """Another way to solve: None leaves what the network has. Fixed `steps` need no tolerance."""

    method: str | None = None
    tolerance: float | None = None
    steps: int | None = None


AS_IS, OWN_SOLVER = Change(), Solver()  # nothing changed


@dataclass(frozen=True, eq=False)
class Outcome:
    """One forward pass: probabilities of the classes, evaluations of f and steps in each block, seconds; or the `problem` that ended it."""

    probabilities: np.ndarray
    nfe: tuple[int, ...]
    accepted: tuple[int, ...]
    rejected: tuple[int, ...]
    seconds: float
    problem: str = ""

    @property
    def best(self) -> int:
        return int(self.probabilities.argmax())


def changed(
    images: Float[Tensor, "1 channels height width"], change: Change, black: "Tensor | float" = 0.0, unit: "Tensor | float" = 1.0
) -> Float[Tensor, "1 channels height width"]:
    """The image after a change; `black` is what a pixel of value 0 is to the network, and `unit` the step from it to a white one."""
    height, width = images.shape[-2:]
    if not 0 <= change.mask <= min(height, width):
        raise ConfigError(f"a mask of {change.mask}×{change.mask} pixels does not fit images of {height}×{width}")
    result = images.clone()
    top, left = (_start(share, size, change.mask) for share, size in ((change.y, height), (change.x, width)))
    result[..., top : top + change.mask, left : left + change.mask] = torch.as_tensor(black).to(images)
    if change.contrast != 1.0:
        result = black + change.contrast * (result - black)
    if change.noise:
        draws = torch.randn(result.shape, generator=torch.Generator().manual_seed(change.seed))
        result = result + change.noise * unit * draws
    return result.to(images)


def _start(share: float, size: int, mask: int) -> int:
    """Where a mask around `share` of an axis begins, inside the image; half is the middle, as `continua.analysis` masks it."""
    return min(max(int(share * size - mask / 2), 0), size - mask)


def solved_by(model: Network, solver: Solver, **options: Any) -> Network:
    """The network with this solver (its weights are shared, its statistics are its own); itself where it has no solver."""
    if not any(isinstance(block, ODEBlock) for block in model.blocks):
        return model
    wanted: dict[str, Any] = dict(options)
    if solver.method is not None:
        wanted |= dict(method=solver.method, steps=None)
    if solver.steps is not None:
        wanted["steps"] = solver.steps
    if solver.tolerance is not None:
        wanted |= dict(rtol=solver.tolerance, atol=solver.tolerance)
    return model.with_solver(**wanted)


_WARM: WeakSet[Network] = WeakSet()


@torch.no_grad()
def outcome(model: Network, images: Tensor, *, solver: Solver = OWN_SOLVER, time_factor: float = 1.0) -> Outcome:
    """One forward pass. `time_factor` stretches the time of block 1 (DCN §3.3: T · c)."""
    try:
        net = solved_by(model, solver)
        first = net.blocks[0]
        t1 = {0: first.t0 + time_factor * (first.t1 - first.t0)} if time_factor != 1.0 and isinstance(first, ODEBlock) else None
        if model not in _WARM:  # the first pass of a network also pays for memory and caches
            net(images, t1=t1)
            _WARM.add(model)
        start = time.perf_counter()
        logits = net(images, t1=t1)
        seconds = time.perf_counter() - start
    except SolverError as error:
        return _failed("the solver gave up: " + str(error).split(". What to do")[0])
    except ContinuaError as error:
        return _failed(str(error))
    probabilities = functional.softmax(logits[0].double(), 0).numpy()
    stats = [block for block in net.stats if block is not None]
    counts = [tuple(int(torch.as_tensor(getattr(block, name)).sum()) for block in stats) for name in ("nfe", "accepted", "rejected")]
    return Outcome(probabilities, counts[0], counts[1], counts[2], seconds)


def _failed(problem: str) -> Outcome:
    return Outcome(np.full(1, np.nan), (), (), (), float("nan"), problem)


@dataclass(frozen=True)
class Trial:
    """A row of the table: what was changed, and what came of it."""

    what: str
    outcome: Outcome


def trials(change: Change, solver: Solver, scaled: bool) -> list[tuple[str, Change, Solver, bool]]:
    """The image as it is, each part of a change alone, and all of it together: (words, change, solver, whether time follows contrast)."""
    rows: list[tuple[str, Change, Solver, bool]] = [("as it is", AS_IS, OWN_SOLVER, False)]
    if change.mask:
        rows.append((f"mask {change.mask}×{change.mask}", replace(AS_IS, mask=change.mask, y=change.y, x=change.x), OWN_SOLVER, False))
    if change.contrast != 1.0:
        dim = replace(AS_IS, contrast=change.contrast)
        rows.append((f"contrast {change.contrast:g}", dim, OWN_SOLVER, False))
        rows.append((f"contrast {change.contrast:g}, time of block 1 × {change.contrast:g}", dim, OWN_SOLVER, True))
    if change.noise:
        rows.append((f"noise {change.noise:g}", replace(AS_IS, noise=change.noise, seed=change.seed), OWN_SOLVER, False))
    if solver != OWN_SOLVER:
        rows.append((_described(solver), AS_IS, solver, False))
    if len(rows) > 2:
        rows.append(("all together", change, solver, scaled))
    return rows


def _described(solver: Solver) -> str:
    parts = [solver.method or "the same method"]
    parts += [f"{solver.steps} steps"] if solver.steps else [f"tolerance {solver.tolerance:g}"] if solver.tolerance else []
    return ", ".join(parts)


def trials_table(rows: list[Trial], classes: tuple[str, ...]) -> Table:
    """What each change does to the prediction, to the evaluations of f and to the time."""
    reference = rows[0].outcome
    columns = ["change", "prediction", Column("probability", "%", 1), Column(f"of {classes[reference.best]}", "%", 1)]
    columns += ["NFE by block", "NFE", "rejected steps", Column("time", "ms", 1)]
    cells = []
    for row in rows:
        result = row.outcome
        if result.problem:
            cells.append((row.what, f"none: {result.problem}", None, None, "", None, None, None))
            continue
        share = 100 * float(result.probabilities[reference.best])
        each = " + ".join(map(str, result.nfe)) or "no solver"
        total, rejected = (sum(result.nfe), sum(result.rejected)) if result.nfe else (None, None)
        best = 100 * float(result.probabilities.max())
        cells.append((row.what, classes[result.best], best, share, each, total, rejected, 1000 * result.seconds))
    caption = "NFE: evaluations of f in one forward pass of this image. Time: of that pass, measured once, on this machine."
    return Table("changes", "What each change does", columns, cells, caption)


def trial_probabilities(rows: list[Trial], classes: tuple[str, ...], most: int = 10) -> Figure:
    """Bars of the likeliest classes: as it is, and with everything changed."""
    shown = [row for row in (rows[0], rows[-1]) if not row.outcome.problem]
    shown = shown[:1] if len(rows) == 1 else shown
    top = sorted(np.argsort(-np.max([row.outcome.probabilities for row in shown], 0))[:most].tolist()) if shown else []
    names = [classes[place] for place in top]
    series = [Series(row.what, names, 100 * row.outcome.probabilities[top], style="bars") for row in shown]
    return Figure("probabilities", "Class probabilities", Axis("class"), Axis("probability", "%", limits=(0, 100)), series)
