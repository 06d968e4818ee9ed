"""The asynchronous leapfrog (MALI, Zhuang et al. 2021) beside `gradient="reversible"`: both give exact gradients and keep no trajectory.

A step of the leapfrog carries (y, v), v0 = f(t0, y0),

    z = y + h/2 v,        v' = 2 f(t + h/2, z) − v,        y' = z + h/2 v'.

It is of second order, costs one evaluation, and is undone exactly; backward takes one evaluation and one product with the Jacobian a step.
Both are given equal steps, doubled until the state at the end is within the asked error of a tight solve, and then timed, forward and
backward, with the same field.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from _common import machine, medians, options, show_all
from continua.blocks import ConvField
from continua.filters import Pixel
from continua.ode import solve

Row = dict[str, Any]
END = 2.0


class Leapfrog(torch.autograd.Function):
    """y1 by the asynchronous leapfrog; backward undoes its steps."""

    @staticmethod
    def forward(ctx: Any, f: nn.Module, steps: int, y0: Tensor, *params: Tensor) -> Tensor:
        h = END / steps
        y, v = y0, f(torch.tensor(0.0), y0)
        for n in range(steps):
            z = torch.add(y, v, alpha=h / 2)
            v = torch.sub(2 * f(torch.tensor((n + 0.5) * h), z), v)
            y = torch.add(z, v, alpha=h / 2)
        ctx.f, ctx.steps = f, steps
        ctx.save_for_backward(y, v)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (gy,), f, steps = cotangents, ctx.f, ctx.steps
        (y, v), params = ctx.saved_tensors, tuple(f.parameters())
        h, gv, sums = END / steps, torch.zeros_like(gy), [torch.zeros_like(p) for p in params]

        def pull(t: float, point: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                leaf = point.detach().requires_grad_()
                rate = f(torch.tensor(t), leaf)
            found = torch.autograd.grad(rate, (leaf, *params), seed)
            for total, part in zip(sums, found[1:], strict=True):
                total += part
            return rate.detach(), found[0]

        for n in reversed(range(steps)):
            z = torch.sub(y, v, alpha=h / 2)
            gv = torch.add(gv, gy, alpha=h / 2)
            rate, gz = pull((n + 0.5) * h, z, 2 * gv)
            gy = gy + gz
            v = 2 * rate - v
            y = torch.sub(z, v, alpha=h / 2)
            gv = torch.add(-gv, gy, alpha=h / 2)
        gy = gy + pull(0.0, y, gv)[1]
        return None, None, gy, *sums


def leapfrog(f: nn.Module, y0: Tensor, steps: int) -> Tensor:
    return Leapfrog.apply(f, steps, y0, *f.parameters())


def reversible(method: str) -> Callable[[nn.Module, Tensor, int], Tensor]:
    return lambda f, y0, steps: solve(f, y0, 0.0, END, method=method, steps=steps, gradient="reversible").y1  # pyright: ignore


SCHEMES = {"leapfrog": leapfrog, **{f"reversible, {method}": reversible(method) for method in ("midpoint", "rk4", "dopri5")}}


def fewest_steps(run: Callable[..., Tensor], f: nn.Module, y0: Tensor, exact: Tensor, error: float) -> int | None:
    steps = 1
    while steps <= 1024:
        with torch.no_grad():
            if float((run(f, y0, steps) - exact).norm() / exact.norm()) <= error:
                return steps
        steps *= 2
    return None


def counted(f: nn.Module, case: Callable[[], object]) -> int:
    """Evaluations of f, forward and backward."""
    calls = 0

    def note(*_: object) -> None:
        nonlocal calls
        calls += 1

    hook = f.register_forward_pre_hook(note)
    case()
    hook.remove()
    return calls


def main() -> None:
    parser = options(__doc__, repeats=5)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    field = ConvField(16, Pixel, activation="silu", norm_groups=4)
    y0 = torch.randn(8, 16, 16, 16)
    with torch.no_grad():
        exact = solve(field, y0, 0.0, END, method="dopri8", rtol=1e-6, atol=1e-6).y1
    rows: list[Row] = []
    for error in (1e-1, 1e-2, 1e-3, 1e-4):
        steps = {name: fewest_steps(run, field, y0, exact, error) for name, run in SCHEMES.items()}

        def step(run: Callable[..., Tensor], count: int) -> None:
            field.zero_grad(set_to_none=True)
            run(field, y0, count).square().mean().backward()

        cases = {name: (lambda run=run, n=steps[name], step=step: step(run, n)) for name, run in SCHEMES.items() if steps[name]}
        seconds, evaluations = medians(cases, chosen.repeats), {name: counted(field, case) for name, case in cases.items()}
        for name in SCHEMES:
            count = steps[name]
            row = {"error": error, "scheme": name, "steps": count or "–", "evaluations": evaluations.get(name, "–")}
            rows.append({**row, "ms": 1e3 * seconds[name] if count else "–"})
    show_all({"forward and backward at equal error of y1": rows}, machine(), chosen.json)


if __name__ == "__main__":
    main()
