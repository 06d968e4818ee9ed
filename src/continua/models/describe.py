"""What a network consists of, as plain data: its parts in the order an image walks them, with sizes, counts and arithmetic.

Sizes and FLOPs come from one walk that leaves out the convolutions' arithmetic, so even the largest model of the zoo is described in a
moment. FLOPs are 2 × multiply–adds of convolutions and matrix products; of an ODE block, those of **one evaluation** of its
field. Continuous filters are counted as the dense kernel of their present size.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from continua.blocks import Activation, ConvField, CoupledField, ERKStep, IRKStep, ODEBlock, Period, PostActResidualBlock, ResidualBlock
from continua.filters import Evolved, Filter, FilterConv2d, NJet, Pixel, ScheduledNJet
from continua.models.anodev2 import PooledHead
from continua.models.classifier import NoClassifier
from continua.models.dcn import Head
from continua.models.export import pixels
from continua.models.network import Network
from continua.models.reconstruction import Encoder, ImageHead, Squeeze
from continua.models.registry import create_model, model_entry
from continua.models.rknet.network import ImageNetStem, LastHead, MultiscaleHead, Transition
from continua.showing import html_table

Size = tuple[int, ...]
Function = Callable[..., Any]
INITIALISERS = {function for function in vars(nn.init).values() if callable(function)}


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
    """A network as a list of parts. `flops`: one image, one evaluation of each field.

    `multiscale`: the head reads all blocks. `idle`: parameters that no image meets, of the head of a decoder's encoder.
    """

    name: str
    image: Size
    parts: tuple[Part, ...]
    multiscale: bool = False
    idle: int = 0

    @property
    def parameters(self) -> int:
        return self.idle + sum(part.parameters for part in self.parts)

    @property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts)


class _Blank(TorchFunctionMode):
    """Every random number is 0, so a network is built in no time, and N-jets have σ = 2^0 = 1, the median of their initialisation."""

    def __torch_function__(
        self, func: Function, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        if func is torch.randn:
            return torch.zeros(*args, **(kwargs or {}))
        if func in (torch.Tensor.uniform_, torch.Tensor.normal_) or func in INITIALISERS:
            return (kwargs or {}).get("tensor", *args[:1]).detach().zero_()
        return func(*args, **(kwargs or {}))


def describe_model(name: str, **options: Any) -> Description:
    """A registered model as it is before training, with σ = 1 in all N-jets, for an image of its usual size.

    Args:
        name: of the model.
        options: of the model, as for `create_model`.

    Returns:
        Layers, parameters, operations and receptive fields.

    Examples:
        >>> from continua.models import describe_model
        >>> description = describe_model("resnet4")
    """
    entry = model_entry(name)
    with _Blank():
        net = create_model(name, **options)
    return describe(net, (net.in_channels or 3, entry.image_size, entry.image_size))


@torch.no_grad()
def describe(net: Network, image: Size) -> Description:
    """The parts of a network for one image of (channels, height, width)."""
    parts: list[Part] = []

    def walk(name: str, module: nn.Module, real: nn.Module, h: "Tensor | list[Tensor]") -> Tensor:
        block = module if isinstance(module, ODEBlock) else None
        last = h if isinstance(h, Tensor) else h[-1]
        with FlopCount(shapes_only=True) as count:
            out = last if block is not None else module(h)
            if block is not None:
                block.field(last.new_zeros(()), last.new_zeros(1, last.shape[1] + block.augment, *last.shape[2:]))
        size = sum(parameter.numel() for parameter in real.parameters())
        interval = None if block is None else (block.t0, block.t1)
        parts.append(
            Part(
                name,
                _kind(real),
                tuple(layers(real)),
                tuple(last.shape[1:]),
                tuple(out.shape[1:]),
                size,
                count.flops,
                interval,
                _note(real),
            )
        )
        return out

    shadow = _shadow(net).eval()  # batch norm would refuse to train on the one image
    # Nothing in a Runge–Kutta network looks at numbers, so its walk needs none: the ImageNet ones would take seconds.
    device = "meta" if any(isinstance(block, Period) for block in net.blocks) else "cpu"
    shadow, states = shadow.to(device), []
    h = torch.zeros(1, *image, device=device)
    for (name, module), (_, real) in zip(_places(shadow), _places(net), strict=True):
        h = walk(name, module, real, h)
        states += [h] if name.startswith("block") else []
    idle = sum(parameter.numel() for parameter in net.stem.network.head.parameters()) if isinstance(net.stem, Encoder) else 0
    walk("head", shadow.head, net.head, states if net.multiscale else h)
    return Description(net.title, tuple(image), tuple(parts), net.multiscale, idle)


def html_description(net: Network) -> str:
    """A table of the parts of a network, for notebooks; its plain text where it cannot be walked through without images."""
    size = model_entry(net.name).image_size if net.name else 32
    try:
        described = describe(net, (net.in_channels or 3, size, size))
    except Exception:  # a notebook shows something whatever a network of one's own does with maps of zeros
        return f"<pre>{escape(str(net))}</pre>"
    rows = []
    for part in described.parts:
        layers = " → ".join(part.layers[:6]) + (" …" if len(part.layers) > 6 else "")
        rows.append((part.name, part.kind, layers, "×".join(map(str, part.output)), f"{part.parameters:,}", part.note))
    title = f"{net.title}: {described.parameters:,} parameters, images of {'×'.join(map(str, described.image))}"
    return html_table(title, rows, ("part", "kind", "layers", "output", "parameters", ""))


@torch.no_grad()
def block_shapes(net: Network, image: Size) -> list[Size]:
    """The shape of the state after each block, (channels, height, width), for an image of that shape; nothing is computed."""
    shadow, shapes = _shadow(net).eval(), []
    h = torch.zeros(1, *image)
    with FlopCount(shapes_only=True):
        for name, module in _places(shadow):
            h = h if isinstance(module, ODEBlock) else module(h)  # an ODE block keeps the shape of its input
            shapes += [tuple(h.shape[1:])] if name.startswith("block") else []
    return shapes


def _places(net: Network, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Names and modules in the order of the walk, all but the head. A decoder's walk begins with that of its encoder."""
    places = _places(net.stem.network, "encoder ") if isinstance(net.stem, Encoder) else [(f"{prefix}stem", net.stem)]
    for index, block in enumerate(net.blocks):
        if index and not isinstance(net.transitions[index - 1], nn.Identity):
            places.append((f"{prefix}transition {index}", net.transitions[index - 1]))
        places.append((f"{prefix}block {index + 1}", block))
    return places


