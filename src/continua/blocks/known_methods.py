"""Known Runge–Kutta methods embedded in a learned step: what an ERK or IRK step can represent, exactly, for a linear ODE.

For dy/dt = A y the increments of a method with tableau (a, b) are Z_i = h b_i z_i = h b_i A (y + Σ_j (a_ij / b_j) Z_j). With identity norm
and activation and kernels that act on one pixel, that is the block itself:

    explicit    W_yi = h b_i A,     W_ji = (a_ij / b_j) h b_i A                                          (RKNet eq. 5)
    implicit    the same with M_i = (1 − h a_ii A)⁻¹ h b_i A in place of h b_i A: Z_i solved for itself   (RKNet eq. 6)
"""

import itertools

import torch
from torch import Tensor, nn

from continua.blocks.erk import ERKStep
from continua.blocks.irk import IRKStep
from continua.errors import ConfigError
from continua.filters import Pixel
from continua.ode import Tableau, find_method


@torch.no_grad()
def embed_tableau(step: "ERKStep | IRKStep", tableau: "str | Tableau", rate: Tensor, h: float) -> None:
    """Set the kernels of `step` so that it takes one step of size `h` of a known method on dy/dt = rate · y, at every pixel.

    `rate` is (channels, channels). An `IRKStep` repeats Gauss–Seidel or Jacobi sweeps towards the implicit method's increments, and
    reaches them as its loops grow if `state_in_update` is set.

    Args:
        step: the block's step, changed in place.
        tableau: the method, by name or as a `Tableau`.
        rate: (channels, channels), the matrix of the linear equation.
        h: size of the step.

    Raises:
        ConfigError: the method has another number of stages than the step.

    Examples:
        >>> import torch
        >>> from continua.blocks import embed_tableau
        >>> embed_tableau(step, "rk4", torch.eye(4), 0.1)  # doctest: +SKIP
    """
    tableau = find_method(tableau)
    _check(step, tableau, rate)
    kernels = _kernels(step)
    rate = rate.to(kernels[0].dtype)
    matrices = _implicit_matrices(step, tableau, rate, h) if isinstance(step, IRKStep) else _explicit_matrices(step, tableau, rate, h)
    for kernel, matrix in zip(kernels, matrices, strict=True):  # a convolution that is `matrix` at every pixel
        kernel.zero_()
        kernel[:, :, kernel.shape[-2] // 2, kernel.shape[-1] // 2] = matrix


def _explicit_matrices(step: ERKStep, tableau: Tableau, rate: Tensor, h: float) -> list[Tensor]:
    """What each growth reads of y_n and of the stages before, side by side."""
    k, m = step.growth, step.m
    matrices = []
    for stage, part in itertools.product(range(step.stages), range(m)):
        rows = h * tableau.b[stage] * rate[part * k : (part + 1) * k]  # this growth makes these channels of its group
        blocks = [rows, *(tableau.a[stage][j] / tableau.b[j] * rows for j in range(stage)), torch.zeros(k, part * k)]
        matrices.append(torch.cat([block.to(rows) for block in blocks], 1))
    return matrices


def _implicit_matrices(step: IRKStep, tableau: Tableau, rate: Tensor, h: float) -> list[Tensor]:
    """What each node reads of y_n and of all other stages, side by side."""
    matrices = []
    for i in range(step.stages):
        own = torch.eye(len(rate), dtype=rate.dtype, device=rate.device) - h * tableau.a[i][i] * rate
        solved = torch.linalg.solve(own, h * tableau.b[i] * rate)
        others = [tableau.a[i][j] / tableau.b[j] * solved for j in range(step.stages) if j != i]
        matrices.append(torch.cat([solved, *others], 1))
    return matrices


def _check(step: "ERKStep | IRKStep", tableau: Tableau, rate: Tensor) -> None:
    zero = [j + 1 for j, b in enumerate(tableau.b) if b == 0.0]
    if zero:
        raise ConfigError(
            f"{tableau.name} has b_{zero[0]} = 0: the block carries h·b_j·z_j, which is 0 for that stage, so later stages cannot read its "
            "slope (RKNet eq. 5 divides by b_j). Methods without such a stage: euler, heun, ralston, rk4, rk38, gauss4, radau5"
        )
    if isinstance(step, ERKStep) and not tableau.explicit:
        raise ConfigError(f"{tableau.name} is implicit: its stages read stages that come after them. Write it into an IRKStep")
    if step.stages != tableau.stages:
        raise ConfigError(f"{tableau.name} has {tableau.stages} stages and the step {step.stages}; build the step with as many")
    if tuple(rate.shape) != (step.channels, step.channels):
        raise ConfigError(
            f"rate has shape {tuple(rate.shape)}; the step carries {step.channels} channels, so it must be square of that size"
        )
    style = step.style
    if style.norm != "identity" or style.activation != "identity" or style.dropout or step.bottleneck is not None:
        raise ConfigError(
            "a known method is linear in y: the step needs Style(norm='identity', activation='identity'), no dropout and no bottleneck"
        )


def _kernels(step: "ERKStep | IRKStep") -> list[nn.Parameter]:
    """The pixels of every kernel that makes a stage, or a part of one."""
    filters = [part.conv.filter for part in (step.nodes if isinstance(step, IRKStep) else step.growths)]
    kernels = [filter.weight for filter in filters if isinstance(filter, Pixel)]
    if len(kernels) < len(filters):
        raise ConfigError(f"kernels of one pixel can be written into Pixel filters only, not into {type(filters[0]).__name__}")
    return kernels
