"""The ODE core beside torchdiffeq and torchode: overhead, a training step, memory, per-sample control.

All solve the same field (GroupNorm–CELU–3×3 convolution twice, GroupNorm) from the same states, with the same tolerances and the same
first step, in float32. torchode knows states of one axis only, so its field reshapes. Evaluations are counted inside the field.

Memory is the growth of the process's resident set: its high-water mark is set back before each case (Linux), in a process of its own
where glibc returns freed tensors to the system at once (MALLOC_MMAP_THRESHOLD_), so that the mark follows what is alive.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
import torchdiffeq
import torchode
from torch import Tensor, nn
from torch.nn import functional as nnf

from _common import machine, medians, options, peak_growth, show_all
from continua.ode import Checkpoint, solve

TOLERANCE, FIRST_STEP = 1e-3, 0.1
SHAPES = {"32 ch, 32×32": (32, 32), "128 ch, 8×8": (128, 8)}
Row = dict[str, Any]


class Field(nn.Module):
    """dh/dt = f(h). Counts its evaluations, and the samples in them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.reset()

    def reset(self) -> None:
        self.calls = self.samples = 0

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        self.calls += 1
        self.samples += len(h)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            h = conv(nnf.celu(norm(h)))
        return self.norms[2](h)


class Flat(nn.Module):
    """A field on (batch, features), for torchode."""

    def __init__(self, f: Field, shape: torch.Size) -> None:
        super().__init__()
        self.f, self.shape = f, shape[1:]

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.f(t, y.view(len(y), *self.shape)).flatten(1)


class Stiff(nn.Module):
    """The state (h, s) relaxes towards f(h) at its sample's own rate: dh/dt = s (f(h) − h), ds/dt = 0."""

    def __init__(self, f: Field) -> None:
        super().__init__()
        self.f = f

    def forward(self, t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, s = y
        return s.view(-1, 1, 1, 1) * (self.f(t, h) - h), torch.zeros_like(s)


class FlatStiff(Stiff):
    """The same on (batch, features + 1)."""

    def __init__(self, f: Field, shape: torch.Size) -> None:
        super().__init__(f)
        self.shape = shape[1:]

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        h, s = super().forward(t, (y[:, :-1].view(len(y), *self.shape), y[:, -1:]))
        return torch.cat([h.flatten(1), s], 1)


def problem(channels: int, size: int, batch: int) -> tuple[Field, Tensor]:
    torch.manual_seed(0)
    return Field(channels), torch.randn(batch, channels, size, size)


def ours(f: nn.Module, y0: Any, **keywords: Any) -> Any:
    return solve(f, y0, 0.0, 1.0, rtol=TOLERANCE, atol=TOLERANCE, **{"control": dict(first_step=FIRST_STEP), **keywords}).y1


def diffeq(f: nn.Module, y0: Tensor, adjoint: bool = False, steps: int | None = None) -> Tensor:
    """torchdiffeq's dopri5, or fixed steps of its rk4."""
    run = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
    method, how = ("dopri5", dict(first_step=FIRST_STEP)) if steps is None else ("rk4", dict(step_size=1.0 / steps))
    return run(f, y0, torch.tensor([0.0, 1.0]), rtol=TOLERANCE, atol=TOLERANCE, method=method, options=how)[-1]


def parallel(f: nn.Module, y0: Tensor) -> Tensor:
    """torchode's dopri5, each sample with its own step; y0 is (batch, features)."""
    term = torchode.ODETerm(f)
    solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term), torchode.IntegralController(TOLERANCE, TOLERANCE, term=term))
    start, end = torch.zeros(len(y0)), torch.ones(len(y0))
    interval = torchode.InitialValueProblem(y0, start, end, t_eval=end[:, None])
    return solver.solve(interval, dt0=torch.full_like(start, FIRST_STEP)).ys[:, -1]


def evaluations(f: Field, case: Callable[[], object]) -> tuple[int, int]:
    """Calls of f in one run, and samples evaluated."""
    f.reset()
    case()
    return f.calls, f.samples


# --- 1. overhead ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def overhead(batch: int, repeats: int) -> list[Row]:
    """time(solve) / (evaluations × time(f)), without gradients."""
    rows = []
    for shape, (channels, size) in SHAPES.items():
        f, y = problem(channels, size, batch)
        flat = Flat(f, y.shape)
        cases = {
            "continua": lambda f=f, y=y: ours(f, y),
            "torchdiffeq": lambda f=f, y=y: diffeq(f, y),
            "torchode": lambda flat=flat, y=y: parallel(flat, y.flatten(1)),
        }
        counts = {name: evaluations(f, case)[0] for name, case in cases.items()}
        bare = counts["continua"]

        def alone(f: Field = f, y: Tensor = y, count: int = bare) -> None:
            for _ in range(count):
                f(y, y)

        seconds = medians({"f": alone, **cases}, repeats)
        one = seconds["f"] / bare
        for name, count in counts.items():
            ratio = seconds[name] / (count * one)
            rows.append({"shape": shape, "solver": name, "NFE": count, "ms of f": 1e3 * one, "s": seconds[name], "overhead": ratio})
    return rows


