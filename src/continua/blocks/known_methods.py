"""Known Runge–Kutta methods written into a learned step: what an ERK or IRK step can represent, exactly, for a linear ODE.

For dy/dt = A y the increments of a method with tableau (a, b) are Z_i = h b_i z_i = h b_i A (y + Σ_j (a_ij / b_j) Z_j). With identity norm
and activation and kernels that act on one pixel, that is the block itself:

    explicit    W_yi = h b_i A,     W_ji = (a_ij / b_j) h b_i A                                          (RKNet eq. 5)
    implicit    the same with M_i = (1 − h a_ii A)⁻¹ h b_i A in place of h b_i A: Z_i solved for itself   (RKNet eq. 6)
"""

import torch
from torch import Tensor, nn

from continua.blocks.erk import ERKStep
from continua.blocks.irk import IRKStep
from continua.errors import ConfigError
from continua.ode import Tableau, find_method


@torch.no_grad()
def write_method(step: "ERKStep | IRKStep", tableau: "str | Tableau", rate: Tensor, h: float) -> None:
    """Set the kernels of `step` so that it takes one step of size `h` of a known method on dy/dt = rate · y, at every pixel.

    `rate` is (channels, channels). An `IRKStep` repeats Gauss–Seidel or Jacobi sweeps towards the implicit method's increments, and
    reaches them as its loops grow if `state_in_update` is set.
    """
    tableau = find_method(tableau)
    _check(step, tableau, rate)
    rate = rate.to(_weight(step).dtype)
    if isinstance(step, IRKStep):
        _write_implicit(step, tableau, rate, h)
    else:
        _write_explicit(step, tableau, rate, h)


def _write_explicit(step: ERKStep, tableau: Tableau, rate: Tensor, h: float) -> None:
    k, m = step.growth, step.m
    for index, growth in enumerate(step.growths):
        stage, part = divmod(index, m)
        rows = h * tableau.b[stage] * rate[part * k : (part + 1) * k]  # this growth makes these channels of its group
        blocks = [rows, *(tableau.a[stage][j] / tableau.b[j] * rows for j in range(stage)), torch.zeros(k, part * k)]
        _set_centre(growth.conv.filter.weight, torch.cat([block.to(rows) for block in blocks], 1))


def _write_implicit(step: IRKStep, tableau: Tableau, rate: Tensor, h: float) -> None:
    for i, node in enumerate(step.nodes):
        own = torch.eye(len(rate), dtype=rate.dtype, device=rate.device) - h * tableau.a[i][i] * rate
        solved = torch.linalg.solve(own, h * tableau.b[i] * rate)
        others = [tableau.a[i][j] / tableau.b[j] * solved for j in range(step.stages) if j != i]
        _set_centre(node.conv.filter.weight, torch.cat([solved, *others], 1))


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
    if not hasattr(_filter(step), "weight"):
        raise ConfigError(f"kernels of one pixel can be written into Pixel filters only, not into {type(_filter(step)).__name__}")


def _filter(step: "ERKStep | IRKStep") -> nn.Module:
    return (step.nodes if isinstance(step, IRKStep) else step.growths)[0].conv.filter  # pyright: ignore


def _weight(step: "ERKStep | IRKStep") -> Tensor:
    return _filter(step).weight  # pyright: ignore[reportReturnType]


def _set_centre(weight: Tensor, matrix: Tensor) -> None:
    """A convolution that is `matrix` at every pixel."""
    weight.zero_()
    weight[:, :, weight.shape[-2] // 2, weight.shape[-1] // 2] = matrix
