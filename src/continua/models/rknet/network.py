"""Runge–Kutta convolutional networks: periods of time-steps whose Runge–Kutta coefficients are learned (RKNet, ICLR 2019 submission).

    images → stem → period 1 → transition → period 2 → … → head

A period advances one dynamical system by r time-steps of an s-stage method: explicit (ERKNet, a dense block and a sum) or implicit
(IRKNet, a clique block and a sum).
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import Activation, ERKStep, IRKStep, Period, Style, SummedStep, group_norm
from continua.filters import Filter, NJet, Pixel
from continua.models.classifier import make_classifier
from continua.models.config import Options
from continua.models.network import Network
from continua.models.registry import register_model, register_spelling
from continua.models.rknet.config import ERKConfig, IRKConfig, MixedConfig, PeriodShape, RKConfig, Spelling, spelled


class RKNet(Network):
    """An ERKNet, an IRKNet, or a network with periods of both kinds, as its configuration says."""

    def __init__(self, config: RKConfig) -> None:
        super().__init__()
        self.options, self.shapes = config, config.shapes()
        self.kinds = config.period_kinds(len(self.shapes))
        self.implicit = set(self.kinds) == {"I"}
        self.attention, self.bottleneck = config.attention, config.bottleneck
        self.filters, self.filter_options = config.filters, dict(config.filter_options or {})
        self.style = style = config.style()
        widths = [shape.channels for shape in self.shapes]
        self.stem = nn.Conv2d(config.in_channels, widths[0], 3, padding=1, bias=False)
        if config.stem == "imagenet":
            self.stem = ImageNetStem(config.in_channels, widths[0], style)
        self.blocks = nn.ModuleList(self._period(shape, config, kind) for shape, kind in zip(self.shapes, self.kinds, strict=True))
        self.transitions = nn.ModuleList(Transition(a, b, style, config.attention) for a, b in pairwise(widths))
        self.multiscale = config.multiscale
        head = MultiscaleHead(widths, config.num_classes, style) if config.multiscale else LastHead(widths[-1], config.num_classes, style)
        self.head = head
        initialise(self)

    @property
    def spelling(self) -> str:
        """The paper's name of this network, such as ERKNet-3×2_4×1_2×5_1×1."""
        terms = tuple((shape.stages, shape.steps) for shape in self.shapes)
        return str(Spelling(self.kinds, terms, self.attention, self.bottleneck))

    def make_filter(self, inputs: int, outputs: int) -> Filter:
        """A filter of this network's kind."""
        return (Pixel if self.filters == "pixel" else NJet)(inputs, outputs, **self.filter_options)

    def start_classifier(self, layer: nn.Module) -> None:
        initialise(layer)

    def _period(self, shape: PeriodShape, config: RKConfig, kind: str) -> Period:
        multiple = config.bottleneck_width or (1 if kind == "I" else 4)
        common: Options = dict(
            bottleneck=multiple * shape.growth if config.bottleneck else None,
            uses=shape.steps if config.share_steps else 1,
            make_filter=self.make_filter,
            style=self.style,
        )
        count = 1 if config.share_steps else shape.steps
        if isinstance(config, IRKConfig) and kind == "I":
            clique: Options = dict(loops=config.loops, order=config.order, state_in_update=config.state_in_update)
            return Period([IRKStep(shape.growth, shape.stages, **clique, **common) for _ in range(count)])
        step = SummedStep if isinstance(config, ERKConfig) and config.form == "summed" else ERKStep
        return Period([step(shape.growth, shape.stages, shape.m, **common) for _ in range(count)])

    def extra_repr(self) -> str:
        return self.spelling


