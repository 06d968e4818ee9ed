"""Implicit Runge–Kutta steps: the stage equations solved by iteration, differentiated by the implicit function theorem.

The stages K = (k_1, …, k_s) of a step (see `jacobian.py`) are found from K = 0, which puts every Y_i at y, by fixed-point iteration, or by
Newton's method, whose corrections d solve d_i − J_i h Σ_j a_ij d_j = r_i with J_i = ∂f/∂Y_i. The start depends on the step alone, so that a
step taken again gives the same result. With g = ∂L/∂y1 the gradient needs one linear solve per step, whatever the iteration was,

    l_i − h Σ_j a_ji J_jᵀ l_j = h b_i g,        ∂L/∂y = g + Σ_j J_jᵀ l_j,        ∂L/∂p = Σ_j (∂f/∂p)ᵀ l_j.

Both linear systems go to GMRES. Statistics count calls of f; products with J or Jᵀ reuse the graph of a call and are not among them, unless
`jacobian="difference"` makes them of calls.
"""

import torch
from torch import Tensor

from continua.ode.error import rms
from continua.ode.implicit.jacobian import Differences, Linearised, Product, StageEquations, mix
from continua.ode.implicit.krylov import Operator, gmres, gmres_restarted
from continua.ode.implicit.options import Implicit
from continua.ode.rate import Rate
from continua.ode.solution import State, Status, Time, failure
from continua.ode.stepper import Attempt, Failed, Inner, ParameterGradients, StageVjp, Stepper, rate_vjp
from continua.ode.sums import combine
from continua.ode.tableau import Tableau

LINEAR_SHARE = 0.1  # of the tolerance: what a linear solve may leave undone


class ImplicitStepper(Stepper):
    """An implicit tableau, all stages of a step at once. Times are numbers, the same for the whole batch."""

    starts_with_rate = False

    def __init__(self, tableau: Tableau, options: Implicit) -> None:
        self.tableau, self.options = tableau, options
        self.order = tableau.estimate_order
        self.evaluations = tableau.stages  # at least; how many it takes is known only afterwards

    @torch.no_grad()
    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        equations = StageEquations(rate, self.tableau, t, t_next, y)
        guess = self.guess(rate, t, y)
        k, failed = self._iterate(equations, torch.zeros_like(equations.y) if guess is None else equations.pack_one(guess))
        stages = equations.unpack(k)
        return Attempt(combine(y, equations.h, self.tableau.b, stages), stages, None, failed)

    def stages(self, rate: Rate, t: Time, t_next: Time, y: State) -> list[State]:
        """The stages of a step that has been taken before."""
        attempt = self.step(rate, t, t_next, y, None)
        if attempt.failed is not None:
            raise failure(attempt.failed.status, float(t), float(t_next - t), float(rms(y, False)), attempt.failed.samples)
        return attempt.stages

    def vjp(self, rate: Rate, t: Time, t_next: Time, y: State, g: State, gradients: ParameterGradients, inner: Inner = ()) -> StageVjp:
        equations, stages = StageEquations(rate, self.tableau, t, t_next, y), self.stages(rate, t, t_next, y)
        linearised = Linearised(equations, equations.points(equations.pack(stages)))
        right = equations.h * equations.b[:, None] * equations.pack_one(g)[:, None]
        for weights, cotangent in inner:
            right = right + equations.h * right.new_tensor(weights)[:, None] * equations.pack_one(cotangent)[:, None]

        def operator(rows: Tensor) -> Tensor:
            seeds = rows.reshape(right.shape)
            return (seeds - equations.h * mix(equations.a.T, linearised.pull(seeds))).flatten(1)

        rows, failed = self._linear_solve(operator, right.flatten(1), self._tolerance(rate))
        if failed:
            raise failure(Status.NOT_CONVERGED, float(t), equations.h, float(rms(y, False)), failed)
        seeds = equations.unpack(rows.reshape(right.shape))
        mu = [rate_vjp(point, k, seed, gradients) for (point, k), seed in zip(linearised.graphs, seeds, strict=True)]
        return mu, stages

    def guess(self, rate: Rate, t: Time, y: State) -> State | None:
        """What every stage is before the first iteration; None: zero."""
        return None

    def _iterate(self, equations: StageEquations, start: Tensor) -> tuple[Tensor, Failed | None]:
        """K, and the samples whose iteration did not converge. A sample that has converged is left alone: its residual counts as 0."""
        tol, h, size = self._tolerance(equations.rate), abs(equations.h), _norm(equations.y)
        k = start[:, None].repeat(1, self.tableau.stages, 1)
        under_way = torch.ones_like(size, dtype=torch.bool)
        converged, startable = ~under_way, under_way
        for iteration in range(int(self.options.max_iterations or 1)):
            rates, product = self._evaluate(equations, k)
            residual = rates - k
            finite = torch.isfinite(residual).flatten(1).all(1)
            startable = finite if iteration == 0 else startable
            under_way = under_way & finite
            residual = torch.where(under_way[:, None, None], residual, 0.0)
            target = LINEAR_SHARE * tol * (size / h + _norm(k))
            correction, undone = self._correction(equations, product, residual, target)
            k = k + correction
            allowed = tol * (size / h + _norm(k))
            within = torch.isfinite(allowed) & (_norm(correction) <= allowed) & (undone <= allowed)
            converged = converged | (under_way & within)
            under_way = under_way & ~converged
            if not bool(under_way.any()):
                break
        if bool(converged.all()):
            return k, None
        if not bool(startable.all()):  # f itself is at fault
            return k, Failed(Status.NON_FINITE, _indices(~startable))
        return k, Failed(Status.NOT_CONVERGED, _indices(~converged))

    def _evaluate(self, equations: StageEquations, k: Tensor) -> tuple[Tensor, Product | None]:
        """f at the stages, and the product with its Jacobians there that Newton's method needs."""
        points = equations.points(k)
        if self.options.solver == "fixed_point":
            return equations.rates(points), None
        field = Differences(equations, points) if self.options.jacobian == "difference" else Linearised(equations, points)
        return field.rates, field.push

    def _correction(self, equations: StageEquations, product: Product | None, residual: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What to add to K, and the norm of the residual that its linear system is left with."""
        if product is None:
            return residual, torch.zeros_like(target)

        def operator(rows: Tensor) -> Tensor:
            stages = rows.reshape(residual.shape)
            return (stages - product(equations.h * mix(equations.a, stages))).flatten(1)

        correction, undone = gmres(operator, residual.flatten(1), target, self.options.krylov)
        return correction.reshape(residual.shape), undone

    def _linear_solve(self, operator: Operator, b: Tensor, tol: float) -> tuple[Tensor, list[int]]:
        """x of A x = b by GMRES, and the samples for which it has none."""
        x, undone = gmres_restarted(operator, b, LINEAR_SHARE * tol, self.options.krylov, int(self.options.max_iterations or 1))
        return x, _indices(undone)

    def _tolerance(self, rate: Rate) -> float:
        return rate.resolution**0.75 if self.options.tol is None else self.options.tol


def _norm(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)


def _indices(mask: Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()
