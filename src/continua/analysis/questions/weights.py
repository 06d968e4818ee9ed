"""Weights over depth: kernels of each layer at several t, their norm and centre of mass along the way (ANODEV2 Fig. 1, 4, 5; Fig. 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continua.analysis.question import Plotted, Question, Subject, register_question
from continua.analysis.questions.scales import conv_name, interval_of
from continua.errors import ConfigError
from continua.filters import RDA, FilterConv2d, Grid
from continua.models import Network
from continua.options import option
from continua.report import Axis, Figure, Maps, Page, Part, Series
from continua.showing import Shown

SYNTHETIC: dict[str, dict[str, float]] = {
    "diffusion": dict(tau=2.0),
    "advection": dict(v_y=5.0, v_x=-6.0),
    "reaction": dict(rho=1.0),
    "all three": dict(tau=2.0, v_y=5.0, v_x=-6.0, rho=1.0),
}
"""Fig. 3: what each part of the operator does to a unit Gaussian, per unit of time, in pixels."""


@dataclass(frozen=True, repr=False)
class LayerPath(Shown):
    """One layer along t: `kernels` (kernel, time, rows, cols) are some of one output channel's; the curves are over the whole layer.

    `norm` is that of all its weights; `centre` (time, 2) the mean place (y, x) of w², in pixels from the middle of the kernel.
    """

    name: str
    channel: int
    times: list[float]
    kernels: np.ndarray
    curve_times: list[float]
    norm: list[float]
    centre: np.ndarray


@dataclass(frozen=True, repr=False)
class Synthetic(Shown):
    """A unit Gaussian under one part of the operator: `images` (time, rows, cols)."""

    name: str
    times: list[float]
    images: np.ndarray


@dataclass(frozen=True, repr=False)
class Weights(Plotted):
    """The answer of `weights`: the layers in the order of depth, and the rows of Fig. 3."""

    layers: list[LayerPath]
    synthetic: list[Synthetic]


def weights(
    model: Network, *, times: int = 6, channel: int = 0, kernels: int = 4, points: int = 41, layers: Sequence[str] | None = None
) -> Weights:
    """Kernels of every layer that changes with t, from the start of its block to the end; `layers` picks some by (part of) their name.

    Args:
        model: a network whose kernels change with t.
        times: moments at which kernels are shown.
        channel: output channel of the kernels shown.
        kernels: how many kernels of it.
        points: moments of the curves.
        layers: names, or parts of names, of layers; None: all that change.

    Returns:
        Kernels and curves of each layer.

    Raises:
        ConfigError: no layer changes with t.

    Examples:
        >>> import continua as ct
        >>> from continua.analysis import weights
        >>> found = weights(ct.create_model("resnet4_anodev2_c1", channels=[4]), times=2, points=3)
    """
    if times < 2 or points < 2:
        raise ConfigError(f"a way has at least its start and its end; got times={times}, points={points}")
    moving = {name: module for name, module in model.named_modules() if isinstance(module, FilterConv2d) and module.filter.time_dependent}
    chosen = {name: module for name, module in moving.items() if layers is None or any(part in name for part in layers)}
    if not chosen:
        name = model.name or "this network"
        known = f"layers that do: {', '.join(moving)}" if moving else "try one with an evolution, such as resnet4_anodev2_c1"
        raise ConfigError(f"{name} has no layer{' of that name' if layers else ''} whose weights change with t; {known}")
    paths = [_layer(model, name, conv, times, channel, kernels, points) for name, conv in chosen.items()]
    return Weights(paths, synthetic(25, times))


@torch.no_grad()
def synthetic(size: int = 33, times: int = 6) -> list[Synthetic]:
    """Fig. 3 of the paper: diffusion, advection, reaction and all three, from a unit Gaussian in the middle.

    Args:
        size: side of the map, in pixels.
        times: moments, from the start to the end.

    Returns:
        The Gaussian under each kind of evolution.

    Examples:
        >>> from continua.analysis import synthetic
        >>> len(synthetic(size=9, times=2))
        4
    """
    y = torch.arange(size, dtype=torch.float64) - size // 2
    gaussian = torch.exp(-0.5 * (y[:, None] ** 2 + y**2)) / (2 * torch.pi)
    rows = []
    grid = np.linspace(0.0, 1.0, times).tolist()
    for name, rates in SYNTHETIC.items():
        evolution = RDA(1, nonlinearity="identity", wave_numbers="radian").double()
        evolution.tau.fill_(rates.get("tau", 0.0))
        evolution.v.copy_(torch.tensor([[rates.get("v_y", 0.0), rates.get("v_x", 0.0)]]))
        evolution.rho.fill_(rates.get("rho", 0.0))
        path = evolution.path(gaussian[None, None], Grid())
        rows.append(Synthetic(name, grid, np.stack([path.at(t)[0, 0].numpy() for t in grid])))
    return rows


@torch.no_grad()
def _layer(model: Network, name: str, conv: FilterConv2d, times: int, channel: int, kernels: int, points: int) -> LayerPath:
    interval = interval_of(model, name, conv.filter)
    if interval is None:
        raise ConfigError(f"a {type(conv.filter).__name__} outside a block does not say from when to when it changes")
    if not 0 <= channel < conv.out_channels:
        raise ConfigError(f"{name} has output channels 0 … {conv.out_channels - 1}; got channel={channel}")
    shown, curve = np.linspace(*interval, times).tolist(), np.linspace(*interval, points).tolist()
    state = conv.filter.state()
    host = conv.filter.read_host(state)

    def at(t: float) -> Tensor:
        return conv.filter.kernel(state, torch.tensor(t), host).weight().cpu().double()

    along = [at(t) for t in curve]
    first = _same_size([at(t)[channel, :kernels] for t in shown]).transpose(1, 0, 2, 3)
    norms = [float(w.norm()) for w in along]
    return LayerPath(name, channel, shown, first, curve, norms, np.array([centre_of_mass(w) for w in along]))


def centre_of_mass(w: Tensor) -> tuple[float, float]:
    """The mean place (y, x) of w² over all kernels, in pixels from their middle."""
    energy = w.square().sum((0, 1))
    rows, cols = (torch.arange(n, dtype=w.dtype) - (n - 1) / 2 for n in energy.shape)
    total = energy.sum().clamp(min=1e-300)
    return float((energy.sum(1) @ rows) / total), float((energy.sum(0) @ cols) / total)


def _same_size(kernels: list[Tensor]) -> np.ndarray:
    """Kernels of different sizes (an N-jet whose σ grows) with zeros around the smaller ones."""
    most = [max(k.shape[axis] for k in kernels) for axis in (-2, -1)]
    padded = []
    for kernel in kernels:
        up, left = ((m - n) // 2 for m, n in zip(most, kernel.shape[-2:], strict=True))
        padded.append(torch.nn.functional.pad(kernel, (left, left, up, up)).numpy())
    return np.stack(padded)


def write_gif(result: Weights, target: Path, seconds: float = 3.0) -> Path:
    """The shown kernels of every layer as a moving picture, each layer on its own grey scale; one row per layer."""
    from PIL import Image

    cell, gap = 64, 6
    across = max(len(layer.kernels) for layer in result.layers)
    frames = []
    for moment in range(len(result.layers[0].times)):
        sheet = np.full((len(result.layers) * (cell + gap) + gap, across * (cell + gap) + gap), 255, np.uint8)
        for row, layer in enumerate(result.layers):
            span = max(float(np.abs(layer.kernels).max()), 1e-12)
            for column, kernel in enumerate(layer.kernels[:, moment]):
                grey = np.clip(127.5 * (1 + kernel / span), 0, 255).astype(np.uint8)
                big = np.asarray(Image.fromarray(grey).resize((cell, cell), Image.Resampling.NEAREST))
                top, left = gap + row * (cell + gap), gap + column * (cell + gap)
                sheet[top : top + cell, left : left + cell] = big
        frames.append(Image.fromarray(sheet))
    target.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=max(20, int(1000 * seconds / len(frames))), loop=0)
    return target


@dataclass(frozen=True)
class Options:
    """Nothing of the data is looked at."""

    times: int = option(6, "moments at which kernels are shown")
    channel: int = option(0, "the output channel whose kernels are shown")
    kernels: int = option(4, "how many of its kernels (input channels)")
    layers: str | None = option(None, "only layers with this in their name")
    gif: bool = option(False, "also write the kernels as an animation, RUN/weights.gif")


def ask(subject: Subject, options: Options) -> Weights:
    chosen = None if options.layers is None else [options.layers]
    shown: dict[str, Any] = dict(channel=options.channel, kernels=options.kernels, layers=chosen)
    if options.gif:
        write_gif(weights(subject.model, times=31, points=2, **shown), subject.folder / "weights.gif")
    return weights(subject.model, times=options.times, **shown)


def present(result: Weights) -> Page:
    parts: list[Part] = [_summary(result)]
    for layer in result.layers:
        rows = [f"from channel {index}" for index in range(len(layer.kernels))]
        name, columns = conv_name(layer.name), [f"t = {t:.2g}" for t in layer.times]
        title = f"{name}: kernels to channel {layer.channel} over t"
        parts.append(Maps(f"kernels_{layer.name.replace('.', '_')}", title, rows, columns, layer.kernels, "weight"))
    norms = [Series(conv_name(layer.name), layer.curve_times, np.array(layer.norm) / layer.norm[0]) for layer in result.layers]
    parts.append(Figure("norm", "Norm of a layer's weights along t", Axis("t"), Axis("norm, relative to t = 0"), norms))
    ways = [
        Series(f"{conv_name(layer.name)}, {axis}", layer.curve_times, layer.centre[:, place], dashed=place == 1, colour=index)
        for index, layer in enumerate(result.layers)
        for place, axis in enumerate("yx")
    ]
    parts.append(Figure("centre", "Centre of mass of w² along t", Axis("t"), Axis("distance from the middle", "pixels"), ways))
    images = np.stack([row.images for row in result.synthetic])
    columns = [f"t = {t:.2g}" for t in result.synthetic[0].times]
    caption = "A unit Gaussian on a periodic square, 25 pixels wide, under each part of the operator and under all of them."
    title = "Reaction, diffusion and advection of a unit Gaussian"
    parts.append(Maps("synthetic", title, [row.name for row in result.synthetic], columns, images, "weight", caption))
    return Page("Weights", parts)


def _summary(result: Weights) -> str:
    changes = [abs(layer.norm[-1] / layer.norm[0] - 1) if layer.norm[0] else float("nan") for layer in result.layers]
    most = int(np.nanargmax(changes))
    layer = result.layers[most]
    moved = float(np.hypot(*(layer.centre[-1] - layer.centre[0])))
    return (
        f"{len(result.layers)} layer(s) whose weights change with t. The norm changes most in {conv_name(layer.name)}: "
        f"{100 * (layer.norm[-1] / layer.norm[0] - 1):+.1f} % by the end, its centre of mass by {moved:.2f} pixels."
    )


register_question(Question("weights", __doc__ or "", Options, ask, present))
