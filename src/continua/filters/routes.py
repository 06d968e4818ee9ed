"""How a realised kernel is applied to a map of known size, and by which of three routes.

    native      an N-jet by its one-dimensional factors, in C++ (`continua.native`)
    dense       sample the kernel, one `conv2d` (below)
    separable   an N-jet by its one-dimensional factors (separable.py)

Each makes an `Operator` for a `Geometry`; in which dtype it computes is its `Precision`. The native route is taken wherever it can be. Else
dense or separable is chosen by a fixed rule, so that the same run always takes the same one. Costs are in multiply–adds of a dense
convolution per output pixel, with C_in, C_out channels, a kernel of k×k' taps, basis functions and derivatives counted by the order N, on a
map of H×W:

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

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.filters.basis import scale_direction
from continua.filters.filter import Filter
from continua.filters.kernel import JetKernel, Kernel
from continua.machine import usable
from continua.native import MOST_ORDERS, Absent, find_library, native_conv

ROUTES = ("auto", "native", "dense", "separable")
SLOWDOWN = 1.5
PASSES = 130
PASSES_WITH_MATRIX_UNITS = 240
FEWEST_CHANNELS = 4
"""Below this many input channels the native kernels, which fill up whole vectors of channels, do too much for nothing."""

FEWEST_TAPS, FEWEST_PRODUCTS = 10, 400
"""Where each output channel has a σ of its own, the native kernels are ahead from so many taps on, and so many taps × input channels.
Measured with 8 to 128 channels and 3×3 to 19×19 taps (forward + backward, float32, one thread, AVX-512): up to three times slower below,
level to 21 times as fast above."""

CHUNK = 1 << 19
"""Elements of a map per chunk on a CPU: the few maps a step works on then stay in the second- and third-level caches."""


@dataclass(frozen=True)
class Geometry:
    """Where a kernel is applied. `padding` None means "same": zeros up to the kernel's half-width, ceil(size / stride) outputs."""

    height: int
    width: int
    stride: int = 1
    padding: tuple[int, int] | None = None


@dataclass(frozen=True)
class Operator:
    """`linear(x, bias, *tensors)` applies the kernel; `tensors` are differentiable functions of the filter's state.

    `fused(norm_act, x, (bias, t, time_map), *tensors)`, where a route has it, is norm → activation → convolution → time term in one;
    `along` is what it knows of how its taps move with σ.
    """

    route: str
    tensors: tuple[Tensor, ...]
    linear: Callable[..., Tensor]
    fused: Callable[..., Tensor] | None = None
    along: Tensor | None = None


@dataclass(frozen=True)
class Preceding:
    """What happens to a map before it is convolved: a group norm, then an activation; and both in plain operations."""

    norm: nn.GroupNorm
    activation: str
    plain: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Precision:
    """In which dtype a convolution computes, and in which it answers. `out` is what plain PyTorch would answer (autocast included).

    `work` differs only where the CPU emulates a reduced dtype or fails in it: there float32 is ten times faster, or safe, and no less
    exact, so the convolution runs in float32 and its result is rounded once.
    """

    work: torch.dtype
    out: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, dtype: torch.dtype, device: torch.device) -> "Precision":
        if autocast_on(device) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device.type)
        if dtype in (torch.bfloat16, torch.float16) and device.type == "cpu" and not fast_on_cpu(dtype):
            return cls(torch.float32, dtype, device)
        return cls(dtype, dtype, device)

    def of_native(self) -> "Precision":
        """The native kernels compute in float32 and float64; they take reduced dtypes as float32 and round once."""
        return self if self.work == torch.float64 else replace(self, work=torch.float32)


def check_route(filter: Filter, route: str) -> None:
    """Refuse, when a convolution is built, what its filter cannot do."""
    if route not in ROUTES:
        raise ConfigError(f"route is one of {', '.join(ROUTES)}; got {route!r}.")
    order = filter.channel_order if filter.jet_order is None else filter.jet_order
    if route == "separable" and filter.jet_order is None:
        raise ConfigError(f'route="separable" needs an N-jet with one σ per layer; got {filter}. Leave route="auto".')
    if route == "native" and order is None:
        raise ConfigError(f'route="native" needs an N-jet with one σ per layer or output channel; {filter} has the dense route only.')
    if route == "native" and order is not None and order > MOST_ORDERS:
        raise ConfigError(f'route="native" needs an order of at most {MOST_ORDERS}; got {order}. Leave route="auto".')


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


def native_pays(kernel: Kernel) -> bool:
    """Whether the native kernels are the faster ones: always where a layer or a sample has one σ."""
    if not isinstance(kernel, JetKernel) or kernel.sharing != "channel":
        return True
    taps = kernel.size[0] * kernel.size[1]
    return taps >= FEWEST_TAPS and taps * kernel.alpha.shape[-2] >= FEWEST_PRODUCTS


