"""The Deep Continuous Network family: three blocks at falling resolution, filters of pixels or N-jets, residual or continuous in depth.

    images → stem → block 1 → down → block 2 → down → block 3 → head

One class builds all ten models of the paper; they differ in what a filter is, in whether a block is an ODE, and in where N-jets are used.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Self

from torch import Tensor, nn

from continua.blocks import Activation, ConvField, ODEBlock, ResidualBlock, group_norm, norm_then_act
from continua.errors import ConfigError, unknown_name
from continua.filters import Filter, FilterConv2d, NJet, Pixel, ScheduledNJet
from continua.models.bounded import check_order, check_steps
from continua.models.classifier import make_classifier
from continua.models.config import ClassifierConfig, InTime, ModelConfig, Options, check_style, check_widths
from continua.models.network import Network, label_filters
from continua.models.registry import register_model
from continua.ode import SolverConfig
from continua.options import option

SCHEDULES: dict[str, dict[str, str]] = {
    "sigma_t": dict(scale="linear"),
    "sigma_t2": dict(scale="quadratic"),
    "sigma_alpha_t": dict(scale="linear", alpha="linear"),
}
FILTERS = ("pixel", "njet", "njet_pair", *SCHEDULES)


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DCNConfig(ClassifierConfig):
    """What all ten models have."""

    channels: Sequence[int] = option((32, 64, 128), "width of each block")
    activation: str = option("celu", "celu, relu, gelu, silu, tanh, ...")
    norm_groups: int | str = option(
        32,
        'groups of the GroupNorms at most (fewer channels have one each, others a common divisor), or "channels" for one per channel',
    )
    conv_options: Options | None = option(None, "how filters are applied, such as {route: dense}; see FilterConv2d")
    filter_options: Options | None = option(None, "further options of the filters, such as {sigma_bounds: [0.5, 4]}")

    def check(self) -> None:
        super().check()
        check_widths("channels", self.channels)
        check_style(self.activation, self.norm_groups)


@dataclass(frozen=True, kw_only=True)
class PixelStem(ModelConfig):
    """A first convolution of 3×3 pixels."""

    stem_padding: int = option(0, "zeros around the image before the first convolution")


@dataclass(frozen=True, kw_only=True)
class Jets(ModelConfig):
    """Filters that are N-jets."""

    order: int = option(2, "highest Gaussian derivative of the N-jets")

    @property
    def has_jets(self) -> bool:
        return True

    def check(self) -> None:
        super().check()
        check_order(self.order)


@dataclass(frozen=True, kw_only=True)
class Augmented(InTime):
    """ODE blocks whose state may be wider than their input."""

    augment_channels: int = option(0, "channels of zeros added to the state of every ODE block (Dupont et al. 2019)")
    explicit_time: bool = option(True, "f reads t as a further channel; without it scaling the state and T alike is an exact symmetry")
    block_solvers: Sequence[Options] | None = option(None, "what differs from solver in each block, such as [{steps: 8}, {}, {}]")

    def check(self) -> None:
        super().check()
        given, blocks = self.block_solvers, len(vars(self)["channels"])
        if given is not None and len(given) != blocks:
            raise ConfigError(
                f"block_solvers has {len(given)} entries, and there are {blocks} blocks; give one for each, {{}} where nothing differs"
            )
        for number in range(blocks if given else 0):
            check_steps(f"steps of block {number + 1}", self.solver_of(number).count)

    def solver_of(self, block: int) -> SolverConfig:
        """The solver of a block."""
        return SolverConfig.of(self.solver).replace(**(self.block_solvers[block] if self.block_solvers else {}))

    def with_solver(self, solver: SolverConfig, changed: Collection[str] | None = None) -> Self:
        kept = [
            {} if changed is None else {name: value for name, value in own.items() if name not in changed}
            for own in self.block_solvers or ()
        ]
        return self.vary(solver=solver, block_solvers=kept if any(kept) else None)


@dataclass(frozen=True, kw_only=True)
class ResidualConfig(PixelStem, DCNConfig):
    """Residual blocks of pixel filters."""

    activation: str = option("relu", "celu, relu, gelu, silu, tanh, ...")


@dataclass(frozen=True, kw_only=True)
class JetResidualConfig(Jets, ResidualConfig):
    """Residual blocks of N-jets."""


@dataclass(frozen=True, kw_only=True)
class FullJetResidualConfig(Jets, DCNConfig):
    """N-jets in stem, residual blocks and transitions."""

    activation: str = option("relu", "celu, relu, gelu, silu, tanh, ...")


@dataclass(frozen=True, kw_only=True)
class ODEConfig(Augmented, PixelStem, DCNConfig):
    """ODE blocks of pixel filters."""


@dataclass(frozen=True, kw_only=True)
class JetODEConfig(Jets, ODEConfig):
    """ODE blocks of N-jets."""


@dataclass(frozen=True, kw_only=True)
class FullJetODEConfig(Jets, Augmented, DCNConfig):
    """N-jets in stem, ODE blocks and transitions."""


# --- the network ------------------------------------------------------------------------------------------------------


class DCN(Network):
    """Deep Continuous Network and its baselines.

    Its configuration says whether blocks are ODEs (`InTime`) and whether stem and transitions are pixels (`PixelStem`); `filters` is what
    the blocks' filters are: pixel, njet, njet_pair, sigma_t, sigma_t2 or sigma_alpha_t.
    """

    def __init__(self, config: DCNConfig | None = None, *, filters: str = "njet") -> None:
        super().__init__()
        if filters not in FILTERS:
            raise unknown_name("filters", filters, FILTERS)
        self.options = config = JetODEConfig() if config is None else config
        if isinstance(config, Jets) != (filters != "pixel"):
            raise ConfigError(f"filters={filters!r} do not go with {type(config).__name__}: N-jets have an order (Jets), pixels have none")
        self.filters, self.order = filters, config.order if isinstance(config, Jets) else 0
        self.activation, self.norm_groups = config.activation, config.norm_groups
        self.conv_options, self.filter_options = dict(config.conv_options or {}), dict(config.filter_options or {})
        self._in_channels, self.channels = config.in_channels, tuple(config.channels)
        self.end, self.augment = 0.0, config.augment_channels if isinstance(config, Augmented) else 0
        self.explicit_time = not isinstance(config, Augmented) or config.explicit_time
        if isinstance(config, InTime):
            self.end, self.solver = config.t1, SolverConfig.of(config.solver)
        self.stem = self._stem(config)
        self.blocks = nn.ModuleList(self.make_block(width, block) for block, width in enumerate(self.channels))
        jets = not isinstance(config, PixelStem)
        self.transitions = nn.ModuleList(Down(self, narrow, wide, jets) for narrow, wide in pairwise(self.channels))
        self.head = Head(self.channels[-1], config.num_classes, config.activation, config.norm_groups)
        label_filters(self)

    @property
    def in_channels(self) -> int:
        return self._in_channels

    def make_block(self, channels: int, block: int = 0) -> nn.Module:
        """A block of this network's kind, for maps of that many channels, with the solver of one of its blocks."""
        if self.solver is None:
            return ResidualBlock(
                channels, self.make_filter, activation=self.activation, norm_groups=self.norm_groups, conv_options=self.conv_options
            )
        field = ConvField(
            channels + self.augment,
            self.make_filter,
            activation=self.activation,
            norm_groups=self.norm_groups,
            bias=self.filters == "pixel",
            time=self.explicit_time,
            conv_options=self.conv_options,
        )
        solver = self.options.solver_of(block) if isinstance(self.options, Augmented) else self.solver
        return ODEBlock(field, self.end, solver=solver, augment=self.augment)

    def make_filter(self, inputs: int, outputs: int) -> Filter:
        """A filter of this network's kind."""
        if self.filters == "pixel":
            return Pixel(inputs, outputs, **self.filter_options)
        if self.filters in SCHEDULES:
            options = {"order": self.order, "interval": (0.0, self.end), **SCHEDULES[self.filters], **self.filter_options}
            return ScheduledNJet(inputs, outputs, **options)
        sharing = "pair" if self.filters == "njet_pair" else "layer"
        return NJet(inputs, outputs, **{"order": self.order, "sharing": sharing, **self.filter_options})

    def _stem(self, config: DCNConfig) -> FilterConv2d:
        inputs, outputs = self.in_channels, self.channels[0]
        if isinstance(config, PixelStem):
            return FilterConv2d(Pixel(inputs, outputs, size=3), padding=config.stem_padding, bias=True)
        return FilterConv2d(NJet(inputs, outputs, order=self.order, **self.filter_options), **self.conv_options)


