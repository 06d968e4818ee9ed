"""Batch norm over the batches of all ranks, on any device. (PyTorch's SyncBatchNorm refuses the CPU, and knows only PyTorch's own norms.)

Every rank must normalise the same maps in the same order, and hold as many samples as the others; loaders and fixed steps see to that.
"""

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from continua.blocks.norm import Standardise


def norms_over_batches(net: nn.Module) -> list[nn.Module]:
    """The modules that normalise a map by statistics of its batch.

    Args:
        net: any module.

    Returns:
        Those of its modules, in their order.

    Examples:
        >>> from torch import nn
        >>> from continua.blocks import norms_over_batches
        >>> len(norms_over_batches(nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4))))
        1
    """
    plain = nn.modules.batchnorm._BatchNorm
    return [m for m in net.modules() if isinstance(m, plain) or (isinstance(m, Standardise) and m.kind == "batch")]


def share_batch_statistics(net: nn.Module) -> nn.Module:
    """Have every batch norm of the network take its statistics over all ranks; parameters and buffers stay as and where they are.

    Args:
        net: the network, changed in place.

    Returns:
        The same network.

    Examples:
        >>> from torch import nn
        >>> from continua.blocks import share_batch_statistics
        >>> net = share_batch_statistics(nn.Sequential(nn.BatchNorm2d(4)))
    """
    for module in norms_over_batches(net):
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = RankBatchNorm
        elif isinstance(module, Standardise):
            module.__class__ = RankStandardise
    return net


class RankBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the batches of all ranks."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        update = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        out = standardised(input, *update, self.momentum if self.momentum is not None else 0.1, self.eps)
        if not self.affine:
            return out
        return out * self.weight.to(out.dtype)[:, None, None] + self.bias.to(out.dtype)[:, None, None]


class RankStandardise(Standardise):
    """Mean 0 and variance 1 over the batches of all ranks."""

    def forward(self, z: Tensor) -> Tensor:
        if not self.training:
            return super().forward(z)
        return standardised(z, self.running_mean, self.running_var, self.momentum, self.eps)


def standardised(h: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, eps: float) -> Tensor:
    """(h − mean) / √(variance + ε) with both over all ranks; running averages are moved towards them where given."""
    count = h.numel() // h.shape[1] * torch.distributed.get_world_size()
    wide = h.float() if h.dtype in (torch.bfloat16, torch.float16) else h
    mean = all_reduce(wide.sum((0, 2, 3))) / count
    centred = wide - mean[:, None, None]
    variance = all_reduce(centred.square().sum((0, 2, 3))) / count  # of centred values: no digits are lost to cancellation
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.detach().to(running_mean.dtype), momentum)
        running_var.lerp_(variance.detach().to(running_var.dtype) * (count / (count - 1)), momentum)
    return (centred * torch.rsqrt(variance + eps)[:, None, None]).to(h.dtype)
