"""What the kernels compute, in plain operations: the reference, and what second derivatives are taken of."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack  # pyright: ignore[reportMissingModuleSource]
from torch.autograd import forward_ad
from torch.nn import functional

NATIVE_ACTIVATIONS = ("identity", "relu", "celu", "gelu", "silu", "softplus", "tanh")
"""In the order of the kernels' own list (csrc/api.h)."""


def is_transforming() -> bool:
    """Whether forward-mode derivatives or functions of `torch.func` are at work, which the kernels know nothing of.

    Returns:
        Whether they are.

    Examples:
        >>> from continua.native import is_transforming
        >>> is_transforming()
        False
    """
    return forward_ad._current_level >= 0 or peek_interpreter_stack() is not None


def plain_norm_act(x: Tensor, gamma: Tensor | None, beta: Tensor | None, groups: int, eps: float, activation: str) -> Tensor:
    """Group norm (none with 0 groups), then the activation."""
    if groups:
        x = functional.group_norm(x, groups, eps=eps)  # its own weight and bias come in pairs only
        x = x if gamma is None else x * gamma[:, None, None]
        x = x if beta is None else x + beta[:, None, None]
    return x if activation == "identity" else torch.tanh(x) if activation == "tanh" else getattr(functional, activation)(x)


def plain_norm_act_conv(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    alpha: Tensor,
    rows: Tensor,
    cols: Tensor,
    bias: Tensor | None,
    t: Tensor | None,
    time_map: Tensor | None,
    groups: int,
    eps: float,
    activation: str,
    stride: int,
) -> Tensor:
    """Norm, activation, one dense convolution with the sampled kernel, time term."""
    y = _convolved(plain_norm_act(x, gamma, beta, groups, eps, activation), alpha, rows, cols, stride)
    y = y if bias is None else y + bias[:, None, None]
    return y if t is None or time_map is None else y + t.reshape(-1, 1, 1, 1).to(y.dtype) * time_map


def _convolved(x: Tensor, alpha: Tensor, rows: Tensor, cols: Tensor, stride: int) -> Tensor:
    batch, order = x.shape[0], rows.shape[-2] - 1
    pairs = [(i, j) for i in range(order + 1) for j in range(order - i, -1, -1)]
    padding = rows.shape[-1] // 2, cols.shape[-1] // 2
    if rows.ndim == 4:  # taps for each output channel
        parts = [torch.einsum("co,oy,ox->ocyx", alpha[f], rows[0, :, i], cols[0, :, j]) for f, (i, j) in enumerate(pairs)]
        return functional.conv2d(x, torch.stack(parts).sum(0), stride=stride, padding=padding)
    each = alpha.ndim == 4 or rows.ndim == 3 or cols.ndim == 3  # a kernel for each sample: one grouped convolution
    if each:
        alpha, rows, cols = (value.expand(batch, *value.shape[-axes:]) for value, axes in ((alpha, 3), (rows, 2), (cols, 2)))
    parts = [
        torch.einsum("...co,...y,...x->...ocyx", alpha[..., f, :, :], rows[..., i, :], cols[..., j, :]) for f, (i, j) in enumerate(pairs)
    ]
    weight = torch.stack(parts).sum(0)
    if not each or batch == 0:
        weight = weight.sum(0) if each else weight  # of no samples
        return functional.conv2d(x, weight, stride=stride, padding=padding)
    y = functional.conv2d(x.reshape(1, -1, *x.shape[2:]), weight.flatten(0, 1), stride=stride, padding=padding, groups=batch)
    return y.reshape(batch, -1, *y.shape[2:])


def plain_gradients(
    plain: Callable[..., Tensor], inputs: Sequence[Tensor | None], gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """A backward pass in plain operations, for whoever differentiates it again (grad mode is on in a backward pass only then).

    Args:
        plain: the operation in plain PyTorch.
        inputs: its inputs; None where there is none.
        gradient: of its output.
        wanted: which inputs need one.

    Returns:
        The gradients, None where not wanted.

    Examples:
        >>> import torch
        >>> from continua.native import plain_gradients
        >>> plain_gradients(torch.mul, [a, b], torch.ones(3), [True, False])  # doctest: +SKIP
    """
    # Through aliases: one input may itself be a function of another, as the state of a solve is of its kernels, and that path is not ours.
    aliases = [None if value is None else value.view_as(value) for value in inputs]
    asked = [alias for alias, want in zip(aliases, wanted, strict=True) if want and alias is not None]
    made = iter(torch.autograd.grad(plain(*aliases), asked, gradient, create_graph=True))
    return tuple(next(made) if want else None for want in wanted)
