"""The stage equations of one implicit step, products with their Jacobians and, for small states, the matrices themselves.

    k_i = f(t + c_i h, Y_i),        Y_i = y + h Σ_j a_ij k_j,        J_i = ∂f/∂Y_i

Unknowns of all stages are one tensor (batch, stage, n): linear algebra does not care how a state is shaped.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from continua.errors import ConfigError
from continua.ode.rate import Rate, graph_nodes
from continua.ode.solution import State, Time, zeros_where_none
from continua.ode.stepper import evaluate_with_graph, stage_time
from continua.ode.tableau import Tableau

Product = Callable[[Tensor], Tensor]  # (batch, stage, n) -> (batch, stage, n)
LOOPED_ROWS = 12  # of a Jacobian: up to so many, one product each costs less than a batch of them


class Packing:
    """f at some times, and states shaped like y as rows of numbers."""

    def __init__(self, rate: Rate, times: Sequence[Time], y: State) -> None:
        self.rate, self.times = rate, times
        self._like = y
        self._widths = [part[0].numel() for part in y]
        self._dtype = torch.float64 if any(part.dtype == torch.float64 for part in y) else torch.float32

    @property
    def width(self) -> int:
        """How many numbers the state of a sample has."""
        return sum(self._widths)

    def pack_one(self, state: State) -> Tensor:
        """One row per sample, (batch, n)."""
        return torch.cat([part.reshape(len(part), -1).to(self._dtype) for part in state], dim=1)

    def pack(self, states: Sequence[State]) -> Tensor:
        return torch.stack([self.pack_one(state) for state in states], dim=1)

    def unpack(self, stages: Tensor) -> list[State]:
        return [self.unpack_one(rows) for rows in stages.unbind(1)]

    def unpack_one(self, rows: Tensor) -> State:
        pieces = zip(rows.split(self._widths, dim=1), self._like, strict=True)
        return tuple(piece.reshape(part.shape).to(part.dtype) for piece, part in pieces)

    def rates(self, points: list[State]) -> Tensor:
        """f at every time and its point."""
        return self.pack([self.rate(time, point) for time, point in zip(self.times, points, strict=True)])


class StageEquations(Packing):
    """f at the stages of the step from t to t_next that starts at y."""

    def __init__(self, rate: Rate, tableau: Tableau, t: Time, t_next: Time, y: State) -> None:
        self.h = float(t_next - t)
        super().__init__(rate, [stage_time(t, t_next, self.h, c) for c in tableau.c], y)
        self.y = self.pack_one(y)
        self.a = self.y.new_tensor(tableau.a)
        self.b = self.y.new_tensor(tableau.b)

    def points(self, k: Tensor) -> list[State]:
        """Y_i of every stage."""
        return self.unpack(self.y[:, None] + self.h * mix(self.a, k))


def mix(a: Tensor, stages: Tensor) -> Tensor:
    """Σ_j a_ij k_j"""
    return torch.einsum("ij,bjn->bin", a, stages)


class Linearised:
    """f at the points Y_i of all stages with the graph back to them: one call of f per stage for any number of products."""

    def __init__(self, equations: Packing, points: list[State]) -> None:
        self.equations = equations
        # A graph cannot be made in inference mode, nor of tensors made in it.
        with torch.inference_mode(False):
            fresh = [tuple(part.clone() if part.is_inference() else part for part in point) for point in points]
            try:
                self.graphs = [evaluate_with_graph(equations.rate, *stage) for stage in zip(equations.times, fresh, strict=True)]
            except RuntimeError as error:
                if "Inference tensors" not in str(error):
                    raise
                raise _cannot(f"f holds tensors made in inference mode, of which no derivative exists ({error})") from error
        self._points = [part for point, _ in self.graphs for part in point]
        values = [part for _, k in self.graphs for part in k]
        self._connected = [index for index, part in enumerate(values) if part.requires_grad]  # f may ignore its state
        self._values = [values[index] for index in self._connected]

    @property
    def rates(self) -> Tensor:
        return self.equations.pack([tuple(part.detach() for part in k) for _, k in self.graphs])

    def pull(self, rows: Tensor) -> Tensor:
        """J_iᵀ l_i"""
        seeds = self._flat(rows)
        return self._pack(_grad(self._values, self._points, [seeds[index] for index in self._connected]))

    def matrix(self) -> Tensor:
        """J of every sample where there is one stage, (batch, n, n), row by row; rows at once where they are many and f allows it."""
        n = self.equations.width
        if n > LOOPED_ROWS:
            try:
                return self._rows_at_once(n)
            except RuntimeError:  # a function in f that torch.vmap does not know
                pass
        unit = torch.eye(n, dtype=self.rates.dtype, device=self.rates.device)
        return torch.stack([self.pull(row.expand(len(self._points[0]), 1, n))[:, 0] for row in unit], dim=1)

    def _rows_at_once(self, n: int) -> Tensor:
        batch, like = len(self._points[0]), self._points
        unit = torch.eye(n, dtype=self.rates.dtype, device=self.rates.device)[:, None].expand(n, batch, n)
        seeds = [part.reshape(n, *point.shape).to(point.dtype) for part, point in zip(unit.split(self._sizes, 2), like, strict=True)]
        chosen = [seeds[index] for index in self._connected]
        if not chosen:
            return unit.new_zeros(batch, n, n)
        with torch.inference_mode(False):
            grads = torch.autograd.grad(self._values, like, chosen, retain_graph=True, allow_unused=True, is_grads_batched=True)
        rows = [torch.zeros_like(seed) if grad is None else grad for grad, seed in zip(grads, seeds, strict=True)]
        return torch.cat([row.reshape(n, batch, -1).to(unit.dtype) for row in rows], dim=2).transpose(0, 1)

    @property
    def _sizes(self) -> list[int]:
        return [part[0].numel() for part in self._points]

    def push(self, rows: Tensor) -> Tensor:
        """J_i u_i. The pullback w = Jᵀ v is linear in v, so that the pullback of *it*, at any v, is the product with J."""
        along = self._flat(rows)
        try:
            v, w = self._pullback
            used = [index for index, part in enumerate(w) if part.requires_grad]
            products = _grad([w[index] for index in used], v, [along[index] for index in used])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise _cannot(f"Newton's iteration needs an f that can be differentiated twice ({error})") from error
        result = [torch.zeros_like(part) for part in self._points]
        for index, part in zip(self._connected, products, strict=True):
            result[index] = part
        return self._pack(result)

    @cached_property
    def _pullback(self) -> tuple[list[Tensor], State]:
        with torch.inference_mode(False), torch.enable_grad():
            v = [torch.zeros_like(part, requires_grad=True) for part in self._values]
            w = _grad(self._values, self._points, v, create_graph=True)
        # The node that @once_differentiable leaves would pass for a zero: autograd visits only what leads to v.
        if any(node.name() == "torch::autograd::Error" for node in graph_nodes(w)):
            raise RuntimeError("f holds a function marked @once_differentiable")
        return v, w

    def _flat(self, rows: Tensor) -> list[Tensor]:
        return [part for state in self.equations.unpack(rows) for part in state]

    def _pack(self, parts: Sequence[Tensor]) -> Tensor:
        width = len(parts) // len(self.graphs)
        return self.equations.pack([tuple(parts[i : i + width]) for i in range(0, len(parts), width)])


class Differences:
    """The same products by central differences, over a distance that suits the arithmetic: two calls of f per stage and product.

    A Jacobian that is not quite right slows Newton's iteration down, and leaves its solution as it is (Knoll & Keyes 2004).
    """

    def __init__(self, equations: Packing, points: list[State]) -> None:
        self.equations = equations
        self.rates = equations.rates(points)
        self._points = equations.pack(points)
        self._distance = equations.rate.resolution ** (1 / 3) * (1 + _rms(self._points))

    def push(self, rows: Tensor) -> Tensor:
        """J_i u_i"""
        size = _rms(rows)
        reach = self._distance / torch.where(size > 0, size, 1.0)
        ahead, behind = (self.equations.rates(self.equations.unpack(self._points + sign * reach * rows)) for sign in (1, -1))
        return (ahead - behind) / (2 * reach)

    def matrix(self) -> Tensor:
        """J of every sample where there is one stage, (batch, n, n), column by column."""
        unit = torch.eye(self.equations.width, dtype=self._points.dtype, device=self._points.device)
        return torch.cat([self.push(column.expand_as(self._points)) for column in unit], dim=1).transpose(1, 2)


def _grad(outputs: Sequence[Tensor], inputs: Sequence[Tensor], seeds: Sequence[Tensor], create_graph: bool = False) -> State:
    """Vector–Jacobian products with a graph that stays; zeros where there is no path."""
    grads: Sequence[Tensor | None] = [None] * len(inputs)
    if outputs:
        grads = torch.autograd.grad(outputs, inputs, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return zeros_where_none(grads, inputs)


def _rms(stages: Tensor) -> Tensor:
    return torch.linalg.vector_norm(stages, dim=2, keepdim=True) / max(stages.shape[2], 1) ** 0.5


def _cannot(reason: str) -> ConfigError:
    return ConfigError(f"{reason}; use method=Implicit(..., jacobian='difference') or Implicit(..., solver='fixed_point')")
