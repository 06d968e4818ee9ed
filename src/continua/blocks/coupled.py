"""Coupled blocks: dz/dt = f(z, θ(t)) with weights that have a differential equation of their own (ANODEV2 eq. 5).

    f = act ∘ norm ∘ conv, once or twice over; the last activation is inside f, and nothing follows the addition

Filters of the field may be `Evolved`: each computes its way through time once per solve. With norm="batch" every step of z has a set of
batch statistics and affine parameters of its own, as the paper's parameter counts say; the block then takes Euler steps, one evaluation
each. With norm="group" any solver will do.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from continua.blocks.field import Field, Prepared, Time
from continua.blocks.norm import Activation, group_norm
from continua.blocks.ode import ODEBlock
from continua.blocks.typed_modules import module_list
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, RealisedConv
from continua.ode import SolverConfig

NORMS = ("batch", "group")


class StepNorms(nn.Module):
    """BatchNorm with one set of statistics and affine parameters for each step."""

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.sets = module_list(nn.BatchNorm2d(channels) for _ in range(steps))

    def forward(self, h: Tensor, step: int, update: bool) -> Tensor:
        """`update=False`: normalise by the batch as in training, but leave the running statistics alone (the step is being replayed)."""
        norm = self.sets[step]
        if update or not norm.training:
            return norm(h)
        norm.track_running_stats = False  # asked of the norm itself, which may take its statistics over several ranks
        try:
            return norm(h)
        finally:
            norm.track_running_stats = True


class CoupledField(Field):
    """f(z, θ(t)): `layers` times conv → norm → activation. `make_filter(in, out)` gives each convolution its filter.

    With `last_activation=False` f ends with its last norm, so that the state may fall as well as rise.
    """

    def __init__(
        self,
        channels: int,
        make_filter: Callable[[int, int], Filter],
        *,
        layers: int = 2,
        norm: str = "batch",
        steps: int = 5,
        t1: float = 1.0,
        activation: str = "relu",
        last_activation: bool = True,
        norm_groups: "int | str" = 32,
        bias: bool = True,
        conv_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ConfigError(f"norm is {' or '.join(map(repr, NORMS))}; got {norm!r}")
        if layers < 1 or steps < 1:
            raise ConfigError(f"a coupled field has at least one convolution and one step; got layers={layers}, steps={steps}")
        self.norm, self.steps, self.t1, self.stepwise = norm, steps, t1, norm == "batch"
        options: dict[str, Any] = {"bias": bias, **(conv_options or {})}
        self.convs = module_list(FilterConv2d(make_filter(channels, channels), **options) for _ in range(layers))
        self.norms = nn.ModuleList(
            StepNorms(channels, steps) if norm == "batch" else group_norm(channels, norm_groups) for _ in range(layers)
        )
        self.act, self.last_activation = Activation(activation), last_activation

    def prepare(self, h: Tensor, t0: Time = 0.0, t1: Time = 1.0) -> Prepared:
        rate = self._rate(h)
        tensors = (*self.norms.parameters(), *(tensor for conv in rate.ready for tensor in conv.tensors))
        return Prepared(rate, tensors, rate.on_step, rate.routes)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f alone, outside a solve: statistics of the step that t lies in, none of them changed."""
        rate = self._rate(h)
        rate.on_step(min(int(float(t) / self.t1 * self.steps), self.steps - 1) if self.norm == "batch" else 0, True)
        return rate(t, h)

    def _rate(self, h: Tensor) -> "_CoupledRate":
        return _CoupledRate(self, [conv.realise(h.shape, h.dtype, h.device) for conv in self.convs])

    def check_solver(self, solver: SolverConfig) -> None:
        """Refuse a solver that one set of batch statistics per step does not allow."""
        if self.norm != "batch":
            return
        what = f"BatchNorm with one set per step ({self.steps} of them)"
        instead = f"use method='euler', steps={self.steps} with gradient='checkpoint' or 'direct', or build the network with norm='group'"
        if solver.steps is None or solver.control.per == "sample":
            raise ConfigError(f"{what} needs fixed steps: {solver.tableau.name} chooses its own; {instead}")
        if solver.tableau.stages != 1 or not solver.tableau.explicit:
            raise ConfigError(
                f"{what} needs one evaluation per step; {solver.tableau.name} takes {solver.tableau.stages}, whose states have other "
                f"statistics; {instead}"
            )
        if solver.steps != self.steps:
            raise ConfigError(f"{what} needs as many steps; the solver takes {solver.steps}. Build the network with steps={solver.steps}")
        if not solver.gradient.same_points:
            raise ConfigError(
                f"{what} needs every state of the forward pass again in backward; gradient={solver.gradient} evaluates f elsewhere; "
                f"{instead}"
            )


class _CoupledRate:
    """f for one solve, its filters realised. The solver says which step it is in, and whether it is taken again for a gradient."""

    def __init__(self, field: CoupledField, ready: list[RealisedConv]) -> None:
        self.field, self.ready = field, ready
        self.step, self.recomputing = 0, True
        self._seen: set[int] = set()

    def on_step(self, index: int, recomputing: bool) -> None:
        self.step, self.recomputing = index, recomputing

    def __call__(self, t: Tensor, h: Tensor) -> Tensor:
        # Each step of a solve is counted once in the running statistics, however often it is evaluated.
        update = not self.recomputing and self.step not in self._seen
        if update:
            self._seen.add(self.step)
        last = len(self.ready) - 1
        for place, (conv, norm) in enumerate(zip(self.ready, self.field.norms, strict=True)):
            h = conv(h, t)
            h = norm(h, self.step, update) if isinstance(norm, StepNorms) else norm(h)
            if place < last or self.field.last_activation:
                h = self.field.act(h, overwrite=True)
        return h

    def routes(self) -> dict[str, str]:
        return {f"conv{index + 1}": conv.route for index, conv in enumerate(self.ready)}


class CoupledBlock(ODEBlock):
    """An ODE block that asks its field whether a solver suits it, when it is built and whenever it is given another."""

    @property
    def solver(self) -> SolverConfig:
        return self._solver

    @solver.setter
    def solver(self, solver: SolverConfig) -> None:
        if isinstance(self.field, Field):
            self.field.check_solver(solver)
        self._solver = solver

    def track_energies(self, *names: str) -> None:
        if names and isinstance(self.field, Field) and self.field.stepwise:
            raise ConfigError(
                "energies of a trajectory are integrals over all t, which batch statistics that change from step to step do not have; "
                "build the network with norm='group'"
            )
        super().track_energies(*names)
