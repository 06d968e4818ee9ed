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

    kind: ClassVar[str] = ""  # its name in files, for the built-in ones
    keeps_graph: ClassVar[bool] = False  # autograd holds the graph of the steps: f is not evaluated again
    same_points: ClassVar[bool] = True  # backward evaluates f, if at all, at the states of the forward pass
    exact_times: ClassVar[bool] = False  # asked times and, with fixed steps, t0 and t1 get the gradient of the steps; else that of the flow

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
    parameters, what was saved, and the cotangents of the outputs. It may be called more than once. `again` takes the same steps from y0
    under autograd, for second derivatives, and says which tensors stand for the parameters there; without it they are refused.
    """

    outputs: State
    saved: State
    backward: "Callable[[State, State, Cotangents], Gradients]"
    again: "Callable[[State, State], tuple[State, State]] | None" = None


def solve_pair(integration: Integration, pair: Integration, take: "Callable[[AcceptedSteps], ForwardPass]") -> Solution:
    """The solution of a scheme whose steps carry a second part beside the state: `pair` takes them, and its first half is the state."""
    if not integration.differentiable:
        steps = pair.run()
        return steps.solution(steps.y[: len(integration.y0)])
    steps = pair.steps()
    return connect(integration, steps, lambda: take(steps))


def connect(integration: Integration, steps: AcceptedSteps, take: "Callable[[], ForwardPass]") -> Solution:
    """The solution of `steps` with y1 and ys as functions of y0 and the parameters. `take` takes the steps, without a graph.

    Args:
        integration: the solve.
        steps: the steps that were accepted.
        take: takes them, without a graph.

    Returns:
        The solution, with a graph.

    Examples:
        >>> from continua.ode import connect
        >>> connect(integration, steps, take)  # doctest: +SKIP
    """
    count = len(integration.y0)
    # Whoever differentiates a gradient must arrive at y0 also where no gradient keeps it: by an empty piece of it.
    pieces = tuple(part.narrow(0, 0, 0).clone() for part in integration.y0)
    outputs = _Connected.apply(take, integration.config.gradient, count, *integration.y0, *integration.params, *pieces)
    return steps.solution(outputs[:count], outputs[count:])


class _Connected(torch.autograd.Function):
    """A forward pass with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, take: "Callable[[], ForwardPass]", gradient: Gradient, count: int, *tensors: Tensor) -> State:
        taken, y0, others = take(), tensors[:count], tensors[count:]
        ctx.taken, ctx.gradient, ctx.count = ForwardPass((), (), taken.backward, taken.again), gradient, count
        # The steps are taken again from y0, which mostly is among what was saved already.
        ctx.kept = 0 if taken.again is None or all(a is b for a, b in zip(taken.saved, y0, strict=False)) else count
        ctx.save_for_backward(*others, *(y0 if ctx.kept else ()), *taken.saved)
        ctx.others = len(others)
        ctx.set_materialize_grads(False)
        return taken.outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        count, others, rest = ctx.count, ctx.saved_tensors[: ctx.others], ctx.saved_tensors[ctx.others :]
        params, saved = others[:-count], rest[ctx.kept :]
        if not torch.is_grad_enabled():
            of_y0, of_params = ctx.taken.backward(params, saved, cotangents)
        else:  # create_graph=True: the gradient may itself be differentiated
            start = rest[:count] if ctx.taken.again is not None else others[-count:]
            given = (len(params), count, saved, cotangents)
            gradients = _Differentiable.apply(ctx.taken, ctx.gradient, given, *start, *params, *(c for c in cotangents if c is not None))
            of_y0, of_params = gradients[:count], gradients[count:]
        return None, None, None, *of_y0, *of_params, *(None,) * count


class _Differentiable(torch.autograd.Function):
    """The gradient of a forward pass as a function of y0, the parameters and the cotangents, to be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, taken: ForwardPass, gradient: Gradient, given: Any, *tensors: Tensor) -> Cotangents:
        count_params, count, saved, cotangents = given
        params = tensors[count : count + count_params]
        ctx.again, ctx.gradient, ctx.counts = taken.again, gradient, (count, count_params)
        ctx.asked = [index for index, cotangent in enumerate(cotangents) if cotangent is not None]
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        of_y0, of_params = taken.backward(params, saved, cotangents)
        return (*of_y0, *of_params)

    @staticmethod
    def backward(ctx: Any, *directions: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.again is None:
            exact = "gradient='checkpoint' or 'direct'"
            if ctx.gradient.kind == "checkpoint":
                raise ConfigError(f"an implicit method has no second derivatives; use an explicit one, such as dopri5, with {exact}")
            raise ConfigError(f"gradient={ctx.gradient} has no second derivatives; use {exact}, with an explicit method")
        if torch.is_grad_enabled():
            raise ConfigError(f"gradient={ctx.gradient} can be differentiated twice, and no more often; use gradient='direct'")
        count, params = ctx.counts
        with torch.enable_grad():
            tensors: State = ctx.saved_tensors
            y0 = tuple(part.detach().requires_grad_() for part in tensors[:count])
            seeds = tuple(part.detach().requires_grad_() for part in tensors[count + params :])
            outputs, standing = ctx.again(y0, tensors[count : count + params])
            inputs = (*y0, *standing)
            pairs = [(outputs[index], seed) for index, seed in zip(ctx.asked, seeds, strict=True) if outputs[index].requires_grad]
            first = _grad([a for a, _ in pairs], inputs, [b for _, b in pairs], create_graph=True)
        chosen = [(g, v) for g, v in zip(first, directions, strict=True) if g is not None and v is not None and g.requires_grad]
        second = _grad([g for g, _ in chosen], (*inputs, *seeds), [v for _, v in chosen])
        return None, None, None, *second


def _grad(outputs: Sequence[Tensor], inputs: State, seeds: Sequence[Tensor], create_graph: bool = False) -> Cotangents:
    if not outputs:
        return (None,) * len(inputs)
    return torch.autograd.grad(outputs, inputs, seeds, create_graph=create_graph, allow_unused=True)
