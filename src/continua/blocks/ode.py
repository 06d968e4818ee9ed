"""A block whose depth is an interval of time: h(t1) of dh/dt = f(t, h), h(t0) = input."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from continua.blocks.energy import EnergyRate, check_energies
from continua.blocks.field import Field, Prepared, Time
from continua.errors import ConfigError
from continua.filters import Evolved, Filter
from continua.ode import Solution, SolverConfig, Stats, solve_with


class ODEBlock(nn.Module):
    """Integrates a field from t0 to t1. `stats` says what the last solve cost.

    `augment` zero channels are appended to the state for the solve and dropped after it (Dupont et al. 2019); the field is then built for
    that many channels more.

    Under `torch.compile` and `torch.export` the block becomes its fixed steps, unrolled: it needs `steps=N`, and `gradient="direct"` where
    gradients are wanted; it then keeps no `stats`. A field that is itself compiled, `ODEBlock(torch.compile(field))`, works with every
    solver: each evaluation realises the filters anew.
    """

    def __init__(
        self,
        field: nn.Module,
        t1: float = 1.0,
        *,
        t0: float = 0.0,
        solver: "SolverConfig | Mapping[str, object] | None" = None,
        augment: int = 0,
    ) -> None:
        super().__init__()
        self.field = field
        self.t0, self.t1 = t0, t1
        if isinstance(field, nn.Module):  # a function is a field too
            check_grids(field, t0, t1)
            for name, filter in field.named_modules(prefix="field"):  # until a network knows its place better
                if isinstance(filter, Filter) and "," in filter.label and not filter.label.startswith("field."):
                    filter.label = f"{name.removesuffix('.inner').removesuffix('.filter')}, {filter.label},"
        self.solver = SolverConfig.of(solver)
        self.augment = augment
        self.stats: Stats | None = None
        self._tracked: tuple[str, ...] = ()
        self.energies: dict[str, Tensor] | None = None

    def track_energies(self, *names: str) -> None:
        """In training, integrate "kinetic" and "jacobian" energies beside the state; `energies` then has one number per sample."""
        check_energies(names, self.solver)
        self._tracked, self.energies = names, None

    def forward(self, h: Tensor, t1: "float | Tensor | None" = None) -> Tensor:
        """h(t1); t1 may be given per call, also one per sample."""
        if self._tracked and self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return self._drop(self._solve_with_energies(h, self.t1 if t1 is None else t1), dim=1)
        return self._drop(self.solve(h, t1).y1, dim=1)

    def trajectory(self, h: Tensor, times: "Sequence[float] | Tensor", t1: "float | Tensor | None" = None) -> Tensor:
        """h at the given times, (time, batch, channels, height, width)."""
        return self._drop(self.solve(h, t1, save_at=times).ys, dim=2)

    def solve(self, h: Tensor, t1: "float | Tensor | None" = None, **options: Any) -> Solution:
        """The whole solution, for those who want the interpolant or the status; the state includes augmented channels."""
        end = self.t1 if t1 is None else t1
        h, prepared = self._prepare(h, end)
        if torch.compiler.is_compiling():  # a graph holds no statistics
            self._check_one_graph(h, end, prepared.tensors)
            self.stats = None
            return solve_with(self.solver, prepared.f, h, self.t0, end, params=prepared.tensors, **options)
        solution = solve_with(self.solver, prepared.f, h, self.t0, end, params=prepared.tensors, **options)
        self._keep_stats(solution, prepared)
        return solution

    def _solve_with_energies(self, h: Tensor, end: Time) -> Tensor:
        """h(t1) of the coupled system (h, energies). The energies' own error counts in the choice of steps like one element each."""
        h, prepared = self._prepare(h, end)
        start = (h, *(h.new_zeros(len(h)) for _ in self._tracked))
        rate = EnergyRate(prepared.rate, h, self._tracked, self.solver.gradient.keeps_graph)
        solution = solve_with(self.solver, rate, start, self.t0, end, params=prepared.tensors)
        self._keep_stats(solution, prepared)
        self.energies = dict(zip(self._tracked, solution.y1[1:], strict=True))
        return solution.y1[0]

    def _prepare(self, h: Tensor, end: Time) -> tuple[Tensor, Prepared]:
        """The state with its extra channels, in the layout that suits the field; the rate of change, its filters realised."""
        h = self._widen(h)
        # A compiled field is no `Field` any more but a module with `forward(t, h)`: only its calls are compiled. The solver finds the
        # parameters of a plain module by itself.
        if not isinstance(self.field, Field):
            return h, Prepared(self.field)
        prepared = self.field.prepare(h, self.t0, end)
        if not isinstance(prepared, Prepared):
            name = type(self.field).__name__
            raise ConfigError(f"{name}.prepare returned a {type(prepared).__name__}; return continua.blocks.Prepared(rate, tensors)")
        return h.contiguous(memory_format=prepared.layout) if prepared.layout == torch.channels_last else h, prepared

    def _keep_stats(self, solution: Solution, prepared: Prepared) -> None:
        solution.stats.routes = {} if prepared.routes is None else prepared.routes()
        self.stats = solution.stats

    def why_not_one_graph(self) -> str | None:
        """What keeps this block from becoming one graph for export or `torch.compile`; None if nothing does."""
        return self.solver.why_not_one_graph()

    def _check_one_graph(self, h: Tensor, end: Time, tensors: Sequence[Tensor]) -> None:
        """Refuse what a compiled or exported block cannot do."""
        problem = self.why_not_one_graph()
        if problem is not None:
            raise ConfigError(problem)
        if isinstance(end, Tensor) and end.ndim:
            raise ConfigError("an end time per sample cannot be compiled; call the block outside torch.compile")
        gradient = self.solver.gradient
        if not gradient.keeps_graph and torch.is_grad_enabled() and any(part.requires_grad for part in (h, *tensors)):
            raise ConfigError(
                f"gradient={gradient} takes its steps again in backward, which one compiled graph cannot; "
                "use net.with_solver(gradient='direct'), or torch.no_grad() for inference"
            )

    def _widen(self, h: Tensor) -> Tensor:
        return torch.cat([h, torch.zeros_like(h[:, :1]).expand(-1, self.augment, -1, -1)], dim=1) if self.augment else h

    def _drop(self, h: Any, dim: int) -> Tensor:
        return h.narrow(dim, 0, h.shape[dim] - self.augment) if self.augment else h

    def extra_repr(self) -> str:
        solver = self.solver
        how = f"{solver.steps} steps" if solver.steps else f"{solver.tolerances}, control={solver.control.per}"
        extra = f", augment={self.augment}" if self.augment else ""
        gradient = str(solver.gradient).strip("'")
        return f"t in [{self.t0:g}, {self.t1:g}], {solver.tableau.name}, {how}, gradient={gradient}{extra}"


def check_grids(field: nn.Module, t0: float, t1: float) -> None:
    """Refuse filters whose evolution is computed on a part of the block's interval only: outside it their weights would not move.

    A clock of its own, as in ANODEV2's configuration 2, is meant to end before or after the block does.
    """
    for name, filter in field.named_modules():
        if isinstance(filter, Evolved) and filter.clock == 1.0 and not filter.grid.start <= min(t0, t1) <= max(t0, t1) <= filter.grid.end:
            grid = filter.grid
            raise ConfigError(
                f"the weights of {name or 'the field'} evolve on [{grid.start:g}, {grid.end:g}], and the block runs on [{t0:g}, {t1:g}]; "
                f"give the filter grid=Grid({min(t0, t1):g}, {max(t0, t1):g}, steps={grid.steps}), or the block another interval"
            )
