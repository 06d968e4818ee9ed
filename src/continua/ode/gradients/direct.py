"""Plain autograd through every step: fastest where memory is plentiful, and differentiable any number of times."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from continua.ode.gradients.base import Gradient
from continua.ode.integration import Integration
from continua.ode.solution import Solution

if TYPE_CHECKING:
    from continua.ode.config import SolverConfig


@dataclass(frozen=True)
class Direct(Gradient):
    """The graph of every step is kept; backward evaluates nothing again."""

    kind: ClassVar[str] = "direct"
    keeps_graph: ClassVar[bool] = True
    exact_times: ClassVar[bool] = True

    def check(self, config: "SolverConfig") -> None:
        self.refuse_implicit(config)

    def integrate(self, integration: Integration) -> Solution:
        return integration.steps().run().solution()
