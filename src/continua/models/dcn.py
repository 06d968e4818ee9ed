"""The Deep Continuous Network family: three blocks at falling resolution, filters of pixels or N-jets, residual or continuous in depth.

    images → stem → block 1 → down → block 2 → down → block 3 → head

One class builds all ten models of the paper; they differ in what a filter is, in whether a block is an ODE, and in where N-jets are used.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from continua.blocks import Activation, ConvField, ODEBlock, ResidualBlock, group_norm
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, NJet, Pixel, ScheduledNJet
from continua.models.network import Network
from continua.models.registry import register_model
from continua.ode import SolverConfig

SCHEDULES: dict[str, dict[str, str]] = {
    "sigma_t": dict(scale="linear"),
    "sigma_t2": dict(scale="quadratic"),
    "sigma_alpha_t": dict(scale="linear", alpha="linear"),
}
FILTERS = ("pixel", "njet", "njet_pair", *SCHEDULES)


class DCN(Network):
    """Deep Continuous Network and its baselines. The registered models fix `filters`, `continuous`, `everywhere`."""

    def __init__(
        self,
        *,
        filters: str = "njet",
        continuous: bool = True,
        everywhere: bool = False,
        num_classes: int = 10,
        in_channels: int = 3,
        channels: Sequence[int] = (32, 64, 128),
        order: int = 2,
        activation: str = "celu",
        norm_groups: "int | str" = 32,
        t1: float = 2.0,
        solver: "SolverConfig | Mapping[str, Any] | None" = None,
        stem_padding: int = 0,
        augment_channels: int = 0,
        conv_options: Mapping[str, Any] | None = None,
        filter_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if filters not in FILTERS:
            raise ConfigError(f"unknown filters {filters!r}; known: {', '.join(FILTERS)}")
        if augment_channels and not continuous:
            raise ConfigError("augment_channels widens the state of an ODE; a residual network has none, so it must be 0")
        if isinstance(channels, str) or not channels or not all(isinstance(width, int) and width > 0 for width in channels):
            raise ConfigError(
                f"channels={channels!r}; expected the widths of the blocks, whole numbers of at least 1, such as (32, 64, 128)"
            )
        self.filters, self.continuous, self.order = filters, continuous, order
        self.activation, self.norm_groups = activation, norm_groups
        self.end, self.solver, self.augment = t1, SolverConfig.of(solver), augment_channels
        self.conv_options, self.filter_options = dict(conv_options or {}), dict(filter_options or {})
        self.in_channels, self.channels = in_channels, tuple(channels)
        channels = self.channels
        self.stem = self._stem(in_channels, channels[0], stem_padding, everywhere)
        self.blocks = nn.ModuleList(self.make_block(width) for width in channels)
        self.transitions = nn.ModuleList(Down(self, narrow, wide, everywhere) for narrow, wide in pairwise(channels))
        self.head = Head(channels[-1], num_classes, activation, norm_groups)
        self._label_filters()

    def make_block(self, channels: int) -> nn.Module:
        """A block of this network's kind, for maps of that many channels."""
        if not self.continuous:
            return ResidualBlock(
                channels, self.make_filter, activation=self.activation, norm_groups=self.norm_groups, conv_options=self.conv_options
            )
        field = ConvField(
            channels + self.augment,
            self.make_filter,
            activation=self.activation,
            norm_groups=self.norm_groups,
            bias=self.filters == "pixel",
            conv_options=self.conv_options,
        )
        return ODEBlock(field, self.end, solver=self.solver, augment=self.augment)

    def make_filter(self, inputs: int, outputs: int) -> Filter:
        """A filter of this network's kind."""
        if self.filters == "pixel":
            return Pixel(inputs, outputs, **self.filter_options)
        if self.filters in SCHEDULES:
            options = {"order": self.order, "interval": (0.0, self.end), **SCHEDULES[self.filters], **self.filter_options}
            return ScheduledNJet(inputs, outputs, **options)
        sharing = "pair" if self.filters == "njet_pair" else "layer"
        return NJet(inputs, outputs, **{"order": self.order, "sharing": sharing, **self.filter_options})

    def _stem(self, inputs: int, outputs: int, padding: int, everywhere: bool) -> FilterConv2d:
        if everywhere:
            return FilterConv2d(NJet(inputs, outputs, order=self.order, **self.filter_options), **self.conv_options)
        return FilterConv2d(Pixel(inputs, outputs, size=3), padding=padding, bias=True)

    def _label_filters(self) -> None:
        """Warnings call a filter by its place in the network."""
        for name, module in self.named_modules():
            if isinstance(module, Filter):
                module.label = name.removesuffix(".filter")


