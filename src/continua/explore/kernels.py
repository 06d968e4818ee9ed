"""What a layer's filters are: kernels, the coefficients and the scale of N-jets, one of them turned and widened by hand; and kernels that
move along depth, in coupled networks, in N-jets with σ(t), and under each part of the evolution by itself."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from continua.analysis import LayerPath, conv_name, interval_of, synthetic, weights
from continua.errors import ConfigError
from continua.filters import FilterConv2d, NJet, ScheduledNJet, jet_orders
from continua.models import Network
from continua.report import Axis, Figure, Maps, Series

GRID = 41  # points a side at which the continuous filter is drawn
REACH = 3.0  # in σ, how far it is drawn
MOMENTS = 21  # of a kernel that moves


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution of the network; `kind` is "njet", "moving" (it changes with t) or "pixel"."""

    name: str
    conv: FilterConv2d | nn.Conv2d
    kind: str
    interval: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        return conv_name(self.name)

    @property
    def outputs(self) -> int:
        return self.conv.out_channels

    @property
    def inputs(self) -> int:
        return self.conv.in_channels


@dataclass(frozen=True, eq=False)
class JetView:
    """One N-jet kernel: as it was learned, and as it was turned and widened."""

    learned: NJet
    changed: NJet


def filter_layers(model: Network) -> list[Layer]:
    """Every convolution, from input to output."""
    convolutions = []
    for name, module in model.named_modules():
        if isinstance(module, FilterConv2d):
            filter = module.filter
            kind = "moving" if filter.time_dependent else "njet" if isinstance(filter, NJet) else "pixel"
            times = interval_of(model, name, filter) or (0.0, 1.0)
            convolutions.append(Layer(name, module, kind, times if filter.time_dependent else None))
        elif isinstance(module, nn.Conv2d):
            convolutions.append(Layer(name, module, "pixel"))
    return convolutions


@torch.no_grad()
def layer_kernels(layer: Layer, t: float | None = None) -> Float[Tensor, "out in rows cols"]:
    """All kernels of a layer, at t where they change with it; without the kernel that reads the time itself."""
    if isinstance(layer.conv, nn.Conv2d):
        return layer.conv.weight.detach()
    filter = layer.conv.filter
    weight = filter.kernel(filter.state(), torch.tensor(_at(layer, t))).weight()
    return weight[:, int(layer.conv.time_channel) :].detach()


@torch.no_grad()
def jet(layer: Layer, output: int, source: int, t: float | None = None) -> NJet | None:
    """One kernel of an N-jet layer as a filter of its own; None where the layer is no N-jet."""
    if isinstance(layer.conv, nn.Conv2d) or not isinstance(layer.conv.filter, NJet | ScheduledNJet):
        return None
    if not (0 <= output < layer.outputs and 0 <= source < layer.inputs):
        raise ConfigError(f"{layer.label} has {layer.inputs} input and {layer.outputs} output channels; got {source} → {output}")
    filter = layer.conv.filter
    realised = filter.kernel(filter.state(), torch.tensor(_at(layer, t)))
    place = source + int(layer.conv.time_channel)
    sigma = realised.sigma.expand(realised.alpha.shape[1:])[place, output]
    single = NJet(1, 1, order=filter.order, radius_factor=filter.radius_factor).requires_grad_(False)
    return single.with_values(realised.alpha[:, place, output].reshape(-1, 1, 1), sigma.reshape(1))


def _at(layer: Layer, t: float | None) -> float:
    return t if t is not None else layer.interval[0] if layer.interval else 0.0


@torch.no_grad()
def turned(learned: NJet, sigma: float, degrees: float) -> JetView:
    """The kernel at another scale and turned, exactly: an N-jet is a function, so no pixel is interpolated (DCN eq. 7)."""
    return JetView(learned, learned.rescale(sigma / float(learned.sigma)).rotate(math.radians(degrees)))


