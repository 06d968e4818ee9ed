"""What stands around the periods of a Runge–Kutta network: stem, transition, head (RKNet §3.2, §4.2; CliqueNet's attention)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from continua.blocks import Activation, Style, group_norm


def norm_layer(channels: int, style: Style) -> nn.Module:
    """The norm of a style as a layer of its own."""
    if style.norm == "batch":
        return nn.BatchNorm2d(channels, style.norm_eps, style.norm_momentum)
    return nn.Identity() if style.norm == "identity" else group_norm(channels, style.norm_groups)


class NormAct(nn.Module):
    """norm → act."""

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.norm = norm_layer(channels, style)
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
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(self.norm(h).mean((2, 3)))


class MultiscaleHead(nn.Module):
    """norm → act → mean over pixels of every period, side by side → linear."""

    def __init__(self, channels: Sequence[int], num_classes: int, style: Style) -> None:
        super().__init__()
        self.norms = nn.ModuleList(NormAct(width, style) for width in channels)
        self.linear = nn.Linear(sum(channels), num_classes)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        return self.linear(torch.cat([norm(h).mean((2, 3)) for norm, h in zip(self.norms, states, strict=True)], 1))
