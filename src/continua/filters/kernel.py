"""What a filter becomes on a pixel grid: a kernel whose size is known on the host and whose numbers are tensors."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from continua.filters.basis import jet_orders


class Kernel(Protocol):
    """A realised filter. `weight()` is made on demand: a route that works with the factors never builds it."""

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the sampled kernel."""
        ...

    @property
    def batched(self) -> bool:
        """True when every sample has its own kernel (a time-dependent filter under per-sample time)."""
        ...

    def weight(self) -> Float[Tensor, "*batch out in rows cols"]:
        """Dense weights in the layout of `conv2d`."""
        ...

    def cropped(self, rows: int, cols: int) -> "Kernel":
        """The same kernel without taps farther than `rows`, `cols` from its centre."""
        ...

    def inputs(self, start: int, stop: int) -> "Kernel":
        """The part that reads input channels start … stop − 1."""
        ...


@dataclass(frozen=True)
class PixelKernel:
    """A kernel given by its pixels."""

    pixels: Float[Tensor, "*batch out in rows cols"]

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[-2], self.pixels.shape[-1]

    @property
    def batched(self) -> bool:
        return self.pixels.ndim == 5

    def weight(self) -> Tensor:
        return self.pixels

    def inputs(self, start: int, stop: int) -> "PixelKernel":
        return PixelKernel(self.pixels[..., start:stop, :, :])

    def cropped(self, rows: int, cols: int) -> "PixelKernel":
        height, width = self.size
        if height % 2 == 0 or width % 2 == 0:
            return self
        y, x = min(rows, height // 2), min(cols, width // 2)
        return PixelKernel(self.pixels[..., height // 2 - y : height // 2 + y + 1, width // 2 - x : width // 2 + x + 1])


@dataclass(frozen=True)
class JetKernel:
    """Σ_ij α_ij G_i(y) G_j(x) with its factors kept apart.

    `sharing` says which axes precede (derivatives, taps) in `rows` and `cols`: none ("layer"), the sample ("sample"), the output channel
    ("channel"), or input and output channel ("pair"). α is (basis, in, out), with the sample in front where it depends on it.
    """

    alpha: Float[Tensor, "*batch basis in out"]
    rows: Float[Tensor, "*shared derivatives row_taps"]
    cols: Float[Tensor, "*shared derivatives col_taps"]
    sigma: Tensor
    order: int
    sharing: str = "layer"
    gaussian: bool = False  # rows and cols are `gaussian_derivatives` of sigma, and move with it alone

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.shape[-1], self.cols.shape[-1]

    @property
    def batched(self) -> bool:
        return self.sharing == "sample"

    def cropped(self, rows: int, cols: int) -> "JetKernel":
        return replace(self, rows=_centre(self.rows, rows), cols=_centre(self.cols, cols))

    def inputs(self, start: int, stop: int) -> "JetKernel":
        part = replace(self, alpha=self.alpha[..., start:stop, :])
        return replace(part, rows=self.rows[start:stop], cols=self.cols[start:stop]) if self.sharing == "pair" else part

    def weight(self) -> Tensor:
        if self.sharing == "pair":
            return self._weight_of_pairs()
        orders = jet_orders(self.order)
        basis = torch.stack([self.rows[..., i, :, None] * self.cols[..., j, None, :] for i, j in orders], dim=-3).flatten(-2)
        # (…, out, in, basis) @ (…, basis, taps): already conv2d's layout, no transposition of the large result.
        alpha = self.alpha.transpose(-1, -3)
        if self.sharing == "sample":
            basis = basis[:, None]
        return (alpha @ basis).unflatten(-1, self.size)

    def _weight_of_pairs(self) -> Tensor:
        # Rows first, so that no tensor of (pairs × basis × taps) is ever built.
        along_x = [torch.zeros_like(self.cols[:, :, 0])] * (self.order + 1)
        for f, (i, j) in enumerate(jet_orders(self.order)):
            along_x[i] = along_x[i] + self.alpha[f, :, :, None] * self.cols[:, :, j]
        return torch.einsum("coiy,icox->ocyx", self.rows, torch.stack(along_x))


def _centre(taps: Tensor, reach: int) -> Tensor:
    middle = taps.shape[-1] // 2
    reach = min(reach, middle)
    return taps[..., middle - reach : middle + reach + 1]
