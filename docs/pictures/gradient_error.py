"""Measure and draw docs/gradients.md: how far a gradient is from the right one, by the way it is computed and the tolerance of the solve.

A small field of two N-jet convolutions, a linear readout and cross-entropy; dopri5, float64, rtol = atol. Two gradients are right: that of
the loss which was computed (steps differentiated by autograd), and that of the exact flow (the same at a tolerance of 1e-11).
The numbers are kept in gradient_error.json, those that pages show in results/benchmarks/gradient_error.json. `make pictures` runs this; it
takes under a minute.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib
from _drawing import dress, save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
import torchdiffeq
from matplotlib.figure import Figure
from torch import Tensor, nn

from continua.blocks import ConvField
from continua.filters import NJet
from continua.ode import Checkpoint, solve

NUMBERS = Path(__file__).with_name("gradient_error.json")
TABLE = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "gradient_error.json"  # what pages show, by scripts/speed-tables
SHOWN = (1e-2, 1e-3, 1e-4, 1e-6)
TOLERANCES = [10.0**-k for k in range(1, 9)]
ROUNDING = 1e-17  # where a difference of exactly zero is drawn
BATCH, CHANNELS, SIZE, CLASSES = 8, 4, 8, 10
Gradient = Callable[[float], tuple[Tensor, int]]


class Problem:
    """A field, a readout, images and labels; each method gives all gradients as one vector, and the evaluations of f they took."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.field = ConvField(CHANNELS, NJet, activation="silu", norm_groups=2).double()
        self.readout = nn.Linear(CHANNELS, CLASSES).double()
        self.h0 = torch.randn(BATCH, CHANNELS, SIZE, SIZE, dtype=torch.float64)
        self.labels = torch.arange(BATCH) % CLASSES
        self.calls = 0
        self.field.register_forward_pre_hook(self._count)

    def ours(self, tolerance: float, **how: object) -> tuple[Tensor, int]:
        def end() -> Tensor:
            return solve(lambda t, h: self.field(t, h), self.h0, 0.0, 2.0, rtol=tolerance, atol=tolerance, params=self._params(), **how).y1

        return self._gradient(end)

    def theirs(self, tolerance: float, adjoint: bool, **how: object) -> tuple[Tensor, int]:
        run = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
        times = torch.tensor([0.0, 2.0], dtype=torch.float64)
        return self._gradient(lambda: run(self.field, self.h0, times, rtol=tolerance, atol=tolerance, method="dopri5", **how)[-1])

    def _gradient(self, end: Callable[[], Tensor]) -> tuple[Tensor, int]:
        for part in (self.field, self.readout):
            part.zero_grad()
        self.calls = 0
        nn.functional.cross_entropy(self.readout(end().mean((2, 3))), self.labels).backward()
        return torch.cat([parameter.grad.flatten() for parameter in self._params()]), self.calls

    def _params(self) -> list[nn.Parameter]:
        return list(self.field.parameters())

    def _count(self, *_: object) -> None:
        self.calls += 1


def ways(problem: Problem) -> dict[str, tuple[Gradient, Gradient]]:
    """Each way to a gradient, and the direct gradient of the same forward pass."""

    def direct(tolerance: float) -> tuple[Tensor, int]:
        return problem.ours(tolerance, gradient="direct")

    def theirs(tolerance: float) -> tuple[Tensor, int]:
        return problem.theirs(tolerance, adjoint=False)

    return {
        "adjoint, torchdiffeq": (lambda tol: problem.theirs(tol, adjoint=True), theirs),
        "adjoint, ours": (lambda tol: problem.ours(tol, gradient="adjoint"), direct),
        "checkpoint, ours (default)": (lambda tol: problem.ours(tol, gradient=Checkpoint(direct_below=0)), direct),
    }


LOOKS = {
    "adjoint, torchdiffeq": ("#818b98", "s--"),
    "adjoint, ours": ("#3b7dd8", "^-"),
    "checkpoint, ours (default)": ("#d1495b", "o-"),
}


def distance(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


def measure(tolerances: list[float] = TOLERANCES) -> dict[str, dict[str, list[float]]]:
    """For every way: distance from the gradient of what was computed, from that of the exact flow, and evaluations of f."""
    problem = Problem()
    exact, _ = problem.ours(1e-11, method="dopri8", control=dict(max_steps=100_000))
    found: dict[str, dict[str, list[float]]] = {}
    for name, (way, reference) in ways(problem).items():
        rows = [(way(tolerance), reference(tolerance)[0]) for tolerance in tolerances]
        found[name] = {
            "from the computed": [distance(gradient, computed) for (gradient, _), computed in rows],
            "from the exact": [distance(gradient, exact) for (gradient, _), _ in rows],
            "evaluations": [calls for (_, calls), _ in rows],
        }
    return found


def draw(found: dict[str, dict[str, list[float]]], ink: str, faint: str) -> Figure:
    figure, axes = plt.subplots(
        1, 2, figsize=(9.6, 4.0), sharey=True, gridspec_kw=dict(wspace=0.08, left=0.09, right=0.99, top=0.8, bottom=0.14)
    )
    titles = {
        "from the computed": "… from the gradient of the loss that was computed",
        "from the exact": "… from the gradient of the exact flow",
    }
    for ax, (key, title) in zip(axes, titles.items(), strict=True):
        for name, (colour, style) in LOOKS.items():
            errors = [max(error, ROUNDING) for error in found[name][key]]
            ax.loglog(TOLERANCES, errors, style, color=colour, lw=1.8, ms=5, label=name)
        ax.set_title(title, color=ink, fontsize=10.5, loc="left", pad=8)
        ax.set_xlabel("tolerance of the solve", color=ink)
        ax.invert_xaxis()
        dress(ax, ink, faint)
    axes[0].set_ylabel("relative distance of a gradient …", color=ink)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(LOOKS), loc="upper center", frameon=False, labelcolor=ink, fontsize=9.5)
    return figure


def table(found: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """The errors against the exact flow and the evaluations, as scripts/speed-tables reads them."""
    names = {
        "checkpoint, ours (default)": "checkpointed (default)",
        "adjoint, ours": "adjoint, ours",
        "adjoint, torchdiffeq": "adjoint, torchdiffeq",
    }
    titles = {
        "Relative error of the gradient, against a solve at 1e-11": "from the exact",
        "Evaluations of f, forward and backward, where every step is taken again": "evaluations",
    }
    places = [place for place, tolerance in enumerate(TOLERANCES) if any(abs(tolerance / shown - 1) < 1e-9 for shown in SHOWN)]

    def row(place: int, what: str) -> dict[str, object]:
        return {"tolerance": f"{TOLERANCES[place]:g}", **{name: found[key][what][place] for key, name in names.items()}}

    return {"tables": {title: [row(place, what) for place in places] for title, what in titles.items()}}


if __name__ == "__main__":
    found = measure()
    NUMBERS.write_text(json.dumps({"tolerances": TOLERANCES, "relative distance": found}, indent=1) + "\n", "utf-8")
    TABLE.write_text(json.dumps(table(found), indent=1) + "\n", "utf-8")
    save("gradient-error", partial(draw, found))
