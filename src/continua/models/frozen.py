"""Networks for compilers: the sizes of all kernels fixed, so that nothing is read from the device while a graph is recorded.

pinned(net)     shares the weights of `net` and trains: N-jets keep today's kernel size while σ moves
frozen(net)     a copy for inference: N-jets become the plain kernels they are at this moment
"""

import copy
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from continua.filters import Filter, FilterConv2d, JetKernel, Kernel, Pixel, ScheduledNJet
from continua.filters.hybrid import hybrid_kernel

Module = TypeVar("Module", bound=nn.Module)


class PinnedFilter(Filter):
    """Another filter with the size its kernel has now."""

    def __init__(self, inner: Filter) -> None:
        super().__init__(inner.in_channels, inner.out_channels)
        self.inner = inner
        self.time_dependent, self.size, self.jet_order, self.label = inner.time_dependent, inner.size, inner.jet_order, inner.label
        self.host = inner.read_host(inner.state())

    def state(self) -> dict[str, Tensor]:
        return self.inner.state()

    def read_host(self, state: dict[str, Tensor]) -> Any:
        return self.host

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> Kernel:
        return self.inner.kernel(state, t, self.host)


class PinnedSchedule(PinnedFilter):
    """A σ(t) whose kernels live on the grid of the largest σ of the interval, each cut at its own radius: the same numbers."""

    def __init__(self, inner: ScheduledNJet) -> None:
        super().__init__(inner)
        self.radius_factor = inner.radius_factor
        widest = copy.copy(inner)
        widest.radius = "max"
        self.host = widest.read_host(inner.state())

    def kernel(self, state: dict[str, Tensor], t: Tensor | float | None = None, host: Any = None) -> JetKernel:
        kernel: JetKernel = self.inner.kernel(state, t, self.host)  # pyright: ignore[reportAssignmentType]
        own = torch.ceil(self.radius_factor * kernel.sigma.detach() + 0.5)[..., None, None]
        reach = kernel.size[0] // 2
        kept = kernel.rows * (torch.arange(-reach, reach + 1, device=own.device).abs() <= own)
        taps = kept / kept[..., :1, :].sum(-1, keepdim=True)  # G_0, a Gaussian, has sum 1 on its own grid
        return replace(kernel, rows=taps, cols=taps)


def pinned(net: Module) -> Module:
    """The same network, sharing its weights, with every kernel kept at its present size: `torch.compile` can then trace it for training.

    A σ that has moved since is sampled on the old grid. Make a new twin, say once an epoch, to let the sizes follow; save and load the
    original, whose weights these are.
    """
    twin = copy.deepcopy(net, {id(tensor): tensor for tensor in (*net.parameters(), *net.buffers())})
    for conv in _convolutions(twin):
        conv.filter = pin(conv.filter)
    return twin


def frozen(net: Module) -> Module:
    """A copy in evaluation mode whose weights are constants; filters that do not depend on t become pixels."""
    twin = copy.deepcopy(net).eval()
    for conv in _convolutions(twin):
        if conv.filter.time_dependent:
            conv.filter = pin(conv.filter)
        elif not isinstance(conv.filter, Pixel):
            kernel = conv.filter.kernel(conv.filter.state())
            if conv.discretisation == "hybrid" and isinstance(kernel, JetKernel):
                kernel = hybrid_kernel(kernel)
            conv.filter = pixels(kernel.weight().detach())
            conv.route, conv.discretisation = "dense", "sampled"
    return twin.requires_grad_(False)


def pin(filter: Filter) -> Filter:
    """A filter whose kernel keeps the size it has now."""
    if isinstance(filter, PinnedFilter):
        return pin(filter.inner)
    if isinstance(filter, ScheduledNJet) and filter.radius is None:
        return PinnedSchedule(filter)
    return PinnedFilter(filter)


def pixels(weight: Tensor) -> Pixel:
    """The filter with these pixels (out, in, size, size)."""
    with torch.device("meta"):
        filter = Pixel(weight.shape[1], weight.shape[0], weight.shape[2])
    filter.weight = nn.Parameter(weight)
    return filter


def _convolutions(net: nn.Module) -> list[FilterConv2d]:
    return [module for module in net.modules() if isinstance(module, FilterConv2d)]
