"""One Runge–Kutta step: the new state, its error estimate, the stages that an interpolant needs, and its exact gradient.

With Y_i = y + h Σ_j a_ij k_j, k_i = f(t + c_i h, Y_i), y1 = y + h Σ_i b_i k_i and g = ∂L/∂y1, the discrete Runge–Kutta adjoint goes through
the stages backwards, with one vector–Jacobian product of f for each,

    l_i = h (b_i g + Σ_{j>i} a_ji μ_j),        μ_i = (∂f/∂Y_i)ᵀ l_i,        ∂L/∂y = g + Σ_i μ_i,        ∂L/∂p = Σ_i (∂f/∂p)ᵀ l_i

(Hager 2000; Sanz-Serna 2016). The sums stay outside autograd.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.rate import Rate, broadcast_time, replay
from continua.ode.solution import State, Status, Time, pick, zeros_where_none
from continua.ode.sums import StageSums, combine, stage_sums
from continua.ode.tableau import Tableau

Inner = Sequence[tuple[Sequence[Time], State]]  # of states taken inside a step: b_i(θ) of every stage (or one per row), and the cotangent
StageVjp = tuple[list[State], list[State]]  # μ_i and k_i of every stage


@dataclass
class Failed:
    """Why a step could not be taken, and the samples at fault."""

    status: Status
    samples: list[int]


@dataclass
class Attempt:
    """A tried step: `error` has the form of the leading components of the state and is None where the method has no estimate."""

    y1: State
    stages: list[State]
    error: State | None
    failed: Failed | None = None


@dataclass
class Step:
    """One accepted step. `rows` names the samples it moved, when not the whole batch."""

    index: int
    t: Time
    t_next: Time
    y0: State
    y1: State
    stages: list[State]
    rows: Tensor | None = None

    @property
    def h(self) -> Time:
        return self.t_next - self.t

    def only(self, chosen: Tensor) -> "Step":
        """The step of some of its rows, each of which has a time of its own."""
        t, t_next, rows = torch.as_tensor(self.t)[chosen], torch.as_tensor(self.t_next)[chosen], self.rows
        stages = [pick(stage, chosen) for stage in self.stages]
        return Step(self.index, t, t_next, pick(self.y0, chosen), pick(self.y1, chosen), stages, chosen if rows is None else rows[chosen])


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


class Stepper(ABC):
    """A method, one step at a time. Loops ask for `step`; a gradient that takes steps again asks for `advance` and `vjp`."""

    tableau: Tableau
    order: int  # of the error estimate where there is one: the error of a step falls as h^order
    evaluations: int  # of f in a step whose first stage is known
    starts_with_rate: bool = True  # the first stage is f at the start of the step

    @abstractmethod
    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        """The step from (t, y) to t_next. `first` is its first stage, where it is known already."""

    def next_first(self, attempt: Attempt) -> State | None:
        """The first stage of the step that follows an accepted one, where it is known already."""
        return None

    def shortened(self, rate: Rate, step: Step, t_next: Time) -> Attempt:
        """An accepted step, taken again from its start to an earlier time."""
        return self.step(rate, step.t, t_next, step.y0, step.stages[0] if self.starts_with_rate else None)

    def stages(self, rate: Rate, t: Time, t_next: Time, y: State) -> list[State]:
        """The stages that the new state depends on, without those for the error estimate or the next step alone."""
        raise ConfigError(f"{type(self).__name__} cannot take a step again from its start; use gradient='direct'")

    def advance(self, rate: Rate, t: Time, t_next: Time, y: State) -> State:
        """The new state of a step that is taken again."""
        return combine(y, t_next - t, self.tableau.b, self.stages(rate, t, t_next, y))

    def vjp(self, rate: Rate, t: Time, t_next: Time, y: State, g: State, gradients: ParameterGradients, inner: Inner = ()) -> StageVjp:
        """With g = ∂L/∂y1: μ_i = (∂f/∂Y_i)ᵀ l_i, whose sum with g is ∂L/∂y, and the stages k_i. ∂L/∂p go to `gradients`.

        `inner`: cotangents of states taken inside the step; ∂L/∂y is also to have those added.
        """
        raise ConfigError(f"{type(self).__name__} does not know the gradient of its step; use gradient='direct'")

    def pull_back(self, rate: Rate, t: Time, t_next: Time, y: State, g: State, gradients: ParameterGradients, inner: Inner = ()) -> State:
        """∂L/∂y of the step from (t, y), given g = ∂L/∂y1."""
        mu, _ = self.vjp(rate, t, t_next, y, g, gradients, inner)
        return combine(g, 1.0, [1.0] * (len(mu) + len(inner)), [*mu, *(cotangent for _, cotangent in inner)])


class ExplicitStepper(Stepper):
    """An explicit tableau, stage after stage."""

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        self.order = tableau.estimate_order
        self.evaluations = tableau.stages - 1

    def step(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> Attempt:
        tableau, h = self.tableau, t_next - t
        sums = self._needed(rate, t, t_next, y, first)
        y1, stages = sums.point(None), sums.stages
        for i in range(tableau.needed, tableau.stages):
            point = y1 if tableau.a[i] == tableau.b else sums.point(i)
            sums.add(rate(stage_time(t, t_next, h, tableau.c[i]), point))
        error = None
        if tableau.b_error is not None:
            with torch.no_grad():
                error = local_error(tableau, h, stages)
        return Attempt(y1, stages, error)

    def stages(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None = None) -> list[State]:
        return self._needed(rate, t, t_next, y, first).stages

    def _needed(self, rate: Rate, t: Time, t_next: Time, y: State, first: State | None) -> StageSums:
        tableau, h = self.tableau, t_next - t
        sums = stage_sums(tableau, h, y)
        sums.add(rate(t, y) if first is None else first)
        for i in range(1, tableau.needed):
            sums.add(rate(stage_time(t, t_next, h, tableau.c[i]), sums.point(i)))
        return sums

    def next_first(self, attempt: Attempt) -> State | None:
        return attempt.stages[-1] if self.tableau.fsal else None

    def vjp(self, rate: Rate, t: Time, t_next: Time, y: State, g: State, gradients: ParameterGradients, inner: Inner = ()) -> StageVjp:
        tableau, h = self.tableau, t_next - t
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
            mu[i] = rate_vjp(point, k, seed, gradients)
        return [m for m in mu if m is not None], stages


def local_error(tableau: Tableau, h: Time, stages: Sequence[State]) -> State:
    """The estimated error of one step, h Σ (b_i − b̂_i) k_i.

    Args:
        tableau: The method, which must have such an estimate.
        h: The step, or one for each sample.
        stages: The rates of change k_i.

    Returns:
        The error of each part of the state.

    Raises:
        ConfigError: The method estimates no error.

    Example:
        >>> import torch
        >>> from continua.ode import find_method, local_error
        >>> local_error(find_method("bosh3"), 0.1, [(torch.ones(1),)] * 4)[0].abs().item() < 1e-6
        True
    """
    if tableau.b_error is None:
        raise ConfigError(f"{tableau.name} has no error estimate; use dopri5, tsit5, bosh3, ...")
    return combine(None, h, tableau.b_error, stages)


def stage_time(t: Time, t_next: Time, h: Time, c: float) -> Time:
    """t + c h; exactly the end of the step for c = 1, so that rounding never carries an evaluation past the end time."""
    if c == 0.0:
        return t
    return t_next if c == 1.0 else t + c * h


def rate_vjp(point: State, k: State, cotangent: State, gradients: ParameterGradients) -> State:
    """(∂f/∂y)ᵀ l, with (∂f/∂p)ᵀ l added to `gradients`."""
    outputs = [(part, seed) for part, seed in zip(k, cotangent, strict=True) if part.requires_grad]
    if not outputs:
        return tuple(torch.zeros_like(part) for part in point)
    parts, seeds = zip(*outputs, strict=True)
    grads = torch.autograd.grad(parts, (*point, *gradients.params), seeds, allow_unused=True)
    gradients.add(grads[len(point) :])
    return zeros_where_none(grads[: len(point)], point)


def evaluate_with_graph(rate: Rate, t: Time, y: State) -> tuple[State, State]:
    """A fresh leaf holding y, and f(t, y) with the graph back to it."""
    with torch.enable_grad(), replay():
        point = tuple(part.detach().requires_grad_() for part in y)
        return point, rate(t, point)


def _plus(seed: State, weight: Time, cotangent: State) -> State:
    if isinstance(weight, Tensor):
        return tuple(torch.addcmul(s, broadcast_time(weight, c).to(c.dtype), c) for s, c in zip(seed, cotangent, strict=True))
    return tuple(torch.add(s, c, alpha=weight) for s, c in zip(seed, cotangent, strict=True))