@singledispatch
def layers(module: nn.Module) -> list[str]:
    """The names of what a module does, in order. A new kind of block registers its own: `@layers.register`."""
    children = list(module.children())
    return [name for child in children for name in layers(child)] if children else [type(module).__name__]


@layers.register
def _(module: NoClassifier) -> list[str]:
    return []


@layers.register
def _(module: Filter) -> list[str]:
    return [str(module)]


@layers.register
def _(module: FilterConv2d) -> list[str]:
    size = kernel_size(module.filter)
    base = module.filter.inner if isinstance(module.filter, Evolved) else module.filter
    kind = {Pixel: "conv", NJet: "N-jet", ScheduledNJet: "N-jet"}.get(type(base), type(base).__name__)
    kind += " θ(t)" if isinstance(module.filter, Evolved) else ""
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
def _(module: nn.GroupNorm | nn.BatchNorm2d) -> list[str]:
    return ["norm"]


@layers.register
def _(module: nn.Conv2d) -> list[str]:
    stride = f", ÷{module.stride[0]}" if module.stride[0] > 1 else ""
    return [f"conv {module.kernel_size[0]}×{module.kernel_size[1]}{stride}"]


@layers.register
def _(module: nn.MaxPool2d | nn.AdaptiveMaxPool2d) -> list[str]:
    return ["max pool"]


@layers.register
def _(module: nn.Linear) -> list[str]:
    return [f"linear {module.in_features}→{module.out_features}"]


@layers.register
def _(module: ConvField | ResidualBlock) -> list[str]:
    first, second, act = (layers(part)[0] for part in (module.conv1, module.conv2, module.act))
    return ["norm", act, first, "norm", act, second, *(["norm"] if isinstance(module, ConvField) else [])]


@layers.register
def _(module: CoupledField | PostActResidualBlock) -> list[str]:
    chain = [name for conv in module.convs for name in (*layers(conv), "norm", *layers(module.act))]
    return [*chain[:-1], "+ shortcut", chain[-1]] if isinstance(module, PostActResidualBlock) else chain


@layers.register
def _(module: ODEBlock) -> list[str]:
    return layers(module.field)


@layers.register
def _(module: Head) -> list[str]:
    dropout = [f"dropout {module.dropout.p:g}"] if module.dropout.p else []
    return ["norm", *layers(module.act), "mean over pixels", *dropout, *layers(module.linear)]


@layers.register
def _(module: Squeeze) -> list[str]:
    return ["×2", *layers(module.conv)]


@layers.register
def _(module: ImageHead) -> list[str]:
    return ["×2", "norm", *layers(module.act), *layers(module.conv)]


@layers.register
def _(module: ERKStep) -> list[str]:
    kernel = ("1×1, " if module.bottleneck else "") + layers(module.growths[0].conv)[0].removeprefix("conv ")
    each = f"{module.m} × ({kernel})" if module.m > 1 else kernel
    return [f"z{_low(i)}: {each} of {_names(range(i))}" for i in range(1, module.stages + 1)] + ["y + Σ z"]


@layers.register
def _(module: IRKStep) -> list[str]:
    last = module.nodes[0].wide or module.nodes[0].conv
    kernel = ("1×1, " if module.bottleneck else "") + layers(last)[0].removeprefix("conv ")
    everyone = range(0 if module.state_in_update else 1, module.stages + 1)
    grown = [f"z{_low(i)}: {kernel} of {_names(range(i))}" for i in range(1, module.stages + 1)]
    renewed = [f"z{_low(i)}: {kernel} of {_names([j for j in everyone if j != i])}" for i in range(1, module.stages + 1)]
    times = [f"update {module.loops} times" if module.loops > 1 else "update"]
    return grown + (times + renewed if module.loops else []) + ["y + Σ z"]