def why_not_native(device: torch.device) -> str | None:
    """What keeps maps on this device from the native kernels; None if nothing does."""
    if device.type != "cpu":
        return f"the kernels run on CPUs, and the map is on {device}"
    if torch.compiler.is_exporting():
        return "an exported graph holds plain operations only"
    return why_no_library()


def why_no_library() -> str | None:
    """What keeps the native kernels from running on this machine; None if nothing does.

    Returns:
        The reason, or None.

    Examples:
        >>> from continua.filters import why_no_library
        >>> reason = why_no_library()
    """
    library = find_library()
    return library.reason if isinstance(library, Absent) else None


def native_operator(kernel: JetKernel, geometry: Geometry) -> Operator:
    """Apply `kernel` by its factors, in C++; taps that can never touch the map are left out."""
    along = None
    if kernel.sharing == "channel":  # an axis in front says so
        kernel = replace(kernel, rows=kernel.rows[None], cols=kernel.cols[None])
    elif kernel.gaussian and torch.is_grad_enabled() and kernel.cols.requires_grad:
        along = scale_direction(kernel.cols, kernel.sigma, geometry.width - 1)
    kernel = kernel.cropped(geometry.height - 1, geometry.width - 1)
    stride = geometry.stride

    def convolve(x: Tensor, bias: Tensor | None, alpha: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        return native_conv(x, None, None, alpha, rows, cols, bias, along=along, stride=stride)

    def fused(before: Preceding, x: Tensor, last: tuple[Tensor | None, ...], alpha: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        norm, (bias, t, time_map) = before.norm, last
        tensors = (x, norm.weight, norm.bias, alpha, rows, cols, bias, t, time_map)
        return native_conv(*tensors, along=along, groups=norm.num_groups, eps=norm.eps, activation=before.activation, stride=stride)

    return Operator("native", (kernel.alpha, kernel.rows, kernel.cols), convolve, fused, along)


def dense_operator(kernel: Kernel, geometry: Geometry) -> Operator:
    """Apply `kernel` as weights; by one grouped `conv2d` when every sample has its own. Taps that can never touch the map are not built."""
    padding = geometry.padding
    if padding is None:
        kernel = kernel.cropped(geometry.height - 1, geometry.width - 1)
        padding = (kernel.size[0] // 2, kernel.size[1] // 2)
    stride = geometry.stride

    def convolve(x: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, stride=stride, padding=padding)

    def convolve_each(x: Tensor, bias: Tensor | None, weight: Tensor) -> Tensor:
        batch, out = weight.shape[:2]
        x = x.expand(batch, -1, -1, -1).reshape(1, -1, *x.shape[2:])
        bias = None if bias is None else bias.repeat(batch)
        y = F.conv2d(x, weight.flatten(0, 1), bias, stride=stride, padding=padding, groups=batch)
        return y.reshape(batch, out, *y.shape[2:])

    return Operator("dense", (kernel.weight(),), convolve_each if kernel.batched else convolve)


def chunks(x: Tensor) -> list[slice]:
    """Walk a batch in parts that fit the CPU's caches; in one part elsewhere."""
    batch = x.shape[0]
    step = max(1, CHUNK // max(1, x.shape[1:].numel())) if x.device.type == "cpu" else max(1, batch)
    return [slice(start, min(start + step, batch)) for start in range(0, batch, step)]


def is_channels_last(x: Tensor) -> bool:
    """True when a map is stored pixel by pixel and not also channel by channel (as a map with one channel is)."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def autocast_on(device: torch.device) -> bool:
    """Whether autocast is enabled there; the meta device, which computes shapes only, has none.

    Args:
        device: any device.

    Returns:
        Whether operations there are cast.

    Examples:
        >>> import torch
        >>> from continua.filters import autocast_on
        >>> autocast_on(torch.device("cpu"))
        False
    """
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Kernels are realised in full precision and cast by hand, once, where it is wanted.

    Args:
        device: any device.

    Returns:
        A context in which nothing is cast there.

    Examples:
        >>> import torch
        >>> from continua.filters import without_autocast
        >>> with without_autocast(torch.device("cpu")): pass
    """
    return torch.autocast(device.type, enabled=False) if autocast_on(device) else nullcontext()


def fast_on_cpu(dtype: torch.dtype) -> bool:
    """Whether this CPU has matrix units or vector instructions for `dtype` (AMX or AVX-512), and they do what they claim.

    Args:
        dtype: a number type.

    Returns:
        Whether it is fast here.

    Examples:
        >>> import torch
        >>> from continua.filters import fast_on_cpu
        >>> known = fast_on_cpu(torch.bfloat16)
    """
    name = {torch.bfloat16: "bfloat16", torch.float16: "float16"}.get(dtype)
    return name is None or usable(name)


# What `torch.compiler.assume_constant_result` sets, without its import of the whole compiler: a probe and a library cannot be traced.
fast_on_cpu._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
why_no_library._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
