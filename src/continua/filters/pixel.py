"""The discrete filter: k×k numbers."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.filter import Filter
from continua.filters.kernel import PixelKernel


class Pixel(Filter):
    """A k×k kernel of free pixels, initialised as PyTorch's `Conv2d` (Kaiming uniform, a = √5; a time channel counts in the fan-in)."""

    def __init__(self, in_channels: int, out_channels: int, size: int = 3) -> None:
        super().__init__(in_channels, out_channels)
        if size < 1:
            raise ConfigError(f"A pixel kernel has at least 1 × 1 taps; got size={size}.")
        self.size = size
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, size, size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> PixelKernel:
        return PixelKernel(state["weight"])

    def bias_bound(self) -> float:
        return 1 / math.sqrt(self.weight[0].numel())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, size={self.size}"
