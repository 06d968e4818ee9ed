"""A convolution over several feature maps side by side, without concatenating them first.

    norm_act_conv([z_0, …, z_n]) = W * act(γ ⊙ [z_0, …, z_n] + β)

Written naively, a dense block of s stages copies s(s+1)/2 maps into concatenations, normalises each copy anew and keeps both for the
backward pass. Here the standardised maps are kept once; scale, shift and activation are written straight into the one buffer that the
convolution reads. That buffer is kept for the backward pass, or with `memory_efficient` made again there, which costs two passes over
memory and no convolution. Measured against a sum of one convolution per map (a kernel over a concatenation is a sum of kernels over its
parts), the buffer is faster: more and narrower convolutions cost more than the writes they save.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continua.blocks.norm import ACTIVATIONS, Style
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, Pixel, autocast_on, without_autocast

FEW = 16  # maps that are written one by one
MakeFilter = Callable[[int, int], Filter]


class Affine(nn.Module):
    """γ and β of a norm, one of each per channel that is read; nothing where the norm is the identity."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.channels = channels
        self.register_parameter("weight", None if style.norm == "identity" else nn.Parameter(torch.ones(channels)))
        self.register_parameter("bias", None if style.norm == "identity" else nn.Parameter(torch.zeros(channels)))

    def extra_repr(self) -> str:
        return str(self.channels)


def norm_act_conv(parts: Sequence[Tensor], affine: Affine, weight: Tensor, style: Style) -> Tensor:
    """`weight` (out, in, size, size) over the parts side by side, each scaled, shifted and activated; "same" padding."""
    gamma, beta = affine.weight, affine.bias
    device = parts[0].device
    if autocast_on(device):
        dtype = torch.get_autocast_dtype(device.type)
        parts, weight = [part.to(dtype) for part in parts], weight.to(dtype)
        gamma, beta = (None if value is None else value.to(dtype) for value in (gamma, beta))
    if torch.compiler.is_compiling():  # a compiler fuses this by itself
        x = torch.cat(list(parts), 1)
        x = x if gamma is None or beta is None else torch.addcmul(beta[:, None, None], x, gamma[:, None, None])
        return functional.conv2d(ACTIVATIONS[style.activation][0](x), weight, padding=weight.shape[-1] // 2)
    if torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in (weight, gamma, beta, *parts)):
        return _NormActConv.apply(style.activation, style.memory_efficient, weight, gamma, beta, *parts)
    return functional.conv2d(_gathered(parts, gamma, beta, style.activation), weight, padding=weight.shape[-1] // 2)


class _NormActConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, activation: str, forget: bool, weight: Tensor, gamma: Tensor | None, beta: Tensor | None, *parts: Tensor) -> Tensor:
        x = _gathered(parts, gamma, beta, activation)
        ctx.activation = activation
        ctx.save_for_backward(None if forget else x, weight, gamma, beta, *parts)
        with without_autocast(x.device):
            return functional.conv2d(x, weight, padding=weight.shape[-1] // 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, gamma, beta, *parts = ctx.saved_tensors
        if x is None:
            x = _gathered(parts, gamma, beta, ctx.activation)
        half = weight.shape[-1] // 2
        wanted = [any(ctx.needs_input_grad[3:]), ctx.needs_input_grad[2], False]
        g, g_weight, _ = torch.ops.aten.convolution_backward(
            grads[0].contiguous(), x, weight, None, [1, 1], [half, half], [1, 1], False, [0, 0], 1, wanted
        )
        if g is None:
            return (None, None, g_weight, *(None for _ in ctx.needs_input_grad[3:]))
        g = _before_activation(g, x, parts, gamma, beta, ctx.activation)
        del x
        g_parts = g.split([part.shape[1] for part in parts], dim=1)
        if gamma is None:
            return (None, None, g_weight, None, None, *g_parts)
        pairs = zip(g_parts, parts, strict=True)
        g_gamma = torch.cat([torch.linalg.vecdot(gradient.flatten(2), part.flatten(2)).sum(0) for gradient, part in pairs])
        g_beta = g.flatten(2).sum(2).sum(0)  # by rows first: twice as fast as all axes at once
        g.mul_(gamma[:, None, None])
        return (None, None, g_weight, g_gamma, g_beta, *g_parts)


def _gathered(parts: Sequence[Tensor], gamma: Tensor | None, beta: Tensor | None, activation: str) -> Tensor:
    """act(γ ⊙ [parts] + β) in one new tensor."""
    return ACTIVATIONS[activation][1](_scaled(parts, gamma, beta))


@torch.no_grad()
def _scaled(parts: Sequence[Tensor], gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    if gamma is None or beta is None:
        return torch.cat(list(parts), 1)
    first = parts[0]
    if first.device.type != "cpu" or len(parts) > FEW:  # one pass more over memory, and far fewer operations to start
        x = torch.cat(list(parts), 1)
        return torch.addcmul(beta[:, None, None], x, gamma[:, None, None], out=x)
    last = first.is_contiguous(memory_format=torch.channels_last) and not first.is_contiguous()
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.empty(len(first), len(gamma), *first.shape[2:], dtype=first.dtype, device=first.device, memory_format=form)
    at = 0
    for part in parts:
        here = slice(at, at := at + part.shape[1])
        torch.addcmul(beta[here, None, None], part, gamma[here, None, None], out=x[:, here])
    return x


def _before_activation(g: Tensor, x: Tensor, parts: Sequence[Tensor], gamma: Tensor | None, beta: Tensor | None, activation: str) -> Tensor:
    """∂L/∂u of x = act(u), in the memory of g where that is possible."""
    if activation == "identity":
        return g
    if activation == "relu":
        return torch.ops.aten.threshold_backward.grad_input(g, x, 0, grad_input=g)
    u = _scaled(parts, gamma, beta).requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(ACTIVATIONS[activation][0](u), u, g)[0]


def static_conv(make_filter: MakeFilter, inputs: int, outputs: int) -> FilterConv2d:
    """A convolution whose kernel does not depend on t: a learned tableau has stages, not times."""
    filter = make_filter(inputs, outputs)
    if filter.time_dependent:
        raise ConfigError(
            f"{type(filter).__name__} depends on t, and the stages of a learned Runge–Kutta method have no t; use a static filter "
            "(Pixel, NJet), or an ODEBlock for filters that move"
        )
    return FilterConv2d(filter, route="dense")


def pointwise(inputs: int, outputs: int) -> FilterConv2d:
    """A 1×1 convolution."""
    return FilterConv2d(Pixel(inputs, outputs, size=1), route="dense")


def kernel_of(conv: FilterConv2d) -> Tensor:
    """The weights of a convolution, realised: (out, in, size, size)."""
    return conv.filter.kernel(conv.filter.state()).weight()
