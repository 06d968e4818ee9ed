"""`continua.solve`: methods, step control, saved states and gradients, in double and single precision."""

from typing import Any

import torch
from torch import Tensor, nn

import continua
from golden_parts.book import Book, costs
from golden_parts.spellings import solver_options

TIMES = [0.0, 0.3, 1.1, 2.0]
HEUN_EULER = continua.Tableau(a=[[], [1.0]], b=[0.5, 0.5], c=[0.0, 1.0], b_error=[-0.5, 0.5], name="heun-euler")
SETTINGS: dict[str, dict[str, Any]] = {
    "euler": dict(method="euler", steps=8),
    "midpoint, reversible": dict(method="midpoint", steps=5, gradient="reversible"),
    "heun, end per sample": dict(method="heun", steps=6, t1="per sample"),
    "rk4, direct, saved": dict(method="rk4", steps=4, gradient="direct", save_at=TIMES),
    "rk38, two segments": dict(method="rk38", steps=7, segments=2),
    "ralston, per sample": dict(method="ralston", steps=5, control="sample", t1="per sample"),
    "dopri5": dict(method="dopri5", record_steps=True),
    "dopri5, direct": dict(method="dopri5", gradient="direct"),
    "dopri5, sqrt segments": dict(method="dopri5", rtol=1e-5, atol=1e-6, segments="sqrt"),
    "dopri5, backwards": dict(method="dopri5", t0=2.0, t1=0.5, first_step=0.01),
    "dopri5, saved": dict(method="dopri5", save_at=TIMES),
    "dopri5, end per sample": dict(method="dopri5", t1="per sample"),
    "dopri5, rejections": dict(method="dopri5", first_step=2.0, record_steps=True),
    "dopri5, per sample": dict(method="dopri5", control="sample", first_step=2.0, record_steps=True),
    "dopri5, times of interest": dict(method="dopri5", control="sample", gradient="direct", save_at=TIMES),
    "dopri5, gradient of times": dict(method="dopri5", t1="per sample with gradient", control="sample"),
    "dopri5, pair of states": dict(method="dopri5", pair=True, save_at=TIMES),
    "dopri5, pair, adjoint": dict(method="dopri5", pair=True, gradient="adjoint"),
    "dopri5, gives up": dict(method="dopri5", rtol=1e-6, atol=1e-6, max_steps=4, on_failure="status"),
    "dopri5, gives up per sample": dict(method="dopri5", control="sample", rtol=1e-4, atol=1e-4, max_steps=5, on_failure="status"),
    "tsit5, per sample, saved": dict(method="tsit5", control="sample", first_step=0.5, t1="per sample", save_at="per sample"),
    "tsit5, dense": dict(method="tsit5", dense=True),
    "tsit5, tuned": dict(method="tsit5", controller=dict(kind="pi", safety=0.8, factor_max=4.0)),
    "tsit5, reversible": dict(method="tsit5", gradient="reversible", rtol=1e-2, atol=1e-2),
    "bosh3, pi": dict(method="bosh3", controller="pi", first_step=1.0, rtol=1e-4, atol=1e-5),
    "fehlberg45, adjoint": dict(method="fehlberg45", gradient="adjoint", save_at=TIMES),
    "dopri8, full adjoint": dict(method="dopri8", gradient="adjoint", adjoint_options=dict(norm="full", rtol=1e-5, atol=1e-5)),
    "own tableau": dict(method=HEUN_EULER, rtol=1e-2, atol=1e-2),
    "gauss2": dict(method="gauss2", steps=4),
    "gauss4, fixed point": dict(method="gauss4", steps=6, implicit_options=dict(solver="fixed_point")),
    "radau3, differences": dict(method="radau3", steps=4, implicit_options=dict(jacobian="difference", krylov=20)),
    "radau5, sqrt segments": dict(method="radau5", steps=5, segments="sqrt"),
}


class Swirl(nn.Module):
    """A field of small images that depends on t; of a pair of states, each drives the other."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 2, 3, padding=1).to(dtype)
        self.decay = nn.Parameter(torch.tensor(0.5, dtype=dtype))

    def forward(self, t: Tensor, y: Any) -> Any:
        state, driven = y if isinstance(y, tuple) else (y, y)
        rate = torch.tanh(3 * self.conv(state)) * (1 + torch.cos(continua.broadcast_time(t, state))).to(state.dtype) - self.decay * driven
        return (rate, state - driven) if isinstance(y, tuple) else rate


def write_solve(book: Book) -> None:
    for dtype in (torch.float64, torch.float32):
        for name, setting in SETTINGS.items():
            label = f"{name} ({str(dtype).removeprefix('torch.')})"
            with book.attempt(label):
                record_solve(book, label, dict(setting), dtype)


def record_solve(book: Book, label: str, setting: dict[str, Any], dtype: torch.dtype) -> None:
    field, draw = Swirl(dtype), torch.Generator().manual_seed(1)
    size = torch.tensor([0.3, 1.0, 3.0, 9.0]).reshape(4, 1, 1, 1)  # samples that want different steps
    states = [(size * torch.randn(4, 2, 5, 5, generator=draw)).to(dtype).requires_grad_() for _ in range(1 + setting.pop("pair", False))]
    t0, t1 = setting.pop("t0", 0.0), setting.pop("t1", 2.0)
    if isinstance(t1, str):
        t1 = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64, requires_grad=t1.endswith("gradient"))
    call = {key: setting.pop(key) for key in ("save_at", "dense") if key in setting}
    if call.get("save_at") == "per sample":
        call["save_at"] = torch.linspace(0, 1, 3, dtype=torch.float64)[:, None] * t1
    solution: Any = continua.solve(field, tuple(states) if len(states) > 1 else states[0], t0, t1, **call, **solver_options(**setting))
    outputs = [part for kept in (solution.y1, solution.ys) if kept is not None for part in (kept if isinstance(kept, tuple) else (kept,))]
    book.add(f"{label}/states", outputs)
    if "dense" in call:
        book.add(f"{label}/between", solution.interpolate([0.7, 1.9]))
    book.add(f"{label}/status", [status.name for status in solution.status])
    torch.autograd.backward(outputs, [torch.randn(part.shape, generator=draw).to(part) for part in outputs])
    book.add(f"{label}/gradients", [leaf.grad for leaf in (*states, *field.parameters()) if leaf.grad is not None])
    if isinstance(t1, Tensor) and t1.requires_grad:
        book.add(f"{label}/gradient of the end", t1.grad)
    book.add(f"{label}/costs", costs(solution.stats))
