"""Draw the picture of docs/scale-space.md: the N-jet of order 2 at three scales, and what each of its functions sees of a digit.

`make pictures` runs this.
"""

from math import log2

import matplotlib
from _drawing import save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate, pad

from continua.data import load
from continua.filters import FilterConv2d, NJet

SIGMAS = (1, 2, 4)
# The order of α: rows first, falling powers of x.
NAMES = ("G_{xx}", "G_x", "G", "G_{xy}", "G_y", "G_{yy}")
ORDER = (2, 1, 4, 0, 3, 5)
DIGIT, EXAMPLE, SIZE, REACH = 3, 0, 96, 11
# Zero is transparent, so that the same map suits a light and a dark page; small values are lifted to be seen.
STRENGTH = np.abs(np.linspace(-1, 1, 255))[:, None] ** 0.75
SIGNED = ListedColormap(np.hstack([np.repeat([to_rgb("#2f74e0"), to_rgb("#e0314b")], [127, 128], axis=0), STRENGTH]))


def jet(place: int, sigma: float) -> NJet:
    """One function of the basis, alone."""
    made = NJet(1, 1)
    with torch.no_grad():
        made.alpha.zero_()
        made.alpha[place] = 1.0
        made.s.fill_(log2(sigma))
    return made


def show(ax: Axes, picture: np.ndarray) -> None:
    ax.set_axis_off()
    limit = float(abs(picture).max())
    ax.imshow(picture, cmap=SIGNED, vmin=-limit, vmax=limit)


@torch.no_grad()
def smooth_digit() -> Tensor:
    """A digit of 8×8 pixels, enlarged; the grid of its pixels is blurred away so that derivatives show the stroke."""
    test = load("digits")["test"]
    small = pad(test.images[test.labels == DIGIT][EXAMPLE] / 255, (1, 1, 1, 1))
    large = interpolate(small[None], size=(SIZE, SIZE), mode="bilinear")
    return FilterConv2d(jet(2, 2.2))(large)


@torch.no_grad()
def draw(ink: str, faint: str) -> Figure:
    digit = smooth_digit()
    fine = torch.linspace(-REACH, REACH, 67)
    figure = plt.figure(figsize=(10, 3.1))
    halves = figure.subfigures(1, 2, wspace=0.02)
    grid = dict(left=0.11, right=0.99, top=0.84, bottom=0.02, wspace=0.06, hspace=0.06)
    filters, responses = (half.subplots(len(SIGMAS), len(ORDER), gridspec_kw=grid) for half in halves)
    for row, sigma in enumerate(SIGMAS):
        for column, place in enumerate(ORDER):
            show(filters[row, column], jet(place, sigma).sample(fine, fine)[0, 0].numpy())
            show(responses[row, column], FilterConv2d(jet(place, sigma))(digit)[0, 0].numpy())
        filters[row, 0].text(
            -0.12, 0.5, f"$\\sigma = {sigma}$", transform=filters[row, 0].transAxes, ha="right", va="center", color=ink, fontsize=10
        )
    for column, place in enumerate(ORDER):
        for axes, name in ((filters, NAMES[place]), (responses, f"{NAMES[place]} * \\mathrm{{digit}}")):
            axes[0, column].set_title(f"${name}$", color=faint, fontsize=9.5, pad=5)
    return figure


if __name__ == "__main__":
    plt.rcParams.update({"mathtext.fontset": "cm", "image.interpolation": "none"})
    save("scale-space", draw)
