"""The networks that Runge–Kutta networks come from: DenseNet (Huang et al. 2017) and CliqueNet (Yang et al. 2018).

A DenseNet converts to an ERKNet, a CliqueNet to an IRKNet (`convert`). The weights of a DenseNet have the names that are usual in PyTorch.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import Clique, Style
from continua.errors import ConfigError, unknown_name
from continua.models.rknet.network import MultiscaleHead, Transition, initialise


def _check_numbers(spec: "DenseNetSpec | CliqueNetSpec", blocks: str, optional: str) -> None:
    """Refuse counts per block that build no network, the first number that is no count, and an epsilon that is not above 0."""
    title, counts = type(spec).__name__, getattr(spec, blocks)
    if not isinstance(counts, list | tuple) or not counts or not all(_is_count(value) for value in counts):
        raise ConfigError(
            f"{title}: {blocks}={counts!r}; expected whole numbers of at least 1, one for each block, such as (6, 12, 24, 16)"
        )
    for name in ("growth", "stem_channels", "num_classes", "in_channels", optional):
        value = getattr(spec, name)
        if not _is_count(value) and not (name == optional and value is None):
            raise ConfigError(f"{title}: {name}={value!r}; expected a whole number of at least 1")
    if not (isinstance(spec.norm_eps, int | float) and spec.norm_eps > 0):
        raise ConfigError(f"{title}: norm_eps={spec.norm_eps!r}; expected a number above 0")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


# --- DenseNet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DenseNetSpec:
    """A DenseNet by its numbers. `bottleneck`: channels of the 1×1 convolutions as a multiple of `growth`; None for none."""

    layers: tuple[int, ...] = (6, 12, 24, 16)
    growth: int = 32
    stem_channels: int = 64
    compression: float = 0.5
    bottleneck: int | None = 4
    stem: Literal["small", "imagenet"] = "imagenet"
    num_classes: int = 1000
    in_channels: int = 3
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        _check_numbers(self, "layers", optional="bottleneck")
        if not (isinstance(self.compression, int | float) and 0 < self.compression <= 1):
            raise ConfigError(
                f"DenseNetSpec: compression={self.compression!r}; expected a number above 0 and up to 1, the share that is kept"
            )
        if self.stem not in ("small", "imagenet"):
            raise ConfigError(f"DenseNetSpec: stem={self.stem!r}; expected small or imagenet")
        if min(self.inputs) < 1:
            raise ConfigError(f"DenseNetSpec: compression={self.compression} leaves a block no channels; make it larger")

    @property
    def inputs(self) -> list[int]:
        """Channels at the start of each dense block."""
        widths = [self.stem_channels]
        for layers in self.layers[:-1]:
            widths.append(int((widths[-1] + layers * self.growth) * self.compression))
        return widths


DENSENETS = {
    "densenet121": DenseNetSpec(),
    "densenet169": DenseNetSpec((6, 12, 32, 32)),
    "densenet201": DenseNetSpec((6, 12, 48, 32)),
    "densenet161": DenseNetSpec((6, 12, 36, 24), growth=48, stem_channels=96),
}


def densenet_spec(name: str) -> DenseNetSpec:
    """A DenseNet of the literature by name."""
    if name not in DENSENETS:
        raise unknown_name("DenseNet", name, DENSENETS, see=f"known: {', '.join(DENSENETS)}, or give a DenseNetSpec")
    return DENSENETS[name]


class DenseLayer(nn.Module):
    """norm → ReLU → (1×1 → norm → ReLU →) 3×3 over everything before it, concatenated."""

    def __init__(self, inputs: int, spec: DenseNetSpec) -> None:
        super().__init__()
        width = spec.growth * (spec.bottleneck or 0)
        self.norm1 = nn.BatchNorm2d(inputs, spec.norm_eps)
        if width:
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(width, spec.norm_eps)
            self.conv2 = nn.Conv2d(width, spec.growth, 3, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(inputs, spec.growth, 3, padding=1, bias=False)
            self.norm2 = self.conv2 = None

    def forward(self, parts: list[Tensor]) -> Tensor:
        h = self.conv1(functional.relu(self.norm1(torch.cat(parts, 1))))
        return h if self.norm2 is None or self.conv2 is None else self.conv2(functional.relu(self.norm2(h)))


class DenseBlock(nn.Module):
    """Layers that each add `growth` channels."""

    def __init__(self, inputs: int, layers: int, spec: DenseNetSpec) -> None:
        super().__init__()
        for index in range(layers):
            self.add_module(f"denselayer{index + 1}", DenseLayer(inputs + index * spec.growth, spec))

    def forward(self, h: Tensor) -> Tensor:
        parts = [h]
        for layer in self.children():
            parts.append(layer(parts))
        return torch.cat(parts, 1)


class DenseNet(nn.Module):
    """stem → dense block → transition → … → norm → ReLU → mean → linear."""

    def __init__(self, spec: "DenseNetSpec | str" = "densenet121") -> None:
        super().__init__()
        self.spec = spec = densenet_spec(spec) if isinstance(spec, str) else spec
        large = spec.stem == "imagenet"
        size, stride = (7, 2) if large else (3, 1)
        parts: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(spec.in_channels, spec.stem_channels, size, stride, size // 2, bias=False)
        )
        if large:
            parts |= dict(norm0=nn.BatchNorm2d(spec.stem_channels, spec.norm_eps), relu0=nn.ReLU(), pool0=nn.MaxPool2d(3, 2, 1))
        ends = [start + layers * spec.growth for start, layers in zip(spec.inputs, spec.layers, strict=True)]
        following = [*spec.inputs[1:], None]
        for index, (start, layers, end, after) in enumerate(zip(spec.inputs, spec.layers, ends, following, strict=True), 1):
            parts[f"denseblock{index}"] = DenseBlock(start, layers, spec)
            if after is not None:
                down = dict(norm=nn.BatchNorm2d(end, spec.norm_eps), relu=nn.ReLU(), conv=nn.Conv2d(end, after, 1, bias=False))
                parts[f"transition{index}"] = nn.Sequential(OrderedDict(**down, pool=nn.AvgPool2d(2)))
        parts["norm5"] = nn.BatchNorm2d(ends[-1], spec.norm_eps)
        self.features = nn.Sequential(parts)
        self.classifier = nn.Linear(ends[-1], spec.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(functional.relu(self.features(images)).mean((2, 3)))


# --- CliqueNet --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CliqueNetSpec:
    """A CliqueNet by its numbers. The paper's T is the sum of `nodes`.

    Attributes:
        transition: channels after each transition; None: as many as the nodes of the block before have together, as in the paper
        bottleneck: a 1×1 convolution to k channels before each 3×3
    """

    nodes: tuple[int, ...] = (4, 4, 4)
    growth: int = 36
    stem_channels: int = 64
    transition: int | None = None
    bottleneck: bool = False
    attention: bool = False
    num_classes: int = 10
    in_channels: int = 3
    norm_eps: float = 1e-3

    def __post_init__(self) -> None:
        _check_numbers(self, "nodes", optional="transition")
        for name, value in dict(bottleneck=self.bottleneck, attention=self.attention).items():
            if not isinstance(value, bool):
                raise ConfigError(f"CliqueNetSpec: {name}={value!r}; expected true or false")

    @property
    def inputs(self) -> list[int]:
        """Channels at the start of each clique block."""
        return [self.stem_channels, *(self.transition or nodes * self.growth for nodes in self.nodes[:-1])]


class CliqueNet(nn.Module):
    """stem → clique block → transition → …; the head reads y_n and all nodes of every block."""

    def __init__(self, spec: CliqueNetSpec | None = None) -> None:
        super().__init__()
        self.spec = spec = spec or CliqueNetSpec()
        style = Style(norm_eps=spec.norm_eps)
        neck = spec.growth if spec.bottleneck else None
        ends = [nodes * spec.growth for nodes in spec.nodes]
        self.stem = nn.Conv2d(spec.in_channels, spec.stem_channels, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            Clique(start, spec.growth, nodes, bottleneck=neck, style=style) for start, nodes in zip(spec.inputs, spec.nodes, strict=True)
        )
        self.transitions = nn.ModuleList(
            Transition(end, after, style, spec.attention) for end, after in zip(ends[:-1], spec.inputs[1:], strict=True)
        )
        widths = [start + end for start, end in zip(spec.inputs, ends, strict=True)]
        self.head = MultiscaleHead(widths, spec.num_classes, style)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        h, seen = self.stem(images), []
        for index, block in enumerate(self.blocks):
            nodes = torch.cat(cast(Clique, block).increments(h), 1)
            seen.append(torch.cat([h, nodes], 1))
            if index < len(self.transitions):
                h = self.transitions[index](nodes)
        return self.head(seen)