@layers.register
def _(module: Period) -> list[str]:
    return layers(module.first)


@layers.register
def _(module: ImageNetStem) -> list[str]:
    return [*layers(module.conv), *layers(module.norm), "max 3×3, ÷2"]


@layers.register
def _(module: Transition) -> list[str]:
    attention = ["attention"] if module.attention is not None else []
    return [*layers(module.norm), *layers(module.conv), *attention, "mean 2×2, ÷2"]


@layers.register
def _(module: LastHead | MultiscaleHead) -> list[str]:
    every = module.norms[0] if isinstance(module, MultiscaleHead) else module.norm
    return [*layers(every), "mean over pixels", *layers(module.linear)]


def _names(sources: Sequence[int]) -> str:
    """y, z₁, … of the indices 0, 1, …; runs of more than three are shortened."""
    names = ["y" if j == 0 else f"z{_low(j)}" for j in sources]
    stages = [name for name in names if name != "y"]
    if len(stages) > 3 and list(sources)[-1] - list(sources)[-len(stages)] == len(stages) - 1:
        stages = [f"{stages[0]}…{stages[-1]}"]
    return ", ".join([name for name in names if name == "y"] + stages)


def _low(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def kernel_size(filter: Any) -> int:
    """Taps per side at the present σ; of a filter that depends on t, the most at either end of its interval."""
    ends = filter.interval if filter.time_dependent else (None,)
    return max(filter.kernel(filter.state(), t).size[0] for t in ends) if filter.size is None else filter.size


def _shadow(net: Network) -> Network:
    """The same network with memory that is never looked at, every filter a pixel kernel of its size."""
    memo: dict[int, Any] = {id(value): nn.Parameter(torch.zeros(value.shape)) for value in net.parameters()}
    memo |= {id(value): torch.zeros(value.shape, dtype=value.dtype) for value in net.buffers()}
    shadow = copy.deepcopy(net, memo)
    sizes = [kernel_size(module.filter) for module in net.modules() if isinstance(module, FilterConv2d)]
    shadows = [module for module in shadow.modules() if isinstance(module, FilterConv2d)]
    for module, size in zip(shadows, sizes, strict=True):
        module.filter = pixels(torch.zeros(module.filter.out_channels, module.filter.in_channels, size, size))
        module.route = "dense"
    return shadow


def _kind(module: nn.Module) -> str:
    if isinstance(module, ODEBlock):
        return "ode"
    if isinstance(module, ResidualBlock | PostActResidualBlock):
        return "residual"
    if isinstance(module, Period):
        return "period"
    return "head" if isinstance(module, Head | PooledHead | LastHead | MultiscaleHead | ImageHead) else "plain"


def _note(module: nn.Module) -> str:
    if isinstance(module, ODEBlock):
        return "dh/dt = f(t, h)" + (f", {module.augment} channels added" if module.augment else "")
    if isinstance(module, Period):
        shared = ", shared" if module.first.uses > 1 else ""
        return "one time-step" if len(module.taken) == 1 else f"{len(module.taken)} such time-steps{shared}"
    return "h + f(h)" if isinstance(module, ResidualBlock) else ""


# --- counting arithmetic ----------------------------------------------------------------------------------------------

Both = int | tuple[int, int]  # one number for both axes, or one for each
PRODUCTS = (torch.matmul, torch.mm, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.mm, torch.Tensor.bmm)


class FlopCount(TorchFunctionMode):
    """`with FlopCount() as count: net(images)`; then `count.flops`: 2 × multiply–adds of convolutions and matrix products.

    The numbers are those of `torch.utils.flop_counter` (a test compares them), without the seconds that its import of PyTorch's compiler
    takes. With `shapes_only`, convolutions return zeros of the right shape.
    """

    def __init__(self, shapes_only: bool = False) -> None:
        super().__init__()
        self.flops = 0
        self.shapes_only = shapes_only

    def __torch_function__(
        self, func: Function, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is functional.conv2d:
            out = _zeros_like_conv2d(*args, **kwargs) if self.shapes_only else func(*args, **kwargs)
            self.flops += 2 * out.numel() * args[1][0].numel()
            return out
        out = func(*args, **kwargs)
        if func is functional.linear or func in PRODUCTS:
            self.flops += 2 * out.numel() * args[0].shape[-1]
        return out


def _zeros_like_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Both = 1, padding: "Both | str" = 0, dilation: Both = 1, groups: int = 1
) -> Tensor:
    if isinstance(padding, str):
        return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    steps, rims, gaps = ((value, value) if isinstance(value, int) else value for value in (stride, padding, dilation))
    size = [(x.shape[2 + axis] + 2 * rims[axis] - gaps[axis] * (weight.shape[2 + axis] - 1) - 1) // steps[axis] + 1 for axis in (0, 1)]
    return x.new_zeros(len(x), len(weight), *size)
