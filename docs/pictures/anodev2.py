"""Draw the pictures of docs/anodev2.md: the two gradients of a coupled block coming together, and Fig. 3 of the paper.

`make pictures` runs this.
"""

from functools import partial

import matplotlib
from _drawing import dress, save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from continua.analysis import synthetic
from continua.blocks import ODEBlock, optimality_gradients
from continua.filters import RDA, Evolved, FilterConv2d, Grid, Pixel
from continua.filters.history import remembering

STEPS = (4, 8, 16, 32, 64)
CURVES = [
    ("Euler, K Dirac", "euler", None, "#d1495b", "o-"),
    ("Euler, K exponential", "euler", dict(kind="exponential", rate=3.0, normalise=False), "#e08e0b", "s--"),
    ("Heun, K Dirac", "heun", None, "#3b7dd8", "o-"),
    ("Heun, K exponential", "heun", dict(kind="exponential", rate=3.0, normalise=False), "#2a9d8f", "s--"),
]


class Field(nn.Module):
    """f(z) = tanh(θ(t) * z + bias), θ by reaction, diffusion and advection."""

    def __init__(self, steps: int, memory: object) -> None:
        super().__init__()
        evolution = RDA(2, nonlinearity="identity")
        for parameter in evolution.parameters():
            nn.init.normal_(parameter, std=0.4)
        with torch.no_grad():
            evolution.tau.abs_()
        self.conv = FilterConv2d(Evolved(Pixel(2, 2), remembering(evolution, memory), grid=Grid(steps=steps)), bias=True)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(self.conv(z, t))


def gap(steps: int, scheme: str, memory: object) -> float:
    """Distance of the optimise-then-discretise gradient from the discrete one, relative to its size."""
    torch.manual_seed(3)
    block = ODEBlock(Field(steps, memory).double(), solver=dict(method=scheme, steps=steps, gradient="direct"))
    z = torch.randn(2, 2, 6, 6, dtype=torch.float64)

    def loss(end: Tensor) -> Tensor:
        return end.square().mean() + end.sin().mean()

    discrete = torch.autograd.grad(loss(block(z)), list(block.parameters()))
    found = optimality_gradients(block, z, loss, scheme=scheme).parameters
    pairs = [(found[name], exact) for (name, _), exact in zip(block.named_parameters(), discrete, strict=True)]
    return (sum(float((a - b).square().sum()) for a, b in pairs) / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5


def draw_gradients(errors: dict[str, list[float]], ink: str, faint: str) -> plt.Figure:
    figure, ax = plt.subplots(figsize=(6.4, 3.9), layout="constrained")
    for label, _, _, colour, style in CURVES:
        ax.loglog(STEPS, errors[label], style, color=colour, lw=1.7, ms=5, label=label)
    for order, start in ((1, errors["Euler, K Dirac"][0]), (2, errors["Heun, K Dirac"][0])):
        ax.loglog(STEPS, [1.6 * start * (STEPS[0] / n) ** order for n in STEPS], ":", color=faint, lw=1.3, label=f"order {order}")
    ax.set_xticks(STEPS, [str(n) for n in STEPS])
    ax.set_xlabel("steps", color=ink)
    ax.set_ylabel("distance of the two gradients", color=ink)
    dress(ax, ink, faint)
    ax.legend(frameon=False, labelcolor=ink, fontsize=9, ncols=1, loc="lower left")
    return figure


def draw_gaussians(ink: str, faint: str) -> plt.Figure:
    rows = synthetic(times=6)
    figure, axes = plt.subplots(len(rows), 6, figsize=(7.6, 5.3), gridspec_kw=dict(wspace=0.06, hspace=0.06))
    for row, cells in zip(rows, axes, strict=True):
        for t, image, ax in zip(row.times, row.images, cells, strict=True):
            ax.imshow(image[4:-4, 4:-4], cmap="viridis", vmin=0, vmax=row.images.max())
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_color(faint)
            if row is rows[0]:
                ax.set_title(f"t = {t:.1f}", color=ink, fontsize=10)
        cells[0].set_ylabel(row.name, color=ink, fontsize=10)
    return figure


if __name__ == "__main__":
    errors = {label: [gap(steps, scheme, memory) for steps in STEPS] for label, scheme, memory, _, _ in CURVES}
    save("anodev2-gradients", partial(draw_gradients, errors), bbox_inches="tight")
    save("anodev2-gaussians", draw_gaussians, bbox_inches="tight")
