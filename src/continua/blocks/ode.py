"""A block whose depth is an interval of time: h(t1) of dh/dt = f(t, h), h(t0) = input."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from continua.blocks.energy import INTEGRATED, EnergyRate, StepErrors, check_energies
from continua.blocks.field import Field, Prepared, Time
from continua.errors import ConfigError
from continua.filters import Evolved, Filter
from continua.ode import Event, Solution, SolverConfig, Stats, solve_with, time_dtype


class ODEBlock(nn.Module):
    """Integrates a field from t0 to t1. `stats` says what the last solve cost.

    `augment` zero channels are appended to the state for the solve and dropped after it (Dupont et al. 2019); the field is then built for
    that many channels more.

    `stop`: an `Event` at which a sample stops before t1: where its function, of t and h, crosses zero, or at once where the event has a
    direction and is past it at t0. `stats.t_end` then says when each sample ended. Under `control="sample"` every sample stops by itself,
    else the whole batch does. It concerns `forward`; `trajectory` and `solve` go all the way.

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
        stop: Event | None = None,
    ) -> None:
        super().__init__()
        _check_field(field, t0, t1)
        self.field = field
        self.t0, self.t1 = t0, t1
        if isinstance(field, nn.Module):  # a function is a field too
            check_grids(field, t0, t1)
            for name, filter in field.named_modules(prefix="field"):  # until a network knows its place better
                if isinstance(filter, Filter) and "," in filter.label and not filter.label.startswith("field."):
                    filter.label = f"{name.removesuffix('.inner').removesuffix('.filter')}, {filter.label},"
        self.solver = SolverConfig.of(solver)
        self.augment, self.stop = augment, checked_stop(stop)
        self.stats: Stats | None = None
        self._tracked: tuple[str, ...] = ()
        self.energies: dict[str, Tensor] | None = None

    def track_energies(self, *names: str) -> None:
        """In training, integrate "kinetic" and "jacobian" energies beside the state and sum the "error" of its steps.

        `energies` then has one number of each per sample.
        """
        check_energies(names, self.solver)
        self._tracked, self.energies = names, None

    def check_interval(self, t1: float) -> None:
        """Refuse an end time that the filters were not made for."""
        if isinstance(self.field, nn.Module):
            check_grids(self.field, self.t0, t1)

    def forward(self, h: Tensor, t1: "float | Tensor | None" = None, stop: Event | None = None) -> Tensor:
        """h(t1), or h where it stopped; t1 (also one per sample) and the stop may be given per call."""
        stop = self.stop if stop is None else checked_stop(stop)
        if stop is not None:
            return self._drop(self._solve_until(h, self.t1 if t1 is None else t1, stop), dim=1)
        if self._tracked and self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return self._drop(self._solve_with_energies(h, self.t1 if t1 is None else t1), dim=1)
        return self._drop(self.solve(h, t1).y1, dim=1)

    def trajectory(self, h: Tensor, times: "float | Sequence[float] | Tensor", t1: "float | Tensor | None" = None) -> Tensor:
        """h at the given times, (time, batch, channels, height, width)."""
        try:
            solution = self.solve(h, t1, save_at=[times] if isinstance(times, int | float) else times)
        except ConfigError as error:  # of an argument that is called otherwise here
            raise ConfigError(str(error).replace("save_at", "times")) from None
        return self._drop(solution.ys, dim=2)

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
        integrated = [name for name in self._tracked if name in INTEGRATED]
        start = (h, *(h.new_zeros(len(h)) for _ in integrated))
        rate = EnergyRate(prepared.rate, h, integrated, self.solver.gradient.keeps_graph)
        errors = StepErrors(h, self.solver.tableau) if "error" in self._tracked else None
        own = () if isinstance(self.field, Field) or not isinstance(self.field, nn.Module) else tuple(self.field.parameters())
        solution = solve_with(self.solver, rate, start, self.t0, end, params=(*prepared.tensors, *own), each_step=errors)
        self._keep_stats(solution, prepared)
        self.energies = dict(zip(integrated, solution.y1[1:], strict=True)) | ({} if errors is None else {"error": errors.total})
        return solution.y1[0]

    def _solve_until(self, h: Tensor, end: Time, stop: Event) -> Any:
        """h where it stopped, or h(t1). Samples that are past the stop already do not start."""
        if torch.compiler.is_compiling():
            raise ConfigError("a block with a stop ends where its numbers say, which one graph cannot; call it outside torch.compile")
        if self._tracked and self.training and torch.is_grad_enabled():
            raise ConfigError(f"energies ({', '.join(self._tracked)}) are integrated over the whole interval; train without a stop")
        past = self._past(h, stop)
        if bool(past.any()):  # those have nowhere to go
            end = torch.where(past, self.t0, torch.as_tensor(end, dtype=torch.float64, device=h.device)) if past.ndim else self.t0
        start, prepared = self._prepare(h, end)
        event = replace(stop, function=_of_kept_channels(stop.function, self._drop)) if self.augment else stop
        solution = solve_with(self.solver, prepared.f, start, self.t0, end, params=prepared.tensors, event=event)
        self._keep_stats(solution, prepared)
        stats, stopped = solution.stats, solution.stopped
        if solution.t_end is None or stopped is None:  # all were past it
            stats.t_end, stats.stopped = torch.full_like(past, self.t0, dtype=torch.float64), past
        else:
            stats.t_end, stats.stopped = solution.t_end.detach(), past | (stopped >= 0)
        return solution.y1

    @torch.no_grad()
    def _past(self, h: Tensor, stop: Event) -> Tensor:
        """Which samples are past the stop when they start; whether the batch is, where it shares its steps."""
        shape = (len(h),) if self.solver.control.per == "sample" else ()
        if stop.takes_rate:  # f is known once a solve begins, and then it is looked for as a crossing
            return torch.zeros(shape, dtype=torch.bool, device=h.device)
        return stop.past(stop.function(torch.full(shape, self.t0, dtype=time_dtype(h), device=h.device), h).reshape(shape))

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
        how = f"{solver.count} steps" if solver.count else f"{solver.tolerances}, control={solver.control.per}"
        extra = f", augment={self.augment}" if self.augment else ""
        gradient = str(solver.gradient).strip("'")
        return f"t in [{self.t0:g}, {self.t1:g}], {solver.tableau.name}, {how}, gradient={gradient}{extra}"


