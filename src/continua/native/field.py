"""The papers' field as one call: norm → activation → N-jet convolution → time term, twice, and a last norm.

The same kernels as the operators one by one (operators.py), a few images at a time through all three, so that the maps between stay in the
caches, and one call from Python where there were three. Where the pieces must be seen one by one, by compilers, transformations and
dispatch modes, `NativeField.serves` says no.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from continua.native.library import Absent, FieldArguments, Library, MapStrides, find_library
from continua.native.operators import ConvCall, norm_call, output_like
from continua.native.plain import is_transforming, plain_gradients, plain_norm_act, plain_norm_act_conv

_NAMES = ("gamma", "beta", "alpha", "rows", "cols", "bias", "time_map")
_PLAIN = (Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class FieldConv:
    """One norm → activation → convolution → time term of a field.

    Attributes:
        gamma, beta, alpha, rows, cols, bias, time_map: as `native_conv` takes them, shared by all samples; time_map may be (1, out, h, w)
        along: as `native_conv` takes it
        groups, eps, activation: of the norm, and what follows it
    """

    gamma: Tensor | None
    beta: Tensor | None
    alpha: Tensor
    rows: Tensor
    cols: Tensor
    bias: Tensor | None
    time_map: Tensor | None
    along: Tensor | None
    groups: int
    eps: float
    activation: str

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.gamma, self.beta, self.alpha, self.rows, self.cols, self.bias, self.time_map

    def call(self, x: Tensor, t: Tensor) -> ConvCall:
        """The arguments of the convolution alone."""
        inputs = (x, *self.tensors[:-1], t, None if self.time_map is None else self._map(self.time_map), self.along)
        return ConvCall(inputs, self.groups, self.eps, self.activation, 1)

    def plain(self, x: Tensor, t: Tensor, *tensors: Tensor | None) -> Tensor:
        gamma, beta, alpha, rows, cols, bias, time_map = tensors
        if alpha is None or rows is None or cols is None:
            raise RuntimeError("a convolution has alpha, rows and cols")
        time_map = None if time_map is None else self._map(time_map)
        return plain_norm_act_conv(x, gamma, beta, alpha, rows, cols, bias, t, time_map, self.groups, self.eps, self.activation, 1)

    @staticmethod
    def _map(time_map: Tensor) -> Tensor:
        return time_map[0] if time_map.ndim == 4 else time_map


@dataclass(frozen=True)
class FieldNorm:
    """The last norm of a field."""

    gamma: Tensor | None
    beta: Tensor | None
    groups: int
    eps: float


@dataclass
class _Form:
    """What is the same in all evaluations at maps of one form: the arguments, filled in but for x and t, and what they point to."""

    arguments: FieldArguments
    calls: tuple[ConvCall, ConvCall]
    held: Any


class NativeField:
    """last(second(first(x))) for all evaluations of a solve."""

    def __init__(self, first: FieldConv, second: FieldConv, last: FieldNorm) -> None:
        self.convs, self.last = (first, second), last
        self.tensors = (*first.tensors, *second.tensors, last.gamma, last.beta)
        known = [value for value in self.tensors if value is not None]
        self._dtype = first.alpha.dtype
        alike = all(value.dtype == self._dtype and type(value) in _PLAIN for value in known)
        self._suits = alike and self._dtype in (torch.float32, torch.float64) and all(conv.alpha.ndim == 3 for conv in self.convs)
        self._suits = self._suits and all(conv.rows.ndim == conv.cols.ndim == 2 for conv in self.convs)
        self._forms: dict[Any, _Form] = {}

    def serves(self, t: Tensor, x: Tensor) -> bool:
        """Whether f(t, x) can be had in one call here and now."""
        if not self._suits or type(x) not in _PLAIN or x.dtype != self._dtype or x.ndim != 4 or not x.numel() or t.requires_grad:
            return False
        if x.device.type != "cpu" or torch.compiler.is_compiling() or is_transforming() or torch._C._len_torch_dispatch_stack():
            return False
        return not torch.is_autocast_enabled("cpu") and not isinstance(find_library(), Absent)

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        t = t.detach().to(self._dtype)
        if torch.is_grad_enabled() and (x.requires_grad or any(value is not None and value.requires_grad for value in self.tensors)):
            return _Field.apply(self, x, t, *self.tensors)  # pyright: ignore[reportReturnType]
        return self.forward(x, t, keep=False)[0]

    def form(self, x: Tensor, t: Tensor) -> _Form:
        key = x.shape, x.stride()
        if key not in self._forms:
            self._forms[key] = self._new_form(x, t)
        return self._forms[key]

    def _new_form(self, x: Tensor, t: Tensor) -> _Form:
        first, second = self.convs
        one = first.call(x, t)
        middle = output_like(x, first.alpha.shape[-1], 1)
        two = second.call(middle, t)
        end = output_like(middle, second.alpha.shape[-1], 1)
        norm, held = norm_call(end, self.last.gamma, self.last.beta, self.last.groups, self.last.eps, "identity")
        made = FieldArguments(one.op, two.op, norm)
        made.first.x = made.second.x = made.last.x = made.first.along = made.second.along = None
        made.first.y_strides = made.first.gy_strides = made.second.gx_strides = MapStrides.of(middle)
        made.second.y_strides = made.second.gy_strides = made.last.gx_strides = made.last.y_strides = MapStrides.of(end)
        return _Form(made, (one, two), held)

    def arguments(self, x: Tensor, t: Tensor) -> FieldArguments:
        """A copy of them for one call."""
        op = FieldArguments.from_buffer_copy(self.form(x, t).arguments)
        op.first.x, op.first.t, op.second.t = x.data_ptr(), t.data_ptr(), t.data_ptr()
        op.first.times = t.numel() if op.first.times else 0
        op.second.times = t.numel() if op.second.times else 0
        op.first.threads = op.second.threads = op.last.threads = torch.get_num_threads()
        return op

    def forward(self, x: Tensor, t: Tensor, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """f, and what backward wants to have kept: both inner maps, and their derivatives in σ where those are asked for."""
        op, (first, second) = self.arguments(x, t), self.convs
        middle = output_like(x, first.alpha.shape[-1], 1) if keep else None
        y = output_like(x, second.alpha.shape[-1], 1)
        op.last.y, kept = y.data_ptr(), []
        if middle is not None:
            end = torch.empty_like(y)
            op.first.y, op.second.y, kept = middle.data_ptr(), end.data_ptr(), [middle, end]
            for conv, part, like in ((first, op.first, middle), (second, op.second, end)):
                along = conv.along is not None and conv.cols.requires_grad
                kept.append(torch.empty_like(like) if along else like.new_empty(0))
                if along and conv.along is not None:
                    part.along, part.y_along = conv.along.data_ptr(), kept[-1].data_ptr()
        _kernels().field(ctypes.byref(op))
        return y, kept

    def vjp(self, gy: Tensor, x: Tensor, t: Tensor, kept: "list[Tensor]", wanted: "tuple[bool, ...]") -> list[Tensor | None]:
        """The gradients of x and of every tensor that are wanted."""
        op, (middle, end, *alongs) = self.arguments(x, t), kept
        op.second.x, op.last.x = middle.data_ptr(), end.data_ptr()
        op.last.gy, op.last.gy_strides = gy.data_ptr(), MapStrides.of(gy)
        gx = torch.empty_like(x) if wanted[0] else None
        if gx is not None:
            op.first.gx, op.first.gx_strides = gx.data_ptr(), MapStrides.of(gx)
        made: list[Tensor | None] = []
        count = len(_NAMES)
        for place, (conv, part, along) in enumerate(zip(self.convs, (op.first, op.second), alongs, strict=True)):
            asked = wanted[1 + count * place : 1 + count * (place + 1)]
            made += _conv_gradients(conv, part, along, asked, len(x))
        for name, value, want in zip(_NAMES, (self.last.gamma, self.last.beta), wanted[-2:], strict=False):
            made.append(torch.empty_like(value) if want and value is not None else None)
            setattr(op.last, f"g_{name}", None if made[-1] is None else made[-1].data_ptr())
        _kernels().field_vjp(ctypes.byref(op))
        for place, conv in enumerate(self.convs):
            _in_their_shapes(conv, made, count * place)
        return [gx, *made]

    def plain(self, x: Tensor, t: Tensor, *tensors: Tensor | None) -> Tensor:
        """The same in plain operations."""
        (first, second), count = self.convs, len(_NAMES)
        y = second.plain(first.plain(x, t, *tensors[:count]), t, *tensors[count:-2])
        return plain_norm_act(y, tensors[-2], tensors[-1], self.last.groups, self.last.eps, "identity")


def _conv_gradients(conv: FieldConv, part: Any, kept: Tensor, wanted: "tuple[bool, ...]", batch: int) -> "list[Tensor | None]":
    """Memory for the gradients of a convolution's tensors, with `part` pointing to it."""
    made: list[Tensor | None] = []
    for name, value, want in zip(_NAMES, conv.tensors, wanted, strict=True):
        gradient = None
        if want and value is not None:
            if name == "cols" and kept.numel() and conv.along is not None:
                gradient, name = value.new_empty(batch), "along"
                part.along, part.y_along = conv.along.data_ptr(), kept.data_ptr()
            elif name == "time_map":
                gradient = value.new_empty((*value.shape[-2:], value.shape[-3]))
            else:
                gradient = torch.empty_like(value, memory_format=torch.contiguous_format)
            setattr(part, f"g_{name}", gradient.data_ptr())
        made.append(gradient)
    return made