@torch.no_grad()
def response(filter: NJet, image: Float[Tensor, "1 channels height width"]) -> np.ndarray:
    """The grey image under one kernel, (height, width): what a layer with this kernel alone would answer."""
    weight = filter.kernel(filter.state()).weight()
    grey = image.float().mean(1, keepdim=True)
    edge = functional.pad(grey, [weight.shape[-1] // 2] * 2 + [weight.shape[-2] // 2] * 2)
    return functional.conv2d(edge, weight)[0, 0].numpy()


# --- what is shown ----------------------------------------------------------------------------------------------------


def kernel_maps(layer: Layer, output: int, source: int, t: float | None = None, rows: int = 4, columns: int = 8) -> Maps:
    """A window of the layer's kernels that begins at one pair of channels."""
    weight = layer_kernels(layer, t)
    first, start = min(output, max(0, layer.outputs - rows)), min(source, max(0, layer.inputs - columns))
    shown = weight[first : first + rows, start : start + columns].double().numpy()
    names = [f"to {first + k}" for k in range(shown.shape[0])], [f"from {start + k}" for k in range(shown.shape[1])]
    if layer.inputs == 1:  # a layer that reads grey images: all its kernels in one row
        first = min(output, max(0, layer.outputs - columns))
        shown = weight[first : first + columns, :1].double().numpy().swapaxes(0, 1)
        names = ["from 0"], [f"to {first + k}" for k in range(shown.shape[1])]
    size = f"{shown.shape[-2]}×{shown.shape[-1]}"
    return Maps("kernels", f"{layer.label}: kernels of {size} pixels", *names, shown, "weight", one_scale=True)


@torch.no_grad()
def filter_maps(view: JetView) -> Maps:
    """The continuous filters, drawn finer than any pixel."""
    reach = REACH * max(float(view.learned.sigma), float(view.changed.sigma))
    at = torch.linspace(-reach, reach, GRID)
    values = np.stack([filter.sample(at, at)[0, 0].double().numpy() for filter in (view.learned, view.changed)])
    columns = [f"learned, σ = {float(view.learned.sigma):.2f}", f"yours, σ = {float(view.changed.sigma):.2f}"]
    return Maps("filter", f"The filter F(x, y) over ±{reach:.1f} pixels", ["F"], columns, values[None], "F")


def response_maps(view: JetView, image: Float[Tensor, "1 channels height width"]) -> Maps:
    """The image and what both filters answer to it, answers on one scale."""
    answers = np.stack([response(view.learned, image), response(view.changed, image)])
    return Maps("response", "Its response on the image", ["response"], ["learned", "yours"], answers[None], "response")


def coefficients(view: JetView) -> Figure:
    """α of each Gaussian derivative, learned and turned."""
    orders = jet_orders(view.learned.order)
    shown = sorted(range(len(orders)), key=lambda k: (sum(orders[k]), orders[k]))  # G, then its slopes, then its curvatures
    names = ["G" + ("_" + "x" * j + "y" * i if i + j else "") for i, j in (orders[k] for k in shown)]
    series = [
        Series(name, names, filter.alpha.detach().flatten().double().numpy()[shown], style="bars")
        for name, filter in (("learned", view.learned), ("yours", view.changed))
    ]
    return Figure("coefficients", "Coefficients α of the N-jet", Axis("Gaussian derivative"), Axis("α"), series)


# --- kernels that move ------------------------------------------------------------------------------------------------


def moving_layers(model: Network) -> list[str]:
    """Names of the layers whose kernels change with t."""
    return [layer.name for layer in filter_layers(model) if layer.kind == "moving"]


def layer_path(model: Network, name: str, channel: int, count: int) -> LayerPath:
    """One layer along t: kernels from the first `count` input channels to one output channel, and the curves of the whole layer."""
    paths = weights(model, times=MOMENTS, channel=channel, kernels=count, points=MOMENTS, layers=[name])
    return next(layer for layer in paths.layers if layer.name == name)


def moving_kernel_maps(layer: LayerPath) -> Maps:
    """Kernels at each moment."""
    rows = [f"from {place}" for place in range(len(layer.kernels))]
    title = f"{conv_name(layer.name)}: kernels to channel {layer.channel}"
    return Maps("kernels", title, rows, [f"t = {t:.2f}" for t in layer.times], layer.kernels, "weight")


def weight_curves(layer: LayerPath) -> tuple[Figure, Figure]:
    """Norm and centre of mass of all the layer's weights."""
    norm = np.asarray(layer.norm) / max(layer.norm[0], 1e-12)
    curve, (down, right) = Series("norm", layer.curve_times, norm), layer.centre.T
    ways = [Series("down (y)", layer.curve_times, down), Series("right (x)", layer.curve_times, right, dashed=True)]
    return (
        Figure("norm", "Norm of the layer's weights", Axis("t"), Axis("norm, relative to t = 0"), [curve]),
        Figure("centre", "Centre of mass of w²", Axis("t"), Axis("distance from the middle", "pixels"), ways),
    )


def synthetic_maps() -> Maps:
    """A unit Gaussian under diffusion, advection, reaction and all three (ANODEV2 Fig. 3)."""
    rows = synthetic(25, MOMENTS)
    columns = [f"t = {t:.2f}" for t in rows[0].times]
    values = np.stack([row.images for row in rows])
    return Maps("evolution", "A unit Gaussian under each part of the operator", [row.name for row in rows], columns, values, "weight")
