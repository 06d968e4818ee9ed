"""What a network consists of, as plain data: its parts in the order an image walks them, with sizes, counts and arithmetic.

Sizes and FLOPs come from one walk on PyTorch's meta device, which computes shapes and no numbers, so even the largest model of the zoo is
described in a moment. FLOPs are 2 × multiply–adds of convolutions and matrix products; of an ODE block, those of **one evaluation** of its
field. Continuous filters are counted as the dense kernel of their present size, and as that of σ = 1 where they have no values yet.
"""

import copy
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from continua.blocks import ConvField, ODEBlock, ResidualBlock
from continua.blocks.norm import Activation
from continua.filters import Filter, FilterConv2d, NJet, Pixel, ScheduledNJet
from continua.filters.basis import truncation_radius
from continua.models.dcn import Down, Head
from continua.models.network import Network

Size = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One step of the walk. `layers` are the names of what is inside, in order; `interval` is that of an ODE block."""

    name: str
    kind: str
    layers: tuple[str, ...]
    input: Size
    output: Size
    parameters: int
    flops: int
    interval: tuple[float, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class Description:
    """A network as a list of parts. `flops`: one image, one evaluation of each field."""

    name: str
    image: Size
    parts: tuple[Part, ...]

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts)

    @property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts)


@torch.no_grad()
def describe(net: Network, image: Size) -> Description:
    """The parts of a network for one image of (channels, height, width)."""
    parts: list[Part] = []

    def walk(name: str, module: nn.Module, real: nn.Module, h: Tensor) -> Tensor:
        block = module if isinstance(module, ODEBlock) else None
        with FlopCounterMode(display=False) as counter:
            out = h if block is not None else module(h)
            if block is not None:
                block.field(h.new_empty(()), h.new_empty(1, h.shape[1] + block.augment, *h.shape[2:]))
        size = sum(parameter.numel() for parameter in real.parameters())
        interval = None if block is None else (block.t0, block.t1)
        parts.append(Part(name, _kind(real), tuple(layers(real)), _size(h), _size(out), size, counter.get_total_flops(), interval, _note(real)))
        return out

    shadow = _shadow(net)
    h = walk("stem", shadow.stem, net.stem, torch.empty(1, *image, device="meta"))
    for index, block in enumerate(shadow.blocks):
        if index:
            h = walk(f"transition {index}", shadow.transitions[index - 1], net.transitions[index - 1], h)
        h = walk(f"block {index + 1}", block, net.blocks[index], h)
    walk("head", shadow.head, net.head, h)
    return Description(net.name or type(net).__name__, tuple(image), tuple(parts))


@singledispatch
def layers(module: nn.Module) -> list[str]:
    """The names of what a module does, in order. A new kind of block registers its own: `@layers.register`."""
    children = list(module.children())
    return [name for child in children for name in layers(child)] if children else [type(module).__name__]


@layers.register
def _(module: Filter) -> list[str]:
    return [str(module)]


@layers.register
def _(module: FilterConv2d) -> list[str]:
    size = kernel_size(module.filter)
    kind = {Pixel: "conv", NJet: "N-jet", ScheduledNJet: "N-jet"}.get(type(module.filter), type(module.filter).__name__)
    if isinstance(module.filter, ScheduledNJet):
        moving = {"linear": "σ(t)", "quadratic": "σ(t²)", "diffusion": "σ²(t)=σ₀²+2τt"}[module.filter.scale]
        kind += f" {moving}" + (", α(t)" if "alpha" not in module.filter.state() else "")
    elif isinstance(module.filter, NJet) and module.filter.sharing != "layer":
        kind += " σ_ji" if module.filter.sharing == "pair" else " σ_j"
    stride = f", ÷{module.stride}" if module.stride > 1 else ""
    return [f"{kind} {size}×{size}{stride}" + (" + t" if module.time_channel else "")]


@layers.register
def _(module: Activation) -> list[str]:
    return [{"celu": "CELU", "relu": "ReLU", "gelu": "GELU", "silu": "SiLU"}.get(module.name, module.name)]


@layers.register
def _(module: nn.GroupNorm) -> list[str]:
    return ["norm"]


@layers.register
def _(module: nn.Linear) -> list[str]:
    return [f"linear {module.in_features}→{module.out_features}"]


@layers.register
def _(module: ConvField) -> list[str]:
    first, second, act = (layers(part)[0] for part in (module.conv1, module.conv2, module.act))
    return ["norm", act, first, "norm", act, second, "norm"]


@layers.register
def _(module: ResidualBlock) -> list[str]:
    first, second, act = (layers(part)[0] for part in (module.conv1, module.conv2, module.act))
    return ["norm", act, first, "norm", act, second]


@layers.register
def _(module: ODEBlock) -> list[str]:
    return layers(module.field)


@layers.register
def _(module: Down) -> list[str]:
    return [name for part in (module.norm, module.act, module.conv) for name in layers(part)]


@layers.register
def _(module: Head) -> list[str]:
    return ["norm", *layers(module.act), "mean over pixels", *layers(module.linear)]


def kernel_size(filter: Any) -> int:
    """Taps per side: of the present σ (the largest, of many), or of σ = 1 for a filter without values."""
    if filter.size is not None:
        return filter.size
    tensors = filter.state()
    if any(value.is_meta for value in tensors.values()):
        return 2 * truncation_radius(1.0, filter.radius_factor) + 1
    ends = filter.interval if filter.time_dependent else (None,)
    return max(filter.kernel(tensors, t).size[0] for t in ends)


def _shadow(net: Network) -> Network:
    """The same network without numbers, every filter a pixel kernel of its size."""
    memo: dict[int, Any] = {id(value): nn.Parameter(value.detach().to("meta")) for value in net.parameters()}
    memo |= {id(value): value.to("meta") for value in net.buffers()}
    shadow = copy.deepcopy(net, memo)
    sizes = [kernel_size(module.filter) for module in net.modules() if isinstance(module, FilterConv2d)]
    shadows = [module for module in shadow.modules() if isinstance(module, FilterConv2d)]
    with torch.device("meta"):
        for module, size in zip(shadows, sizes, strict=True):
            module.filter = Pixel(module.filter.in_channels, module.filter.out_channels, size)
            module.route, module.discretisation = "dense", "sampled"
    return shadow


def _kind(module: nn.Module) -> str:
    if isinstance(module, ODEBlock):
        return "ode"
    if isinstance(module, ResidualBlock):
        return "residual"
    return "head" if isinstance(module, Head) else "plain"


def _note(module: nn.Module) -> str:
    if isinstance(module, ODEBlock):
        return "dh/dt = f(t, h)" + (f", {module.augment} channels added" if module.augment else "")
    return "h + f(h)" if isinstance(module, ResidualBlock) else ""


def _size(h: Tensor) -> Size:
    return tuple(h.shape[1:])