def initialise(net: nn.Module) -> None:
    """Convolutions normal by their inputs (He et al. 2015), linear layers Xavier uniform with bias 0. N-jets keep their own."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | Pixel):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)


# --- stem, transition, head (RKNet §3.2, §4.2; CliqueNet's attention) ---------------------------------------------------


class NormAct(nn.Module):
    """norm → act."""

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.norm = nn.Identity() if style.norm == "identity" else group_norm(channels, style.norm_groups)
        if style.norm == "batch":
            self.norm = nn.BatchNorm2d(channels, style.norm_eps, style.norm_momentum)
        self.act = Activation(style.activation)
        self.own = style.norm != "identity"  # an identity hands on memory that is not ours to overwrite

    def forward(self, h: Tensor) -> Tensor:
        return self.act(self.norm(h), overwrite=self.own)


class ImageNetStem(nn.Module):
    """7×7 convolution ÷2 → norm → act → 3×3 max-pool ÷2."""

    def __init__(self, inputs: int, outputs: int, style: Style) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 7, stride=2, padding=3, bias=False)
        self.norm = NormAct(outputs, style)

    def forward(self, images: Tensor) -> Tensor:
        return functional.max_pool2d(self.norm(self.conv(images)), 3, stride=2, padding=1)


class Attention(nn.Module):
    """Each channel multiplied by a number in (0, 1) found from the means of all: mean → C/2 → ReLU → C → sigmoid (CliqueNet)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, max(1, channels // 2))
        self.excite = nn.Linear(max(1, channels // 2), channels)

    def forward(self, h: Tensor) -> Tensor:
        gate = torch.sigmoid(self.excite(functional.relu(self.squeeze(h.mean((2, 3))))))
        return h * gate[:, :, None, None].to(h.dtype)


class Transition(nn.Module):
    """norm → act → 1×1 convolution → dropout → attention where asked → average of 2×2. Odd sizes keep their last row and column."""

    def __init__(self, inputs: int, outputs: int, style: Style, attention: bool = False) -> None:
        super().__init__()
        self.norm = NormAct(inputs, style)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.attention = Attention(outputs) if attention else None
        self.dropout = style.dropout

    def forward(self, h: Tensor) -> Tensor:
        h = functional.dropout(self.conv(self.norm(h)), self.dropout, self.training)
        if self.attention is not None:
            h = self.attention(h)
        return functional.avg_pool2d(h, 2, ceil_mode=True)


class LastHead(nn.Module):
    """norm → act → mean over pixels → linear, of the last period."""

    def __init__(self, channels: int, num_classes: int, style: Style) -> None:
        super().__init__()
        self.norm = NormAct(channels, style)
        self.linear = make_classifier(channels, num_classes)

    def pre_logits(self, h: Tensor) -> Tensor:
        """What the linear layer reads."""
        return self.norm(h).mean((2, 3))

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.pre_logits(h))


class MultiscaleHead(nn.Module):
    """norm → act → mean over pixels of every period, side by side → linear."""

    def __init__(self, channels: Sequence[int], num_classes: int, style: Style) -> None:
        super().__init__()
        self.norms = nn.ModuleList(NormAct(width, style) for width in channels)
        self.linear = make_classifier(sum(channels), num_classes)

    def pre_logits(self, states: Sequence[Tensor]) -> Tensor:
        """What the linear layer reads."""
        return torch.cat([norm(h).mean((2, 3)) for norm, h in zip(self.norms, states, strict=True)], 1)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        return self.linear(self.pre_logits(states))


# --- every row of the tables 1–3 of the paper under its own name, and `erknet` and `irknet` for all others ------------

TINY = dict(growth=8)
IMAGENET: Options = dict(stem="imagenet", multiscale=False, bottleneck=True, growth=32, num_classes=1000)
AB: Options = dict(attention=True, bottleneck=True)
rknet_model = partial(register_model, paper="RKNet", tiny=TINY)
imagenet_model = partial(register_model, paper="RKNet", tiny=dict(growth=4, m=(2, 2, 2, 2), num_classes=10), image_size=224)

register_spelling(spelled)


@rknet_model(config=ERKConfig, row="ERKNet-7×1_7×1_7×1", parameters=990_838, printed="0.99M", tiny=TINY | {"stages": "2x2_1x1"})
def erknet(config: ERKConfig) -> RKNet:
    """Any explicit network."""
    return RKNet(config)


@rknet_model(config=IRKConfig, row="IRKNet-4×1_4×1_4×1", parameters=569_638, printed="0.57M", tiny=TINY | {"stages": "2x2_2x1"})
def irknet(config: IRKConfig) -> RKNet:
    """Any implicit network."""
    return RKNet(config)


@rknet_model(config=MixedConfig, row="RKNet-E7×1_I4×1_I4×1", parameters=710_038, tiny=TINY | {"stages": "2x1_2x1", "kinds": "EI"})
def rknet(config: MixedConfig) -> RKNet:
    """Explicit and implicit periods in one network."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="6x1_6x1_6x1"), row="table 1, ERKNet-6×1_6×1_6×1", parameters=744_382, printed="0.74M")
def erknet_k36_6x1_6x1_6x1(config: ERKConfig) -> RKNet:
    """18 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_6x1_6x1"), row="table 1, ERKNet-7×1_6×1_6×1", parameters=826_534, printed="0.83M")
def erknet_k36_7x1_6x1_6x1(config: ERKConfig) -> RKNet:
    """19 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_7x1_6x1"), row="table 1, ERKNet-7×1_7×1_6×1", parameters=908_686, printed="0.91M")
def erknet_k36_7x1_7x1_6x1(config: ERKConfig) -> RKNet:
    """20 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_7x1_7x1"), row="table 1, ERKNet-7×1_7×1_7×1", parameters=990_838, printed="0.99M")
def erknet_k36_7x1_7x1_7x1(config: ERKConfig) -> RKNet:
    """21 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="3x1_3x1_3x1"), row="table 1, IRKNet-3×1_3×1_3×1", parameters=322_534, printed="0.32M")
def irknet_k36_3x1_3x1_3x1(config: IRKConfig) -> RKNet:
    """9 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_3x1_3x1"), row="table 1, IRKNet-4×1_3×1_3×1", parameters=404_902, printed="0.40M")
def irknet_k36_4x1_3x1_3x1(config: IRKConfig) -> RKNet:
    """10 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_4x1_3x1"), row="table 1, IRKNet-4×1_4×1_3×1", parameters=487_270, printed="0.49M")
def irknet_k36_4x1_4x1_3x1(config: IRKConfig) -> RKNet:
    """11 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_4x1_4x1"), row="table 1, IRKNet-4×1_4×1_4×1", parameters=569_638, printed="0.57M")
def irknet_k36_4x1_4x1_4x1(config: IRKConfig) -> RKNet:
    """12 stages, k = 36."""
    return RKNet(config)


@rknet_model(
    config=IRKConfig(stages="5x1_5x1_5x1", growth=150, **AB),
    row="table 2, IRKNet-5×1_5×1_5×1-AB, k = 150",
    parameters=4_866_010,
    printed="4.87M",
)
def irknet_k150_5x1_5x1_5x1_ab(config: IRKConfig) -> RKNet:
    """Attentional transitions and bottlenecks, k = 150."""
    return RKNet(config)


@rknet_model(
    config=IRKConfig(stages="5x1_5x1_5x1", growth=180, **AB),
    row="table 2, IRKNet-5×1_5×1_5×1-AB, k = 180",
    parameters=6_994_810,
    printed="6.99M",
)
def irknet_k180_5x1_5x1_5x1_ab(config: IRKConfig) -> RKNet:
    """Attentional transitions and bottlenecks, k = 180."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_3x1_1x1", m=(2, 4, 8, 16), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_3×1_1×1-B, m₃ = 16",
    parameters=6_947_048,
    printed="6.95M",
)
def erknet_imagenet_3x1_3x1_3x1_1x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 16."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_4x1_2x1", m=(2, 4, 8, 20), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_4×1_2×1-B, m₃ = 20",
    parameters=14_485_992,
    printed="14.49M",
)
def erknet_imagenet_3x1_3x1_4x1_2x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 20."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_6x1_2x1", m=(2, 4, 8, 28), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_6×1_2×1-B, m₃ = 28",
    parameters=25_513_960,
    printed="25.51M",
)
def erknet_imagenet_3x1_3x1_6x1_2x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 28."""
    return RKNet(config)
