"""The dense route: sample the kernel, one `conv2d`; one grouped `conv2d` when every sample has its own kernel."""

import torch.nn.functional as F
from torch import Tensor

from continua.filters.kernel import Kernel
from continua.filters.operator import Geometry, Operator


def dense_operator(kernel: Kernel, geometry: Geometry) -> Operator:
    """Apply `kernel` as weights. Taps that can never touch the map are not built."""
    padding = geometry.padding
    if padding is None:
        kernel = kernel.cropped(geometry.height - 1, geometry.width - 1)
        padding = (kernel.size[0] // 2, kernel.size[1] // 2)
    stride = geometry.stride

    def convolve(x: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, stride=stride, padding=padding)

    def convolve_each(x: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
        batch, out = weight.shape[:2]
        x = x.expand(batch, -1, -1, -1).reshape(1, -1, *x.shape[2:])
        bias = None if bias is None else bias.repeat(batch)
        y = F.conv2d(x, weight.flatten(0, 1), bias, stride=stride, padding=padding, groups=batch)
        return y.reshape(batch, out, *y.shape[2:])

    return Operator("dense", (kernel.weight(),), convolve_each if kernel.batched else convolve)
