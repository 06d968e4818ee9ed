"""Draw the pictures of docs/rknet.md: two Runge–Kutta networks, and what the updating loops of an implicit step converge to.

The second figure solves one step of a mildly stiff linear problem by an IRK step with the two-stage Gauss–Legendre method written into it.
`make pictures` runs this.
"""

from typing import Any

import matplotlib
from _drawing import HERE, THEMES

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from continua.blocks import IRKStep, Style, embed_tableau
from continua.models import create_model, draw_model
from continua.models.describe import describe
from continua.ode import find_method

RATE = torch.tensor([[-1.0, 2.0, 0.0], [-2.0, -1.0, 0.5], [0.0, 0.0, -20.0]], dtype=torch.float64)
STEP = 0.2  # times the fastest rate: 4
LOOPS = list(range(41))
CURVES = {
    "y_n in the update, Gauss–Seidel": ("#2a9d8f", dict(state_in_update=True)),
    "y_n in the update, Jacobi": ("#3b7dd8", dict(state_in_update=True, order="jacobi")),
    "as printed, without y_n": ("#d1495b", {}),
}


def gauss_legendre(y: Tensor) -> Tensor:
    """The step itself, its linear system solved at once."""
    tableau = find_method("gauss4")
    a, b = (torch.tensor(part, dtype=torch.float64) for part in (tableau.a, tableau.b))
    system = torch.eye(6, dtype=torch.float64) - STEP * torch.kron(a, RATE)
    slopes = torch.linalg.solve(system, (RATE @ y).repeat(2)).view(2, 3)
    return y + STEP * b @ slopes


@torch.no_grad()
def errors(y: Tensor, options: dict[str, object]) -> list[float]:
    """Distance to the implicit solution after each number of loops, as a share of the step."""
    exact, found = gauss_legendre(y), []
    for loops in LOOPS:
        step = IRKStep(3, 2, loops=loops, style=Style(norm="identity", activation="identity"), **options).double()
        embed_tableau(step, "gauss4", RATE, STEP)
        found.append(float((step(y.view(1, 3, 1, 1)).flatten() - exact).norm() / (exact - y).norm()))
    return found


def draw_loops() -> None:
    y = torch.tensor([1.0, 0.5, 1.0], dtype=torch.float64)
    curves = {name: (colour, errors(y, options)) for name, (colour, options) in CURVES.items()}
    for theme, paint in THEMES.items():
        plt.rcParams.update({"svg.hashsalt": "rknet", "text.color": paint["ink"], "axes.labelcolor": paint["ink"], "font.size": 9})
        figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
        for name, (colour, values) in curves.items():
            axes.semilogy(LOOPS, values, color=colour, lw=1.8, label=name)
        axes.set(xlabel="updating loops", ylabel="distance to the implicit solution,\nas a share of the step", ylim=(1e-16, 30))
        axes.tick_params(colors=paint["faint"])
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(paint["faint"])
        axes.legend(frameon=False, loc="center right")
        figure.savefig(HERE / f"rknet-loops-{theme}.svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    draw_loops()
    for model, stages in (("erknet", "3x2_4x1_2x1"), ("irknet", "3x1_3x1_3x1")):
        net: Any = create_model(model, stages=stages)
        draw_model(describe(net, (3, 32, 32)), HERE / f"rknet-{model}.svg", title=net.spelling, subtitle="k = 36")


if __name__ == "__main__":
    main()
