"""A solve that stays outside a graph which is being recorded around it. Imported only then, since it imports the compiler."""

import torch

from continua.ode.solving import solve_eagerly

solve_outside = torch.compiler.disable(
    solve_eagerly,
    reason="an adaptive, implicit or checkpointed solve is no part of one graph; leave fullgraph out, or use "
    "solve(..., method='rk4', steps=4, gradient='direct')",
)
