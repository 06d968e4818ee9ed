"""The separable route of an N-jet: filter along one axis, mix channels, filter along the other.

    Y = Σ_j (Σ_i (L_i X) A_ij) R_jᵀ,      i + j ≤ N

with L_i, R_j the banded Toeplitz matrices of the one-dimensional derivatives (DCN eq. 8): the dense route's numbers to rounding, at a cost
that does not depend on σ. Every step is one matrix product if maps are laid out as (height, width, samples, channels), so the batch is
walked in chunks that fit the cache, each brought into that layout and back.
"""

import itertools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from continua.filters.basis import jet_orders
from continua.filters.kernel import JetKernel
from continua.filters.routes import Geometry, Operator, chunks, is_channels_last
from continua.native import plain_gradients
from continua.ode import replaying

Blocks = list[tuple[slice, slice]]


def separable_operator(kernel: JetKernel, geometry: Geometry) -> Operator:
    """Apply `kernel` by its factors; needs one σ for the layer and "same" padding."""
    rows = band_matrices(kernel.rows, geometry.height, geometry.stride)
    blocks = band_blocks(geometry.height, geometry.stride, kernel.rows.shape[-1] // 2)
    cols = band_matrices(kernel.cols, geometry.width, geometry.stride)

    def convolve(x: Tensor, bias: Tensor | None, rows: Tensor, alpha: Tensor, cols: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            y = separable_plain(x, rows, alpha, cols)
        else:
            y = _Separable.apply(x, rows, alpha, cols, blocks, replaying())
        return y if bias is None else y + bias[:, None, None]

    return Operator("separable", (rows, kernel.alpha, cols), convolve)


def band_matrices(taps: Float[Tensor, "derivatives taps"], size: int, stride: int) -> Float[Tensor, "derivatives out size"]:
    """The matrices of correlation with each row of `taps` on `size` pixels with zeros around, keeping every `stride`-th output."""
    reach = min(taps.shape[-1] // 2, size - 1)
    middle = taps.shape[-1] // 2
    padded = F.pad(taps[..., middle - reach : middle + reach + 1], (size - 1 - reach, size - 1 - reach))
    source = torch.arange(size, device=taps.device)
    return padded[..., source[None, :] - source[::stride, None] + size - 1]


def band_blocks(size: int, stride: int, reach: int, block: int = 8) -> list[tuple[slice, slice]]:
    """Outputs and the inputs they read, in blocks that leave out most zeros of a band; one block where the band fills the matrix."""
    outputs = -(-size // stride)
    if block * stride + 2 * reach > 0.6 * size:
        return [(slice(0, outputs), slice(0, size))]
    starts = range(0, outputs, block)
    ends = [min(start + block, outputs) for start in starts]
    reads = [slice(max(0, a * stride - reach), min(size, (b - 1) * stride + reach + 1)) for a, b in zip(starts, ends, strict=True)]
    return [(slice(a, b), read) for a, b, read in zip(starts, ends, reads, strict=True)]


def separable_plain(x: Tensor, rows: Tensor, alpha: Tensor, cols: Tensor) -> Tensor:
    """The same sum in plain operations, for compilers; materialises all intermediate maps."""
    order = rows.shape[0] - 1
    filtered = torch.einsum("igh,bchw->ibcgw", rows, x)
    mixed = [torch.zeros_like(x[:, :1, :1])] * (order + 1)
    for f, (i, j) in enumerate(jet_orders(order)):
        mixed[j] = mixed[j] + torch.einsum("bcgw,co->bogw", filtered[i], alpha[f])
    return torch.einsum("jvw,jbogw->bogv", cols, torch.stack(mixed))


class _Separable(torch.autograd.Function):
    """Saves only its inputs: filtering again along one axis is cheaper than keeping six maps through an ODE solve.

    With `keep` it saves those maps all the same: where the graph lives for one step only, time is dearer than memory.
    """

    @staticmethod
    def forward(ctx, x: Tensor, rows: Tensor, alpha: Tensor, cols: Tensor, blocks: Blocks, keep: bool) -> Tensor:
        shape = (x.shape[0], alpha.shape[2], rows.shape[1], cols.shape[1])
        layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=layout)
        kept: list[Tensor] = []
        for part in chunks(x):
            walk = _Walk.of(x[part], rows, alpha, cols, blocks)
            _from_pixels_first(walk.filter_columns(), y[part])
            if keep:
                kept += [walk.x, walk.filtered, walk.mixed]
        ctx.save_for_backward(x, rows, alpha, cols, *kept)
        ctx.blocks = blocks
        return y

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, rows, alpha, cols, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *plain_gradients(separable_plain, (x, rows, alpha, cols), gradient, ctx.needs_input_grad[:4]), None, None
        for_x, for_rows, for_alpha, for_cols = (
            torch.zeros_like(value) if needed else None for value, needed in zip((x, rows, alpha, cols), ctx.needs_input_grad, strict=False)
        )
        for index, part in enumerate(chunks(x)):
            if kept:
                walk = _Walk(*kept[3 * index : 3 * index + 3], rows, alpha, cols, ctx.blocks)
            else:
                walk = _Walk.of(x[part], rows, alpha, cols, ctx.blocks)
            g = _to_pixels_first(gradient[part])
            if for_cols is not None:
                walk.accumulate_cols(g, for_cols)
            mixed_gradient = walk.filter_columns_back(g)
            if for_alpha is not None:
                walk.accumulate_alpha(mixed_gradient, for_alpha)
            if for_x is None and for_rows is None:
                continue
            filtered_gradient = walk.mix_back(mixed_gradient)
            if for_rows is not None:
                walk.accumulate_rows(filtered_gradient, for_rows)
            if for_x is not None:
                _from_pixels_first(walk.filter_rows_back(filtered_gradient), for_x[part])
        return for_x, for_rows, for_alpha, for_cols, None, None


class _Walk:
    """One chunk of images on its way through the three steps; h, w input size, g, v output size, n samples, c and o channels.

    `x` is (h, w, n, c), `filtered` L_i X as (i, g·w·n, c), `mixed` Σ_i (L_i X) A_ij as (j, g·w·n, o).
    """

    def __init__(self, x: Tensor, filtered: Tensor, mixed: Tensor, rows: Tensor, alpha: Tensor, cols: Tensor, blocks: Blocks) -> None:
        self.x, self.filtered, self.mixed, self.rows, self.alpha, self.cols, self.blocks = x, filtered, mixed, rows, alpha, cols, blocks
        self.order = rows.shape[0] - 1
        self.pairs = [(f, i, j) for f, (i, j) in enumerate(jet_orders(self.order))]
        self.out_height, (_, self.width, self.samples, _) = rows.shape[1], x.shape

    @classmethod
    def of(cls, x: Tensor, rows: Tensor, alpha: Tensor, cols: Tensor, blocks: Blocks) -> "_Walk":
        x = _to_pixels_first(x)
        if len(blocks) == 1:
            filtered = rows.reshape(-1, rows.shape[2]) @ x.flatten(1)
        else:
            filtered = x.new_empty(rows.shape[0], rows.shape[1], x[0].numel())
            for i, (write, read) in itertools.product(range(rows.shape[0]), blocks):
                torch.mm(rows[i, write, read], x[read].flatten(1), out=filtered[i, write])
        filtered = filtered.view(rows.shape[0], -1, x.shape[3])
        mixed = filtered.new_empty(*filtered.shape[:2], alpha.shape[2])
        started = set()
        for f, (i, j) in enumerate(jet_orders(rows.shape[0] - 1)):
            mixed[j].addmm_(filtered[i], alpha[f], beta=int(j in started))
            started.add(j)
        return cls(x, filtered, mixed, rows, alpha, cols, blocks)

    def filter_columns(self) -> Tensor:
        """Σ_j over the last axis, as (g, v, n, o)."""
        per_row = self.mixed.view(self.order + 1, self.out_height, self.width, -1)
        y = per_row.new_empty(self.out_height, self.cols.shape[1], per_row.shape[-1])
        for j in range(self.order + 1):
            y.baddbmm_(self.cols[j].expand(self.out_height, -1, -1), per_row[j], beta=int(j > 0))
        return y.view(*y.shape[:2], self.samples, -1)

    def filter_columns_back(self, g: Tensor) -> Tensor:
        back = g.new_empty(self.order + 1, self.out_height, self.width, g.shape[2] * g.shape[3])
        for j, matrix in enumerate(self.cols):
            torch.bmm(matrix.t().expand(self.out_height, -1, -1), g.flatten(2), out=back[j])
        return back.view(self.order + 1, -1, self.alpha.shape[2])

    def accumulate_cols(self, g: Tensor, for_cols: Tensor) -> None:
        per_row = self.mixed.view(self.order + 1, self.out_height, self.width, -1)
        for j in range(self.order + 1):
            for_cols[j] += torch.bmm(g.flatten(2), per_row[j].transpose(1, 2)).sum(0)

    def accumulate_alpha(self, mixed_gradient: Tensor, for_alpha: Tensor) -> None:
        for f, i, j in self.pairs:
            for_alpha[f].addmm_(self.filtered[i].t(), mixed_gradient[j])

    def mix_back(self, mixed_gradient: Tensor) -> Tensor:
        """Gradient of (L_i X) as (i, g, w·n·c)."""
        back = torch.empty_like(self.filtered)
        started = set()
        for f, i, j in self.pairs:
            back[i].addmm_(mixed_gradient[j], self.alpha[f].t(), beta=int(i in started))
            started.add(i)
        return back.view(self.order + 1, self.out_height, -1)

    def accumulate_rows(self, filtered_gradient: Tensor, for_rows: Tensor) -> None:
        """Only entries within the band matter: those outside are constant zeros."""
        for i, (write, read) in itertools.product(range(self.order + 1), self.blocks):
            for_rows[i, write, read] += filtered_gradient[i, write] @ self.x[read].flatten(1).t()

    def filter_rows_back(self, filtered_gradient: Tensor) -> Tensor:
        if len(self.blocks) == 1:
            return (self.rows.flatten(0, 1).t() @ filtered_gradient.flatten(0, 1)).view_as(self.x)
        back = torch.zeros_like(self.x)
        for i, (write, read) in itertools.product(range(self.order + 1), self.blocks):
            back[read].flatten(1).addmm_(self.rows[i, write, read].t(), filtered_gradient[i, write])
        return back


def _to_pixels_first(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "h w n c"]:
    n, c, h, w = x.shape
    if x.is_contiguous():
        # As a plain matrix, which has a blocked transposition; the permutation of four axes has not.
        return x.view(n * c, h * w).t().contiguous().view(h, w, n, c)
    return x.permute(2, 3, 0, 1).contiguous()


def _from_pixels_first(y: Float[Tensor, "h w n c"], into: Float[Tensor, "n c h w"]) -> None:
    h, w, n, c = y.shape
    if into.is_contiguous():
        into.view(n * c, h * w).copy_(y.view(h * w, n * c).t())
    else:
        into.copy_(y.permute(2, 3, 0, 1))
