"""What a gradient is: how the steps of a solve are taken, so that y1 can be differentiated.

A gradient consumes an `Integration` and gives back a `Solution` whose states are connected to y0 and the parameters. To write one, subclass
`Gradient`, define `integrate`, and pass an object of the class as `gradient=`; it is registered nowhere. There are two ways to go about it:
take steps under autograd (`Direct` does), or take them without a graph and say what backward does (`connect`, as all others do).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continua.errors import ConfigError
from continua.ode.integration import AcceptedSteps, Integration
from continua.ode.plain import Plain
from continua.ode.solution import Solution, State

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig

Cotangents = tuple[Tensor | None, ...]  # ∂L of y1's components, then of those of ys; None: not asked for
Gradients = tuple[State, Sequence[Tensor | None]]  # ∂L/∂y0, and ∂L/∂p of every parameter


class Gradient(ABC):
    """How a solve is differentiated."""

    kind: ClassVar[str] = ""  # its name in files, for those that come along
    keeps_graph: ClassVar[bool] = False  # autograd holds the graph of the steps: f is not evaluated again, and y1 differentiable twice
    same_points: ClassVar[bool] = True  # backward evaluates f, if at all, at the states of the forward pass

    @abstractmethod
    def integrate(self, integration: Integration) -> Solution:
        """Take the steps of the integration, and connect what comes out to y0 and the parameters."""

    def check(self, config: "SolverConfig") -> None:  # noqa: B027  # most configurations suit most gradients
        """Refuse a configuration that this gradient cannot serve, when it is made."""

    def why_not_one_graph(self) -> str | None:
        """What keeps a solve with fixed explicit steps from becoming one graph for export or `torch.compile`; None if nothing does."""
        return None

    def plain(self) -> "str | Plain | Gradient":
        """The name and the options that differ from the defaults; the name alone where none does. One of your own stays itself."""
        if not self.kind:
            return self
        choices = self.choices()
        return {"kind": self.kind, **choices} if choices else self.kind

    def choices(self) -> Plain:
        """The options that differ from the defaults, where the class is a dataclass."""
        if not is_dataclass(self):
            return {}
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def __str__(self) -> str:
        choices = ", ".join(f"{name}={value!r}" for name, value in self.choices().items())
        return repr(self.kind) if self.kind and not choices else f"{type(self).__name__}({choices})"

    def refuse_implicit(self, config: "SolverConfig") -> None:
        """For those that step stage after stage."""
        if not config.tableau.explicit:
            text = f"{config.tableau.name} is implicit: gradient={self} needs an explicit method"
            raise ConfigError(f"{text}; use 'checkpoint', which differentiates implicit steps by the implicit function theorem")

    def refuse_sample(self, config: "SolverConfig") -> None:
        """For those that need one step for all samples."""
        if config.control.per == "sample":
            raise ConfigError(
                f"gradient={self} cannot be combined with control='sample'; use control='batch', or an explicit method with 'checkpoint'"
            )


@dataclass
class ForwardPass:
    """The steps of a forward pass, and how to go back through them.

    `outputs` are the components of y1, then those of ys, all detached; `saved` the tensors that backward needs; `backward` is given the
    parameters, what was saved, and the cotangents of the outputs. It may be called more than once.
    """

    outputs: State
    saved: State
    backward: "Callable[[State, State, Cotangents], Gradients]"


def connect(integration: Integration, steps: AcceptedSteps, take: "Callable[[], ForwardPass]") -> Solution:
    """The solution of `steps` with y1 and ys as functions of y0 and the parameters. `take` takes the steps, without a graph."""
    count = len(integration.y0)
    outputs = _Connected.apply(take, count, *integration.y0, *integration.params)
    return steps.solution(outputs[:count], outputs[count:])


class _Connected(torch.autograd.Function):
    """A forward pass with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, take: "Callable[[], ForwardPass]", count: int, *tensors: Tensor) -> State:
        taken, params = take(), tensors[count:]
        ctx.go_back, ctx.params = taken.backward, len(params)
        ctx.save_for_backward(*params, *taken.saved)
        ctx.set_materialize_grads(False)
        return taken.outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        saved: State = ctx.saved_tensors
        of_y0, of_params = ctx.go_back(saved[: ctx.params], saved[ctx.params :], cotangents)
        return None, None, *of_y0, *of_params
