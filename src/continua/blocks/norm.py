"""Norms and activations: those of the papers' fields, and those of blocks that read a map many times.

A dense block reads every map many times, each time through another batch norm. Their statistics are all the same, those of the map; only
scale and shift are the reader's own. So a map is standardised once (`Standardise`: mean 0, variance 1), and its readers bring their scale
and shift (concat_conv.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Literal, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continua.errors import ConfigError, unknown_name
from continua.filters import why_no_library
from continua.native import NATIVE_ACTIVATIONS, native_norm

NORMS = ("batch", "group", "identity")
"""Norms of the layers of a Runge–Kutta block."""

# The in-place forms save a pass over memory; they are safe after a norm, whose backward does not need its own output.
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "celu": (functional.celu, torch.celu_),
    "relu": (functional.relu, torch.relu_),
    "gelu": (functional.gelu, functional.gelu),
    "silu": (functional.silu, functional.silu),
    "softplus": (functional.softplus, functional.softplus),
    "tanh": (torch.tanh, torch.tanh_),
    "identity": (lambda x: x, lambda x: x),
}
"""Pointwise nonlinearities by name, each with a form that may overwrite its input."""


class Activation(nn.Module):
    """A pointwise nonlinearity by name. `forward(x, overwrite=True)` may reuse x's memory."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in ACTIVATIONS:
            raise unknown_name("activation", name, ACTIVATIONS)
        self.name = name

    def forward(self, x: Tensor, overwrite: bool = False) -> Tensor:
        return ACTIVATIONS[self.name][overwrite](x)

    def extra_repr(self) -> str:
        return self.name


def group_norm(channels: int, groups: "int | str" = 32) -> nn.GroupNorm:
    """GroupNorm with at most `groups` groups ("channels": one per channel); fewer where the channels do not divide.

    Args:
        channels: of the map.
        groups: at most so many groups, or "channels".

    Returns:
        The layer.

    Raises:
        ConfigError: groups is neither a positive number nor "channels".

    Examples:
        >>> from continua.blocks import group_norm
        >>> group_norm(24, 4).num_groups
        4
    """
    if groups == "channels":
        return nn.GroupNorm(channels, channels)
    if not isinstance(groups, int) or groups < 1:
        raise ConfigError(f"norm_groups={groups!r}; expected a whole number of at least 1, or 'channels'")
    return nn.GroupNorm(channels if channels <= groups else gcd(channels, groups), channels)


def norm_then_act(norm: nn.Module, act: Activation | None = None) -> Callable[[Tensor], Tensor]:
    """act(norm(x)): in one pass of the native kernels where they can, else module by module.

    Args:
        norm: such as `nn.GroupNorm`.
        act: an activation of ours; None for none.

    Returns:
        A function of the maps x.

    Examples:
        >>> import torch
        >>> from continua.blocks import norm_then_act
        >>> norm_then_act(torch.nn.GroupNorm(2, 4))(torch.rand(1, 4, 8, 8)).shape
        torch.Size([1, 4, 8, 8])
    """
    if not can_fuse(norm, act) or why_no_library() is not None:
        return lambda x: _one_by_one(norm, act, x)

    def run(x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
            return _one_by_one(norm, act, x)
        return native_norm(
            x, norm.weight, norm.bias, groups=norm.num_groups, eps=norm.eps, activation="identity" if act is None else act.name
        )

    return run


def can_fuse(norm: nn.Module, act: Activation | None) -> "TypeGuard[nn.GroupNorm]":
    """Whether both can be computed without being called: known to the kernels, and without hooks, which would miss it."""
    known = type(norm) is nn.GroupNorm and (act is None or act.name in NATIVE_ACTIVATIONS)
    return known and not any(_is_watched(module) for module in (norm, act) if module is not None)


def _one_by_one(norm: nn.Module, act: Activation | None, x: Tensor) -> Tensor:
    return norm(x) if act is None else act(norm(x), overwrite=True)


def _is_watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


@dataclass(frozen=True)
class Style:
    """What the layers of a Runge–Kutta block have in common.

    Attributes:
        norm: batch, group (with `norm_groups`) or identity (which has no scale and shift either)
        activation: any name of `continua.blocks.ACTIVATIONS`
        dropout: share of values set to 0 after each growth
        memory_efficient: forget what a convolution reads, make it again in the backward pass: same numbers, less memory
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
    def forward(ctx, z: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float) -> Tensor:
        out, _, inverse = torch.native_batch_norm(z, None, None, running_mean, running_var, True, momentum, eps)
        ctx.save_for_backward(out, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        out, inverse = ctx.saved_tensors
        zeros, ones = torch.zeros_like(inverse), torch.ones_like(inverse)
        gradient, _, _ = torch.ops.aten.native_batch_norm_backward(
            grads[0].contiguous(), out, inverse, None, None, zeros, ones, True, 0.0, [True, False, False]
        )
        return gradient, None, None, None, None


def _check_several_values(z: Tensor) -> None:
    if len(z) * z[0, 0].numel() == 1:
        raise ConfigError(
            f"batch norm cannot train on one value per channel, a map of {tuple(z.shape)}; use larger batches or images, or norm='group'"
        )
