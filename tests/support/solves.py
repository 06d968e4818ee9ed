"""Gradients of a solve, and how far apart two of them are: what the tests of gradients share."""

import torch
from torch import Tensor, nn

from continua.ode import solve


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def loss_of(solution) -> Tensor:
    """Weighs every number of y1, and of ys where asked, differently."""
    outputs = []
    for part in (solution.y1, solution.ys):
        outputs += [] if part is None else [part] if isinstance(part, Tensor) else [*part]
    return sum((part * torch.linspace(-1, 2, part.numel(), dtype=part.dtype).view(part.shape)).sum() for part in outputs)


def gradients(field: nn.Module, y0, t0, t1, **options) -> tuple[Tensor, ...]:
    """∂/∂(y0, parameters) of that loss."""
    single = isinstance(y0, Tensor)
    leaves = tuple(part.detach().requires_grad_() for part in ((y0,) if single else y0))
    solution = solve(field, leaves[0] if single else leaves, t0, t1, **options)
    return torch.autograd.grad(loss_of(solution), (*leaves, *field.parameters()))


def relative(found, expected) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
