"""Draw the README's picture: a digit on its way through a trained network that is continuous in space, depth and weight.

Everything drawn is computed by the network of overview_net.py, at five times the resolution it was trained at: its filters are functions,
so every σ is simply multiplied. Plates are h(t) of one channel of block 1, each in its own scale; ticks are the solver's own steps.
`make pictures` runs this.
"""

import warnings
from functools import partial

import matplotlib
from _drawing import save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon
from matplotlib.transforms import Affine2D
from overview_net import digits, enlarged, trained

from continua import ContinuaWarning
from continua.filters import NJet, ScheduledNJet
from continua.models.dcn import DCN

FACTOR, DIGIT, SAMPLE = 5, 3, 4
PLATES = np.array([0.05, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0])
MOMENTS = np.linspace(0.0, 2.0, 7)
LEAN = (0.66, 0.2)  # how a plate's own x-axis goes into the picture, for a plate of height 1
GAP = 0.86  # between plates
# Zero is transparent, so that the same map suits a light and a dark page; small values are lifted to be seen.
STRENGTH = np.abs(np.linspace(-1, 1, 255))[:, None] ** 0.8
SIGNED = ListedColormap(np.hstack([np.repeat([to_rgb("#2f74e0"), to_rgb("#e0314b")], [127, 128], axis=0), STRENGTH]))


def ink_map(ink: str) -> ListedColormap:
    return ListedColormap(np.hstack([np.tile(to_rgb(ink), (255, 1)), np.linspace(0, 1, 255)[:, None]]))


class Seen:
    """What the network does with one digit."""

    def __init__(self, net: DCN) -> None:
        images, labels = digits(FACTOR)
        image = images[labels == DIGIT][SAMPLE : SAMPLE + 1]
        self.image, self.label = image[0, 0].numpy(), DIGIT
        large = enlarged(net, FACTOR)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ContinuaWarning)  # σ five times as large is what is wanted here
            self.chances = large(image).softmax(1)[0].numpy()
            steps = large.stats[0].steps
            self.ticks = [*steps.t[steps.accepted].tolist(), 2.0]
            states = large.states(image, block=0, times=torch.from_numpy(PLATES))
        # The channel that turns into something else: whose first and last map are least alike.
        alike = torch.cosine_similarity(states[0, 0].flatten(1), states[-1, 0].flatten(1))
        self.states = states[:, 0, int(alike.argmin())].numpy()


def plate(ax: Axes, picture: np.ndarray, at: float, cmap: object, limit: float | None, edge: str) -> None:
    """One map as a pane of glass, seen from the side, at `at` on the axis of time."""
    rows, columns = picture.shape
    place = Affine2D().scale(1 / columns, 1 / rows) + Affine2D.from_values(LEAN[0], LEAN[1], 0, 1, at, 0)
    low = -limit if limit else 0
    ax.imshow(
        picture[::-1], cmap=cmap, vmin=low, vmax=limit or 1, extent=(0, columns, 0, rows), origin="lower", transform=place + ax.transData
    )
    corners = place.transform([(0, 0), (columns, 0), (columns, rows), (0, rows)])
    ax.add_patch(Polygon(corners, closed=True, fill=False, ec=edge, lw=0.7, alpha=0.55))


def draw_depth(ax: Axes, seen: Seen, ink: str, faint: str) -> None:
    """The digit, its feature map on the way, the answer."""
    plate(ax, seen.image, -1.2, ink_map(ink), None, faint)
    places = GAP * np.arange(len(PLATES))
    for place, state in zip(places, seen.states, strict=True):
        plate(ax, state, place, SIGNED, float(abs(state).max()), faint)

    def along(t: float) -> float:
        """Where a time lies; plates stand closer in time at first, where more happens."""
        return float(np.interp(t, [0, *PLATES], [places[0] - GAP / 2, *places]))

    ax.plot([along(0), along(2)], [-0.12, -0.12], color=faint, lw=0.8)
    ax.plot([along(t) for t in seen.ticks], np.full(len(seen.ticks), -0.12), "|", color=ink, ms=8, mew=1.2)
    for t in (0.0, *PLATES):
        ax.text(along(t), -0.22, f"$t = {t:g}$" if t in (0, 2) else f"${t:g}$", color=faint, fontsize=9, ha="center", va="top")
    right = places[-1] + LEAN[0] + 0.3
    for digit, chance in enumerate(seen.chances):
        y = 1.1 - 0.125 * digit
        ax.barh(y, 0.6 * chance, height=0.085, left=right + 0.1, color="#e0314b" if digit == seen.chances.argmax() else faint)
        ax.text(right, y, str(digit), color=ink if digit == seen.label else faint, fontsize=8.5, ha="center", va="center")
    ax.set(xlim=(-1.25, right + 0.75), ylim=(-0.38, 1.24), aspect="equal")
    ax.set_axis_off()


