"""A convolution made ready for one map size: the common shape of all routes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 1 << 19
"""Elements of a map per chunk on a CPU: the few maps a step works on then stay in the second- and third-level caches."""


@dataclass(frozen=True)
class Geometry:
    """Where a kernel is applied. `padding` None means "same": zeros up to the kernel's half-width, ceil(size / stride) outputs."""

    height: int
    width: int
    stride: int = 1
    padding: tuple[int, int] | None = None


@dataclass(frozen=True)
class Operator:
    """`linear(x, bias, *tensors)` applies the kernel; `tensors` are differentiable functions of the filter's state."""

    route: str
    tensors: tuple[Tensor, ...]
    linear: Callable[..., Tensor]


def chunks(x: Tensor) -> list[slice]:
    """Walk a batch in parts that fit the CPU's caches; in one part elsewhere."""
    batch = x.shape[0]
    step = max(1, CHUNK // max(1, x.shape[1:].numel())) if x.device.type == "cpu" else max(1, batch)
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


def plain_gradients(plain: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    """A backward pass in plain operations, for whoever differentiates it again (grad mode is on in a backward pass only then)."""
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(plain(*inputs), wanted, gradient, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in inputs)


def is_channels_last(x: Tensor) -> bool:
    """True when a map is stored pixel by pixel and not also channel by channel (as a map with one channel is)."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
