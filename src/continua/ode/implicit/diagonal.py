"""Diagonally implicit Runge–Kutta steps (SDIRK, ESDIRK): each stage is found by itself, after those before it.

With z = h a_ii k_i and what is known already, w = y + h Σ_{j<i} a_ij k_j, stage i solves z = h a_ii f(t + c_i h, w + z). Newton's iteration

    (I − h a_ii J) d = h a_ii f(t + c_i h, w + z) − z,        z ← z + d

keeps one J for all stages, and from step to step while it converges fast (Hairer & Wanner II, §IV.8). k_i is z / (h a_ii) and not another
evaluation of f, which would enlarge what the iteration left undone by the stiffness. A step whose iteration fails has an infinite error:
adaptive control takes a shorter one. Fixed steps damp the iteration instead and renew J, until it is accurate to rounding.

The gradient needs, from the last stage to the first, one linear system each (the implicit function theorem), with g = ∂L/∂y1:

    (I − h a_ii J_iᵀ) l_i = h (b_i g + Σ_{j>i} a_ji μ_j),      μ_i = J_iᵀ l_i,      ∂L/∂y = g + Σ_i μ_i,      ∂L/∂p = Σ_i (∂f/∂p)ᵀ l_i
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from continua.errors import SolverError
from continua.ode.control import TINY
from continua.ode.error import Tolerance, largest_tolerance, rms, tolerance_of
from continua.ode.implicit.jacobian import Linearised, Packing
from continua.ode.implicit.linear import Jacobian, StageSystem, column, solve_transposed
from continua.ode.implicit.options import Implicit
from continua.ode.rate import Rate, broadcast_time
from continua.ode.solution import State, Status, Time, failure
from continua.ode.stepper import Attempt, Failed, Inner, ParameterGradients, StageVjp, Stepper, rate_vjp, stage_time
from continua.ode.sums import combine
from continua.ode.tableau import Tableau

QUICK_ITERATIONS = 8  # of a stage in adaptive steps; then a shorter step costs less
SLOW = 0.03  # a convergence rate above this asks for a new Jacobian: it costs one evaluation of f, and saves more
QUICK = 0.1  # the rate that an iteration is credited with before its second correction, at best
MOST_HALVINGS = 8  # of a correction, in fixed steps


@dataclass
class _Goal:
    """What an iteration is to reach: corrections of `enough` in units of `scale` (None: of the size of the state).

    A patient one renews J and damps its corrections where it converges badly; else it fails, and leaves the remedy to step control.
    """

    scale: Tensor | None
    enough: float
    iterations: int
    patient: bool


@dataclass
class _Memory:
    """What a stage leaves to the next, also to that of the next step: J, its factors, and how fast they made the iteration converge."""

    jacobian: Jacobian | None = None
    system: StageSystem | None = None
    speed: Tensor | None = None  # (batch,): by what factor corrections shrank last
    slow: bool = False  # J has served its time


@dataclass
class _Stage:
    """The equation of one stage."""

    rate: Rate
    packing: Packing
    time: Time
    known: Tensor  # w
    factor: "float | Tensor"  # h a_ii
    goal: _Goal

    def residual(self, z: Tensor) -> Tensor:
        return self.factor * self.packing.pack_one(self.rate(self.time, self.point(z))) - z

    def point(self, z: Tensor) -> State:
        return self.packing.unpack_one(self.known + z)

    def scale(self, z: Tensor, residual: Tensor) -> Tensor:
        if self.goal.scale is not None:
            return self.goal.scale
        size = sum(rms([part], per_sample=True) for part in (self.known + z, z + residual))
        size = torch.as_tensor(size, dtype=z.dtype)[:, None]
        return torch.where(size > 0, size, 1.0).expand_as(z)


class DiagonalStepper(Stepper):
    """A diagonally implicit tableau, stage after stage. Times are numbers, or (batch,).

    `tolerances`, rtol and atol, say how far iterations go in adaptive steps; without them every stage is accurate to rounding.
    """

    def __init__(self, tableau: Tableau, options: Implicit, tolerances: "tuple[Tolerance, Tolerance] | None" = None) -> None:
        self.tableau, self.options, self.tolerances = tableau, options, tolerances
        self.order = tableau.estimate_order
        self.evaluations = tableau.stages  # at least; how many it takes is known only afterwards
        self.starts_with_rate = not any(tableau.a[0])
        self._guesses = [_guess(tableau, i) for i in range(tableau.stages)]
        self._memory = _Memory()

    def next_first(self, attempt: Attempt) -> State | None:
        return attempt.stages[-1] if self.tableau.reuses_last else None

    @torch.no_grad()
    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        return self._step(rate, t, t_next, y, first, self._goal(rate, y), self._memory)

    @torch.no_grad()
    def stages(self, rate: Rate, t: Time, t_next: Time, y: State) -> list[State]:
        """The stages of a step that has been taken before, accurate to rounding whatever they were then."""
        attempt = self._step(rate, t, t_next, y, None, self._strict_goal(rate), _Memory())
        if attempt.failed is not None:
            raise _not_solved(t, t_next, y, attempt.failed)
        return attempt.stages

    def vjp(self, rate: Rate, t: Time, t_next: Time, y: State, g: State, gradients: ParameterGradients, inner: Inner = ()) -> StageVjp:
        tableau, packing, stages = self.tableau, Packing(rate, [t], y), self.stages(rate, t, t_next, y)
        start, of_y1 = packing.pack_one(y), packing.pack_one(g)
        h, k = column(t_next - t, start), [packing.pack_one(stage) for stage in stages]
        inside = [([column(weight, start) for weight in weights], packing.pack_one(cotangent)) for weights, cotangent in inner]
        mu: list[State] = [g] * len(k)
        rows = [torch.zeros_like(start)] * len(k)
        share = 0.1 * self._strict_goal(rate).enough
        for i in reversed(range(len(k))):
            right = tableau.b[i] * of_y1 + _weighted([tableau.a[j][i] for j in range(i + 1, len(k))], rows[i + 1 :], like=start)
            right = h * sum((weights[i] * cotangent for weights, cotangent in inside), right)
            packing.times = [stage_time(t, t_next, t_next - t, tableau.c[i])]
            linearised = Linearised(packing, [packing.unpack_one(start + h * _weighted(tableau.a[i], k, like=start))])
            if tableau.a[i][i] != 0.0:
                right, undone = solve_transposed(self.options, linearised, h * tableau.a[i][i], right, share)
                if bool(undone.any()):
                    raise _not_solved(t, t_next, y, Failed(Status.NOT_CONVERGED, undone.nonzero().flatten().tolist()))
            mu[i] = rate_vjp(*linearised.graphs[0], packing.unpack_one(right), gradients)
            rows[i] = packing.pack_one(mu[i])
        return mu, stages

    def _step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None, goal: _Goal, memory: _Memory) -> Attempt:
        tableau, packing = self.tableau, Packing(rate, [t], y)
        start = packing.pack_one(y)
        h = column(t_next - t, start)
        failed = torch.zeros(len(start), dtype=torch.bool, device=start.device)
        k: list[Tensor] = []
        point = y
        self._begin(memory, rate, t, y)
        for i in range(tableau.stages):
            time = stage_time(t, t_next, t_next - t, tableau.c[i])
            known = start + h * _weighted(tableau.a[i][:i], k, like=start)
            if tableau.a[i][i] == 0.0:
                point = packing.unpack_one(known) if i else y
                k.append(packing.pack_one(rate(time, point) if i or first is None else first))
                continue
            stage = _Stage(rate, packing, time, known, h * tableau.a[i][i], goal)
            z, undone = self._solve(stage, stage.factor * _weighted(self._guesses[i], k, like=start), memory, failed)
            failed, point = failed | undone, stage.point(z)
            k.append(z / stage.factor)
        stages = [packing.unpack_one(part) for part in k]
        y1 = point if tableau.stiffly_accurate else combine(y, t_next - t, tableau.b, stages)
        error = None if tableau.b_error is None else combine(None, t_next - t, tableau.b_error, stages)
        return Attempt(y1, stages, error) if not bool(failed.any()) else _failed(Attempt(y1, stages, error), failed)

    def _begin(self, memory: _Memory, rate: Rate, t: Time, y: State) -> None:
        """The Jacobian of a step: that of the last one while it serves."""
        if memory.jacobian is None or memory.jacobian.rows != len(y[0]) or memory.slow:
            self._renew(memory, rate, t, y)
        else:
            memory.jacobian.fresh = False

    def _renew(self, memory: _Memory, rate: Rate, t: Time, y: State) -> None:
        memory.jacobian, memory.system, memory.speed, memory.slow = Jacobian.at(self.options, rate, t, y), None, None, False

    def _system(self, memory: _Memory, factor: "float | Tensor") -> StageSystem:
        old, jacobian = memory.system, memory.jacobian
        if jacobian is None:
            raise RuntimeError("a step begins with its Jacobian")
        if old is None or not _same(old.factor, factor):
            memory.system = old = StageSystem(jacobian, factor, self.options.krylov)
        return old

    def _solve(self, stage: _Stage, guess: Tensor, memory: _Memory, failed: Tensor) -> tuple[Tensor, Tensor]:
        """z of a stage, and the samples that have none; with a new Jacobian where the old one does not lead there."""
        z, undone = self._newton(stage, guess, memory, failed)
        if bool(undone.any()) and memory.jacobian is not None and not memory.jacobian.fresh:
            self._renew(memory, stage.rate, stage.time, stage.point(guess))
            z, undone = self._newton(stage, guess, memory, failed)
        memory.slow = memory.slow or bool(undone.any())
        return z, undone

    def _newton(self, stage: _Stage, z: Tensor, memory: _Memory, failed: Tensor) -> tuple[Tensor, Tensor]:
        """The iteration. A sample that has converged is left alone, and so is one that has failed."""
        goal, under_way = stage.goal, ~failed
        lost = torch.zeros_like(failed)
        before, previous, halvings = z, None, 0
        for iteration in range(goal.iterations):
            residual = stage.residual(z)
            scale = stage.scale(z, residual)
            correction = self._system(memory, stage.factor).solve(residual, scale, 0.1 * goal.enough)
            size = rms([correction / scale], per_sample=True)
            measured = None if previous is None else size / previous.clamp(min=TINY)
            if iteration == 0:  # f is undefined where the iteration starts: say so by what comes out
                z = z.masked_fill((under_way & ~torch.isfinite(residual).all(1))[:, None], torch.nan)
            worse = under_way & ~_promising(size, measured, goal, iteration)
            if bool(worse.any()):
                if not goal.patient or before is z or halvings == MOST_HALVINGS:
                    lost, under_way = lost | worse, under_way & ~worse
                else:
                    halvings += 1
                    z = torch.where(worse[:, None], 0.5 * (before + z), z)
                    self._renew(memory, stage.rate, stage.time, stage.point(z))
                    previous = None
                    continue
            before, z = z, z + torch.where(under_way[:, None], correction, 0.0)
            expected = None if memory.speed is None else memory.speed.clamp(min=QUICK)
            arrived = _arrived(size, expected if measured is None else measured, goal.enough)
            if measured is not None:
                memory.speed = measured.clamp(1e-8, 0.99) ** 0.8  # caution, as in Hairer & Wanner's Radau5
                memory.slow = memory.slow or bool((measured[under_way] > SLOW).any())
            under_way = under_way & ~arrived
            if not bool(under_way.any()):
                return z, lost
            previous = size
            if goal.patient and memory.slow:
                self._renew(memory, stage.rate, stage.time, stage.point(z))
                previous = None
        return z, lost | under_way

    def _goal(self, rate: Rate, y: State) -> _Goal:
        if self.tolerances is None:
            return self._strict_goal(rate)
        if self.options.tol is not None:
            return replace(self._strict_goal(rate), patient=False)
        rtol, atol = self.tolerances
        parts = [tolerance_of(atol, i, part) + tolerance_of(rtol, i, part) * part.abs() for i, part in enumerate(y)]
        least = 10 * rate.resolution / max(largest_tolerance(rtol), 1e-16)
        enough = max(least, min(0.03, largest_tolerance(rtol) ** 0.5))  # as SciPy's Radau
        return _Goal(Packing(rate, [], y).pack_one(tuple(parts)), enough, min(QUICK_ITERATIONS, self._most), patient=False)

    def _strict_goal(self, rate: Rate) -> _Goal:
        tol = rate.resolution**0.75 if self.options.tol is None else self.options.tol
        return _Goal(None, tol, self._most, patient=True)

    @property
    def _most(self) -> int:
        return int(self.options.max_iterations or 20)


def _promising(size: Tensor, speed: Tensor | None, goal: _Goal, iteration: int) -> Tensor:
    """Whether an iteration whose last correction had this size is worth going on with."""
    finite = torch.isfinite(size)
    if speed is None:
        return finite
    if goal.patient:
        return finite & (speed < 1.0)
    left = goal.iterations - 1 - iteration
    return finite & (speed < 1.0) & (size * speed**left / (1.0 - speed).clamp(min=TINY) <= goal.enough)


def _arrived(size: Tensor, speed: Tensor | None, enough: float) -> Tensor:
    """Whether what is left to correct, a geometric series, is little enough."""
    if speed is None:
        return size == 0.0
    return (size == 0.0) | ((speed < 1.0) & (size * speed <= enough * (1.0 - speed)))


def _weighted(weights: Sequence[float], rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """Σ w_j k_j"""
    total = torch.zeros_like(like)
    for weight, row in zip(weights, rows, strict=False):
        if weight != 0.0:
            total = torch.add(total, row, alpha=weight)
    return total


def _guess(tableau: Tableau, stage: int) -> list[float]:
    """Weights of the stages before this one that extrapolate k to its time, along a straight line; the latest one at the same time."""
    c, here = tableau.c[:stage], tableau.c[stage]
    if stage and here in c:
        same = max(j for j in range(stage) if c[j] == here)
        return [float(j == same) for j in range(stage)]
    if stage < 2:
        return [1.0] * stage
    return np.linalg.lstsq(np.array([np.ones(stage), c]), np.array([1.0, here]), rcond=None)[0].tolist()


def _same(a: "float | Tensor", b: "float | Tensor") -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    return a == b


def _failed(attempt: Attempt, failed: Tensor) -> Attempt:
    """The attempt with an infinite error of the samples whose iteration has failed."""
    undefined = failed & ~torch.stack([torch.isfinite(part).flatten(1).all(1) for stage in attempt.stages for part in stage]).all(0)
    status, bad = (Status.NON_FINITE, undefined) if bool(undefined.any()) else (Status.NOT_CONVERGED, failed)
    if attempt.error is not None:
        attempt.error = tuple(part.masked_fill(broadcast_time(failed, part), torch.inf) for part in attempt.error)
    attempt.failed = Failed(status, bad.nonzero().flatten().tolist())
    return attempt


def _not_solved(t: Time, t_next: Time, y: State, failed: Failed) -> SolverError:
    where, h = (float(torch.as_tensor(time).flatten()[0]) for time in (t, t_next - t))
    return failure(failed.status, where, h, float(rms(y, False)), failed.samples)