class Down(nn.Module):
    """norm → act → strided convolution: half the size, more channels."""

    def __init__(self, net: DCN, narrow: int, wide: int, jets: bool) -> None:
        super().__init__()
        self.norm = group_norm(narrow, net.norm_groups)
        self.act = Activation(net.activation)
        if jets:
            self.conv = FilterConv2d(NJet(narrow, wide, order=net.order, **net.filter_options), stride=2, **net.conv_options)
        else:
            self.conv = FilterConv2d(Pixel(narrow, wide, size=4), stride=2, padding=1, bias=True)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(norm_then_act(self.norm, self.act)(h))


class Head(nn.Module):
    """norm → act → global average pool → dropout → linear."""

    def __init__(self, channels: int, num_classes: int, activation: str, norm_groups: "int | str", dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = group_norm(channels, norm_groups)
        self.act = Activation(activation)
        self.dropout = nn.Dropout(dropout)
        self.linear = make_classifier(channels, num_classes)

    def pool(self, h: Tensor) -> Tensor:
        """norm → act → mean over pixels, (batch, channels)."""
        return norm_then_act(self.norm, self.act)(h).mean((2, 3))

    def pre_logits(self, h: Tensor) -> Tensor:
        """What the linear layer reads."""
        return self.dropout(self.pool(h))

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.pre_logits(h))


