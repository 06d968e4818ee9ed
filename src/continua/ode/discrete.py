"""The discrete Runge–Kutta adjoint: the exact gradient of one step, by one vector–Jacobian product of f per stage.

With Y_i = y + h Σ_j a_ij k_j, k_i = f(t + c_i h, Y_i), y1 = y + h Σ_i b_i k_i and g = ∂L/∂y1, going through the stages backwards

    l_i = h (b_i g + Σ_{j>i} a_ji μ_j),        μ_i = (∂f/∂Y_i)ᵀ l_i,        ∂L/∂y = g + Σ_i μ_i,        ∂L/∂p = Σ_i (∂f/∂p)ᵀ l_i

(Hager 2000; Sanz-Serna 2016). The sums stay outside autograd.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from continua.ode.rate import Rate, broadcast_time, replay
from continua.ode.solution import State
from continua.ode.stepper import Time, combine, stage_time
from continua.ode.tableau import Tableau

# For a state taken inside the step: b_i(θ) of every stage (numbers, or one per row) and its cotangent.
InnerCotangent = tuple[list[Time], State]


class ParameterGradients:
    """Sums of ∂L/∂p over stages and steps, each in a buffer of its own."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = tuple(params)
        self.sums: list[Tensor | None] = [None] * len(self.params)

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            held = self.sums[index]
            # autograd may hand out the same tensor for two inputs: never add into one that is not ours
            self.sums[index] = gradient.clone() if held is None else held.add_(gradient)


def vjp(point: State, k: State, cotangent: State, gradients: ParameterGradients) -> State:
    """(∂f/∂y)ᵀ l, with (∂f/∂p)ᵀ l added to `gradients`."""
    outputs = [(part, seed) for part, seed in zip(k, cotangent, strict=True) if part.requires_grad]
    if not outputs:
        return tuple(torch.zeros_like(part) for part in point)
    parts, seeds = zip(*outputs, strict=True)
    found = torch.autograd.grad(parts, (*point, *gradients.params), seeds, allow_unused=True)
    gradients.add(found[len(point) :])
    return tuple(torch.zeros_like(p) if f is None else f for p, f in zip(point, found[: len(point)], strict=True))


def evaluate_with_graph(rate: Rate, t: Time, y: State) -> tuple[State, State]:
    """A fresh leaf holding y, and f(t, y) with the graph back to it."""
    with torch.enable_grad(), replay():
        point = tuple(part.detach().requires_grad_() for part in y)
        return point, rate(t, point)


def step_vjp(
    rate: Rate,
    tableau: Tableau,
    t: Time,
    t_next: Time,
    y: State,
    g: State,
    gradients: ParameterGradients,
    inner: Sequence[InnerCotangent] = (),
) -> tuple[list[State], list[State]]:
    """μ_i of every stage of the step that starts at (t, y), and the stages k_i. Parameters' gradients go to `gradients`."""
    h = t_next - t
    count = tableau.stages if inner else tableau.needed
    graphs: list[tuple[State, State]] = []
    stages: list[State] = []
    for i in range(count):
        point = combine(y, h, tableau.a[i], stages) if i else y
        graphs.append(evaluate_with_graph(rate, stage_time(t, t_next, h, tableau.c[i]), point))
        stages.append(tuple(part.detach() for part in graphs[-1][1]))
    mu: list[State | None] = [None] * count
    for i in reversed(range(count)):
        point, k = graphs.pop()
        later = [(tableau.a[j][i], m) for j in range(i + 1, count) if (m := mu[j]) is not None and tableau.a[j][i] != 0.0]
        if not later and tableau.b[i] == 0.0 and not inner:
            continue
        seed = combine(None, h, [tableau.b[i], *(w for w, _ in later)], [g, *(m for _, m in later)])
        for weights, cotangent in inner:
            seed = _plus(seed, h * weights[i], cotangent)
        mu[i] = vjp(point, k, seed, gradients)
    return [m for m in mu if m is not None], stages


def _plus(seed: State, weight: Time, cotangent: State) -> State:
    if isinstance(weight, Tensor):
        return tuple(torch.addcmul(s, broadcast_time(weight, c).to(c.dtype), c) for s, c in zip(seed, cotangent, strict=True))
    return tuple(torch.add(s, c, alpha=weight) for s, c in zip(seed, cotangent, strict=True))
