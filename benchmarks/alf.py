"""`gradient="leapfrog"` (MALI, Zhuang et al. 2021) beside `gradient="reversible"`: both give exact gradients and keep no trajectory.

The leapfrog is of second order and costs one evaluation a step, backward another. Both are given equal steps, doubled until the state at
the end is within the asked error of a tight solve, and then timed, forward and backward, with the same field.
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


def leapfrog(f: nn.Module, y0: Tensor, steps: int) -> Tensor:
    return solve(f, y0, 0.0, END, method="midpoint", steps=steps, gradient="leapfrog").y1  # pyright: ignore


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