# --- 2. one training step ---------------------------------------------------------------------------------------------

# Solver, and the RMS of ∂L/∂y1. The continuous adjoint holds its tolerances against the gradient's own size: at 1 they bite, while a
# loss that is a mean over images and pixels (1e-5) lets it take the longest steps it likes. The others do the same work at any size.
TRAINING: dict[str, tuple[Callable[[Field, Tensor], Tensor], float]] = {
    "continua checkpoint": (lambda f, y: ours(f, y, gradient=Checkpoint(direct_below=0)), 1.0),
    "continua checkpoint, segments=1": (lambda f, y: ours(f, y, gradient=Checkpoint(segments=1)), 1.0),
    "continua direct": (lambda f, y: ours(f, y, gradient="direct"), 1.0),
    "continua reversible": (lambda f, y: ours(f, y, gradient="reversible"), 1.0),
    "continua adjoint": (lambda f, y: ours(f, y, gradient="adjoint"), 1.0),
    "torchdiffeq odeint": (lambda f, y: diffeq(f, y), 1.0),
    "torchdiffeq odeint_adjoint": (lambda f, y: diffeq(f, y, adjoint=True), 1.0),
    "torchdiffeq odeint_adjoint, ∂L/∂y1 ~ 1e-5": (lambda f, y: diffeq(f, y, adjoint=True), 1e-5),
}


def training_step(f: Field, y: Tensor, run: Callable[[Field, Tensor], Tensor], size: float = 1.0) -> tuple[Tensor, int]:
    """The parameters' gradient (over `size`) and the forward evaluations, for a random ∂L/∂y1."""
    f.zero_grad(set_to_none=True)
    y = y.clone().requires_grad_()
    f.reset()
    y1 = run(f, y)
    forward = f.calls
    y1.backward(size * torch.randn(y1.shape, generator=torch.Generator().manual_seed(1)))
    return torch.cat([p.grad.flatten() for p in f.parameters() if p.grad is not None]) / size, forward


def training(batch: int, repeats: int) -> list[Row]:
    """Seconds and memory of one forward and backward solve, dopri5. "gradient error" is ∂L/∂p against that at tolerance 1e-5."""
    memory = in_own_process("training", batch)
    rows = []
    for shape, (channels, size) in SHAPES.items():
        f, y = problem(channels, size, batch)
        exact = training_step(f, y, lambda f, y: solve(f, y, 0.0, 1.0, rtol=1e-5, atol=1e-5).y1)[0]
        cases = {name: (lambda f=f, y=y, how=how: training_step(f, y, *how)) for name, how in TRAINING.items()}
        facts = {}
        for name, case in cases.items():
            gradient, forward = case()
            facts[name] = forward, f.calls - forward, float((gradient - exact).norm() / exact.norm())
        seconds = medians(cases, repeats)
        for name, (forward, backward, error) in facts.items():
            row = {"shape": shape, "solver": name, "NFE": forward, "NFE backward": backward, "s": seconds[name]}
            ratio = seconds[name] / seconds["continua checkpoint"]
            rows.append({**row, "× checkpoint": ratio, "MB": memory[f"{shape} {name}"], "gradient error": error})
    return rows


def memory_of_training(batch: int) -> dict[str, float]:
    found = {}
    for shape, (channels, size) in SHAPES.items():
        f, y = problem(channels, size, batch)
        for name, how in TRAINING.items():
            training_step(f, y, *how)  # fills the caches
            found[f"{shape} {name}"] = peak_growth(lambda f=f, y=y, how=how: training_step(f, y, *how))
    return found


# --- 3. memory against steps ------------------------------------------------------------------------------------------

GRADIENTS: dict[str, Callable[[Field, Tensor, int], Tensor]] = {
    "continua direct": lambda f, y, n: ours(f, y, method="rk4", steps=n, gradient="direct"),
    "continua checkpoint": lambda f, y, n: ours(f, y, method="rk4", steps=n, gradient=Checkpoint(direct_below=0)),
    'continua segments="sqrt"': lambda f, y, n: ours(f, y, method="rk4", steps=n, gradient=Checkpoint(segments="sqrt")),
    "continua reversible": lambda f, y, n: ours(f, y, method="rk4", steps=n, gradient="reversible"),
    "continua adjoint": lambda f, y, n: ours(f, y, method="rk4", steps=n, gradient="adjoint"),
    "torchdiffeq odeint": lambda f, y, n: diffeq(f, y, steps=n),
    "torchdiffeq odeint_adjoint": lambda f, y, n: diffeq(f, y, adjoint=True, steps=n),
}
STEPS = (4, 8, 16, 32, 64)


