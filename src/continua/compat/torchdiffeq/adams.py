"""Multistep methods of Adams: Bashforth's predictor, and Moulton's corrector solved by iteration.

Both integrate the polynomial through the last values of f, taken as equally spaced; the first steps are Runge–Kutta steps (Hairer, Nørsett
& Wanner I, §III.1).
"""

import warnings
from collections import deque
from fractions import Fraction
from functools import lru_cache
from typing import Any

import torch

from continua.compat.torchdiffeq.grid import GridRate, carrier
from continua.compat.torchdiffeq.state import Parts, moved, weighted
from continua.errors import ConfigError, ContinuaWarning
from continua.ode import Attempt, ExplicitStepper, Rate, Step, Stepper, between, find_method

LEAST_ORDER, MOST_ORDER = 4, 12


@lru_cache
def adams_weights(first: int, count: int) -> tuple[float, ...]:
    """∫₀¹ of the Lagrange polynomials of the nodes first, first − 1, …: Bashforth's for first = 0, Moulton's for first = 1."""
    nodes = [Fraction(first - i) for i in range(count)]
    integrals = []
    for node in nodes:
        polynomial = [Fraction(1)]  # coefficients, the constant one first
        for other in nodes:
            if other != node:
                raised, scaled = [Fraction(0), *polynomial], [*(other * value for value in polynomial), Fraction(0)]
                polynomial = [(a - b) / (node - other) for a, b in zip(raised, scaled, strict=True)]
        integrals.append(float(sum(value / (power + 1) for power, value in enumerate(polynomial))))
    return tuple(integrals)


class AdamsStepper(Stepper):
    """A step from the values of f at the last steps. It remembers them, so it serves one solve; its graph is autograd's own."""

    def __init__(self, corrected: bool, interp: str, max_order: int, max_iters: int, rtol: float, atol: float) -> None:
        if max_order > MOST_ORDER:
            raise ConfigError(f"max_order={max_order}; Adams methods go up to order {MOST_ORDER}")
        if max_order < LEAST_ORDER:
            text = f"max_order={max_order} is below {LEAST_ORDER}"
            warnings.warn(f"{text}: every step will be one of rk4", ContinuaWarning, stacklevel=6)
        self.tableau, self.order, self.evaluations = carrier(interp), 1, 1 + corrected
        self._starter = ExplicitStepper(find_method("rk38"))
        self._corrected, self._cubic, self._max_iters = corrected, interp == "cubic", max_iters
        self._rtol, self._atol = rtol, atol
        self._history: deque[tuple[Parts, Any]] = deque(maxlen=max(1, max_order - 1))
        self._steps = 0

    def step(self, rate: Rate, t: Any, t_next: Any, y: Parts, first: Parts | None) -> Any:
        h, slope = t_next - t, rate(t, y) if first is None else first
        length = rate.length(self._steps) if isinstance(rate, GridRate) else 1.0
        self._steps += 1
        self._history.appendleft((slope, length))
        if len(self._history) < LEAST_ORDER - 1:
            mean = weighted(self._starter.tableau.b, self._starter.stages(rate, t, t_next, y, slope))
        else:
            mean = self._adams(rate, t_next, h, y, length)
        y1 = moved(y, h, mean)
        return Attempt(y1, [slope, mean, rate(t_next, y1) if self._cubic else mean], None)

    def shortened(self, rate: Rate, step: Step, t_next: Any) -> Attempt:
        """The state on the interpolant: the formula belongs to the grid, and a shorter step would not be one of its own."""
        return Attempt(between(self.tableau, step, float((t_next - step.t) / step.h)), step.stages, None)

    def _adams(self, rate: Rate, t_next: Any, h: Any, y: Parts, length: Any) -> Parts:
        """The mean slope over the step."""
        slopes, ratios = [slope for slope, _ in self._history], [length / then for _, then in self._history]
        mean = weighted([w * r for w, r in zip(adams_weights(0, len(slopes)), ratios, strict=True)], slopes)
        if not self._corrected:
            return mean
        ahead, *behind = adams_weights(1, len(slopes) + 1)
        known = weighted([w * r for w, r in zip(behind, ratios, strict=True)], slopes)
        for _ in range(self._max_iters):
            end = rate(t_next, moved(y, h, mean))
            before, mean = mean, tuple(ahead * f + rest for f, rest in zip(end, known, strict=True))
            if self._converged(h, before, mean):
                return mean
        warnings.warn("the iteration of Moulton's corrector did not converge; take smaller steps", ContinuaWarning, stacklevel=2)
        self._history.pop()
        return mean

    @torch.no_grad()
    def _converged(self, h: Any, before: Parts, after: Parts) -> bool:
        for a, b in zip(before, after, strict=True):
            allowed = self._atol + self._rtol * torch.maximum((h * a).abs(), (h * b).abs())
            if not bool(((h * (a - b)).abs() < allowed).all()):
                return False
        return True
