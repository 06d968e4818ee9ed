"""The sums of a Runge–Kutta step, y + h Σ a_ij k_j, and of their gradients, each in one pass over memory where the native kernels serve.

Autograd differentiates such a sum term by term: it multiplies the gradient by every weight, and adds up what reaches one stage from several
sums, each time in a pass of its own. Here every stage has one *handle* for each sum it enters, a tensor without memory of its own that only
carries the gradient back:

    shared:  k → handles            backwards  ∂L/∂k = Σ_i h a_ij g_i, one sum
    summed:  handles → y + h Σ …    backwards  g to every handle, as it is
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from continua.native import can_combine, native_combine
from continua.ode.rate import broadcast_time
from continua.ode.solution import State, Time
from continua.ode.tableau import Tableau


def combine(y: State | None, h: Time, weights: Sequence[float], stages: Sequence[State]) -> State:
    """y + h Σ w_j k_j (h Σ w_j k_j without y), in one pass over memory by the native kernels, else in as few as eager PyTorch allows.

    The in-place sums are safe under autograd: an addition saves none of its operands.
    """
    terms = [(weight, stage) for weight, stage in zip(weights, stages, strict=False) if weight != 0.0]
    if not terms:
        return y if y is not None else tuple(torch.zeros_like(part) for part in stages[0])
    chosen = [stage for _, stage in terms]
    if isinstance(h, Tensor):
        return _scaled_by_samples(y, h, [weight for weight, _ in terms], chosen)
    numbers = [h * weight for weight, _ in terms]
    bases = [None] * len(chosen[0]) if y is None else y
    return tuple([weighted_sum(base, numbers, column) for base, column in zip(bases, zip(*chosen, strict=True), strict=False)])


def _scaled_by_samples(y: State | None, h: Tensor, weights: Sequence[float], stages: Sequence[State]) -> State:
    """The same with a step of its own for each sample."""
    combined = []
    for part, column in enumerate(zip(*stages, strict=True)):
        total = weighted_sum(None, weights, column)
        scale = broadcast_time(h, total).to(total.dtype)
        combined.append(total * scale if y is None else torch.addcmul(y[part], total, scale))
    return tuple(combined)


def weighted_sum(base: Tensor | None, weights: Sequence[float], terms: Sequence[Tensor]) -> Tensor:
    """base + Σ weights[i] terms[i]; always a tensor of its own."""
    total = native_combine(base, weights, terms) if len(terms) > 1 else None
    if total is None:
        total = terms[0] * weights[0] if base is None else torch.add(base, terms[0], alpha=weights[0])
        for weight, term in zip(weights[1:], terms[1:], strict=True):
            total.add_(term, alpha=weight)
    return total


LINKED = 1 << 18
"""Numbers in a part of the state. Smaller ones stay in the processor's cache, and the handles cost more than the passes they save."""


class StageSums:
    """The stages of one step, and the points y + h Σ_j a_ij k_j at which f is evaluated."""

    def __init__(self, tableau: Tableau, h: Time, y: State) -> None:
        self.tableau, self.h, self.y = tableau, h, y
        self.stages: list[State] = []

    def add(self, stage: State) -> None:
        """The next stage."""
        self.stages.append(stage)

    def point(self, row: int | None) -> State:
        """The point of a row of the tableau; None: the new state."""
        return combine(self.y, self.h, self.tableau.b if row is None else self.tableau.a[row], self.stages)


class LinkedSums(StageSums):
    """The same under autograd, for a step h that is a number."""

    def __init__(self, tableau: Tableau, h: float, y: State) -> None:
        super().__init__(tableau, h, y)
        rows = [row for row in range(1, tableau.stages) if tableau.a[row] != tableau.b]
        self._columns = {row: [h * weight for weight in tableau.a[row]] for row in rows} | {None: [h * weight for weight in tableau.b]}
        self._of_y = _share(y, dict.fromkeys(self._columns, 1.0))
        self._of_stages: list[list[dict[int | None, Tensor]]] = []

    def add(self, stage: State) -> None:
        place = len(self.stages)
        super().add(stage)
        weights = {row: column[place] for row, column in self._columns.items() if place < len(column) and column[place] != 0.0}
        self._of_stages.append(_share(stage, weights))

    def point(self, row: int | None) -> State:
        column, found = self._columns[row], []
        for part, y in enumerate(self.y):
            terms = [(column[j], stage[part], self._of_stages[j][part]) for j, stage in enumerate(self.stages) if column[j] != 0.0]
            values = y.detach(), [weight for weight, _, _ in terms], [value.detach() for _, value, _ in terms]
            found.append(_Summed.apply(values, self._of_y[part][row], *(handles[row] for _, _, handles in terms)))
        return tuple(found)


def stage_sums(tableau: Tableau, h: Time, y: State) -> StageSums:
    """The sums of a step: linked ones where that saves passes over memory."""
    if isinstance(h, Tensor) or not torch.is_grad_enabled() or tableau.stages == 1 or not all(worth_linking(part) for part in y):
        return StageSums(tableau, h, y)
    return LinkedSums(tableau, h, y)


def worth_linking(part: Tensor) -> bool:
    """Whether sums of parts like this one are taken by handles."""
    return not torch.compiler.is_compiling() and part.numel() >= LINKED and can_combine(part)


def _share(parts: State, weights: "dict[int | None, float]") -> "list[dict[int | None, Tensor]]":
    """A handle of each part for each sum that it enters with a weight."""
    rows, numbers = list(weights), list(weights.values())
    return [dict(zip(rows, _Shared.apply(part, numbers) if rows else (), strict=True)) for part in parts]


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, weights: list[float]) -> tuple[Tensor, ...]:
        ctx.weights = weights
        ctx.set_materialize_grads(False)
        return tuple(value.new_zeros(()).expand(value.shape) for _ in weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        reached = [(weight, g) for weight, g in zip(ctx.weights, gradients, strict=True) if g is not None]
        if not reached:
            return None, None
        return weighted_sum(None, [weight for weight, _ in reached], [g for _, g in reached]), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: tuple[Tensor, list[float], list[Tensor]], *handles: Tensor) -> Tensor:
        ctx.count = len(handles)
        return weighted_sum(*values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (None, *(g for _ in range(ctx.count)))
