"""Draw the README's picture: filters as functions of space, states and kernels as functions of depth. `make pictures` runs this.

Everything drawn is computed. A shape flows through dh/dt = -h + 2 tanh(3 F(·, ·; t) * h), whose filter F is a second derivative of a
Gaussian that turns and widens with t; our own solver chooses the steps.
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure, SubFigure
from torch.nn.functional import conv2d

from continua.ode import Solution, solve

T1 = 2.0
SIZE = 64
TIMES = np.linspace(0, T1, 6)
THEMES = {"light": {"ink": "#1f2328", "faint": "#818b98"}, "dark": {"ink": "#e6edf3", "faint": "#8b949e"}}
COLOURS = ["#d1495b", "#3b7dd8", "#e08e0b", "#2a9d8f"]
# Zero is transparent, so that the same map suits a light and a dark page; small values are lifted to be seen.
STRENGTH = np.abs(np.linspace(-1, 1, 255))[:, None] ** 0.75
SIGNED = ListedColormap(np.hstack([np.repeat([to_rgb("#2f74e0"), to_rgb("#e0314b")], [127, 128], axis=0), STRENGTH]))


def jet(sigma: float, radius: float, points: int) -> list[np.ndarray]:
    """The Gaussian and its first two scale-normalised derivatives on [-radius, radius]."""
    u = np.linspace(-radius, radius, points) / sigma
    g = np.exp(-(u**2) / 2)
    g /= g.sum()
    return [g, -u * g, (u**2 - 1) * g]


def kernel(t: float, radius: int = 13) -> np.ndarray:
    """F(·, ·; t): minus the second derivative along the direction π t / 2, at scale σ = 1.5 · 2^(t/2)."""
    g0, g1, g2 = jet(1.5 * 2 ** (t / 2), radius, 2 * radius + 1)
    c, s = np.cos(np.pi * t / 2), np.sin(np.pi * t / 2)
    return -(c * c * np.outer(g0, g2) + 2 * c * s * np.outer(g1, g1) + s * s * np.outer(g2, g0))


def field(t: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    # conv2d does not mirror the kernel; F is even, so that is the convolution.
    return -h + 2 * torch.tanh(3 * conv2d(h, torch.from_numpy(kernel(float(t)))[None, None], padding="same"))


def flow() -> Solution:
    """A ring with a gap, carried from t = 0 to T1."""
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    ring = (abs(np.hypot(x, y) - 19) < 2.5) & (abs(np.arctan2(y, x)) > 0.5)
    return solve(field, torch.from_numpy(ring.astype(float))[None, None], 0.0, T1, rtol=1e-4, atol=1e-4, dense=True, record_steps=True)


def draw_space(panel: SubFigure, ink: str, faint: str) -> None:
    """The N-jet of order 2 at three scales."""
    sigmas, orders = [1, 2, 4], [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    axes = panel.subplots(len(orders), len(sigmas), gridspec_kw=dict(left=0.2, right=0.94, top=0.83, bottom=0.09, wspace=0.1, hspace=0.1))
    for row, (i, j) in zip(axes, orders, strict=True):
        for ax, sigma in zip(row, sigmas, strict=True):
            basis = jet(sigma, radius=11, points=45)
            bare(ax).imshow(np.outer(basis[j], basis[i]), cmap=SIGNED, **symmetric(np.outer(basis[j], basis[i])))
        name = "G" if i + j == 0 else f"G_{{{'x' * i}{'y' * j}}}"
        row[0].text(-0.2, 0.5, f"${name}$", transform=row[0].transAxes, ha="right", va="center", color=ink, fontsize=10)
    for ax, sigma in zip(axes[-1], sigmas, strict=True):
        ax.text(0.5, -0.2, f"$\\sigma = {sigma}$", transform=ax.transAxes, ha="center", va="top", color=faint, fontsize=9)
    title(panel, "Space", "a filter is a function, its size is learned", ink, faint, left=0.08)


def draw_depth(panel: SubFigure, ink: str, faint: str) -> None:
    """The state of four pixels, the state of all of them, and the kernel, over the same t."""
    solution = flow()
    steps = solution.stats.steps
    dots = [*steps.t[steps.accepted].tolist(), T1]

    def state(t: float) -> np.ndarray:
        return solution.interpolate(float(t))[0, 0].numpy()

    curves, states, kernels = panel.subplots(
        3, 1, gridspec_kw=dict(left=0.08, right=0.985, top=0.83, bottom=0.09, height_ratios=[1.1, 1, 1], hspace=0.14)
    )
    smooth = np.linspace(0, T1, 300)
    for colour, (y, x) in zip(COLOURS, [(32, 13), (13, 32), (32, 32), (24, 46)], strict=True):
        curves.plot(smooth, [state(t)[y, x] for t in smooth], color=colour, lw=1.8, solid_capstyle="round")
        curves.plot(dots, [state(t)[y, x] for t in dots], "o", color=colour, ms=3.5, mec="none")
    bare(curves).set(xlim=(-0.2, T1 + 0.2), ylim=(-1.2, 1.5))
    curves.plot([0, T1], [-1.1, -1.1], color=faint, lw=0.8)
    curves.plot(dots, np.full_like(dots, -1.1), "|", color=faint, ms=7, mew=0.8)
    for ax, name, image_at in [(states, "h", state), (kernels, "F", kernel)]:
        bare(ax)
        for t in TIMES:
            small = ax.inset_axes([(t + 0.02) / (T1 + 0.4), 0, 0.36 / (T1 + 0.4), 1])
            image = image_at(t)
            bare(small).imshow(image, cmap=SIGNED, **(dict(vmin=-1.5, vmax=1.5) if name == "h" else symmetric(image)))
    for ax, text in [(curves, "some\n$h_{xy}(t)$"), (states, "$h(t)$"), (kernels, "$F(t)$")]:
        ax.text(-0.045, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=ink, fontsize=10)
    for t in TIMES:
        kernels.text(
            (t + 0.2) / (T1 + 0.4), -0.07, f"$t = {t:.1f}$", transform=kernels.transAxes, ha="center", va="top", color=faint, fontsize=9
        )
    title(panel, "Depth and weight", "a layer is a flow, its steps are the solver's (dots); the filter moves along", ink, faint, left=0.08)


def bare(ax: Axes) -> Axes:
    ax.set_axis_off()
    return ax


def symmetric(image: np.ndarray) -> dict[str, float]:
    """Limits that put zero in the middle of the colours."""
    return dict(vmin=-abs(image).max(), vmax=abs(image).max())


def title(panel: SubFigure, head: str, text: str, ink: str, faint: str, left: float) -> None:
    panel.text(left, 0.93, head, color=ink, fontsize=12, fontweight="bold", va="baseline")
    panel.text(left, 0.875, text, color=faint, fontsize=9.5, va="baseline")


def draw(ink: str, faint: str) -> Figure:
    figure = plt.figure(figsize=(10, 5.2))
    top, body = figure.subfigures(2, 1, height_ratios=[0.11, 1])
    equation = (
        r"$\mathrm{d}h/\mathrm{d}t \;=\; f(t,\; h;\; F(\cdot,\cdot\,;\,t))\qquad h(t_0) = \mathrm{input}\qquad h(t_1) = \mathrm{output}$"
    )
    top.text(0.5, 0.35, equation, ha="center", va="center", color=ink, fontsize=15)
    left, right = body.subfigures(1, 2, width_ratios=[0.42, 1])
    draw_space(left, ink, faint)
    draw_depth(right, ink, faint)
    return figure


if __name__ == "__main__":
    # The same file from the same code: no date, no random ids, letters as outlines.
    plt.rcParams.update({"svg.hashsalt": "continua", "svg.fonttype": "path", "mathtext.fontset": "cm", "image.interpolation": "none"})
    for theme, colours in THEMES.items():
        path = Path(__file__).with_name(f"overview-{theme}.svg")
        draw(**colours).savefig(path, transparent=True, metadata={"Date": None})
        print(f"wrote {path.name} ({path.stat().st_size // 1024} kB)")
