"""A solve that stays outside a graph which is being recorded around it. Imported only then, since it imports the compiler."""

from collections.abc import Callable

import torch

from continua.ode.solution import Solution
from continua.ode.solving import solve_eagerly

REASON = (
    "this solve is no part of one graph; leave fullgraph out, or use an explicit method with adaptive steps and "
    "solve(..., control=StepControl(one_graph=True)), or fixed steps: solve(..., method='rk4', steps=4, gradient='direct')"
)
solve_outside: Callable[..., Solution] = torch.compiler.disable(solve_eagerly, reason=REASON)  # pyright: ignore[reportAssignmentType]
