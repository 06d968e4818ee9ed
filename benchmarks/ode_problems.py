"""Initial value problems that solvers have been compared on for fifty years, as fields for `continua.solve`.

`DETEST`: the 25 nonstiff problems of Hull, Enright, Fellen & Sedgwick (1972), all on [0, 20]. `STIFF`: four of the stiff problems of Hairer
& Wanner II, §IV.10. Each f takes t and y of shape (batch, n); a problem knows its start, its end and, where components are small, its atol.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """dy/dt = f(t, y), y(0) = y0, to t = end. `small`: what the tolerance is multiplied with to give atol."""

    name: str
    f: Callable[[Tensor, Tensor], Tensor]
    y0: tuple[float, ...]
    end: float = 20.0
    small: float = 1.0

    @property
    def start(self) -> Tensor:
        """y0 as a batch of one sample."""
        return torch.tensor([self.y0], dtype=torch.float64)

    def rates(self, t: float, y: np.ndarray) -> np.ndarray:
        """f as SciPy calls it."""
        with torch.no_grad():
            return self.f(torch.tensor(t, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)[None])[0].numpy()


def together(*parts: Tensor) -> Tensor:
    return torch.stack(parts, dim=1)


def lotka(t: Tensor, y: Tensor) -> Tensor:
    a, b = y.unbind(1)
    return together(2 * (a - a * b), -(b - a * b))


def chemistry(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    return together(-a + b, a - 2 * b + c, b - c)


def reaction(t: Tensor, y: Tensor) -> Tensor:
    a, b, _ = y.unbind(1)
    return together(-a, a - b * b, b * b)


def torus(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    r = torch.hypot(a, b)
    return together(-b - a * c / r, a - b * c / r, a / r)


def rigid_body(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    return together(b * c, -a * c, -0.51 * a * b)


def decay_chain(rates: list[float]) -> Callable[[Tensor, Tensor], Tensor]:
    """Each component decays into the next; the last one stays."""
    loss = torch.tensor([*rates, 0.0], dtype=torch.float64)

    def f(t: Tensor, y: Tensor) -> Tensor:
        out = loss * y
        return torch.nn.functional.pad(out[:, :-1], (1, 0)) - out

    return f


def diffusion(t: Tensor, y: Tensor) -> Tensor:
    """The second difference, with zeros beyond the ends."""
    wide = torch.nn.functional.pad(y, (1, 1))
    return wide[:, 2:] - 2 * y + wide[:, :-2]


GRAVITY, SUN = 2.95912208286, 1.00000597682
MASSES = (0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778)
PLACES = (
    *(3.42947415189, 3.35386959711, 1.35494901715, 6.64145542550, 5.97156957878, 2.18231499728, 11.2630437207, 14.6952576794),
    *(6.27960525067, -30.1552268759, 1.65699966404, 1.43785752721, -21.1238353380, 28.4465098142, 15.3882659679),
)
VELOCITIES = (
    *(-0.557160570446, 0.505696783289, 0.230578543901, -0.415570776342, 0.365682722812, 0.169143213293, -0.325325669158),
    *(
        0.189706021964,
        0.0877265322780,
        -0.0240476254170,
        -0.287659532608,
        -0.117219543175,
        -0.176860753121,
        -0.216393453025,
        -0.0148647893090,
    ),
)


def outer_planets(t: Tensor, y: Tensor) -> Tensor:
    """Jupiter to Pluto around the Sun, in its frame."""
    place, velocity = (part.unflatten(1, (5, 3)) for part in y.split(15, dim=1))
    mass = torch.tensor(MASSES, dtype=y.dtype)
    pull = place / torch.linalg.vector_norm(place, dim=2, keepdim=True) ** 3
    gap = place[:, None] - place[:, :, None]  # (batch, of planet, to planet, 3)
    distance = torch.linalg.vector_norm(gap, dim=3, keepdim=True) + torch.eye(5, dtype=y.dtype)[:, :, None]
    others = (mass[:, None] * (1 - torch.eye(5, dtype=y.dtype))[:, :, None] * (gap / distance**3 - pull[:, None])).sum(2)
    return torch.cat([velocity, GRAVITY * (others - (SUN + mass)[:, None] * pull)], dim=1).flatten(1)


def orbit(t: Tensor, y: Tensor) -> Tensor:
    a, b, c, d = y.unbind(1)
    r = torch.hypot(a, b) ** 3
    return together(c, d, -a / r, -b / r)


def bessel(t: Tensor, y: Tensor) -> Tensor:
    a, b = y.unbind(1)
    return together(b, -(b / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * a))


def van_der_pol(mu: float) -> Callable[[Tensor, Tensor], Tensor]:
    def f(t: Tensor, y: Tensor) -> Tensor:
        a, b = y.unbind(1)
        return together(b, mu * (1 - a * a) * b - a)

    return f


def duffing(t: Tensor, y: Tensor) -> Tensor:
    a, b = y.unbind(1)
    return together(b, a**3 / 6 - a + 2 * torch.sin(2.78535 * t))


def falling(t: Tensor, y: Tensor) -> Tensor:
    _, b = y.unbind(1)
    return together(b, 0.032 - 0.4 * b * b)


def pursuit(t: Tensor, y: Tensor) -> Tensor:
    _, b = y.unbind(1)
    return together(b, torch.sqrt(1 + b * b) / (25 - t))


def _orbit(name: str, eccentricity: float) -> Problem:
    return Problem(name, orbit, (1 - eccentricity, 0.0, 0.0, sqrt((1 + eccentricity) / (1 - eccentricity))))


DETEST = (
    Problem("A1", lambda t, y: -y, (1.0,)),
    Problem("A2", lambda t, y: -(y**3) / 2, (1.0,)),
    Problem("A3", lambda t, y: y * torch.cos(t), (1.0,)),
    Problem("A4", lambda t, y: y / 4 * (1 - y / 20), (1.0,)),
    Problem("A5", lambda t, y: (y - t) / (y + t), (4.0,)),
    Problem("B1", lotka, (1.0, 3.0)),
    Problem("B2", chemistry, (2.0, 0.0, 1.0)),
    Problem("B3", reaction, (1.0, 0.0, 0.0)),
    Problem("B4", torus, (3.0, 0.0, 0.0)),
    Problem("B5", rigid_body, (0.0, 1.0, 1.0)),
    Problem("C1", decay_chain([1.0] * 9), (1.0, *[0.0] * 9)),
    Problem("C2", decay_chain([float(i) for i in range(1, 10)]), (1.0, *[0.0] * 9)),
    Problem("C3", diffusion, (1.0, *[0.0] * 9)),
    Problem("C4", diffusion, (1.0, *[0.0] * 50)),
    Problem("C5", outer_planets, (*PLACES, *VELOCITIES)),
    *(_orbit(f"D{i}", eccentricity) for i, eccentricity in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), start=1)),
    Problem("E1", bessel, (0.6713967071418030, 0.09540051444747446)),
    Problem("E2", van_der_pol(1.0), (2.0, 0.0)),
    Problem("E3", duffing, (0.0, 0.0)),
    Problem("E4", falling, (30.0, 0.0)),
    Problem("E5", pursuit, (0.0, 0.0)),
)


def robertson(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    return together(-0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b * b, 3e7 * b * b)


def hires(t: Tensor, y: Tensor) -> Tensor:
    a, b, c, d, e, f, g, h = y.unbind(1)
    return together(
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g,
        -280 * f * h + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        280 * f * h - 1.81 * g,
        -280 * f * h + 1.81 * g,
    )


def oregonator(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y.unbind(1)
    return together(77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c))


STIFF = (
    Problem("Robertson", robertson, (1.0, 0.0, 0.0), 1e11, 1e-6),
    Problem("Van der Pol, μ = 1000", van_der_pol(1000.0), (2.0, 0.0), 2000.0, 1e-2),
    Problem("HIRES", hires, (1.0, *[0.0] * 6, 0.0057), 321.8122, 1e-4),
    Problem("Oregonator", oregonator, (1.0, 2.0, 3.0), 360.0, 1e-2),
)