def _in_their_shapes(conv: FieldConv, made: "list[Tensor | None]", at: int) -> None:
    """The gradients of a convolution's columns and time map, from what the kernels make of them."""
    cols, time_map = made[at + _NAMES.index("cols")], made[at + _NAMES.index("time_map")]
    if cols is not None and cols.ndim == 1 and conv.along is not None:
        made[at + _NAMES.index("cols")] = cols.sum() * conv.along
    if time_map is not None and conv.time_map is not None:
        made[at + _NAMES.index("time_map")] = time_map.permute(2, 0, 1).reshape(conv.time_map.shape)


def _kernels() -> Library:
    library = find_library()
    if isinstance(library, Absent):
        raise RuntimeError(f"the native kernels do not run here: {library.reason}")
    return library


class _Field(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, field: NativeField, x: Tensor, t: Tensor, *tensors: Tensor | None) -> Tensor:
        y, kept = field.forward(x, t, keep=True)
        ctx.field = field
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, t, *kept, *tensors)
        return y

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, t, *saved = ctx.saved_tensors
        kept, tensors = saved[:4], saved[4:]
        wanted = (ctx.needs_input_grad[1], *ctx.needs_input_grad[3:])
        if gy is None:
            return (None,) * (3 + len(tensors))
        if torch.is_grad_enabled():  # somebody will differentiate this again
            made = plain_gradients(lambda x, *values: ctx.field.plain(x, t, *values), [x, *tensors], gy, wanted)
        else:
            made = ctx.field.vjp(gy, x, t, kept, wanted)
        return None, made[0], None, *made[1:]