# --- the models of the paper ------------------------------------------------------------------------------------------

dcn_model = partial(register_model, paper="DCN", tiny=dict(channels=(4, 8, 8)))


@dcn_model(config=ResidualConfig, row="ResNet-blocks", parameters=554_634, printed="555K")
def resnet_blocks(config: DCNConfig) -> DCN:
    """Residual blocks of 3×3 pixels."""
    return DCN(config, filters="pixel")


@dcn_model(config=JetResidualConfig, row="ResNet-SRF-blocks", parameters=425_616, printed="426K")
def resnet_srf_blocks(config: DCNConfig) -> DCN:
    """Residual blocks of N-jets."""
    return DCN(config, filters="njet")


@dcn_model(config=FullJetResidualConfig, row="ResNet-SRF-full", parameters=322_707, printed="323K")
def resnet_srf_full(config: DCNConfig) -> DCN:
    """A residual network of N-jets throughout."""
    return DCN(config, filters="njet")


@dcn_model(config=ODEConfig(activation="relu", t1=1.0), row="ODE-Net", parameters=559_562, printed="560K")
def odenet(config: DCNConfig) -> DCN:
    """ODE blocks of 3×3 pixels."""
    return DCN(config, filters="pixel")


@dcn_model(config=JetODEConfig, row="DCN-ODE", parameters=428_752, printed="429K")
def dcn_ode(config: DCNConfig) -> DCN:
    """ODE blocks of N-jets with one σ per layer."""
    return DCN(config, filters="njet")


@dcn_model(config=FullJetODEConfig(norm_groups="channels"), row="DCN-full", parameters=325_843, printed="326K")
def dcn_full(config: DCNConfig) -> DCN:
    """ODE blocks, and N-jets throughout."""
    return DCN(config, filters="njet")


@dcn_model(config=JetODEConfig, row="DCN σ_ji", parameters=472_202, printed="472K")
def dcn_sigma_ji(config: DCNConfig) -> DCN:
    """N-jets with one σ for each pair of channels."""
    return DCN(config, filters="njet_pair")


@dcn_model(config=JetODEConfig, row="DCN σ(t)", parameters=428_758, printed="—")
def dcn_sigma_t(config: DCNConfig) -> DCN:
    """N-jets with log₂ σ linear in t."""
    return DCN(config, filters="sigma_t")


@dcn_model(config=JetODEConfig, row="DCN σ(t²)", parameters=428_764, printed="—")
def dcn_sigma_t2(config: DCNConfig) -> DCN:
    """N-jets with log₂ σ quadratic in t."""
    return DCN(config, filters="sigma_t2")


@dcn_model(config=JetODEConfig, row="DCN σ(t), α(t)", parameters=689_494, printed="—")
def dcn_sigma_alpha_t(config: DCNConfig) -> DCN:
    """N-jets with log₂ σ and α linear in t."""
    return DCN(config, filters="sigma_alpha_t")
