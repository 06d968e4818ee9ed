"""Draw the picture of docs/neuro-fields.md: what the registered neural field does, beside what theory says of it.

`make pictures` runs this.
"""

import matplotlib
from _drawing import dress, save

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from continua import Network, create_model
from continua.blocks import Dispersion, NeuralField, dominant_wave

SIZE = 64
BLUE, RED = "#2f74e0", "#e0314b"


def sheet(**options: object) -> tuple[Network, NeuralField]:
    """A field whose images are its state."""
    net = create_model("neural_field", stem="none", in_channels=1, **options)
    field = net.blocks[0].get_submodule("field")
    assert isinstance(field, NeuralField)
    return net, field


@torch.no_grad()
def pattern() -> tuple[Tensor, Dispersion]:
    """Noise after 400 ms, and which waves grow."""
    net, field = sheet()
    torch.manual_seed(0)
    start = field.resting_state()[:, None, None] + 1e-3 * torch.randn(1, 1, SIZE, SIZE)
    return net.forward_features(start)[0, 0], field.dispersion(SIZE, SIZE)


@torch.no_grad()
def bump() -> dict[str, Tensor]:
    """What a bright and a faint spot leave after 400 ms, on a line."""
    net, _ = sheet(amplitudes=(4.0, -4.0), sigmas=(4.0, 8.0), slope=(200.0,), threshold=(0.3,))
    x = torch.arange(120) - 60.0
    spot = torch.exp(-0.5 * (x / 4) ** 2)[None, None, None]
    return {"a bright spot": net.forward_features(spot)[0, 0, 0], "a faint one": net.forward_features(0.2 * spot)[0, 0, 0]}


@torch.no_grad()
def front() -> Tensor:
    """Firing rates on a line over 120 ms, (time, place)."""
    net, field = sheet(amplitudes=(2.0,), sigmas=(8.0,), slope=(40.0,), threshold=(0.5,), t1=120.0, solver=dict(rtol=1e-5, atol=1e-5))
    x = torch.arange(300) - 150.0
    start = (2.0 * (x.abs() < 30))[None, None, None]
    return field.rates(net.states(start, 0, torch.linspace(0, 120, 61))[:, 0])[:, 0, 0]


def title(ax: Axes, text: str, ink: str, x: str, y: str) -> None:
    ax.set_title(text, color=ink, fontsize=10)
    ax.set_xlabel(x, color=ink, fontsize=9)
    ax.set_ylabel(y, color=ink, fontsize=9)


def draw(ink: str, faint: str) -> Figure:
    (u, relation), left, waves = pattern(), bump(), front()
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
    for ax in axes:
        dress(ax, ink, faint, size=8)
    axes[0].imshow(u, cmap="RdBu_r")
    axes[0].grid(visible=False)
    title(axes[0], "a pattern from noise", ink, "pixels", "pixels")
    along = slice(0, SIZE // 2 + 1)  # waves along the rows and along the diagonals; the others lie between
    for growth, number in (
        (relation.growth[0, along], relation.wave_number[0, along]),
        (relation.growth.diagonal()[along], relation.wave_number.diagonal()[along]),
    ):
        axes[1].plot(number, 1000 * growth, ".", ms=4, color=BLUE)
    axes[1].axvline(dominant_wave(u), color=RED, lw=1.2)
    title(axes[1], "growth (dots), wave seen (line)", ink, "wave number (cycles/pixel)", "growth (1/s)")
    for (name, values), colour in zip(left.items(), (RED, BLUE), strict=True):
        axes[2].plot(torch.arange(len(values)) - 60, values, color=colour, lw=1.4, label=name)
    axes[2].axhline(0.3, color=faint, lw=0.8, ls=":")
    axes[2].legend(frameon=False, fontsize=8, labelcolor=ink, loc="lower left")
    axes[2].set_ylim(-1.8, 1.9)
    title(axes[2], "a bump that stays", ink, "pixels", "potential after 400 ms")
    axes[3].imshow(waves, cmap="Greys", aspect="auto", extent=(-150, 150, 120, 0))
    axes[3].grid(visible=False)
    title(axes[3], "fronts that travel", ink, "pixels", "time (ms)")
    return figure


if __name__ == "__main__":
    save("neural-fields", draw)
