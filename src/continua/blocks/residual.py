"""The discrete counterpart of a field: h + F2 * g(F1 * g(h)), g = activation of norm (pre-activation residual block)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from continua.blocks.norm import Activation, group_norm
from continua.filters import Filter, FilterConv2d


class ResidualBlock(nn.Module):
    """norm → act → conv → norm → act → conv, added to the input. Convolutions have no bias."""

    def __init__(
        self,
        channels: int,
        make_filter: Callable[[int, int], Filter],
        *,
        activation: str = "relu",
        norm_groups: "int | str" = 32,
        conv_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = group_norm(channels, norm_groups)
        self.conv1 = FilterConv2d(make_filter(channels, channels), **(conv_options or {}))
        self.norm2 = group_norm(channels, norm_groups)
        self.conv2 = FilterConv2d(make_filter(channels, channels), **(conv_options or {}))
        self.act = Activation(activation)

    def forward(self, h: Tensor) -> Tensor:
        change = self.conv1(self.act(self.norm1(h), overwrite=True))
        return h + self.conv2(self.act(self.norm2(change), overwrite=True))
