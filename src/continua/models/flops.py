"""Count the arithmetic of a forward pass without doing most of it.

The numbers are those of `torch.utils.flop_counter` (2 × multiply–adds of convolutions and matrix products; a test compares them), without
the seconds that its import of PyTorch's compiler takes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Both = int | tuple[int, int]  # one number for both axes, or one for each
PRODUCTS = (torch.matmul, torch.mm, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.mm, torch.Tensor.bmm)


class FlopCount(TorchFunctionMode):
    """`with FlopCount() as count: net(images)`; then `count.flops`. With `shapes_only`, convolutions return zeros of the right shape."""

    def __init__(self, shapes_only: bool = False) -> None:
        super().__init__()
        self.flops = 0
        self.shapes_only = shapes_only

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is functional.conv2d:
            out = _zeros_like_conv2d(*args, **kwargs) if self.shapes_only else func(*args, **kwargs)
            self.flops += 2 * out.numel() * args[1][0].numel()
            return out
        out = func(*args, **kwargs)
        if func is functional.linear or func in PRODUCTS:
            self.flops += 2 * out.numel() * args[0].shape[-1]
        return out


def _zeros_like_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Both = 1, padding: "Both | str" = 0, dilation: Both = 1, groups: int = 1
) -> Tensor:
    if isinstance(padding, str):
        return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    steps, rims, gaps = ((value, value) if isinstance(value, int) else value for value in (stride, padding, dilation))
    size = [(x.shape[2 + axis] + 2 * rims[axis] - gaps[axis] * (weight.shape[2 + axis] - 1) - 1) // steps[axis] + 1 for axis in (0, 1)]
    return x.new_zeros(len(x), len(weight), *size)
