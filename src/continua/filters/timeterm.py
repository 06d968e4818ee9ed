"""The explicit time of a field, J(d)·t of DCN eq. 2, without a time channel.

The papers concatenate a constant map t as channel 0. A convolution being linear, that channel adds t · (the response of its kernel to a
map of ones): the same numbers, zero-padded borders included, from one small map that is realised once per solve.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx

from continua.filters.operator import is_channels_last


def add_time(y: Float[Tensor, "batch out h w"], t: Tensor | float, ones_response: Float[Tensor, "samples out h w"]) -> Tensor:
    """y + t · ones_response, in place where autograd allows; t is a number, a 0-d tensor or one time per sample."""
    # The product is formed in the map's float32 or better and rounded once: bfloat16 would keep 8 bits of t.
    t = torch.as_tensor(t, dtype=ones_response.dtype, device=y.device)
    if torch.compiler.is_compiling() or ones_response.shape[0] != 1:
        return y + (t.reshape(-1, 1, 1, 1) * ones_response).to(y.dtype)
    return _AddTime.apply(y, t, ones_response)


class _AddTime(torch.autograd.Function):
    """One pass forward, in place; backward one matrix–vector product instead of a slow strided sum over the batch."""

    @staticmethod
    def forward(ctx: FunctionCtx, y: Tensor, t: Tensor, ones_response: Tensor) -> Tensor:
        ctx.save_for_backward(t, ones_response)
        ctx.mark_dirty(y)
        if is_channels_last(y):
            ones_response = ones_response.contiguous(memory_format=torch.channels_last)
        times = t.reshape(-1, 1, 1, 1)
        if t.numel() > 1 and y.dtype == t.dtype:
            return y.addcmul_(ones_response, times)
        return y.add_((times * ones_response).to(y.dtype))

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        t, ones_response = ctx.saved_tensors
        for_t = for_map = None
        if ctx.needs_input_grad[1]:
            for_t = torch.einsum("bohw,ohw->b", gradient.to(t.dtype), ones_response[0])
            for_t = (for_t if t.ndim else for_t.sum()).reshape(t.shape)
        if ctx.needs_input_grad[2]:
            flat = gradient.permute(0, 2, 3, 1) if is_channels_last(gradient) else gradient
            weights = t.expand(gradient.shape[0]).to(gradient.dtype) if t.numel() > 1 else gradient.new_ones(gradient.shape[0])
            summed = (weights @ flat.reshape(gradient.shape[0], -1)).reshape(1, *flat.shape[1:]).to(t.dtype)
            summed = summed if t.numel() > 1 else t * summed
            for_map = summed.permute(0, 3, 1, 2) if is_channels_last(gradient) else summed
        return gradient, for_t, for_map