def smooth(ax: Axes, kernel: np.ndarray, reach: float, sigma: float, faint: str) -> None:
    """A kernel as the function it is, on the grid of pixels it was trained on; a ring at σ."""
    limit = float(abs(kernel).max())
    ax.imshow(kernel, cmap=SIGNED, vmin=-limit, vmax=limit, extent=(-reach, reach, -reach, reach))
    for line in np.arange(-np.floor(reach) - 0.5, reach + 1):
        ax.plot([line, line], [-reach, reach], color=faint, lw=0.35, alpha=0.3)
        ax.plot([-reach, reach], [line, line], color=faint, lw=0.35, alpha=0.3)
    ax.add_patch(Circle((0, 0), sigma, fill=False, ec=faint, lw=0.8, ls=(0, (3, 2))))
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    ax.set_axis_off()


@torch.no_grad()
def sampled(filter: ScheduledNJet, t: float, pair: tuple[int, int], grid: torch.Tensor) -> np.ndarray:
    """F(·, ·; t) between two channels, anywhere: an N-jet with the coefficients and the scale of this moment."""
    still = NJet(filter.in_channels, filter.out_channels)
    still.alpha.copy_(filter._alpha(filter.state(), torch.tensor(t)))
    still.s.copy_(torch.log2(filter.sigma_at(t)))
    return still.sample(grid, grid)[pair].numpy()


@torch.no_grad()
def draw_space(axes: np.ndarray, net: DCN, faint: str) -> None:
    reach, places = 4.6, [(net.stem, 0), (net.stem, 3), (net.transitions[0].conv, 1), (net.transitions[0].conv, 5)]
    grid = torch.linspace(-reach, reach, 97)
    for ax, (conv, out) in zip(axes, places, strict=True):
        kernels = conv.filter.sample(grid, grid)[out]
        smooth(ax, kernels[kernels.square().mean((1, 2)).argmax()].numpy(), reach, float(conv.filter.sigma), faint)
        ax.text(0, -reach - 0.4, f"$\\sigma = {float(conv.filter.sigma):.2f}$", color=faint, fontsize=9, ha="center", va="top")


def draw_weight(axes: np.ndarray, net: DCN, faint: str) -> None:
    filter, reach = net.blocks[0].field.conv1.filter, 4.6
    change = (filter.alpha_slope / filter.alpha_offset.abs().mean()).square().sum(0)[1:]  # channel 0 is the time
    pair = divmod(int(change.argmax()), change.shape[1])
    grid = torch.linspace(-reach, reach, 97)
    for ax, t in zip(axes, MOMENTS, strict=True):
        smooth(ax, sampled(filter, float(t), (pair[1], pair[0] + 1), grid), reach, float(filter.sigma_at(float(t))), faint)
        ax.text(0, -reach - 0.4, f"$t = {t:.2g}$", color=faint, fontsize=9, ha="center", va="top")


def title(figure: Figure, x: float, y: float, head: str, text: str, ink: str, faint: str) -> None:
    figure.text(x, y, head, color=ink, fontsize=12, fontweight="bold", va="baseline")
    figure.text(x + 0.014 + 0.0115 * len(head), y, text, color=faint, fontsize=9.5, va="baseline")


def draw(net: DCN, seen: Seen, ink: str, faint: str) -> Figure:
    figure = plt.figure(figsize=(10, 4.4))
    equation = (
        r"$\mathrm{d}h/\mathrm{d}t \;=\; f(t,\; h;\; F(\cdot,\cdot\,;\,t))\qquad h(t_0) = \mathrm{input}\qquad h(t_1) = \mathrm{output}$"
    )
    figure.text(0.5, 0.945, equation, ha="center", va="center", color=ink, fontsize=15)
    title(
        figure, 0.02, 0.86, "Depth", "a layer is a flow: one feature map of one digit, at any t; ticks are the solver's steps", ink, faint
    )
    draw_depth(figure.add_axes((0.02, 0.345, 0.96, 0.50)), seen, ink, faint)
    title(figure, 0.02, 0.275, "Space", "a filter is a function, its size σ is learned", ink, faint)
    title(figure, 0.425, 0.275, "Weight", "filters flow too", ink, faint)
    side = 0.095
    draw_space(np.array([figure.add_axes((0.02 + k * (side - 0.004), 0.06, side * 0.86, 0.19)) for k in range(4)]), net, faint)
    draw_weight(np.array([figure.add_axes((0.425 + k * (side - 0.014), 0.06, side * 0.86, 0.19)) for k in range(7)]), net, faint)
    return figure


if __name__ == "__main__":
    plt.rcParams.update({"mathtext.fontset": "cm", "image.interpolation": "none"})
    net = trained()
    save("overview", partial(draw, net, Seen(net)))
