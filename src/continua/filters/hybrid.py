"""The hybrid discretisation of an N-jet of order ≤ 2: blur once, then differentiate by small differences.

Differentiation commutes with convolution, so the derivative of a wide Gaussian is a difference stencil after a blur that all channels
share (Lindeberg's hybrid discretisation):

    Y = (Σ_ij α_ij σ^(i+j) δ_i ⊗ δ_j) ⋆ (g_σ ⋆ X),      δ_0 = (0, 1, 0), δ_1 = (½, 0, −½), δ_2 = (1, −2, 1)

g_σ is the sampled Gaussian to a radius of at least 4σ, renormalised. The blurred map is one pixel larger on each side, else the stencil
would differentiate the border. Two banded products and one 3×3 convolution, whatever σ is. This is *another* discretisation than sampled
derivatives: at the same radius order 1 differs by 27 % (σ = 1), 8 % (2), 3.5 % (3), order 2 by 22 %, 6 %, 3 %. A close relative for
σ ≥ 2, another basis below. (δ_1 has this sign because convolution layers correlate: it is the derivative of the kernel, not of the map.)
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from continua.filters.basis import gaussian_derivatives
from continua.filters.kernel import JetKernel
from continua.filters.routes import Geometry, Operator, chunks, is_channels_last
from continua.native import plain_gradients

STENCILS = ((0.0, 1.0, 0.0), (0.5, 0.0, -0.5), (1.0, -2.0, 1.0))


def hybrid_operator(kernel: JetKernel, geometry: Geometry) -> Operator:
    """Blur with the kernel's σ, then apply its α to central differences."""
    gaussian, stencils = _blur_and_stencils(kernel)
    weight = JetKernel(kernel.alpha, stencils, stencils, kernel.sigma, kernel.order).weight()
    stride = geometry.stride

    def convolve(x: Tensor, bias: Tensor | None, blur_rows: Tensor, blur_cols: Tensor, weight: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            blurred = _blur_plain(x, blur_rows, blur_cols)
        else:
            blurred = _Blur.apply(x, blur_rows, blur_cols)
        return F.conv2d(blurred, weight, bias, stride=stride)

    return Operator("hybrid", (blur_matrix(gaussian, geometry.height), blur_matrix(gaussian, geometry.width), weight), convolve)


def hybrid_kernel(kernel: JetKernel) -> JetKernel:
    """The same discretisation as one kernel with taps σ^n δ_n ⋆ g: what the dense route applies when every sample has its own σ.

    Args:
        kernel: an N-jet kernel, realised.

    Returns:
        A kernel with other taps and the same coefficients.

    Examples:
        >>> from continua.filters import hybrid_kernel
        >>> hybrid_kernel(kernel)  # doctest: +SKIP
    """
    gaussian, stencils = _blur_and_stencils(kernel)
    padded = F.pad(gaussian, (2, 2))
    size = gaussian.shape[-1] + 2
    # Correlating twice is correlating with the convolution of both kernels, hence the shifts to the right.
    shifted = torch.stack([padded[..., 2 - k : 2 - k + size] for k in range(3)], dim=-2)
    taps = stencils @ shifted
    return JetKernel(kernel.alpha, taps, taps, kernel.sigma, kernel.order, kernel.sharing, kernel.blur_radii)


def _blur_and_stencils(kernel: JetKernel) -> tuple[Tensor, Tensor]:
    """The sampled Gaussian (…, taps) and the scaled stencils σ^n δ_n (…, derivatives, 3)."""
    sigma = kernel.sigma
    gaussian = gaussian_derivatives(sigma, 0, kernel.blur_radii if kernel.batched else kernel.blur_radii[0])[..., 0, :]
    scales = sigma[..., None] ** torch.arange(kernel.order + 1, device=sigma.device)
    return gaussian, scales[..., None] * torch.tensor(STENCILS[: kernel.order + 1], dtype=sigma.dtype, device=sigma.device)


def blur_matrix(taps: Float[Tensor, "taps"], size: int) -> Float[Tensor, "blurred size"]:
    """Blur `size` pixels with zeros around them; the result begins one pixel before the first and ends one after the last."""
    middle = taps.shape[0] // 2
    reach = min(middle, size)
    padded = F.pad(taps[middle - reach : middle + reach + 1], (size - reach, size - reach))
    pixels = torch.arange(size, device=taps.device)
    positions = torch.arange(-1, size + 1, device=taps.device)
    return padded[pixels[None, :] - positions[:, None] + size]


def _blur_plain(x: Tensor, blur_rows: Tensor, blur_cols: Tensor) -> Tensor:
    """The same in plain operations, for compilers."""
    return torch.einsum("gh,bchw,vw->bcgv", blur_rows, x, blur_cols)


class _Blur(torch.autograd.Function):
    """blur_rows X blur_colsᵀ for every channel, in the layout the map has; saves only its inputs."""

    @staticmethod
    def forward(ctx, x: Tensor, blur_rows: Tensor, blur_cols: Tensor) -> Tensor:
        ctx.save_for_backward(x, blur_rows, blur_cols)
        layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
        shape = (*x.shape[:2], blur_rows.shape[0], blur_cols.shape[0])
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=layout)
        x, into = _memory_order(x), _memory_order(y)
        height, width = _spatial_axes(y)
        for part in chunks(x):
            into[part] = _along(height, blur_rows, _along(width, blur_cols, x[part]))
        return y

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, blur_rows, blur_cols = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_blur_plain, (x, blur_rows, blur_cols), gradient, ctx.needs_input_grad)
        if is_channels_last(x) != is_channels_last(gradient):
            gradient = gradient.contiguous(memory_format=torch.channels_last if is_channels_last(x) else torch.contiguous_format)
        height, width = _spatial_axes(x)
        for_x, for_rows, for_cols = torch.empty_like(x), torch.zeros_like(blur_rows), torch.zeros_like(blur_cols)
        x, gradient, into = _memory_order(x), _memory_order(gradient), _memory_order(for_x)
        for part in chunks(x):
            half = _along(height, blur_rows.t(), gradient[part])
            into[part] = _along(width, blur_cols.t(), half)
            if ctx.needs_input_grad[2]:
                for_cols += _matrix_gradient(width, half, x[part])
            if ctx.needs_input_grad[1]:
                for_rows += _matrix_gradient(height, gradient[part], _along(width, blur_cols, x[part]))
        return for_x, for_rows, for_cols


