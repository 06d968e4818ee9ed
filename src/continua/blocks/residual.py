"""Residual blocks, the discrete counterparts of fields: with the activation before the convolutions, or after the addition."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from continua.blocks.norm import Activation, group_norm
from continua.filters import Filter, FilterConv2d, Pixel


class ResidualBlock(nn.Module):
    """h + F2 * g(F1 * g(h)), g = act of norm: norm → act → conv → norm → act → conv, added to the input. Convolutions have no bias.

    With a `stride` or another number of `out_channels` the first convolution carries them, and what is added is not the input but a 1×1
    convolution of act(norm(input)) (He et al. 2016b, as Chen et al. 2018 use it).
    """

    def __init__(
        self,
        channels: int,
        make_filter: Callable[[int, int], Filter],
        *,
        out_channels: int | None = None,
        stride: int = 1,
        activation: str = "relu",
        norm_groups: "int | str" = 32,
        conv_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        wide, options = out_channels or channels, conv_options or {}
        self.norm1 = group_norm(channels, norm_groups)
        self.conv1 = FilterConv2d(make_filter(channels, wide), stride=stride, **options)
        self.norm2 = group_norm(wide, norm_groups)
        self.conv2 = FilterConv2d(make_filter(wide, wide), **options)
        self.shortcut = FilterConv2d(Pixel(channels, wide, size=1), stride=stride) if (wide, stride) != (channels, 1) else None
        self.act = Activation(activation)

    def forward(self, h: Tensor) -> Tensor:
        ready = self.act(self.norm1(h), overwrite=True)
        if self.shortcut is not None:
            h = self.shortcut(ready)
        return h + self.conv2(self.act(self.norm2(self.conv1(ready)), overwrite=True))


class PostActResidualBlock(nn.Module):
    """act(shortcut(z) + norm ∘ conv ∘ … (z)): the discrete block of ANODE and ANODEV2, which a coupled one replaces (He et al. 2016a).

    Where the shape changes the shortcut is a 1×1 convolution with BatchNorm.
    """

    def __init__(
        self, inputs: int, outputs: int, *, layers: int = 2, size: int = 3, stride: int = 1, bias: bool = False, activation: str = "relu"
    ) -> None:
        super().__init__()
        convs = [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)]
        convs += [nn.Conv2d(outputs, outputs, size, 1, size // 2, bias=bias) for _ in range(layers - 1)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in convs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.act = Activation(activation)

    def forward(self, h: Tensor) -> Tensor:
        change = h
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            change = norm(conv(change))
            if index + 1 < len(self.convs):
                change = self.act(change, overwrite=True)
        return self.act(self.shortcut(h) + change, overwrite=True)
