"""A convolution made ready for one map size: the common shape of all routes."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


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
