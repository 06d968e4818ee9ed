"""The protocol of a filter: a kernel as a function F(x, y; t) of space and depth; and the discrete filter, k×k numbers."""

import copy
import math
from typing import Self

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.kernel import Kernel, PixelKernel


class Filter(nn.Module):
    """A kernel from `in_channels` to `out_channels`, continuous in whatever its subclass makes it continuous in.

    A subclass provides `state()` and `kernel()`; `read_host()` only if the size of its kernel depends on its parameters,
    `scale_parameters()` and `scale_at()` only if it has a scale.
    """

    time_dependent: bool = False
    """False: `kernel` ignores t, and is realised once per solve."""

    size: int | None = None
    """Taps per side where they never change; None where the kernel's size follows its parameters."""

    interval: tuple[float, float] = (0.0, 1.0)
    """The times between which a filter that depends on t is meant to be used."""

    jet_order: int | None = None
    """The order N of a filter that is an N-jet with one σ per layer: such a filter has the separable and the native route."""

    channel_order: int | None = None
    """The order N of a filter that is an N-jet with a σ for each output channel, which has the native route only, beside the dense one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.label = f"{type(self).__name__}({in_channels}, {out_channels})"  # how messages call it; models set it to the layer's place

    def state(self) -> dict[str, Tensor]:
        """What may evolve or be trained: a kernel's pixels, α, log2 σ."""
        raise TypeError(f"{type(self).__name__} must define state().")

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> Kernel:
        """Realise the kernel from `state` at time t: differentiable in `state`, of a size known on the host.

        `host` is what `read_host(state)` returned, if the caller has read it already (once per solve); else it is read here.
        """
        raise TypeError(f"{type(self).__name__} must define kernel().")

    def read_host(self, state: dict[str, Tensor]) -> object:
        """The few numbers `kernel` needs on the host to know its size, in whatever form. One device synchronisation at most."""
        return None

    def scale_parameters(self) -> tuple[nn.Parameter, ...]:
        """Those of this filter's own parameters that make its scale σ, which an optimiser may treat apart; none by default."""
        return ()

    def scale_at(self, t: Tensor | float) -> Tensor | None:
        """σ in pixels at time t, of whatever shape it has; None for a filter without a scale."""
        return None

    def watch_map(self, kernel: Kernel, map_size: tuple[int, int]) -> None:
        """Called before a kernel is fitted to a map of this size: a place to warn."""

    def freeze(self) -> Self:
        """A copy whose tensors are constants and whose size is known without reading them: what export and compilation need."""
        frozen = copy.deepcopy(self)
        for name, value in list(frozen.named_parameters(recurse=False)):
            delattr(frozen, name)
            frozen.register_buffer(name, value.detach().clone())
        return frozen

    def bias_bound(self) -> float:
        """A bias of this layer starts uniformly within ± this."""
        return 0.0

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"


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

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: object = None) -> PixelKernel:
        return PixelKernel(state["weight"])

    def bias_bound(self) -> float:
        return 1 / math.sqrt(self.weight[0].numel())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, size={self.size}"
