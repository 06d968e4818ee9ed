"""`solve` beside diffrax on the CPU: dopri5, the same fields and tolerances, float32, exact gradients on both sides.

diffrax compiles a whole solve (the first call; timed apart) and is at home on accelerators, which this does not measure. It lives in an
environment of its own:

    python -m venv jax && jax/bin/pip install jax diffrax
    python benchmarks/beside_diffrax.py --python jax/bin/python --json > results/benchmarks/diffrax.json
"""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from _common import machine, medians, options, show_all
from continua.ode import solve

PROBLEMS: list[dict[str, Any]] = [
    dict(name="vectors, 64 × 64", kind="vectors", shape=[64, 64], sizes=[64, 128, 128, 64], tolerance=1e-5, repeats=9),
    dict(name="vectors, 64 × 256", kind="vectors", shape=[64, 256], sizes=[256, 128, 128, 256], tolerance=1e-5, repeats=9),
    dict(name="maps, 8 × 32 × 16 × 16", kind="maps", shape=[8, 32, 16, 16], tolerance=1e-3, repeats=1),
]


class Vectors(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y)


class Maps(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        for conv in self.convs:
            y = conv(nnf.relu(nnf.group_norm(y, 8)))
        return y


def ours(problem: dict[str, Any]) -> dict[str, float]:
    """Seconds of `solve` with its defaults."""
    torch.manual_seed(0)
    field = Vectors(problem["sizes"]) if problem["kind"] == "vectors" else Maps(problem["shape"][1])
    y0 = torch.randn(problem["shape"])

    def end() -> Tensor:
        y1 = solve(field, y0, 0.0, 1.0, rtol=problem["tolerance"], atol=problem["tolerance"]).y1
        return y1 if isinstance(y1, Tensor) else y1[0]

    def backward() -> None:
        field.zero_grad(set_to_none=True)
        end().square().mean().backward()

    with torch.no_grad():
        forward = medians({"forward": end}, max(3, problem["repeats"]))
    return forward | medians({"forward and backward": backward}, max(3, problem["repeats"]))


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--python", help="a Python that has jax and diffrax; without one nothing is timed")
    chosen = parser.parse_args()
    if chosen.python is None:
        print("diffrax is left out: give --python, one that has jax and diffrax", file=sys.stderr)
        return
    torch.set_num_threads(chosen.threads)
    os.sched_setaffinity(0, set(range(chosen.threads)))  # JAX takes as many threads as it may have cores
    command = [chosen.python, str(Path(__file__).with_name("_in_jax.py")), json.dumps(PROBLEMS)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout.splitlines()[-1])
    rows = []
    for problem in PROBLEMS:
        mine, theirs = ours(problem), found["rows"][problem["name"]]
        for what in ("forward", "forward and backward"):
            row = {"problem": problem["name"], "pass": what, "solve, ms": 1e3 * mine[what], "diffrax, ms": 1e3 * theirs[what]}
            rows.append(row | {"diffrax / solve": theirs[what] / mine[what], "diffrax, first call, s": theirs[f"{what}, first call"]})
    about = machine() | {name: found[name] for name in ("jax", "diffrax")}
    show_all({"diffrax on the CPU": rows}, about, chosen.json)


if __name__ == "__main__":
    main()
