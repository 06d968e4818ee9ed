"""How steps are chosen: Hairer's first step, and the law that turns an error into the next step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from continua.ode.config import Controller, SolverConfig
from continua.ode.rate import Rate
from continua.ode.solution import State
from continua.ode.stepper import Attempt, Stepper, Time, combine, error_ratio, rms

TINY = 1e-30  # keeps an error of exactly 0 from dividing


@dataclass
class Problem:
    """What every step loop is given. f takes the leading `width` components of the state; error control looks at `measured`."""

    rate: Rate
    stepper: Stepper
    config: SolverConfig
    y0: State
    t0: Time
    t1: Time
    width: int
    measured: int
    first: State | None = None  # f(t0, y0), where it is known already

    @property
    def batch(self) -> int:
        return self.y0[0].shape[0]  # len() would fix it when a solve is exported

    def ratio(self, attempt: Attempt, y: State, per_sample: bool) -> Tensor:
        """The error of an attempt relative to the tolerance: at most 1 is accepted."""
        measured = (attempt.error or ())[: self.measured]
        return error_ratio(measured, y, attempt.y1, self.config.rtol, self.config.atol, per_sample)


class NextStep:
    """The law of `Controller`, for one step or for a step per sample; remembers the last error and rejection."""

    def __init__(self, controller: Controller, estimate_order: int) -> None:
        self.controller = controller
        self.k = estimate_order
        self.previous: Tensor | float = 1.0
        self.rejected: Tensor | bool = False

    def __call__(self, h: Tensor, ratio: Tensor, accept: Tensor) -> Tensor:
        c = self.controller

        def either(accepted: float | None, rejected: float) -> Tensor:
            # torch.where of two numbers would round them to the default dtype, which users may set to a narrow one
            return torch.full_like(ratio, rejected).masked_fill(accept, float(accepted or 0.0))

        alpha, beta = either(c.alpha, 1.0) / self.k, either(c.beta, 0.0) / self.k
        factor = c.safety * ratio.clamp(min=TINY) ** -alpha * self.previous**beta
        lower, upper = either(c.accept_factor_min, c.factor_min), either(c.factor_max, 1.0)
        if c.hold_after_rejection:
            upper = upper.masked_fill(torch.as_tensor(self.rejected, device=accept.device), 1.0)
        self.previous = torch.where(accept, ratio.clamp(min=1e-4), self.previous)
        self.rejected = ~accept
        return h * torch.clamp(factor.nan_to_num(nan=0.0), lower, upper)

    def keep(self, rows: Tensor) -> None:
        """Forget the samples that have left."""
        if isinstance(self.previous, Tensor) and isinstance(self.rejected, Tensor):
            self.previous, self.rejected = self.previous[rows], self.rejected[rows]


@torch.no_grad()
def first_step(problem: Problem, f0: State, per_sample: bool) -> Tensor:
    """Hairer, Nørsett & Wanner I, §II.4: a step whose Euler increment is about 1 % of the state, refined by one probe of f.

    The probe stays inside the interval. Returns the size, without its sign.
    """
    p, n = problem, problem.measured
    span = torch.as_tensor(p.t1 - p.t0, dtype=torch.float64, device=p.rate.device)
    y0 = p.y0[:n]
    scales = [part.abs().mul_(p.config.rtol).add_(p.config.atol) for part in y0]
    d0 = rms([y / s for y, s in zip(y0, scales, strict=True)], per_sample)
    d1 = rms([f / s for f, s in zip(f0, scales, strict=False)], per_sample)
    h0 = torch.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1.clamp(min=TINY)).minimum(span.abs())
    signed: Time = torch.copysign(h0, span)
    if per_sample:
        moment = torch.where(h0 == span.abs(), p.t1, p.t0 + signed)  # t0 + (t1 − t0) may round to beyond t1
    else:
        signed = float(signed)
        moment = p.t1 if signed == float(span) else p.t0 + signed
    f1 = p.rate(moment, combine(p.y0, signed, [1.0], [f0]))
    change = [(b - a) / s for a, b, s in zip(f0, f1, scales, strict=False)]
    d2 = rms(change, per_sample) / h0.clamp(min=TINY)
    steepest = torch.maximum(d1, d2)
    h1 = torch.where(steepest <= 1e-15, (h0 * 1e-3).clamp(min=1e-6), (0.01 / steepest.clamp(min=TINY)) ** (1 / p.stepper.order))
    # A non-finite rate of change gives no step: any will do, the loop then finds and names the sample.
    return torch.minimum(100 * h0, h1).minimum(span.abs()).nan_to_num(nan=1e-6)
