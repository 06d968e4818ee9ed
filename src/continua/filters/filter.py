"""The protocol of a filter: a kernel as a function F(x, y; t) of space and depth."""

import copy
from typing import Any, Self

from torch import Tensor, nn

from continua.filters.kernel import Kernel


class Filter(nn.Module):
    """A kernel from `in_channels` to `out_channels`, continuous in whatever its subclass makes it continuous in.

    A subclass provides `state()` and `kernel()`; `read_host()` only if the size of its kernel depends on its parameters.
    """

    time_dependent: bool = False
    """False: `kernel` ignores t, and is realised once per solve."""

    size: int | None = None
    """Taps per side where they never change; None where the kernel's size follows its parameters."""

    jet_order: int | None = None
    """The order N of a filter that is an N-jet with one σ per layer: such a filter has the separable route."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.label = type(self).__name__  # what warnings call this layer; models set it to the layer's place

    def state(self) -> dict[str, Tensor]:
        """What may evolve or be trained: a kernel's pixels, α, log2 σ."""
        raise TypeError(f"{type(self).__name__} must define state().")

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> Kernel:
        """Realise the kernel from `state` at time t: differentiable in `state`, of a size known on the host.

        `host` is what `read_host(state)` returned, if the caller has read it already (once per solve); else it is read here.
        """
        raise TypeError(f"{type(self).__name__} must define kernel().")

    def read_host(self, state: dict[str, Tensor]) -> Any:
        """The few numbers `kernel` needs on the host to know its size. One device synchronisation at most."""
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
