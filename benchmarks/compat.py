"""torchdiffeq's interface solved by Continua, beside torchdiffeq itself and `continua.solve`, on problems like its own examples.

The same program of either library, by dopri5 with the same tolerances and times, and `solve` called directly. States and weights are
float32. Evaluations are counted inside the field, forward and backward. "compat / solve" is what the interface costs. "f alone" is as many
evaluations of f as our interface makes, without a solver; with backward, through all of them but two, which no gradient passes (one chooses
the first step, and the last is for the error). "at most" is odeint by f alone: what a solver that costs nothing would gain.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torchdiffeq
from torch import Tensor, nn
from torch.nn import functional as nnf

import continua.compat.torchdiffeq as compat
from _common import machine, medians, options, show_all
from continua.ode import Event, solve

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


class Layers(Counted):
    """A multilayer perceptron, of y or of a power of it."""

    def __init__(self, *sizes: int, activation: type[nn.Module] = nn.Tanh, power: int = 1) -> None:
        super().__init__()
        layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), activation())]
        self.net, self.power = nn.Sequential(*layers[:-1]), power

    def rate(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y**self.power if self.power > 1 else y)


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
    batch, latent, ends = 8 if quick else 64, 20 if quick else 1000, torch.linspace(0, 1, 2)
    return {
        "spiral, 20 × 2, 10 times": Problem(Layers(2, 50, 2, power=3), torch.randn(20, 2), torch.linspace(0, 2, 10), 1e-5),
        "latent ODE, 1000 × 4, 100 times": Problem(
            Layers(4, 20, 20, 4, activation=nn.ELU), torch.randn(latent, 4), torch.linspace(0, 6, 100), 1e-5
        ),
        "vectors, 64 × 64": Problem(Layers(64, 128, 128, 64), torch.randn(batch, 64), ends, 1e-5),
        "vectors, 64 × 256": Problem(Layers(256, 128, 128, 256), torch.randn(batch, 256), ends, 1e-5),
        "flow, 512 × (2 + 1)": Problem(Flow(), (torch.randn(8 * batch, 2), torch.zeros(8 * batch, 1)), torch.tensor([1.0, 0.0]), 1e-5),
        "ODE-Net on digits, 64 × 64 × 6 × 6": Problem(Maps(), torch.randn(batch, 64, 6, 6), ends, 1e-3),
    }


def by_solve(p: Problem, **keywords: Any) -> Any:
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
    return {
        "solve": lambda: by_solve(p),
        "compat": lambda: compat.odeint_adjoint(p.f, p.y0, p.t, **keywords),
        "odeint": lambda: torchdiffeq.odeint(p.f, p.y0, p.t, **keywords),
        "odeint_adjoint": lambda: torchdiffeq.odeint_adjoint(p.f, p.y0, p.t, **keywords),
    }


def evaluations(p: Problem, case: Callable[[], Any]) -> int:
    p.f.calls = 0
    case()
    return p.f.calls


def f_alone(p: Problem, count: int) -> list[Tensor]:
    """f at the start, again and again."""
    found: list[Tensor] = []
    for _ in range(count):
        parts = [part.detach().requires_grad_() for part in (p.y0 if isinstance(p.y0, tuple) else (p.y0,))]
        rates = p.f(p.t[0], tuple(parts) if isinstance(p.y0, tuple) else parts[0])
        found += rates if isinstance(rates, tuple) else (rates,)
    return found


def forward(repeats: int, quick: bool) -> list[Row]:
    """One solve without gradients."""
    rows = []
    for name, p in problems(quick).items():
        chosen = {key: case for key, case in cases(p).items() if key != "odeint_adjoint"}
        with torch.no_grad():
            count = evaluations(p, chosen["compat"])
        chosen["f alone"] = lambda p=p, count=count: f_alone(p, count)
        with torch.no_grad():
            rows.append(table_row(name, p, chosen, medians(chosen, repeats)))
    return rows


def backward(repeats: int, quick: bool) -> list[Row]:
    """One solve with its backward pass, by the default gradient."""
    rows = []
    for name, p in problems(quick).items():

        def step(case: Callable[[], Any], p: Problem = p) -> None:
            p.f.zero_grad(set_to_none=True)
            p.end(case()).backward()

        def alone(count: int, p: Problem = p) -> None:
            p.f.zero_grad(set_to_none=True)
            with torch.no_grad():
                f_alone(p, 2)
            rates = f_alone(p, count - 2)
            torch.autograd.backward(rates, [torch.ones_like(rate) for rate in rates])

        chosen = {key: (lambda case=case, step=step: step(case)) for key, case in cases(p).items()}
        count = evaluations(p, chosen["compat"])
        chosen["f alone"] = lambda count=count, alone=alone: alone(count)
        rows.append(table_row(name, p, chosen, medians(chosen, repeats)))
    return rows


def table_row(name: str, p: Problem, chosen: dict[str, Callable[[], Any]], seconds: dict[str, float]) -> Row:
    row: Row = {"problem": name}
    for case, run in chosen.items():
        row |= {f"{case}, evaluations": evaluations(p, run), f"{case}, ms": 1e3 * seconds[case]}
    for case in ("odeint", "odeint_adjoint"):
        if case in chosen:
            row[f"faster than {case}"] = seconds[case] / seconds["compat"]
    row |= {"compat / solve": seconds["compat"] / seconds["solve"], "at most": seconds["odeint"] / seconds["f alone"]}
    return dict(sorted(row.items(), key=lambda item: (item[0] != "problem", "," not in item[0])))


def events(repeats: int, quick: bool) -> list[Row]:
    """What an event costs on a convolutional field: looked for and never there, or once there and noted."""
    p = problems(quick)["ODE-Net on digits, 64 × 64 × 6 × 6"]
    y0 = p.y0 if isinstance(p.y0, Tensor) else p.y0[0]
    never, once = (Event(lambda t, y, at=at: y.mean() * 0 + t - at, terminal=False) for at in (-1.0, 0.45))
    cases = {
        name: (lambda event=event: solve(p.f, y0, 0.0, 1.0, rtol=p.tolerance, atol=p.tolerance, event=event))
        for name, event in (("no event", None), ("an event that never happens", never), ("an event that happens once", once))
    }
    with torch.no_grad():
        seconds = medians(cases, repeats)
        steps = {name: case().stats.accepted + case().stats.rejected for name, case in cases.items()}
    base = seconds["no event"]
    return [
        {"solve with": name, "steps": steps[name], "ms": 1e3 * each, "% of a step": 100 * (each - base) / (base / steps["no event"])}
        for name, each in seconds.items()
    ]


def main() -> None:
    parser = options(__doc__, repeats=15)
    parser.add_argument("--quick", action="store_true", help="small batches, three rounds: does it run, not what it costs")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    repeats = 3 if chosen.quick else chosen.repeats
    tables = {
        "forward, no gradient": forward(repeats, chosen.quick),
        "forward and backward": backward(repeats, chosen.quick),
        "an event on a convolutional field": events(repeats, chosen.quick),
    }
    show_all(tables, machine("torchdiffeq"), chosen.json)


if __name__ == "__main__":
    main()
