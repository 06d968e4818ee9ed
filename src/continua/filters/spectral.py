"""Reaction, diffusion and advection of a small periodic image, mode by mode (ANODEV2 eq. 11 and 12).

In Fourier space the operator τ Δ + v·∇ + ρ is diagonal: mode k grows by λ(k) = −(τ_y k_y² + τ_x k_x²) + i (v_y k_y + v_x k_x) + ρ, so
w(t) = F⁻¹(e^(tλ) F(w(0))) at any t. The border is periodic. e^(+ikv) gives w(x + vt): positive v moves a pattern to lower indices.

An image of even size has a Nyquist mode, its own mirror image: a shift by part of a pixel would make it complex. Advection leaves it
alone, so that results are real and steps compose for every size; a shift by one whole pixel is an exact roll for odd sizes only.
"""

from dataclasses import dataclass
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from continua.errors import ConfigError

WAVE_NUMBERS = ("integer", "radian")


@dataclass(frozen=True)
class WaveNumbers:
    """k of the modes of a real image: (rows, 1) and (1, cols // 2 + 1). `*_shift` are those that advection sees, 0 at Nyquist."""

    y: Tensor
    x: Tensor
    y_shift: Tensor
    x_shift: Tensor


def wave_numbers(rows: int, cols: int, convention: str, like: Tensor) -> WaveNumbers:
    """ "integer": 0, 1, −1, … (the image has period 2π); "radian": times 2π / size, radians per pixel, so that v = 1 is one pixel."""
    if convention not in WAVE_NUMBERS:
        raise ConfigError(f"wave numbers are {' or '.join(map(repr, WAVE_NUMBERS))}; got {convention!r}")
    found = []
    for size, modes in ((rows, torch.fft.fftfreq), (cols, torch.fft.rfftfreq)):
        k = (modes(size, dtype=torch.float64) * size).round()
        shift = torch.where(2 * k.abs() == size, 0.0, k)
        unit = 2 * pi / size if convention == "radian" else 1.0
        found += [(unit * k).to(like), (unit * shift).to(like)]
    y, y_shift, x, x_shift = found
    return WaveNumbers(y[:, None], x[None], y_shift[:, None], x_shift[None])


def rates(
    k: WaveNumbers, tau: Float[Tensor, "channels 2"], v: Float[Tensor, "channels 2"], rho: Float[Tensor, " channels"]
) -> tuple[Float[Tensor, "channels 1 rows modes"], Float[Tensor, "channels 1 rows modes"]]:
    """Real and imaginary part of λ for every mode of every output channel; τ and v are (y, x)."""
    wide = (slice(None), None, None, None)
    growth = rho[wide] - tau[:, 0][wide] * k.y**2 - tau[:, 1][wide] * k.x**2
    turn = v[:, 0][wide] * k.y_shift + v[:, 1][wide] * k.x_shift
    return growth, turn


def operate(w: Float[Tensor, "*batch out in rows cols"], growth: Tensor, turn: Tensor) -> Tensor:
    """(τ Δ + v·∇ + ρ) w."""
    return torch.fft.irfft2(torch.fft.rfft2(w) * torch.complex(growth, turn), s=w.shape[-2:])


def propagate(w: Float[Tensor, "out in rows cols"], growth: Tensor, turn: Tensor, t: Tensor | float) -> Tensor:
    """w after a time t, exactly (eq. 12); one w for each t where t is (batch,)."""
    t = torch.as_tensor(t, dtype=w.dtype, device=w.device)
    t = t.reshape(-1, 1, 1, 1, 1) if t.ndim else t
    factor = torch.polar(torch.exp(t * growth), t * turn)
    return torch.fft.irfft2(torch.fft.rfft2(w) * factor, s=w.shape[-2:])
