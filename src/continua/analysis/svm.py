"""Linear support vector machines, one against the rest, all classes at once: scikit-learn's `LinearSVC` for many fits.

For each class k with y = ±1, over weights w and a bias b that is one more weight (as in LIBLINEAR, Fan et al. 2008),

    minimise  ½ (‖w‖² + b²) + C Σ_i max(0, 1 − y_i (w·x_i + b))²

The minimum is unique, so whoever finds it finds the same machine. LIBLINEAR walks to it class by class; here the classes walk together,
so that the work is products of large matrices: nonlinear conjugate gradients with an exact line search, preconditioned by the Hessian
I + 2C Σ_active x xᵀ. The Hessian of all samples, thinned, serves all classes at first; a class that has not arrived after some steps
gets its own, at its present active samples, which makes the walk Newton's.
"""

from dataclasses import dataclass
from warnings import warn

import numpy as np
import torch
from torch import Tensor

from continua.errors import ContinuaWarning

SHARED = 12  # steps with the Hessian that all classes share
PATIENCE = 4  # steps after which a class whose gradient has not become 30 times smaller gets a new Hessian
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


def fit_linear_machine(
    features: np.ndarray,
    labels: np.ndarray,
    c: float,
    *,
    tol: float = 3e-4,
    max_steps: int = 300,
    dtype: torch.dtype | None = None,
    start: LinearMachine | None = None,
) -> LinearMachine:
    """Train on (samples, features) and a label per sample.

    `tol`: how far the weights may be from the minimum, relative to its own size. `dtype`: of the arithmetic (default: the features').
    `start`: a machine to begin with, of the same samples and a smaller C: the way from there is shorter, and ends at the same place.
    """
    classes, targets = np.unique(labels, return_inverse=True)
    x = torch.tensor(features, dtype=dtype)
    x = torch.cat([x, x.new_ones(len(x), 1)], 1)
    gram = x.T @ x
    at_once = max(1, MEMORY // gram.numel())
    found, steps = [], 0
    for some in torch.arange(len(classes)).split(at_once):
        y = torch.where(torch.from_numpy(targets)[:, None] == some, 1.0, -1.0).to(x.dtype)
        begin = None if start is None else torch.tensor(np.r_[start.weights, start.bias[None]][:, some], dtype=x.dtype)
        walk = _Walk(x, y, c, gram, begin)
        steps = max(steps, walk.run(tol, max_steps))
        found.append(walk.found)
    if steps == max_steps:
        warn(f"a linear SVM with C={c:g} has not converged in {max_steps} steps; standardise the features", ContinuaWarning, stacklevel=2)
    w = torch.cat(found, 1).numpy()
    return LinearMachine(classes, w[:-1], w[-1], steps)


class _Walk:
    """The machines of some classes on their way to their minima. Tensors have a column per class that is still under way."""

    def __init__(self, x: Tensor, y: Tensor, c: float, gram: Tensor, start: Tensor | None) -> None:
        self.x, self.y, self.c, self.gram = x, y, c, gram
        self.open = torch.arange(y.shape[1])
        self.w = x.new_zeros(x.shape[1], y.shape[1]) if start is None else start
        self.found = self.w.clone()
        self.short = torch.ones_like(y) if start is None else 1 - y * (x @ start)  # how far each sample is from its margin
        self.direction: Tensor | None = None
        self.g_before = self.size_before = x.new_zeros(())
        # About half of the samples are active: those beyond where a least-squares fit would put them.
        self.factor = torch.linalg.cholesky(self._hessian(0.5 * gram))

    def run(self, tol: float, max_steps: int) -> int:
        """Go to the minima; the number of steps of the slowest class."""
        mark = torch.zeros_like(self.w[0])
        for step in range(max_steps):
            slack = self.short.clamp(min=0.0)
            value = 0.5 * self.w.square().sum(0) + self.c * slack.square().sum(0)
            g = self.w - 2 * self.c * (self.x.T @ slack.mul_(self.y))
            late = step - SHARED
            if late >= 0 and late % PATIENCE == 0:
                self._renew_factors(self._size(g) > 1e-3 * mark if late else torch.ones_like(mark, dtype=torch.bool))
                mark = self._size(g)
            downhill = self._solved(g)
            size = (g * downhill).sum(0)
            going = size > tol * tol * value  # so ‖w − w*‖ is below about tol ‖w*‖, in the metric of the Hessian
            if not bool(going.all()):
                self._let_go(going)
                if not len(self.open):
                    return step
                g, downhill, size, mark = g[:, going], downhill[:, going], size[going], mark[going]
            self._step(g, downhill, size)
        self.found[:, self.open] = self.w
        return max_steps

    def _size(self, g: Tensor) -> Tensor:
        """The squared length of a gradient in the metric of the Hessian: twice what a Newton step would gain."""
        return (g * self._solved(g)).sum(0)

    def _step(self, g: Tensor, downhill: Tensor, size: Tensor) -> None:
        if self.direction is None:
            self.direction = -downhill
        else:  # Polak–Ribière, begun anew where it would lead uphill
            beta = (((g - self.g_before) * downhill).sum(0) / self.size_before).clamp(min=0.0)
            direction = beta * self.direction - downhill
            self.direction = torch.where((g * direction).sum(0) < 0, direction, -downhill)
        self.g_before, self.size_before = g, size
        gain = (self.x @ self.direction).mul_(self.y)  # of each margin, per unit of the line
        length = self._lowest(self.direction, gain)
        self.w = self.w + length * self.direction
        self.short -= length * gain

    def _lowest(self, direction: Tensor, gain: Tensor) -> Tensor:
        """The minimum along each class's line: the function there is convex and piecewise quadratic."""
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

    def _solved(self, g: Tensor) -> Tensor:
        if self.factor.ndim == 2:
            return torch.cholesky_solve(g, self.factor)
        return torch.cholesky_solve(g.T[:, :, None], self.factor)[:, :, 0].T

    def _renew_factors(self, which: Tensor) -> None:
        """Cholesky factors of the Hessians at the present active samples; from the fewer of active and idle samples."""
        if self.factor.ndim == 2:
            self.factor = self.factor.new_empty(len(self.open), *self.factor.shape)
        for place in which.nonzero().flatten().tolist():
            active = self.short[:, place] > 0
            few = 2 * int(active.sum()) <= len(active)
            part = self.x[active if few else ~active]
            inside = part.T @ part
            self.factor[place] = torch.linalg.cholesky(self._hessian(inside if few else self.gram - inside))
        self.direction = None

    def _hessian(self, gram: Tensor) -> Tensor:
        return torch.eye(len(gram), dtype=gram.dtype).add_(gram, alpha=2 * self.c)

    def _let_go(self, going: Tensor) -> None:
        """Classes that have arrived leave the computation."""
        self.found[:, self.open] = self.w
        self.open, self.w, self.y, self.short = self.open[going], self.w[:, going], self.y[:, going], self.short[:, going]
        self.factor = self.factor[going] if self.factor.ndim == 3 else self.factor
        if self.direction is not None:
            self.direction, self.g_before = self.direction[:, going], self.g_before[:, going]
            self.size_before = self.size_before[going]
