"""Draw the work–precision diagram of docs/solver.md: what a solver pays in evaluations of f for the accuracy it reaches.

Three problems in float64, tolerances from 1e-3 to 1e-9 (rtol = atol), every solver with its own first step. The reference is SciPy's
DOP853 at 1e-13. Ends that are off by more than LOST are left out: such a solve has left the orbit, and its cost says nothing.
`make pictures` runs this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import matplotlib
from _drawing import dress, save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
import torchdiffeq
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from torch import Tensor

from continua.ode import solve

TOLERANCES = [10.0**-k for k in range(3, 10)]
LOST = 0.3
Rate = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Problem:
    name: str
    f: Rate
    y0: Tensor
    t1: float


@dataclass
class Curve:
    label: str
    colour: str
    style: str
    run: Callable[[Rate, Problem, float], Tensor]


def brusselator(t: Tensor, y: Tensor) -> Tensor:
    u, v = y.unbind(-1)
    return torch.stack([1 + u * u * v - 4 * u, 3 * u - u * u * v], -1)


def arenstorf(t: Tensor, y: Tensor) -> Tensor:
    """The restricted three-body problem; its orbit returns after one period (Hairer, Nørsett & Wanner I, §II.0)."""
    x, z, u, w = y.unbind(-1)
    mu = 0.012277471
    near, far = ((x + mu) ** 2 + z**2) ** 1.5, ((x - 1 + mu) ** 2 + z**2) ** 1.5
    du = x + 2 * w - (1 - mu) * (x + mu) / near - mu * (x - 1 + mu) / far
    dw = z - 2 * u - (1 - mu) * z / near - mu * z / far
    return torch.stack([u, w, du, dw], -1)


def convolutional() -> Problem:
    """dh/dt = −h + 2 tanh(F * h) on four 16×16 maps of eight channels."""
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn(8, 8, 3, 3, generator=generator, dtype=torch.float64) / 6
    y0 = torch.randn(4, 8, 16, 16, generator=generator, dtype=torch.float64)

    def f(t: Tensor, h: Tensor) -> Tensor:
        return -h + 2 * torch.tanh(torch.nn.functional.conv2d(h, kernel, padding=1))

    return Problem("convolutional field, 16×16", f, y0, 4.0)


def problems() -> list[Problem]:
    def row(*values: float) -> Tensor:
        return torch.tensor([values], dtype=torch.float64)

    orbit = row(0.994, 0.0, 0.0, -2.00158510637908252240537862224)
    return [
        Problem("Brusselator", brusselator, row(1.5, 3.0), 20.0),
        Problem("Arenstorf orbit, one period", arenstorf, orbit, 17.0652165601579625588917206249),
        convolutional(),
    ]


def continua(method: str) -> Callable[[Rate, Problem, float], Tensor]:
    return lambda f, p, tol: solve(f, p.y0, 0.0, p.t1, method=method, rtol=tol, atol=tol, control=dict(max_steps=100_000)).y1


def with_torchdiffeq(f: Rate, p: Problem, tol: float) -> Tensor:
    return torchdiffeq.odeint(f, p.y0, torch.tensor([0.0, p.t1], dtype=torch.float64), rtol=tol, atol=tol, method="dopri5")[-1]


def with_scipy(f: Rate, p: Problem, tol: float, method: str = "RK45") -> Tensor:
    def flat(t: float, y: object) -> object:
        return f(torch.tensor(t, dtype=torch.float64), torch.as_tensor(y).view_as(p.y0)).flatten().numpy()

    return torch.as_tensor(solve_ivp(flat, (0, p.t1), p.y0.flatten().numpy(), rtol=tol, atol=tol, method=method).y[:, -1]).view_as(p.y0)


CURVES = [
    Curve("bosh3", "#8e6bd1", "o-", continua("bosh3")),
    Curve("dopri5", "#d1495b", "o-", continua("dopri5")),
    Curve("tsit5", "#3b7dd8", "o-", continua("tsit5")),
    Curve("dopri8", "#2a9d8f", "o-", continua("dopri8")),
    Curve("SciPy RK45", "#e08e0b", "x--", with_scipy),
    Curve("torchdiffeq dopri5", "#818b98", "+:", with_torchdiffeq),
]


def measure(curve: Curve, problem: Problem, exact: Tensor) -> tuple[list[float], list[int]]:
    """Relative RMS error at the end time, and evaluations of f, for every tolerance."""
    errors, work = [], []
    for tolerance in TOLERANCES:
        calls = 0

        def counted(t: Tensor, y: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return problem.f(t, y)

        y1 = curve.run(counted, problem, tolerance)
        error = float((y1 - exact).norm() / exact.norm())
        if error < LOST:
            errors.append(error)
            work.append(calls)
    return errors, work


def draw(results: dict[str, dict[str, tuple[list[float], list[int]]]], ink: str, faint: str) -> Figure:
    layout = dict(wspace=0.22, left=0.07, right=0.99, top=0.82, bottom=0.15)
    figure, axes = plt.subplots(1, len(results), figsize=(10, 3.7), gridspec_kw=layout)
    for ax, (name, curves) in zip(axes, results.items(), strict=True):
        for curve in CURVES:
            errors, work = curves[curve.label]
            ax.loglog(errors, work, curve.style, color=curve.colour, lw=1.6, ms=4 if curve.style[0] == "o" else 6, label=curve.label)
        ax.set_title(name, color=ink, fontsize=10.5, pad=7)
        ax.set_xlabel("relative error at the end", color=ink)
        ax.invert_xaxis()
        dress(ax, ink, faint, size=8.5)
    axes[0].set_ylabel("evaluations of f", color=ink)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(CURVES), loc="upper center", frameon=False, labelcolor=ink, fontsize=9.5)
    return figure


if __name__ == "__main__":
    results = {}
    for problem in problems():
        exact = with_scipy(problem.f, problem, 1e-13, "DOP853")
        results[problem.name] = {curve.label: measure(curve, problem, exact) for curve in CURVES}
    save("work-precision", partial(draw, results))
