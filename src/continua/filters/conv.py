"""Apply a filter to a feature map: realise it once per solve, then convolve many times.

The explicit time of a field, J(d)·t of DCN eq. 2, needs no time channel. The papers concatenate a constant map t as channel 0; a
convolution being linear, that channel adds t · (the response of its kernel to a map of ones): the same numbers, zero-padded borders
included, from one small map that is realised once per solve.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from continua.errors import ConfigError
from continua.filters.filter import Filter
from continua.filters.kernel import JetKernel, Kernel, PixelKernel
from continua.filters.routes import (
    FEWEST_CHANNELS,
    Geometry,
    Operator,
    Preceding,
    Precision,
    check_route,
    choose_route,
    dense_operator,
    is_channels_last,
    native_operator,
    native_pays,
    why_not_native,
    without_autocast,
)
from continua.filters.separable import separable_operator
from continua.native import MOST_ORDERS, FieldConv


@dataclass(frozen=True)
class Applied:
    """A convolution at one time t: y = linear(x) + bias + t · time_map, with the tensors it is made of."""

    operator: Operator
    tensors: Sequence[Tensor]
    bias: Tensor | None
    time_map: Tensor | None


class RealisedConv:
    """A convolution ready for one ODE solve.

    `tensors`                 what gradients are taken of: realised weights (static filter) or the filter's state (time-dependent filter)
    `apply(x, t, *tensors)`   the convolution as a pure function, so that a solver can accumulate gradients of `tensors` over all its
                              evaluations and go back to α, σ, … once
    `parts(x, t, *tensors)`   the same as (y, m) with apply = y + t·m (m of shape (1 or batch, out, h, w), None without a time channel)
    `after(norm_act, x, t)`   the convolution of what a norm and an activation make of x: one pass over memory where the route is native
    `route`                   how it is applied: "native", "dense", "separable" (joined by "+" when a time-dependent filter changed route)
    `layout`                  in which layout of x it is fastest
    `part_of_field(norm_act)` what the native kernels need to know of it to compute a whole field at once; None where they cannot
    """

    def __init__(
        self,
        tensors: tuple[Tensor, ...],
        at: Callable[..., Applied],
        routes: list[str],
        precision: Precision,
        layout: torch.memory_format,
        still: bool = False,
    ) -> None:
        self.tensors = tensors
        self.layout = layout
        self._still = still
        self._at = at
        self._routes = routes
        self._precision = precision

    @property
    def route(self) -> str:
        return "+".join(self._routes)

    def parts(self, x: Tensor, t: Tensor | float | None, *tensors: Tensor) -> tuple[Tensor, Tensor | None]:
        with without_autocast(x.device):
            here = self._at(t, *tensors)
            return self._linear(here, x), here.time_map

    def apply(self, x: Float[Tensor, "batch channels h w"], t: Tensor | float | None, *tensors: Tensor) -> Float[Tensor, "batch out h2 w2"]:
        with without_autocast(x.device):
            here = self._at(t, *tensors)
            return self._finish(self._linear(here, x), t, here.time_map)

    def after(self, norm_act: Preceding, x: Tensor, t: Tensor | float | None) -> Tensor:
        with without_autocast(x.device):
            here = self._at(t, *self.tensors)
        if here.operator.fused is None:
            x = norm_act.plain(x)  # under autocast, which has its own opinion on norms
            with without_autocast(x.device):
                return self._finish(self._linear(here, x), t, here.time_map)
        with without_autocast(x.device):
            x = x.to(self._precision.work)
            rest, time, time_map = here.time_map, None, None
            if rest is not None and rest.shape[0] == 1:  # one map for all samples: the kernels add it
                rest, time, time_map = None, torch.as_tensor(_known(t), dtype=x.dtype, device=x.device), rest[0]
            return self._finish(here.operator.fused(norm_act, x, (here.bias, time, time_map), *here.tensors), t, rest)

    def part_of_field(self, norm_act: Preceding) -> FieldConv | None:
        if not self._still or self._precision.work != self._precision.out:
            return None
        here = self._at(None, *self.tensors)
        if here.operator.fused is None or (here.time_map is not None and here.time_map.shape[0] != 1):
            return None
        alpha, rows, cols = here.tensors
        norm = norm_act.norm
        before = norm.num_groups, norm.eps, norm_act.activation
        return FieldConv(norm.weight, norm.bias, alpha, rows, cols, here.bias, here.time_map, here.operator.along, *before)

    def _linear(self, here: Applied, x: Tensor) -> Tensor:
        x = x.to(self._precision.work)
        bias = None if here.bias is None else here.bias.to(x.dtype)
        return here.operator.linear(x, bias, *[value.to(x.dtype) for value in here.tensors])

    def _finish(self, y: Tensor, t: Tensor | float | None, time_map: Tensor | None) -> Tensor:
        y = y if time_map is None else add_time(y, _known(t), time_map)
        return y.to(self._precision.out)

    def __call__(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        return self.apply(x, t, *self.tensors)


class FilterConv2d(nn.Module):
    """Convolution with any `Filter`.

    Args:
        padding: "same" (zeros up to the kernel's half-width whatever its size; ceil(size / stride) outputs), or a number for kernels of
            fixed size
        time_channel: the filter's input channel 0 reads the constant map t (DCN eq. 2), so x has one channel fewer than the filter
    """

    def __init__(
        self,
        filter: Filter,
        *,
        stride: int = 1,
        padding: str | int = "same",
        bias: bool = False,
        route: str = "auto",
        time_channel: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(filter, Filter) or not hasattr(filter, "in_channels"):
            what = (
                f"{type(filter).__name__} without super().__init__(in_channels, out_channels)"
                if isinstance(filter, Filter)
                else repr(filter)
            )
            raise ConfigError(f"FilterConv2d takes a filter, such as NJet(3, 8) or Pixel(3, 8); got {what}.")
        _check_padding(filter, padding)
        check_route(filter, route)
        if not isinstance(stride, int) or stride < 1:
            raise ConfigError(f"stride is a whole number of at least 1, for both directions; got {stride!r}.")
        self.filter = filter
        self.stride = stride
        self.padding = padding
        self.route = route
        self.time_channel = time_channel
        self.in_channels = filter.in_channels - time_channel
        self.out_channels = filter.out_channels
        bound = filter.bias_bound()
        self.bias = nn.Parameter(torch.empty(filter.out_channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:
        if x.ndim == 3:  # one map without a batch, as `conv2d` takes it
            return self.forward(x[None], t)[0]
        if x.ndim != 4:
            raise ConfigError(f"a convolution reads maps (batch, channels, height, width), or one without the batch; got {tuple(x.shape)}.")
        return self.realise(x.shape, x.dtype, x.device)(x, t)

    def realise(self, shape: Sequence[Any], dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> RealisedConv:
        """Make the convolution ready for maps of `shape` (batch, channels, height, width); the batch, in export a symbol, is not read."""
        state = {name: _at_least_float32(value) for name, value in self.filter.state().items()}
        if not state:
            raise ConfigError(f"{self.filter.label}: state() is empty; return the tensors that kernel() is made of.")
        first = next(iter(state.values()))
        device = torch.device(device or first.device)
        if dtype is not None and not dtype.is_floating_point:
            raise ConfigError(f"the map is {dtype}, and a convolution reads floats: x.float(), or images.float() / 255.")
        precision = Precision.of(dtype or first.dtype, device)
        native = self._takes_native(device)
        precision = precision.of_native() if native else precision
        if shape[-3] != self.in_channels:
            time = " and the time" if self.time_channel else ""
            raise ConfigError(
                f"This convolution reads {self.in_channels} channels{time}; got a map with {shape[-3]}. Give the filter one input channel "
                "more than the map has when time_channel=True."
            )
        padding = None if isinstance(self.padding, str) else (self.padding, self.padding)
        geometry = Geometry(shape[-2], shape[-1], self.stride, padding)
        host = self.filter.read_host(state)
        with without_autocast(device):
            if self.filter.time_dependent:
                return self._realise_at_each_time(state, host, geometry, precision, native)
            return self._realise_once(self.filter.kernel(state, None, host), geometry, precision, native)

    def _takes_native(self, device: torch.device) -> bool:
        """Whether this convolution takes the native kernels: an N-jet they know, where they run, no other route asked for."""
        order = self.filter.channel_order if self.filter.jet_order is None else self.filter.jet_order
        known = order is not None and order <= MOST_ORDERS and self.padding == "same"
        if not known or self.route not in ("auto", "native") or (self.route == "auto" and self.in_channels < FEWEST_CHANNELS):
            return False
        reason = why_not_native(device)
        if reason is not None and self.route == "native" and not torch.compiler.is_exporting():
            raise ConfigError(f'route="native" cannot be taken: {reason}. Leave route="auto", which takes it where it can.')
        return reason is None

    def freeze(self) -> "FilterConv2d":
        """A copy with its kernel as constants, for export and compilation."""
        frozen = copy.copy(self)
        frozen._modules = {**self._modules, "filter": self.filter.freeze()}
        frozen._parameters = {}
        frozen.bias = None if self.bias is None else nn.Parameter(self.bias.detach().clone(), requires_grad=False)
        return frozen

    def _realise_once(self, kernel: Kernel, geometry: Geometry, precision: Precision, native: bool) -> RealisedConv:
        operator, time_map = self._operator(kernel, geometry, precision, native)
        count = len(operator.tensors)

        def at(t: Tensor | float | None, *tensors: Tensor) -> Applied:
            last = tensors[-1] if time_map is not None else None
            return Applied(operator, tensors[:count], None if self.bias is None else tensors[count], last)

        extra = tuple(value for value in (self.bias, time_map) if value is not None)
        return RealisedConv((*operator.tensors, *extra), at, [operator.route], precision, _layout(native), still=True)

    def _realise_at_each_time(
        self, state: dict[str, Tensor], host: object, geometry: Geometry, precision: Precision, native: bool
    ) -> RealisedConv:
        names = list(state)
        routes: list[str] = []

        def at(t: Tensor | float | None, *tensors: Tensor) -> Applied:
            kernel = self.filter.kernel(dict(zip(names, tensors, strict=False)), t, host)
            operator, time_map = self._operator(kernel, geometry, precision, native)
            if operator.route not in routes:
                routes.append(operator.route)
            return Applied(operator, operator.tensors, None if self.bias is None else tensors[-1], time_map)

        extra = (self.bias,) if self.bias is not None else ()
        return RealisedConv((*state.values(), *extra), at, routes, precision, _layout(native))

    def _operator(self, kernel: Kernel, geometry: Geometry, precision: Precision, native: bool) -> tuple[Operator, Tensor | None]:
        """The route for the map's channels and, with a time channel, the response of that channel's kernel to a map of ones."""
        self._check_kernel(kernel, geometry)
        self.filter.watch_map(kernel, (geometry.height, geometry.width))
        native = native and (self.route == "native" or native_pays(kernel))
        route = "native" if native else self._route(kernel, geometry, precision)
        if not self.time_channel:
            return _make_operator(route, kernel, geometry), None
        operator = _make_operator(route, kernel.inputs(1, self.filter.in_channels), geometry)
        of_time = dense_operator(kernel.inputs(0, 1), geometry)  # one channel of ones: the same numbers by any route
        reference = of_time.tensors[0]
        ones = torch.ones(1, 1, geometry.height, geometry.width, dtype=reference.dtype, device=reference.device)
        return operator, of_time.linear(ones, None, *of_time.tensors).contiguous(memory_format=_layout(native))

    def _check_kernel(self, kernel: Any, geometry: Geometry) -> None:
        """Refuse what a filter of one's own may get wrong: a bare tensor, other channels than it says, taps without a centre."""
        channels, problem = (self.filter.out_channels, self.filter.in_channels), None
        if isinstance(kernel, Tensor) or not hasattr(kernel, "cropped"):
            given = f"a tensor {tuple(kernel.shape)}" if isinstance(kernel, Tensor) else f"a {type(kernel).__name__}"
            problem = f"{given}; return continua.filters.PixelKernel(weight), weight (out, in, rows, columns)."
        elif isinstance(kernel, PixelKernel) and tuple(kernel.pixels.shape[-4:-2]) != channels:
            problem = f"pixels {tuple(kernel.pixels.shape)}; expected (out, in, rows, columns) with {channels[0]} out and {channels[1]} in."
        elif geometry.padding is None and not (kernel.size[0] % 2 and kernel.size[1] % 2):
            problem = (
                f"{kernel.size[0]}×{kernel.size[1]} taps; padding='same' needs an odd number each way, so that the kernel has a centre and "
                "the map keeps its size. Make it odd, or set `size` in the filter and give FilterConv2d a padding in pixels."
            )
        if problem is not None:
            raise ConfigError(f"{self.filter.label}: {type(self.filter).__name__}.kernel() returned {problem}")

    def _route(self, kernel: Kernel, geometry: Geometry, precision: Precision) -> str:
        if self.route in ("auto", "native") or kernel.batched:  # native, where a graph is exported
            return choose_route(kernel, geometry, (self.in_channels, self.out_channels), precision)
        return self.route

    def extra_repr(self) -> str:
        return (
            f"stride={self.stride}, padding={self.padding}, time_channel={self.time_channel}, route={self.route}, "
            f"bias={self.bias is not None}"
        )


def _make_operator(route: str, kernel: Kernel, geometry: Geometry) -> Operator:
    if route == "dense":
        return dense_operator(kernel, geometry)
    if not isinstance(kernel, JetKernel):
        raise ConfigError(f"the {route} route needs the factors of an N-jet, a JetKernel; the filter made a {type(kernel).__name__}.")
    return native_operator(kernel, geometry) if route == "native" else separable_operator(kernel, geometry)


def _check_padding(filter: Filter, padding: str | int) -> None:
    if padding == "same":
        if filter.size is not None and filter.size % 2 == 0:
            raise ConfigError(
                f"padding='same' needs a kernel with a centre; this one is {filter.size}×{filter.size}. Give the padding as a number."
            )
    elif isinstance(padding, str) or filter.size is None:
        raise ConfigError(f"padding is 'same', or a number for kernels of fixed size; got {padding!r} for {type(filter).__name__}.")


def _at_least_float32(value: Tensor) -> Tensor:
    """Gaussians are sampled in float32 or better, whatever the model's dtype."""
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def _known(t: Tensor | float | None) -> Tensor | float:
    if t is None:
        raise ConfigError("This convolution has a time channel: call it with the time t.")
    return t


def _layout(native: bool) -> torch.memory_format:
    return torch.channels_last if native else torch.contiguous_format


def add_time(y: Float[Tensor, "batch out h w"], t: Tensor | float, ones_response: Float[Tensor, "samples out h w"]) -> Tensor:
    """y + t · ones_response, in place where autograd allows; t is a number, a 0-d tensor or one time per sample."""
    # The product is formed in the map's float32 or better and rounded once: bfloat16 would keep 8 bits of t.
    t = torch.as_tensor(t, dtype=ones_response.dtype, device=y.device)
    if torch.compiler.is_compiling() or ones_response.shape[0] != 1:
        return y + (t.reshape(-1, 1, 1, 1) * ones_response).to(y.dtype)
    return _AddTime.apply(y, t, ones_response)


class _AddTime(torch.autograd.Function):
    """One pass forward, in place; backward one matrix–vector product instead of a slow strided sum over the batch."""

    @staticmethod
    def forward(ctx: FunctionCtx, y: Tensor, t: Tensor, ones_response: Tensor) -> Tensor:
        ctx.save_for_backward(t, ones_response)
        ctx.mark_dirty(y)
        if is_channels_last(y):
            ones_response = ones_response.contiguous(memory_format=torch.channels_last)
        times = t.reshape(-1, 1, 1, 1)
        if t.numel() > 1 and y.dtype == t.dtype:
            return y.addcmul_(ones_response, times)
        return y.add_((times * ones_response).to(y.dtype))

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        t, ones_response = ctx.saved_tensors
        for_t = for_map = None
        if ctx.needs_input_grad[1]:
            for_t = torch.einsum("bohw,ohw->b", gradient.to(t.dtype), ones_response[0])
            for_t = (for_t if t.ndim else for_t.sum()).reshape(t.shape)
        if ctx.needs_input_grad[2]:
            flat = gradient.permute(0, 2, 3, 1) if is_channels_last(gradient) else gradient
            weights = t.expand(gradient.shape[0]).to(gradient.dtype) if t.numel() > 1 else gradient.new_ones(gradient.shape[0])
            summed = (weights @ flat.reshape(gradient.shape[0], -1)).reshape(1, *flat.shape[1:]).to(t.dtype)
            summed = summed if t.numel() > 1 else t * summed
            for_map = summed.permute(0, 3, 1, 2) if is_channels_last(gradient) else summed
        return gradient, for_t, for_map