class Down(nn.Module):
    """norm → act → strided convolution: half the size, more channels."""

    def __init__(self, net: DCN, narrow: int, wide: int, everywhere: bool) -> None:
        super().__init__()
        self.norm = group_norm(narrow, net.norm_groups)
        self.act = Activation(net.activation)
        if everywhere:
            self.conv = FilterConv2d(NJet(narrow, wide, order=net.order, **net.filter_options), stride=2, **net.conv_options)
        else:
            self.conv = FilterConv2d(Pixel(narrow, wide, size=4), stride=2, padding=1, bias=True)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(self.act(self.norm(h), overwrite=True))


class Head(nn.Module):
    """norm → act → global average pool → dropout → linear."""

    def __init__(self, channels: int, num_classes: int, activation: str, norm_groups: "int | str", dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = group_norm(channels, norm_groups)
        self.act = Activation(activation)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(channels, num_classes)

    def pool(self, h: Tensor) -> Tensor:
        """What the linear layer reads, (batch, channels)."""
        return self.act(self.norm(h), overwrite=True).mean((2, 3))

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.dropout(self.pool(h)))


FIXED = ("filters", "continuous", "everywhere")


def _register(
    name: str, row: str, parameters: int, printed: str, *, filters: str, continuous: bool, everywhere: bool = False, **defaults: Any
) -> None:
    """One of the paper's models: what makes it what it is stays fixed, the other arguments of `DCN` are its options."""
    own = [p for p in signature(DCN, eval_str=True).parameters.values() if p.name not in FIXED]
    resolved = {p.name: defaults.get(p.name, p.default) for p in own}

    def build(**options: Any) -> DCN:
        chosen = {**resolved, **options}
        net = DCN(filters=filters, continuous=continuous, everywhere=everywhere, **chosen)
        net.options = {**chosen, "solver": net.solver}
        return net

    build.__name__ = name
    build.__signature__ = signature(DCN, eval_str=True).replace(
        parameters=[p.replace(default=resolved[p.name], kind=Parameter.KEYWORD_ONLY) for p in own]
    )  # pyright: ignore[reportFunctionMemberAccess]
    register_model(paper="DCN", row=row, parameters=parameters, printed=printed, tiny=dict(channels=(4, 8, 8)))(build)


_RESIDUAL: dict[str, Any] = dict(continuous=False, activation="relu")
_register("resnet_blocks", "ResNet-blocks", 554_634, "555K", filters="pixel", **_RESIDUAL)
_register("resnet_srf_blocks", "ResNet-SRF-blocks", 425_616, "426K", filters="njet", **_RESIDUAL)
_register("resnet_srf_full", "ResNet-SRF-full", 322_707, "323K", filters="njet", everywhere=True, **_RESIDUAL)
_register("odenet", "ODE-Net", 559_562, "560K", filters="pixel", continuous=True, activation="relu", t1=1.0)
_register("dcn_ode", "DCN-ODE", 428_752, "429K", filters="njet", continuous=True)
_register("dcn_full", "DCN-full", 325_843, "326K", filters="njet", continuous=True, everywhere=True, norm_groups="channels")
_register("dcn_sigma_ji", "DCN σ_ji", 472_202, "472K", filters="njet_pair", continuous=True)
_register("dcn_sigma_t", "DCN σ(t)", 428_758, "—", filters="sigma_t", continuous=True)
_register("dcn_sigma_t2", "DCN σ(t²)", 428_764, "—", filters="sigma_t2", continuous=True)
_register("dcn_sigma_alpha_t", "DCN σ(t), α(t)", 689_494, "—", filters="sigma_alpha_t", continuous=True)
