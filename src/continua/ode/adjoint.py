"""The continuous adjoint (optimise-then-discretise), offered because the papers use it. Not recommended: slower, and inexact.

With a(t) = ∂L/∂y(t), the augmented system is solved backwards from t1 to t0 (Chen et al. 2018),

    dy/dt = f,        da/dt = −(∂f/∂y)ᵀ a,        dg/dt = −(∂f/∂p)ᵀ a,

restarting at every asked time with ∂L/∂ys added to a. Its error control looks at y and a only by default (the semi-norm of Kidger,
Chen & Lyons 2021); `adjoint_options=dict(norm="full")` adds the parameters' gradients, as torchdiffeq does.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continua.errors import ConfigError
from continua.ode.config import SolverConfig
from continua.ode.control import Problem
from continua.ode.discrete import ParameterGradients, evaluate_with_graph, vjp
from continua.ode.gradient import Job
from continua.ode.loops import BatchSteps, FixedSteps
from continua.ode.rate import Rate
from continua.ode.solution import State
from continua.ode.stepper import ExplicitStepper

OPTIONS = ("method", "rtol", "atol", "steps", "first_step", "max_steps", "controller", "norm")


def adjoint_config(config: SolverConfig) -> tuple[SolverConfig, str]:
    """The configuration of the backward solve, and its norm: the forward one unless `adjoint_options` says otherwise."""
    options = dict(config.adjoint_options or {})
    norm = options.pop("norm", "semi")
    if norm not in ("semi", "full") or set(options) - set(OPTIONS):
        raise ConfigError(f"adjoint_options={dict(config.adjoint_options or {})!r}; known: {', '.join(OPTIONS)}; norm is 'semi' or 'full'")
    return config.replace(gradient="direct", adjoint_options=None, on_failure="raise", record_steps=False, **options), norm


class AdjointSolve(torch.autograd.Function):
    """y1 (and ys) of a solve as a function of y0 and the parameters; keeps the states at the asked times only."""

    @staticmethod
    def forward(ctx: Any, job: Job, count: int, times: list[float], *tensors: Tensor) -> State:
        outputs = tuple(part.detach() for part in job.run())
        ctx.problem, ctx.count, ctx.times, ctx.stats = job.problem, count, times, job.loop.stats
        ctx.save_for_backward(*tensors[count:], *outputs)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        count, problem, times = ctx.count, ctx.problem, ctx.times
        kept = 2 * count if times else count
        params, outputs = ctx.saved_tensors[:-kept], ctx.saved_tensors[-kept:]
        y, a = outputs[:count], cotangents[:count]
        sums = tuple(torch.zeros_like(p) for p in params)
        t = float(problem.t1)
        for slot in reversed(range(len(times))):
            y, a, sums = _solve_back(ctx, t, times[slot], y, a, sums, params)
            t, y = times[slot], tuple(ys[slot] for ys in outputs[count:])
            a = tuple(part + ys[slot] for part, ys in zip(a, cotangents[count:], strict=True))
        _, a, sums = _solve_back(ctx, t, float(problem.t0), y, a, sums, params)
        return None, None, None, *a, *sums


def _solve_back(ctx: Any, t: float, t0: float, y: State, a: State, sums: State, params: State) -> tuple[State, State, State]:
    if t == t0:
        return y, a, sums
    forward: Problem = ctx.problem
    config, norm = adjoint_config(forward.config)
    augmented = (*y, *a, *sums)
    rate = _AugmentedRate(forward.rate, params, ctx.count)
    measured = 2 * ctx.count if norm == "semi" else len(augmented)
    problem = Problem(rate, ExplicitStepper(config.tableau), config, augmented, t, t0, len(augmented), measured)
    if config.steps is None:
        loop = BatchSteps(problem)
    else:  # the same density of steps as the forward solve, in each piece between asked times
        share = abs(t - t0) / abs(float(forward.t1) - float(forward.t0))
        loop = FixedSteps(problem, max(1, round(config.steps * share)))
    for _ in loop:
        pass
    ctx.stats.nfe_backward += rate.calls
    return loop.y[: ctx.count], loop.y[ctx.count : 2 * ctx.count], loop.y[2 * ctx.count :]


class _AugmentedRate(Rate):
    """(f, −(∂f/∂y)ᵀ a, −(∂f/∂p)ᵀ a) at (y, a, ·)."""

    def __init__(self, forward: Rate, params: State, count: int) -> None:
        self.forward, self.params, self.count = forward, params, count
        self.calls, self.device = 0, forward.device

    def __call__(self, t: Any, y: State) -> State:
        self.calls += 1
        point, k = evaluate_with_graph(self.forward, t, y[: self.count])
        gradients = ParameterGradients(self.params)
        rate_of_a = vjp(point, k, tuple(-part for part in y[self.count : 2 * self.count]), gradients)
        rate_of_g = tuple(torch.zeros_like(p) if g is None else g for g, p in zip(gradients.sums, self.params, strict=True))
        return (*(part.detach() for part in k), *rate_of_a, *rate_of_g)

    def on_step(self, index: int, recomputing: bool) -> None:
        self.forward.on_step(index, True)
