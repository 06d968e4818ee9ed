"""The three networks of the feature study (Carrara et al. 2019): how much of the depth is an ODE.

    residual_net    conv → two down-sampling residual blocks → six residual blocks → head
    res_ode_net     conv → two down-sampling residual blocks → one ODE block       → head
    ode_only_net    one strided convolution                  → one ODE block       → head

The down-sampling blocks belong to the stem: the states that the study compares begin after them. Filters are pixels, norms are GroupNorm.
"""

from dataclasses import dataclass
from functools import partial

from torch import nn

from continua.blocks import ConvField, ODEBlock, ResidualBlock
from continua.errors import ConfigError
from continua.filters import FilterConv2d, Pixel
from continua.models.config import ClassifierConfig, InTime, ModelConfig, Options, check_counts, check_style
from continua.models.dcn import Head
from continua.models.network import Network
from continua.models.registry import register_model
from continua.ode import SolverConfig
from continua.options import option


@dataclass(frozen=True, kw_only=True)
class FeatureConfig(ClassifierConfig):
    """What all three networks have."""

    width: int = option(256, "channels of the blocks")
    num_blocks: int = option(1, "blocks after the stem")
    dropout: float = option(0.5, "share of the features left out in training, before the linear layer")
    norm_groups: int | str = option(32, 'groups of the GroupNorms at most, or "channels" for one per channel')
    activation: str = option("relu", "relu, celu, gelu, silu, tanh, ...")

    def check(self) -> None:
        super().check()
        check_counts(width=self.width, num_blocks=self.num_blocks)
        check_style(self.activation, self.norm_groups)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout!r}; expected a probability of at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class ResidualStem(ModelConfig):
    """A stem of two down-sampling residual blocks."""

    stem_width: int | None = option(None, "channels of the stem (default: a quarter of the width)")

    def check(self) -> None:
        super().check()
        check_counts(stem_width=self.stem_width)


@dataclass(frozen=True, kw_only=True)
class ResidualNetConfig(ResidualStem, FeatureConfig):
    """Residual stem, residual blocks."""

    num_blocks: int = option(6, "blocks after the stem")


@dataclass(frozen=True, kw_only=True)
class ODEOnlyConfig(InTime, FeatureConfig):
    """A strided convolution, ODE blocks."""

    t1: float = option(1.0, "end time T of every ODE block, which starts at 0")


@dataclass(frozen=True, kw_only=True)
class ResODEConfig(ResidualStem, ODEOnlyConfig):
    """Residual stem, ODE blocks."""


class FeatureNet(Network):
    """A stem, blocks of one width and resolution, a head. Its configuration says whether the stem is residual and the blocks are ODEs."""

    def __init__(self, config: FeatureConfig) -> None:
        super().__init__()
        self.options = config
        self.width, self.activation, self.norm_groups = config.width, config.activation, config.norm_groups
        self.end = 0.0
        if isinstance(config, InTime):
            self.end, self.solver = config.t1, SolverConfig.of(config.solver)
        if isinstance(config, ResidualStem):
            self.stem = self._residual_stem(config.in_channels, config.stem_width or max(1, config.width // 4))
        else:
            self.stem = FilterConv2d(Pixel(config.in_channels, config.width, size=4), stride=2, padding=1, bias=True)
        self.blocks = nn.ModuleList(self.make_block() for _ in range(config.num_blocks))
        self.transitions = nn.ModuleList(nn.Identity() for _ in range(config.num_blocks - 1))
        self.head = Head(config.width, config.num_classes, config.activation, config.norm_groups, config.dropout)

    def make_block(self) -> nn.Module:
        """A block of this network's kind."""
        if self.solver is None:
            return ResidualBlock(self.width, Pixel, activation=self.activation, norm_groups=self.norm_groups)
        field = ConvField(self.width, Pixel, activation=self.activation, norm_groups=self.norm_groups, bias=True)
        return ODEBlock(field, self.end, solver=self.solver)

    def _residual_stem(self, inputs: int, narrow: int) -> nn.Sequential:
        options: Options = dict(stride=2, activation=self.activation, norm_groups=self.norm_groups)
        return nn.Sequential(
            FilterConv2d(Pixel(inputs, narrow), padding=0, bias=True),
            ResidualBlock(narrow, Pixel, **options),
            ResidualBlock(narrow, Pixel, out_channels=self.width, **options),
        )


feature_model = partial(register_model, paper="ODE-Net features", tiny=dict(width=8, num_blocks=1))


@feature_model(config=ResidualNetConfig, row="Residual Net", parameters=7_921_290, printed="7.92M", tiny=dict(width=8, num_blocks=2))
def residual_net(config: ResidualNetConfig) -> FeatureNet:
    """Residual blocks throughout."""
    return FeatureNet(config)


@feature_model(config=ResODEConfig, row="Res-ODE Net", parameters=2_023_562, printed="2.02M")
def res_ode_net(config: ResODEConfig) -> FeatureNet:
    """A residual stem, then an ODE block."""
    return FeatureNet(config)


@feature_model(config=ODEOnlyConfig, row="ODE-only Net", parameters=1_201_930, printed="1.20M")
def ode_only_net(config: ODEOnlyConfig) -> FeatureNet:
    """One strided convolution, then an ODE block."""
    return FeatureNet(config)