def memory(batch: int) -> list[Row]:
    """Peak of one forward and backward solve in units of the state, for fixed steps of rk4."""
    found = in_own_process("steps", batch)
    state = 4 * batch * 32 * 16 * 16 / 1e6
    rows = []
    for name in GRADIENTS:
        grown = {steps: found[f"{name} {steps}"] / state for steps in STEPS}
        slope = (grown[64] - grown[32]) / 32
        rows.append({"solver": name, **{f"{n} steps": round(v) for n, v in grown.items()}, "states per step": slope})
    return rows


def memory_of_steps(batch: int) -> dict[str, float]:
    f, y = problem(32, 16, batch)
    found = {}
    for name, run in GRADIENTS.items():
        training_step(f, y, lambda f, y, run=run: run(f, y, 2))  # fills the caches
        for n in STEPS:
            found[f"{name} {n}"] = peak_growth(lambda run=run, n=n: training_step(f, y, lambda f, y: run(f, y, n)))
    return found


def in_own_process(part: str, batch: int) -> dict[str, float]:
    """The figures of `--memory-of`, in MB."""
    command = [sys.executable, __file__, "--memory-of", part, "--batch", str(batch), "--threads", str(torch.get_num_threads())]
    done = subprocess.run(command, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


# --- 4. per-sample control --------------------------------------------------------------------------------------------


@torch.no_grad()
def per_sample(batch: int, repeats: int) -> list[Row]:
    """Cost, and the error of the worst sample, of a batch whose samples relax at rates from 1 to 10."""
    rows = []
    for shape, (channels, size) in SHAPES.items():
        f, h = problem(channels, size, batch)
        rates = torch.logspace(0, 1, batch)[torch.randperm(batch)]
        pair, flat = (h, rates[:, None]), torch.cat([h.flatten(1), rates[:, None]], 1)
        stiff, flat_stiff = Stiff(f), FlatStiff(f, h.shape)
        cases = {
            "continua batch": lambda stiff=stiff, pair=pair: ours(stiff, pair)[0],
            "continua sample": lambda stiff=stiff, pair=pair: ours(stiff, pair, control=dict(per="sample", first_step=FIRST_STEP))[0],
            "torchode": lambda stiff=flat_stiff, flat=flat, h=h: parallel(stiff, flat)[:, :-1].view_as(h),
        }
        exact = solve(stiff, pair, 0.0, 1.0, rtol=1e-5, atol=1e-5, control="sample").y1[0]
        errors = {name: float((case() - exact).flatten(1).square().mean(1).sqrt().max()) for name, case in cases.items()}
        counts = {name: evaluations(f, case) for name, case in cases.items()}
        seconds = medians(cases, repeats)
        for name, (calls, samples) in counts.items():
            row = {"shape": shape, "solver": name, "NFE": calls, "sample-evaluations": samples, "s": seconds[name]}
            rows.append({**row, "× batch": seconds[name] / seconds["continua batch"], "worst error": errors[name]})
    return rows


def main() -> None:
    parser = options(__doc__, repeats=9)
    parser.set_defaults(threads=2)
    parser.add_argument("--quick", action="store_true", help="small batches, three rounds: does it run, not what it costs")
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2, 3, 4], choices=[1, 2, 3, 4], help="which of the four tables")
    parser.add_argument("--batch", type=int, default=None, help="samples (default 64)")
    parser.add_argument(
        "--memory-of", choices=["training", "steps"], help="print the memory of one part as JSON; used by the benchmark itself"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.memory_of:
        measure = memory_of_training if chosen.memory_of == "training" else memory_of_steps
        print(json.dumps(measure(chosen.batch)))
        return
    batch, repeats = chosen.batch or (4 if chosen.quick else 64), 3 if chosen.quick else chosen.repeats
    parts: dict[int, tuple[str, Callable[[], list[Row]]]] = {
        1: (f"1. overhead, no gradient, batch {batch}", lambda: overhead(batch, repeats)),
        2: (f"2. one forward and backward solve, dopri5, batch {batch}", lambda: training(batch, repeats)),
        3: ("3. peak memory in states, rk4, 32 ch, 16×16", lambda: memory(2 if chosen.quick else 8)),
        4: (f"4. rates that spread tenfold, no gradient, batch {batch}", lambda: per_sample(batch, repeats)),
    }
    tables = {parts[part][0]: parts[part][1]() for part in chosen.parts}
    show_all(tables, machine("torchdiffeq", "torchode"), chosen.json)


if __name__ == "__main__":
    main()
