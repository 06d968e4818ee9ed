"""Linear support vector machines, one against the rest, all classes at once: scikit-learn's `LinearSVC` for many fits.

For each class k with y = ±1, over weights w and a bias b that is one more weight (as in LIBLINEAR, Fan et al. 2008),

    minimise  ½ (‖w‖² + b²) + C Σ_i max(0, 1 − y_i (w·x_i + b))²

The minimum is unique, so whoever finds it finds the same machine. LIBLINEAR walks to it class by class; here the classes walk together,
so that the work is products of large matrices: nonlinear conjugate gradients with a line search, preconditioned by the Hessian
I + 2C Σ_active x xᵀ. The Hessian of all samples, thinned, serves all classes at first; those that have not arrived after some steps
get their own, at their present active samples, which makes the walk Newton's. From one C to the next larger one, and from one Hessian to
the next, few samples become active or idle, so only those few are added and taken away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from warnings import warn

import numpy as np
import torch
from torch import Tensor

from continua.errors import ContinuaWarning

SHARED = 12  # steps with the Hessian that all classes share
PATIENCE = 2  # steps with a Hessian of one's own, before it is brought up to date where the gradient has not become 30 times smaller
MEMORY = 2**26  # numbers in the Hessians that are kept at a time
LINE_SEARCH = 12  # trials along a line at most
FLAT = 0.1  # a slope this much smaller than at the start of the line is flat: the next direction forgives what is left


@dataclass(frozen=True)
class LinearMachine:
    """w·x + b of every class; the largest decides."""

    classes: np.ndarray
    weights: np.ndarray  # (features, classes)
    bias: np.ndarray
    steps: int

    def predict(self, features: np.ndarray) -> np.ndarray:
        return self.classes[(features @ self.weights + self.bias).argmax(1)]


def fit_linear_machines(
    features: np.ndarray,
    labels: np.ndarray,
    cs: Sequence[float],
    *,
    tol: float = 3e-4,
    max_steps: int = 300,
    dtype: torch.dtype | None = None,
) -> list[LinearMachine]:
    """One machine for each C, from (samples, features) and a label per sample. C should rise: each begins where the one before ended.

    `tol`: how far the weights may be from the minimum, relative to its own size. `dtype`: of the arithmetic (default: the features').
    """
    classes, targets = np.unique(labels, return_inverse=True)
    x = torch.tensor(features, dtype=dtype)
    x = torch.cat([x, x.new_ones(len(x), 1)], 1)
    gram = x.T @ x
    weights: list[list[Tensor]] = [[] for _ in cs]
    steps = [0] * len(cs)
    for batch in torch.arange(len(classes)).split(max(1, MEMORY // gram.numel())):
        y = torch.where(torch.from_numpy(targets)[:, None] == batch, 1.0, -1.0).to(x.dtype)
        walkers = _Walkers(x, y, gram)
        for place, c in enumerate(cs):
            steps[place] = max(steps[place], walkers.walk(c, tol, max_steps))
            weights[place].append(walkers.w.clone())
    late = [f"{c:g}" for c, taken in zip(cs, steps, strict=True) if taken == max_steps]
    if late:
        text = f"linear SVMs with C = {', '.join(late)} have not converged in {max_steps} steps; standardise the features"
        warn(text, ContinuaWarning, stacklevel=2)
    joined = [torch.cat(parts, 1).numpy() for parts in weights]
    return [LinearMachine(classes, w[:-1], w[-1], taken) for w, taken in zip(joined, steps, strict=True)]


class _Walkers:
    """The machines of some classes on their way to their minima: weights (features, classes), margins (samples, classes)."""

    def __init__(self, x: Tensor, y: Tensor, gram: Tensor) -> None:
        self.x, self.y, self.gram = x, y, gram
        self.w = x.new_zeros(x.shape[1], y.shape[1])
        self.short = torch.ones_like(y)  # how far each sample is from its margin: 1 − y (w·x), here at w = 0
        self.active = torch.zeros_like(y, dtype=torch.bool)  # the samples that `grams` are made of
        self.grams: Tensor | None = None

    def walk(self, c: float, tol: float, max_steps: int) -> int:
        """Go to the minima for this C; the number of steps of the slowest class."""
        # About half of the samples are active: those beyond where a least-squares fit would put them.
        shared = self._inverse(0.5 * self.gram, c)
        under_way = _UnderWay(self.x, self.y, c, self.w, self.short, shared)
        mark = torch.zeros_like(self.w[0])
        for step in range(max_steps):
            late = step - SHARED
            if late >= 0 and late % PATIENCE == 0:
                slow = under_way.size > 1e-3 * mark if late else torch.ones_like(under_way.size, dtype=torch.bool)
                self._renew(under_way, slow)
                mark = under_way.size
            going = under_way.size > tol * tol * under_way.value  # else ‖w − w*‖ is below about tol ‖w*‖, in the Hessian's metric
            arrived = len(going) - int(going.sum())
            if arrived == len(going) or 4 * arrived > len(going):  # leaving costs a copy: not one by one
                self._take_back(under_way)
                if arrived == len(going):
                    return step
                under_way.keep(going)
                mark = mark[going]
            under_way.step()
        self._take_back(under_way)
        return max_steps

    def _renew(self, under_way: "_UnderWay", which: Tensor) -> None:
        """Give some classes the Hessians of their present active samples."""
        if self.grams is None:
            self.grams = self.gram.new_zeros(self.y.shape[1], *self.gram.shape)
        if under_way.inverse.ndim == 2:
            under_way.inverse = self.gram.new_empty(len(under_way.rows), *self.gram.shape)
        for place in which.nonzero().flatten().tolist():
            name = int(under_way.rows[place])
            now, before = under_way.short[:, place] > 0, self.active[:, name]
            self.grams[name] = self._gram(now, before, self.grams[name])
            self.active[:, name] = now
            under_way.inverse[place] = self._inverse(self.grams[name], under_way.c)
        under_way.aim()

    def _gram(self, now: Tensor, before: Tensor, known: Tensor) -> Tensor:
        """Σ x xᵀ over the samples that are active now, from the fewest products: all of them, all idle ones, or those that changed."""
        gained, lost = now & ~before, before & ~now
        changed, active = int(gained.sum() + lost.sum()), int(now.sum())
        fewest = min(changed, active, len(now) - active)
        if changed == fewest:
            return known + _square(self.x[gained]) - _square(self.x[lost])
        return _square(self.x[now]) if active == fewest else self.gram - _square(self.x[~now])

    def _inverse(self, gram: Tensor, c: float) -> Tensor:
        """Of the Hessian. It only shows the way, so its rounding does no harm, and products with it are the fastest of all solutions."""
        hessian = torch.eye(len(gram), dtype=gram.dtype).add_(gram, alpha=2 * c)
        return torch.cholesky_inverse(torch.linalg.cholesky(hessian))

    def _take_back(self, under_way: "_UnderWay") -> None:
        self.w[:, under_way.rows] = under_way.w
        self.short[:, under_way.rows] = under_way.short


class _UnderWay:
    """The classes that have not arrived, each with its direction; `look` must have been called at the place where they are."""

    def __init__(self, x: Tensor, y: Tensor, c: float, w: Tensor, short: Tensor, inverse: Tensor) -> None:
        self.x, self.y, self.c, self.inverse = x, y, c, inverse
        self.rows = torch.arange(y.shape[1])
        self.w, self.short = w.clone(), short.clone()
        self.direction: Tensor | None = None
        self.g_before = self.size_before = x.new_zeros(())
        self.look()

    def look(self) -> None:
        """The function's value and gradient here."""
        slack = self.short.clamp(min=0.0)
        self.value = 0.5 * self.w.square().sum(0) + self.c * slack.square().sum(0)
        self.g = self.w - 2 * self.c * (self.x.T @ slack.mul_(self.y))
        self.aim()

    def aim(self) -> None:
        """The way downhill, and how much a Newton step would gain (twice that: `size`)."""
        if self.inverse.ndim == 2:
            self.downhill = self.inverse @ self.g
        else:
            self.downhill = torch.bmm(self.inverse, self.g.T[:, :, None])[:, :, 0].T
        self.size = (self.g * self.downhill).sum(0)

    def step(self) -> None:
        """To the lowest point of a line, and look again."""
        direction = -self.downhill
        if self.direction is not None:  # Polak–Ribière, begun anew where it would lead uphill
            beta = (((self.g - self.g_before) * self.downhill).sum(0) / self.size_before).clamp(min=0.0)
            joined = beta * self.direction + direction
            direction = torch.where((self.g * joined).sum(0) < 0, joined, direction)
        self.direction, self.g_before, self.size_before = direction, self.g, self.size
        gain = (self.x @ direction).mul_(self.y)  # of each margin, per unit of the line
        length = self._lowest(direction, gain)
        self.w = self.w + length * direction
        self.short -= length * gain
        self.look()

    def _lowest(self, direction: Tensor, gain: Tensor) -> Tensor:
        """The minimum along each class's line, about: the function there is convex and piecewise quadratic."""
        curve, slope = direction.square().sum(0), (self.w * direction).sum(0)
        low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)  # the slope is negative at one and positive at the other
        length, steep = low, None
        for _ in range(LINE_SEARCH):
            short = self.short - length * gain
            active = gain * (short > 0)
            first = slope + length * curve - 2 * self.c * short.mul_(active).sum(0)
            steep = first.abs() if steep is None else steep
            if bool((first.abs() <= FLAT * steep).all()):
                break
            low, high = torch.where(first < 0, length, low), torch.where(first < 0, high, length)
            length = length - first / (curve + 2 * self.c * active.square_().sum(0))
            # Newton's step may leave the bracket where few samples are active; halving it may not.
            length = torch.where(((length > low) & (length < high)) | high.isinf(), length, (low + high) / 2)
        return length

    def keep(self, going: Tensor) -> None:
        """The others have arrived, and leave the computation."""
        self.rows, self.value, self.size = self.rows[going], self.value[going], self.size[going]
        self.w, self.y, self.short = self.w[:, going], self.y[:, going], self.short[:, going]
        self.g, self.downhill = self.g[:, going], self.downhill[:, going]
        self.inverse = self.inverse[going] if self.inverse.ndim == 3 else self.inverse
        if self.direction is not None:
            self.direction, self.g_before, self.size_before = self.direction[:, going], self.g_before[:, going], self.size_before[going]


def _square(x: Tensor) -> Tensor:
    return x.T @ x
