"""torchdiffeq's interface solved by Continua, beside torchdiffeq itself and `continua.solve`, on problems like its own examples.

The same program three times: `odeint` of either library, by dopri5 with the same tolerances and times, and `solve` called directly. States
and weights are float32. Evaluations are counted inside the field. "compat / solve" is what the interface costs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchdiffeq
from torch import Tensor, nn
from torch.nn import functional as nnf

import continua.compat.torchdiffeq as compat
from _common import machine, medians, options, show_all
from continua.ode import solve

Row = dict[str, Any]
State = Tensor | tuple[Tensor, ...]


class Counted(nn.Module):
    """A field that counts its evaluations."""

    calls = 0

    def forward(self, t: Tensor, y: Any) -> Any:
        self.calls += 1
        return self.rate(t, y)

    def rate(self, t: Tensor, y: Any) -> Any:
        raise NotImplementedError


class Spiral(Counted):
    """The small network that learns a spiral: two numbers a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def rate(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y**3)


class Vectors(Counted):
    """A multilayer perceptron, as in latent ODEs."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, size))

    def rate(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y)


class Flow(Counted):
    """A continuous normalising flow: points, and the logarithm of their density by the exact trace."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def rate(self, t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        z = y[0]
        with torch.set_grad_enabled(True):
            z.requires_grad_(True)
            dz = self.net(torch.cat([z, t.expand(len(z), 1)], 1))
            trace = sum(torch.autograd.grad(dz[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
        return dz, -torch.as_tensor(trace)[:, None]


class Maps(Counted):
    """The block of an ODE-Net: norm, activation, convolution, twice."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels + 1, channels, 3, padding=1) for _ in range(2))

    def rate(self, t: Tensor, y: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=False):
            y = nnf.relu(norm(y))
            y = conv(torch.cat([t.expand_as(y[:, :1]), y], 1))
        return self.norms[2](y)


@dataclass
class Problem:
    f: Counted
    y0: State
    t: Tensor
    tolerance: float

    def end(self, states: Any) -> Tensor:
        """What the loss is made of: every state that was asked for."""
        parts = states if isinstance(states, tuple) else (states,)
        return torch.stack([part.square().mean() for part in parts]).sum()


def problems(quick: bool) -> dict[str, Problem]:
    torch.manual_seed(0)
    batch = 8 if quick else 64
    return {
        "spiral, 20 × 2, 10 times": Problem(Spiral(), torch.randn(20, 2), torch.linspace(0, 2, 10), 1e-5),
        "flow, 512 × (2 + 1)": Problem(Flow(), (torch.randn(8 * batch, 2), torch.zeros(8 * batch, 1)), torch.tensor([1.0, 0.0]), 1e-5),
        "vectors, 64 × 64": Problem(Vectors(64), torch.randn(batch, 64), torch.linspace(0, 1, 2), 1e-5),
        "vectors, 64 × 256": Problem(Vectors(256), torch.randn(batch, 256), torch.linspace(0, 1, 2), 1e-5),
        "maps, 64 × 64 × 6 × 6": Problem(Maps(), torch.randn(batch, 64, 6, 6), torch.linspace(0, 1, 2), 1e-3),
    }


def direct(p: Problem, **keywords: Any) -> Any:
    """The states by `solve`, put together as `odeint` gives them."""
    times = p.t.tolist()
    solution = solve(p.f, p.y0, times[0], times[-1], rtol=p.tolerance, atol=p.tolerance, save_at=times[1:-1] or None, **keywords)
    ends, between = solution.y1, solution.ys
    if isinstance(ends, Tensor):
        pieces = [p.y0[None]] + ([] if between is None else [between]) + [ends[None]]  # pyright: ignore[reportOptionalSubscript]
        return torch.cat(pieces)
    return tuple(torch.stack(pair) for pair in zip(p.y0, ends, strict=True))


def cases(p: Problem) -> dict[str, Callable[[], Any]]:
    keywords = dict(rtol=p.tolerance, atol=p.tolerance, method="dopri5")
    every = {
        "solve, direct": lambda: direct(p, gradient="direct"),
        "compat odeint": lambda: compat.odeint(p.f, p.y0, p.t, **keywords),
        "torchdiffeq odeint": lambda: torchdiffeq.odeint(p.f, p.y0, p.t, **keywords),
        "solve, checkpoint": lambda: direct(p),
        "compat odeint_adjoint": lambda: compat.odeint_adjoint(p.f, p.y0, p.t, **keywords),
        "torchdiffeq odeint_adjoint": lambda: torchdiffeq.odeint_adjoint(p.f, p.y0, p.t, **keywords),
    }
    # A flow makes leaves of its own inside f, which `solve` refuses to replay since it cannot know them from forgotten parameters.
    return {name: case for name, case in every.items() if name != "solve, checkpoint" or isinstance(p.y0, Tensor)}


def forward(repeats: int, quick: bool) -> list[Row]:
    """One solve without gradients."""
    rows = []
    for name, p in problems(quick).items():
        with torch.no_grad():
            chosen = {key: case for key, case in cases(p).items() if key in ("solve, direct", "compat odeint", "torchdiffeq odeint")}
            rows += table(name, p, chosen, medians(chosen, repeats), "compat odeint")
    return rows


def backward(repeats: int, quick: bool) -> list[Row]:
    """One solve with its backward pass."""
    rows = []
    for name, p in problems(quick).items():

        def step(case: Callable[[], Any], p: Problem = p) -> None:
            p.f.zero_grad(set_to_none=True)
            p.end(case()).backward()

        chosen = {key: (lambda case=case, step=step: step(case)) for key, case in cases(p).items()}
        rows += table(name, p, chosen, medians(chosen, repeats), "compat odeint_adjoint")
    return rows


def table(name: str, p: Problem, chosen: dict[str, Callable[[], Any]], seconds: dict[str, float], against: str) -> list[Row]:
    rows = []
    for case, run in chosen.items():
        p.f.calls = 0
        run()
        twin = {"compat odeint": "solve, direct", "compat odeint_adjoint": "solve, checkpoint"}.get(case)
        row: Row = {"problem": name, "solver": case, "evaluations": p.f.calls, "ms": 1e3 * seconds[case]}
        row[f"× {against}"] = seconds[case] / seconds[against]
        row["compat / solve"] = seconds[case] / seconds[twin] if twin in seconds else ""
        rows.append(row)
    return rows


def main() -> None:
    parser = options(__doc__, repeats=15)
    parser.add_argument("--quick", action="store_true", help="small batches, three rounds: does it run, not what it costs")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    repeats = 3 if chosen.quick else chosen.repeats
    tables = {
        "1. forward, no gradient": forward(repeats, chosen.quick),
        "2. forward and backward": backward(repeats, chosen.quick),
    }
    show_all(tables, machine("torchdiffeq"), chosen.json)


if __name__ == "__main__":
    main()
