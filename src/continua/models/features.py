"""The three networks of the feature study (Carrara et al. 2019): how much of the depth is an ODE.

    residual_net    conv → two down-sampling residual blocks → six residual blocks → head
    res_ode_net     conv → two down-sampling residual blocks → one ODE block       → head
    ode_only_net    one strided convolution                  → one ODE block       → head

The down-sampling blocks belong to the stem: the states that the study compares begin after them. Filters are pixels, norms are GroupNorm.
"""

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from torch import nn

from continua.blocks import ConvField, ODEBlock, ResidualBlock
from continua.errors import ConfigError
from continua.filters import FilterConv2d, Pixel
from continua.models.dcn import Head
from continua.models.network import Network
from continua.models.registry import register_model
from continua.ode import SolverConfig


class FeatureNet(Network):
    """A stem, blocks of one width and resolution, a head. The registered models fix `residual_stem` and `continuous`."""

    def __init__(
        self,
        *,
        residual_stem: bool,
        continuous: bool,
        num_classes: int = 10,
        in_channels: int = 3,
        width: int = 256,
        stem_width: int | None = None,
        num_blocks: int = 1,
        dropout: float = 0.5,
        norm_groups: "int | str" = 32,
        activation: str = "relu",
        t1: float = 1.0,
        solver: "SolverConfig | Mapping[str, Any] | None" = None,
    ) -> None:
        super().__init__()
        for name, value in dict(num_classes=num_classes, width=width, stem_width=stem_width or 1, num_blocks=num_blocks).items():
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r}; expected a whole number of at least 1")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout={dropout!r}; expected a probability of at least 0 and below 1")
        self.width, self.activation, self.norm_groups = width, activation, norm_groups
        self.end = t1
        self.solver = SolverConfig.of(solver) if continuous else None
        if residual_stem:
            self.stem = self._residual_stem(in_channels, stem_width or max(1, width // 4))
        else:
            self.stem = FilterConv2d(Pixel(in_channels, width, size=4), stride=2, padding=1, bias=True)
        self.blocks = nn.ModuleList(self.make_block() for _ in range(num_blocks))
        self.transitions = nn.ModuleList(nn.Identity() for _ in range(num_blocks - 1))
        self.head = Head(width, num_classes, activation, norm_groups, dropout)

    def make_block(self) -> nn.Module:
        """A block of this network's kind."""
        if self.solver is None:
            return ResidualBlock(self.width, Pixel, activation=self.activation, norm_groups=self.norm_groups)
        field = ConvField(self.width, Pixel, activation=self.activation, norm_groups=self.norm_groups, bias=True)
        return ODEBlock(field, self.end, solver=self.solver)

    def _residual_stem(self, inputs: int, narrow: int) -> nn.Sequential:
        options: dict[str, Any] = dict(stride=2, activation=self.activation, norm_groups=self.norm_groups)
        return nn.Sequential(
            FilterConv2d(Pixel(inputs, narrow), padding=0, bias=True),
            ResidualBlock(narrow, Pixel, **options),
            ResidualBlock(narrow, Pixel, out_channels=self.width, **options),
        )


FIXED = ("residual_stem", "continuous")
OF_ODES = ("t1", "solver")


def _register(name: str, row: str, parameters: int, printed: str, *, residual_stem: bool, continuous: bool, num_blocks: int) -> None:
    """One row of the paper's Table 1: what makes it what it is stays fixed, the other arguments of `FeatureNet` are its options."""
    left_out = set(FIXED) | (set() if continuous else set(OF_ODES)) | (set() if residual_stem else {"stem_width"})
    own = [p for p in signature(FeatureNet, eval_str=True).parameters.values() if p.name not in left_out]
    resolved = {p.name: p.default for p in own} | {"num_blocks": num_blocks}

    def build(**options: Any) -> FeatureNet:
        chosen = {**resolved, **options}
        net = FeatureNet(residual_stem=residual_stem, continuous=continuous, **chosen)
        net.options = {**chosen, "solver": net.solver} if continuous else chosen
        return net

    build.__name__ = name
    parts = [p.replace(default=resolved[p.name], kind=Parameter.KEYWORD_ONLY) for p in own]
    build.__signature__ = signature(FeatureNet, eval_str=True).replace(parameters=parts)  # pyright: ignore[reportFunctionMemberAccess]
    tiny = dict(width=8, num_blocks=min(2, num_blocks))
    register_model(paper="ODE-Net features", row=row, parameters=parameters, printed=printed, tiny=tiny)(build)


_register("residual_net", "Residual Net", 7_921_290, "7.92M", residual_stem=True, continuous=False, num_blocks=6)
_register("res_ode_net", "Res-ODE Net", 2_023_562, "2.02M", residual_stem=True, continuous=True, num_blocks=1)
_register("ode_only_net", "ODE-only Net", 1_201_930, "1.20M", residual_stem=False, continuous=True, num_blocks=1)