def _memory_order(x: Tensor) -> Tensor:
    """The same data as a contiguous tensor: (n, c, h, w), or (n, h, w, c) for a channels_last map."""
    return x.permute(0, 2, 3, 1) if is_channels_last(x) else x.contiguous()


def _spatial_axes(x: Tensor) -> tuple[int, int]:
    return (1, 2) if is_channels_last(x) else (2, 3)


def _along(axis: int, matrix: Tensor, x: Tensor) -> Tensor:
    """matrix @ x along one axis of a contiguous tensor."""
    shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
    if axis == x.ndim - 1:
        return (x.flatten(0, -2) @ matrix.t()).view(shape)
    folded = x.reshape(x.shape[:axis].numel(), x.shape[axis], -1)
    return torch.bmm(matrix.expand(folded.shape[0], -1, -1), folded).view(shape)


def _matrix_gradient(axis: int, gradient: Tensor, x: Tensor) -> Tensor:
    """Gradient of `_along` with respect to its matrix."""
    if axis == x.ndim - 1:
        return gradient.flatten(0, -2).t() @ x.flatten(0, -2)
    outer = x.shape[:axis].numel()
    return torch.bmm(gradient.reshape(outer, gradient.shape[axis], -1), x.reshape(outer, x.shape[axis], -1).transpose(1, 2)).sum(0)
