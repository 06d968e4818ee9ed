"""A period of a Runge–Kutta network: one dynamical system, advanced by r time-steps of the same kind (RKNet §3.2, fig. 1)."""

from collections.abc import Sequence

from torch import Tensor, nn

from continua.blocks.erk import ERKStep
from continua.blocks.irk import IRKStep
from continua.errors import ConfigError

Step = ERKStep | IRKStep


class Period(nn.Module):
    """y_0 → y_1 → … → y_r. Either r steps with weights of their own, or one step that was built with `uses=r`."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        if not steps or (len(steps) > 1 and any(step.uses > 1 for step in steps)):
            raise ConfigError("a period needs time-steps: several with weights of their own, or one step taken several times (uses=r)")
        self.steps = nn.ModuleList(steps)

    @property
    def first(self) -> Step:
        """Any step: they are all of the same kind and size."""
        return self.steps[0]  # pyright: ignore[reportReturnType]

    @property
    def taken(self) -> list[tuple[Step, int]]:
        """The time-steps in order: the step, and which of its uses this is."""
        return [(step, use) for step in self.steps for use in range(step.uses)]  # pyright: ignore

    def forward(self, y: Tensor) -> Tensor:
        for step, use in self.taken:
            y = step(y, use)
        return y

    def states(self, y: Tensor) -> list[Tensor]:
        """y before the first time-step and after each."""
        found = [y]
        for step, use in self.taken:
            found.append(step(found[-1], use))
        return found
