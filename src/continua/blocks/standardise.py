"""Mean 0, variance 1: the half of a norm that belongs to a feature map, whoever reads it.

A dense block reads every map many times, each time through another batch norm. Their statistics are all the same, those of the map; only
scale and shift are the reader's own. So a map is standardised once, and the readers (`blocks/read.py`) bring their scale and shift.
"""

from dataclasses import dataclass
from math import gcd
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continua.blocks.norm import Activation
from continua.errors import ConfigError

NORMS = ("batch", "group", "identity")


@dataclass(frozen=True)
class Style:
    """What the layers of a Runge–Kutta block have in common.

    norm                batch, group (with `norm_groups`) or identity (which has no scale and shift either)
    activation          any name of `continua.blocks.ACTIVATIONS`
    dropout             share of values set to 0 after each growth
    memory_efficient    forget what a convolution reads, make it again in the backward pass: same numbers, less memory
    """

    norm: Literal["batch", "group", "identity"] = "batch"
    activation: str = "relu"
    dropout: float = 0.0
    memory_efficient: bool = False
    norm_eps: float = 1e-3
    norm_momentum: float = 0.1
    norm_groups: int = 32

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise ConfigError(f"norm={self.norm!r}; expected one of {', '.join(NORMS)}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout}; expected a share of at least 0 and below 1")
        if not 0 < self.norm_momentum <= 1:
            raise ConfigError(f"norm_momentum={self.norm_momentum}; expected above 0 and at most 1")
        if self.norm_eps <= 0 or self.norm_groups < 1:
            raise ConfigError(f"norm_eps={self.norm_eps}, norm_groups={self.norm_groups}; expected above 0 and at least 1")
        Activation(self.activation)  # refuses an unknown name


class Standardise(nn.Module):
    """(z − mean) / √(variance + ε), over the batch in training and by running averages in evaluation; or within groups of each sample."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.channels, self.kind, self.eps, self.momentum = channels, style.norm, style.norm_eps, style.norm_momentum
        self.groups = gcd(channels, style.norm_groups)
        if self.kind == "batch":
            self.register_buffer("running_mean", torch.zeros(channels))
            self.register_buffer("running_var", torch.ones(channels))

    def forward(self, z: Tensor) -> Tensor:
        if self.kind == "identity":
            return z
        if self.kind == "group":
            return functional.group_norm(z, self.groups, eps=self.eps)
        if self.training:
            _check_several_values(z)
            if torch.is_grad_enabled() and z.requires_grad and not torch.compiler.is_compiling():
                return _StandardiseBatch.apply(z, self.running_mean, self.running_var, self.momentum, self.eps)
        return functional.batch_norm(z, self.running_mean, self.running_var, None, None, self.training, self.momentum, self.eps)

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.kind}"


class _StandardiseBatch(torch.autograd.Function):
    """Batch norm that remembers its output, which the readers keep anyway, and not its input.

    With ẑ the output, ∂L/∂z = (g − mean(g) − ẑ mean(g ẑ)) / √(variance + ε): PyTorch's own backward for an input ẑ of mean 0 and
    variance 1 and a weight of 1/√(variance + ε).
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float) -> Tensor:
        out, _, inverse = torch.native_batch_norm(z, None, None, running_mean, running_var, True, momentum, eps)
        ctx.save_for_backward(out, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        out, inverse = ctx.saved_tensors
        mean, one = torch.zeros_like(inverse), torch.ones_like(inverse)
        found = torch.ops.aten.native_batch_norm_backward(
            grads[0].contiguous(), out, inverse, None, None, mean, one, True, 0.0, [True, False, False]
        )
        return found[0], None, None, None, None


def _check_several_values(z: Tensor) -> None:
    if len(z) * z[0, 0].numel() == 1:
        raise ConfigError(
            f"batch norm cannot train on one value per channel, a map of {tuple(z.shape)}; use larger batches or images, or norm='group'"
        )
