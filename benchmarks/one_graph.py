"""An adaptive solve that `torch.compile` makes one graph of, beside the same solve outside a graph.

dopri5 at 1e-5 on 64 vectors of 64 numbers and a field of three layers, where most of the time is Python's. Seconds of compilation apart.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from _common import machine, medians, options, show_all
from continua.ode import StepControl, solve


class Ends(nn.Module):
    """The state at t = 1 of vectors that a small network moves."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
        self.net = nn.Sequential(*layers[:-1])

    def rate(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y)

    def forward(self, y: Tensor) -> Tensor:
        control = StepControl(one_graph=True)  # changes nothing outside a graph
        y1 = solve(self.rate, y, 0.0, 1.0, rtol=1e-5, atol=1e-5, control=control, params=list(self.net.parameters())).y1
        return y1 if isinstance(y1, Tensor) else y1[0]


def timed_once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    chosen = options(__doc__, repeats=15).parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    model, y0 = Ends(64, 128, 128, 64), torch.randn(64, 64)
    compiled = torch.compile(model, fullgraph=True)

    def forward(call: Callable[[Tensor], Tensor]) -> None:
        with torch.no_grad():
            call(y0)

    def backward(call: Callable[[Tensor], Tensor]) -> None:
        model.zero_grad(set_to_none=True)
        call(y0).square().mean().backward()

    rows = []
    for name, step in (("forward", forward), ("forward and backward", backward)):
        first = timed_once(lambda step=step: step(compiled))
        found = medians({"eager": lambda step=step: step(model), "one graph": lambda step=step: step(compiled)}, chosen.repeats)
        row = {"pass": name, "outside a graph, ms": 1e3 * found["eager"], "one graph, ms": 1e3 * found["one graph"]}
        rows.append(row | {"one graph / outside": found["one graph"] / found["eager"], "compilation, s": first})
    show_all({"an adaptive solve as one graph": rows}, machine(), chosen.json)


if __name__ == "__main__":
    main()