def _check_field(field: object, t0: object, t1: object) -> None:
    """Refuse what cannot be called as f(t, h), and times that are no numbers."""
    for name, value in (("t0", t0), ("t1", t1)):
        if isinstance(value, bool | str) or not isinstance(value, int | float | Tensor):
            raise ConfigError(f"{name}={value!r}; expected a number")
    if isinstance(field, type) or not callable(field):
        raise ConfigError(f"the field of an ODEBlock is a module or a function that is called as f(t, h); got {field!r}")
    called = field.forward if isinstance(field, nn.Module) else field
    if isinstance(field, Field) or not (inspect.isfunction(called) or inspect.ismethod(called)):
        return  # one that prepares, or one that says nothing about what it takes
    try:
        inspect.signature(called).bind(None, None)
    except TypeError as error:
        raise ConfigError(
            f"a field is called as f(t, h), and {getattr(field, '__name__', type(field).__name__)} does not take that ({error}); wrap it: "
            "class F(nn.Module): def forward(self, t, h): return self.layer(h)"
        ) from None


def checked_stop(stop: Event | None) -> Event | None:
    """The stop of a block, if it is one."""
    if stop is not None and not (isinstance(stop, Event) and stop.terminal):
        raise ConfigError(f"stop={stop!r}; expected a terminal continua.ode.Event, such as Event(lambda t, h: ..., direction=1)")
    return stop


def _of_kept_channels(function: "Callable[..., Tensor]", drop: "Callable[[Tensor, int], Tensor]") -> "Callable[..., Tensor]":
    """A function of t and h that is shown no augmented channels."""
    return lambda t, *states: function(t, *(drop(state, 1) for state in states))


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
