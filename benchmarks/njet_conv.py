"""One N-jet convolution by each route against a plain 3×3 `conv2d`: forward, and forward + backward.

The kernel is realised once, as in an ODE solve; what is timed is one application (and its gradients with respect to the map and to the
realised tensors). `chosen` is the route that Continua takes by itself, `over_fastest` its time over that of the fastest.
Times are milliseconds. Maps are channels last, as they are within a solve; the plain convolution gets them as PyTorch makes them, channels
first, and `x_3x3` is the multiple of that; `x_3x3 last` is the multiple of a plain convolution of maps that lie channels last.
"""

import math
import warnings
from argparse import Namespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from _common import computable, machine, medians, options, show_all
from continua import ContinuaWarning
from continua.filters import FilterConv2d, NJet

SHAPES = ((32, 32), (64, 16), (128, 8))
SIGMAS = (0.5, 1.0, 2.0, 4.0)
ROUTES = ["native", "dense", "separable"]


class Case:
    """A convolution of one map: `forward()` and `both()`."""

    def __init__(self, apply: Any, tensors: tuple[Tensor, ...], x: Tensor) -> None:
        self.apply, self.x = apply, x.detach().requires_grad_()
        self.tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        self.gradient = torch.randn_like(self.apply(self.x, *self.tensors))

    def forward(self) -> None:
        with torch.no_grad():
            self.apply(self.x, *self.tensors)

    def both(self) -> None:
        torch.autograd.grad(self.apply(self.x, *self.tensors), [self.x, *self.tensors], self.gradient)


def plain(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding=1)


def cases_at(channels: int, sigma: float, x: Tensor, routes: list[str], sharing: str) -> tuple[dict[str, Case], str]:
    """The plain convolution and each route, and the name of the route the rule chooses."""
    weight = torch.randn(channels, channels, 3, 3, dtype=x.dtype)
    first = x.contiguous()
    cases = {"3x3": Case(plain, (weight,), x), "3x3 first": Case(plain, (weight,), first)}
    njet = NJet(channels, channels, sharing=sharing)
    with torch.no_grad():
        njet.s.fill_(math.log2(sigma))
    for route in routes:
        ready = FilterConv2d(njet, route=route).realise(x.shape, x.dtype)
        cases[route] = Case(lambda x, *tensors, ready=ready: ready.apply(x, None, *tensors), ready.tensors, x)
    return cases, FilterConv2d(njet).realise(x.shape, x.dtype).route


def measure(dtype: torch.dtype, layout: torch.memory_format, given: Namespace) -> list[dict[str, Any]]:
    batch, repeats, routes = given.batch, given.repeats, given.routes
    rows = []
    for channels, size in SHAPES:
        x = torch.randn(batch, channels, size, size, dtype=dtype).to(memory_format=layout)
        for sigma in SIGMAS:
            cases, chosen = cases_at(channels, sigma, x, routes, given.sharing)
            if chosen not in cases:
                raise SystemExit(f"the route taken is {chosen}; name it among --routes")
            forward = medians({name: case.forward for name, case in cases.items()}, repeats)
            both = medians({name: case.both for name, case in cases.items()}, repeats)
            row: dict[str, Any] = {"map": f"{channels} × {size}²", "sigma": sigma, "chosen": chosen}
            row |= {f"{name} fwd": 1e3 * seconds for name, seconds in forward.items()}
            row |= {f"{name} f+b": 1e3 * seconds for name, seconds in both.items()}
            row["over_fastest"] = both[chosen] / min(both[route] for route in routes)
            row |= {"x_3x3": both[chosen] / both["3x3 first"], "x_3x3 last": both[chosen] / both["3x3"]}
            rows.append(row)
    return rows


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="channels_last")
    parser.add_argument("--dtype", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--routes", nargs="+", choices=ROUTES, default=ROUTES, help="which to time beside the 3×3 convolution")
    parser.add_argument("--sharing", choices=["layer", "channel"], default="layer", help="one σ for the layer, or for each output channel")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ContinuaWarning)  # at σ = 4 a kernel outgrows the 8×8 map, on purpose
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    layout = torch.channels_last if arguments.layout == "channels_last" else torch.contiguous_format
    what = "N-jet convolution" if arguments.sharing == "layer" else "N-jet convolution with a σ for each output channel"
    tables = {
        f"{what}, {name}, {arguments.layout}, batch {arguments.batch}": measure(getattr(torch, name), layout, arguments)
        for name in arguments.dtype
        if computable(name)
    }
    show_all(tables, machine(), arguments.json)


if __name__ == "__main__":
    main()
