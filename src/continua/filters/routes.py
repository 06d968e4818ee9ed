"""Which route a convolution takes: a fixed rule, so that the same run always takes the same one.

Costs are in multiply–adds of a dense convolution per output pixel, with C_in, C_out channels, a kernel of k×k' taps, basis functions and
derivatives counted by the order N, on a map of H×W:

    dense       k k' C_in C_out
    separable   1.5 (½(N+1)(N+2) C_in C_out + (N+1)(H C_in + W C_out)) + p (C_in + C_out)

1.5 is how much slower small matrix products and their recomputation in the backward pass are than oneDNN's convolutions, p the passes over
memory of the change of layout and of the intermediate maps. Set by hand to follow forward + backward of 11 shapes × 5 kernel sizes
(order 2, batch 64, float32, one thread of a busy AVX2 CPU), which gave p = 80, and raised to 130 since two threads apply 5×5 kernels on 32
channels 1.5 times faster by the dense route. It follows 16 channels and more; with 8 channels it takes the
separable route too early (7×7 on 16×16: dense was 1.8 times faster). Where matrix units make multiplies cheap (bfloat16 or float16 on a CPU
that has them, GPUs) passes weigh more: p = 240, an estimate from the dense route's bfloat16 timings on an AMX CPU,
never measured with this code.
"""

import torch

from continua.errors import ConfigError
from continua.filters.filter import Filter
from continua.filters.kernel import JetKernel, Kernel
from continua.filters.operator import Geometry
from continua.filters.precision import Precision

ROUTES = ("auto", "dense", "separable")
DISCRETISATIONS = ("sampled", "hybrid")
SLOWDOWN = 1.5
PASSES = 130
PASSES_WITH_MATRIX_UNITS = 240


def check_route(filter: Filter, route: str, discretisation: str) -> None:
    """Refuse, when a convolution is built, what its filter cannot do."""
    if route not in ROUTES:
        raise ConfigError(f"route is one of {', '.join(ROUTES)}; got {route!r}.")
    if discretisation not in DISCRETISATIONS:
        raise ConfigError(f"discretisation is one of {', '.join(DISCRETISATIONS)}; got {discretisation!r}.")
    if route == "separable" and filter.jet_order is None:
        raise ConfigError(f'route="separable" needs an N-jet with one σ per layer; {type(filter).__name__} has the dense route only.')
    if discretisation == "hybrid" and (filter.jet_order is None or filter.jet_order > 2):
        raise ConfigError(
            f'discretisation="hybrid" needs an N-jet of order at most 2 with one σ per layer; got {filter}. Use discretisation="sampled".'
        )
    if discretisation == "hybrid" and route != "auto":
        raise ConfigError(f'discretisation="hybrid" is a route of its own; leave route="auto" (got {route!r}).')


def choose_route(kernel: Kernel, geometry: Geometry, channels: tuple[int, int], precision: Precision) -> str:
    """ "dense" or "separable", by the rule above."""
    if not isinstance(kernel, JetKernel) or kernel.sharing != "layer" or geometry.padding is not None:
        return "dense"
    height, width, (c_in, c_out), order = geometry.height, geometry.width, channels, kernel.order
    taps = min(kernel.size[0], 2 * height - 1) * min(kernel.size[1], 2 * width - 1)
    basis = (order + 1) * (order + 2) // 2
    multiplies = basis * c_in * c_out + (order + 1) * (height * c_in + width * c_out)
    matrix_units = precision.device.type != "cpu" or precision.work in (torch.bfloat16, torch.float16)
    passes = PASSES_WITH_MATRIX_UNITS if matrix_units else PASSES
    separable = SLOWDOWN * multiplies + passes * (c_in + c_out)
    return "separable" if separable < taps * c_in * c_out else "dense"
