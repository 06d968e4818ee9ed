"""The continuous adjoint (optimise-then-discretise), offered because the papers use it. Not recommended: slower, and inexact.

With a(t) = ∂L/∂y(t), the augmented system is solved backwards from t1 to t0 (Chen et al. 2018),

    dy/dt = f,        da/dt = −(∂f/∂y)ᵀ a,        dg/dt = −(∂f/∂p)ᵀ a,

restarting at every asked time with ∂L/∂ys added to a. Its error control looks at y and a only by default (the semi-norm of Kidger,
Chen & Lyons 2021); `Adjoint(norm="full")` adds the parameters' gradients, as torchdiffeq does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from continua.errors import ConfigError
from continua.ode.control import Per, StepControl
from continua.ode.error import Tolerance
from continua.ode.gradients.base import Cotangents, ForwardPass, Gradient, Gradients, connect
from continua.ode.gradients.direct import Direct
from continua.ode.integration import AcceptedSteps, BatchSteps, Integration
from continua.ode.plain import Options, Plain
from continua.ode.rate import Rate
from continua.ode.solution import Solution, State, Stats, Time, zeros_where_none
from continua.ode.stepper import ExplicitStepper, ParameterGradients, evaluate_with_graph, rate_vjp
from continua.ode.tableau import Tableau, find_method, name_of

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig


@dataclass(frozen=True)
class Adjoint(Gradient):
    """The gradient of the equation, by a second solve. What is left out of its options is as in the forward solve.

    `steps=None` lets the backward solve choose its steps where the forward solve had fixed ones.
    """

    kind: ClassVar[str] = "adjoint"
    same_points: ClassVar[bool] = False
    norm: Literal["semi", "full"] = "semi"
    method: "str | Tableau | None" = None
    rtol: "Tolerance | None" = None
    atol: "Tolerance | None" = None
    steps: "int | Literal['forward'] | None" = "forward"
    control: "StepControl | Per | Options | None" = None

    def __post_init__(self) -> None:
        if self.norm not in ("semi", "full"):
            raise ConfigError(f"Adjoint(norm={self.norm!r}); norm is 'semi' or 'full'")
        if self.control is not None:
            object.__setattr__(self, "control", StepControl.of(self.control))
        if isinstance(self.method, Mapping):  # the numbers of a tableau, of a file
            object.__setattr__(self, "method", find_method(self.method))

    def check(self, config: "SolverConfig") -> None:
        self.refuse_implicit(config)
        self.refuse_sample(config)
        back = self.backward_config(config)
        if isinstance(back.steps, tuple):
            raise ConfigError(
                f"gradient='adjoint' goes back in equal steps, and those of the solve are not; give Adjoint(steps={back.count}), or "
                "Adjoint(steps=None) for steps that it chooses"
            )
        if self.norm == "full" and not all(isinstance(value, float | int) for value in (back.rtol, back.atol)):
            raise ConfigError("Adjoint(norm='full') measures parameters too, and needs tolerances that are numbers; use norm='semi'")

    def choices(self) -> Plain:
        choices = super().choices()
        if self.method is not None:
            choices["method"] = name_of(self.method)
        if isinstance(self.control, StepControl):
            choices["control"] = self.control.plain()
        return choices

    def backward_config(self, config: "SolverConfig") -> "SolverConfig":
        """The configuration of the backward solve."""
        chosen = {name: getattr(self, name) for name in ("method", "rtol", "atol", "control")}
        changes: Plain = {name: value for name, value in chosen.items() if value is not None}
        if self.steps != "forward":
            changes["steps"] = self.steps
        return config.replace(gradient=Direct(), on_failure="raise", record_steps=False, **changes)

    def integrate(self, integration: Integration) -> Solution:
        if not integration.differentiable:
            return integration.run().solution()
        steps, times = integration.steps(), [] if integration.saver is None else integration.saver.times
        if not isinstance(times, list):
            raise ConfigError("gradient='adjoint' with save_at needs one interval for the whole batch; use gradient='checkpoint'")
        integration.probe(self)
        return connect(integration, steps, lambda: self._take(integration, steps, times))

    def _take(self, integration: Integration, steps: AcceptedSteps, times: list[float]) -> ForwardPass:
        outputs = steps.run().detached()
        ends, watch = (float(integration.t0), float(integration.t1)), integration.watch
        if watch is not None and int(watch.stopped) >= 0:
            ends = (ends[0], float(watch.ended))
            times = [time for time in times if abs(time - ends[0]) <= abs(ends[1] - ends[0])]  # the first ones; the others were not reached
        config = self.backward_config(integration.config)
        tape = _Tape(integration.rate, config, self.norm, steps.stats, *ends, times)
        return ForwardPass(outputs, outputs, tape.backward)


@dataclass
class _Tape:
    """What the backward solve needs besides the states at the asked times."""

    rate: Rate
    config: "SolverConfig"
    norm: str
    stats: Stats
    t0: float
    t1: float
    times: list[float]

    def backward(self, params: State, saved: State, cotangents: Cotangents) -> Gradients:
        count = self.rate.width
        y, ys = saved[:count], saved[count:]
        given = zeros_where_none(cotangents, saved)
        a, of_ys = given[:count], given[count:]
        sums = tuple(torch.zeros_like(p) for p in params)
        t = self.t1
        for slot in reversed(range(len(self.times))):
            y, a, sums = self._solve_back(t, self.times[slot], y, a, sums, params)
            t, y = self.times[slot], tuple(part[slot] for part in ys)
            a = tuple(part + c[slot] for part, c in zip(a, of_ys, strict=True))
        _, a, sums = self._solve_back(t, self.t0, y, a, sums, params)
        return a, sums

    def _solve_back(self, t: float, t0: float, y: State, a: State, sums: State, params: State) -> tuple[State, State, State]:
        if t == t0:
            return y, a, sums
        config, count, augmented = self.config, self.rate.width, (*y, *a, *sums)
        if config.count is not None:  # the same density of steps as the forward solve, in each piece between asked times
            config = config.replace(steps=max(1, round(config.count * abs(t - t0) / abs(self.t1 - self.t0))))
        rate = _AugmentedRate(self.rate, params)
        controlled = 2 * count if self.norm == "semi" else None
        loop = None if config.steps is not None else BatchSteps
        back = Integration(rate, ExplicitStepper(config.tableau), config, augmented, t, t0, loop=loop, controlled=controlled)
        steps = back.steps().run()
        self.stats.add_backward(rate.calls)
        return steps.y[:count], steps.y[count : 2 * count], steps.y[2 * count :]


class _AugmentedRate(Rate):
    """(f, −(∂f/∂y)ᵀ a, −(∂f/∂p)ᵀ a) at (y, a, ·)."""

    def __init__(self, forward: Rate, params: State) -> None:
        self.forward, self.params, self.count = forward, params, forward.width
        self.calls, self.device, self.width = 0, forward.device, 2 * forward.width + len(params)
        self.time_dtype = forward.time_dtype

    def __call__(self, t: Time, y: State) -> State:
        self.calls += 1
        point, k = evaluate_with_graph(self.forward, t, y[: self.count])
        gradients = ParameterGradients(self.params)
        rate_of_a = rate_vjp(point, k, tuple(-part for part in y[self.count : 2 * self.count]), gradients)
        return (*(part.detach() for part in k), *rate_of_a, *zeros_where_none(gradients.sums, self.params))

    def on_step(self, index: int, recomputing: bool) -> None:
        self.forward.on_step(index, True)
