"""A block whose depth is an interval of time: h(t1) of dh/dt = f(t, h), h(t0) = input."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.ode import Solution, SolverConfig, Stats, solve_with


class ODEBlock(nn.Module):
    """Integrates a field from t0 to t1. `stats` says what the last solve cost.

    `augment` zero channels are appended to the state for the solve and dropped after it (Dupont et al. 2019); the field is then built for
    that many channels more.
    """

    def __init__(
        self,
        field: nn.Module,
        t1: float = 1.0,
        *,
        t0: float = 0.0,
        solver: "SolverConfig | Mapping[str, Any] | None" = None,
        augment: int = 0,
    ) -> None:
        super().__init__()
        self.field = field
        self.t0, self.t1 = t0, t1
        self.solver = SolverConfig.of(solver)
        self.augment = augment
        self.stats: Stats | None = None

    def forward(self, h: Tensor, t1: "float | Tensor | None" = None) -> Tensor:
        """h(t1); t1 may be given per call, also one per sample."""
        return self._drop(self.solve(h, t1).y1, dim=1)

    def trajectory(self, h: Tensor, times: "Sequence[float] | Tensor", t1: "float | Tensor | None" = None) -> Tensor:
        """h at the given times, (time, batch, channels, height, width)."""
        return self._drop(self.solve(h, t1, save_at=times).ys, dim=2)

    def solve(self, h: Tensor, t1: "float | Tensor | None" = None, **options: Any) -> Solution:
        """The whole solution, for those who want the interpolant or the status; the state includes augmented channels."""
        if self.solver.steps is None and torch.compiler.is_compiling():
            raise ConfigError(
                f"{self.solver.method} chooses its steps from the data, which cannot be exported or compiled as one graph; "
                "switch to fixed steps first: net.with_solver(method='rk4', steps=4)"
            )
        end = self.t1 if t1 is None else t1
        if self.augment:
            h = torch.cat([h, h.new_zeros(len(h), self.augment, *h.shape[2:])], dim=1)
        prepare = getattr(self.field, "prepare", None)
        rate, tensors = prepare(h, self.t0, end) if prepare is not None else (self.field, ())
        solution = solve_with(self.solver, rate, h, self.t0, end, params=tensors, **options)
        solution.stats.routes = getattr(rate, "routes", dict)()
        self.stats = solution.stats
        return solution

    def _drop(self, h: Any, dim: int) -> Tensor:
        return h.narrow(dim, 0, h.shape[dim] - self.augment) if self.augment else h

    def extra_repr(self) -> str:
        solver = self.solver
        how = f"{solver.steps} steps" if solver.steps else f"rtol={solver.rtol:g}, atol={solver.atol:g}, control={solver.control}"
        extra = f", augment={self.augment}" if self.augment else ""
        return f"t in [{self.t0:g}, {self.t1:g}], {solver.tableau.name}, {how}, gradient={solver.gradient}{extra}"
