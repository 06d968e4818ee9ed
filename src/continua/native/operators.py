"""The kernels as PyTorch operators, so that autograd, `torch.compile`, DDP, checkpoints and the rest treat them as their own.

    continua::norm_act_conv(x, γ, β, α, rows, cols, bias, t, time_map, along, groups, eps, activation, stride)
        Σ_ij L_i a(norm(x)) R_jᵀ A_ij + bias + t · time_map,     a the activation, i + j ≤ N (DCN eq. 1, 2 and 8)
    continua::norm_act(x, γ, β, groups, eps, activation)
        a(norm(x))

and, second, what the backward pass wants to have kept of it (an empty tensor where nothing is).

First derivatives are native. Whoever differentiates the backward pass again gets the same formulas in plain operations (plain.py).
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from continua.native.library import Absent, ConvArguments, Library, MapStrides, NormArguments, find_library
from continua.native.plain import NATIVE_ACTIVATIONS, is_transforming, plain_gradients, plain_norm_act, plain_norm_act_conv

MOST_ORDERS = 4
"""The highest order N of an N-jet that the kernels know."""
MAPS = ("x", "gamma", "beta", "alpha", "rows", "cols", "bias", "t", "time_map", "along")
_CONV = "Tensor x, Tensor? gamma, Tensor? beta, Tensor alpha, Tensor rows, Tensor cols, Tensor? bias, Tensor? t, Tensor? time_map"
_CONV += ", Tensor? along, int groups, float eps, str activation, int stride"
_NORM = "Tensor x, Tensor? gamma, Tensor? beta, int groups, float eps, str activation"

_operators = torch.library.Library("continua", "DEF")
_operators.define(f"norm_act_conv({_CONV}) -> (Tensor, Tensor)")
_operators.define(f"norm_act_conv_vjp(Tensor gy, Tensor kept, bool[] wanted, {_CONV}) -> Tensor[]")
_operators.define(f"norm_act({_NORM}) -> (Tensor, Tensor)")
_operators.define(f"norm_act_vjp(Tensor gy, Tensor kept, bool[] wanted, {_NORM}) -> Tensor[]")


def native_conv(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    alpha: Tensor,
    rows: Tensor,
    cols: Tensor,
    bias: Tensor | None = None,
    t: Tensor | None = None,
    time_map: Tensor | None = None,
    *,
    along: Tensor | None = None,
    groups: int = 0,
    eps: float = 1e-5,
    activation: str = "identity",
    stride: int = 1,
) -> Tensor:
    """norm → activation → N-jet convolution → time term, of maps in any layout; fastest channels last.

    Args:
        x: (batch, in, height, width)
        gamma, beta: (in), scale and shift of the norm.
        alpha: (basis, in, out), or (batch, basis, in, out) where each sample has its own; basis functions as `jet_orders` lists them.
        rows, cols: (order + 1, taps), or (batch, order + 1, taps), or (1, out, order + 1, taps) where each output channel has its own,
            shared by all samples; zeros lie around the map.
        bias: (out)
        t: 0-d or (batch,), the time.
        time_map: (out, out height, out width), what t multiplies.
        along: like `cols`, of length 1: the direction in which `cols` moves, where all its taps follow from one number such as σ. Their
            gradient then comes as its component along it, which is all that can reach that number, and costs less.
        groups: of the norm; 0 for none.
        eps: added to the variance of the norm.
        activation: the name of an activation, "identity" for none.
        stride: of the convolution.

    Returns:
        (batch, out, out height, out width)

    Examples:
        >>> from continua.native import native_conv
        >>> native_conv(x, None, None, alpha, rows, cols)  # doctest: +SKIP
    """
    tensors, options = (x, gamma, beta, alpha, rows, cols, bias, t, time_map), (groups, eps, activation, stride)
    if not torch.compiler.is_compiling() and is_transforming():
        return plain_norm_act_conv(*tensors, *options)
    if stride != 1 or not (torch.is_grad_enabled() and cols.requires_grad):
        along = None
    return torch.ops.continua.norm_act_conv(*tensors, along, *options)[0]


def native_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, *, groups: int, eps: float = 1e-5, activation: str = "identity"
) -> Tensor:
    """Group norm and activation in one pass, in the layout of x.

    Args:
        x: (batch, channels, height, width).
        gamma: scale of each channel, or None.
        beta: shift of each channel, or None.
        groups: of the norm.
        eps: added to the variance.
        activation: applied afterwards.

    Returns:
        A map like x.

    Examples:
        >>> import torch
        >>> from continua.native import native_norm
        >>> native_norm(torch.rand(1, 4, 8, 8), None, None, groups=2)  # doctest: +SKIP
    """
    if not torch.compiler.is_compiling() and is_transforming():
        return plain_norm_act(x, gamma, beta, groups, eps, activation)
    return torch.ops.continua.norm_act(x, gamma, beta, groups, eps, activation)[0]


# --- the calls --------------------------------------------------------------------------------------------------------


def _kernels() -> Library:
    library = find_library()
    if isinstance(library, Absent):
        raise RuntimeError(f"the native kernels do not run here: {library.reason}")
    return library


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _check(right: bool, message: str) -> None:
    if not right:
        raise RuntimeError(f"continua::norm_act_conv: {message}")


def _check_map(x: Tensor, gamma: Tensor | None, beta: Tensor | None, groups: int, activation: str) -> None:
    _check(x.dtype in (torch.float32, torch.float64), f"the kernels compute in float32 and float64; got {x.dtype}")
    _check(x.ndim == 4, f"x is (batch, channels, height, width); got {tuple(x.shape)}")
    _check(groups >= 0 and (groups == 0 or x.shape[1] % groups == 0), f"{x.shape[1]} channels do not divide into {groups} groups")
    _check(activation in NATIVE_ACTIVATIONS, f"activation is one of {', '.join(NATIVE_ACTIVATIONS)}; got {activation!r}")
    for name, value in (("gamma", gamma), ("beta", beta)):
        _check(value is None or value.shape == x.shape[1:2], f"{name} has one number for each of {x.shape[1]} channels")


def _check_kernel(x: Tensor, alpha: Tensor, rows: Tensor, cols: Tensor, stride: int) -> None:
    order = rows.shape[-2] - 1
    basis = (order + 1) * (order + 2) // 2
    if rows.ndim == 4 or cols.ndim == 4:
        own = (1, alpha.shape[-1])
        _check(rows.shape[:-2] == cols.shape[:-2] == own, f"rows and cols of each output channel are ({own[0]}, {own[1]}, order + 1, taps)")
        _check(alpha.ndim == 3, "all samples share coefficients where each output channel has its own taps")
    else:
        shaped = rows.ndim in (2, 3) and cols.ndim in (2, 3) and alpha.ndim in (3, 4)
        _check(shaped, "rows, cols and alpha have 2, 2 and 3 axes, or one more")
    _check(0 <= order <= MOST_ORDERS and cols.shape[-2] == order + 1, f"orders up to {MOST_ORDERS}; got taps {tuple(rows.shape)}")
    _check(rows.shape[-1] % 2 == 1 and cols.shape[-1] % 2 == 1, "the taps have a centre: an odd number of them")
    _check(alpha.shape[-3:-1] == (basis, x.shape[1]), f"alpha is ({basis}, {x.shape[1]}, out); got {tuple(alpha.shape)}")
    _check(stride >= 1, f"a stride of at least 1; got {stride}")
    for each in (value for value, axes in ((alpha, 3), (rows, 2), (cols, 2)) if value.ndim == axes + 1):
        _check(each.shape[0] == x.shape[0], f"{x.shape[0]} samples, and {each.shape[0]} kernels")


def output_like(x: Tensor, out: int, stride: int) -> Tensor:
    """Memory for a map of `out` channels, laid out as x is."""
    height, width = ((size - 1) // stride + 1 for size in x.shape[2:])
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    form = torch.channels_last if last else torch.contiguous_format
    return torch.empty((x.shape[0], out, height, width), dtype=x.dtype, device=x.device, memory_format=form)


def _in_order(value: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if value is None or (value.dtype is dtype and value.is_contiguous()):
        return value
    return value.to(dtype).contiguous()


class ConvCall:
    """The arguments of one call of `norm_act_conv`, and the tensors they point to, held alive and in the form the kernels read."""

    def __init__(self, inputs: Sequence[Tensor | None], groups: int, eps: float, activation: str, stride: int) -> None:
        x, gamma, beta, alpha, rows, cols, bias, t, time_map, along = inputs
        if x is None or alpha is None or rows is None or cols is None:
            raise RuntimeError("continua::norm_act_conv needs x, alpha, rows and cols")
        _check_map(x, gamma, beta, groups, activation)
        _check_kernel(x, alpha, rows, cols, stride)
        size = (alpha.shape[-1], *((size - 1) // stride + 1 for size in x.shape[2:]))
        _check(along is None or (along.shape == cols.shape and cols.ndim < 4 and stride == 1), "along is like cols, and for stride 1")
        _check(bias is None or bias.shape == alpha.shape[-1:], f"bias has one number for each of {alpha.shape[-1]} channels")
        _check(time_map is None or time_map.shape == size, f"time_map is {size}")
        _check(t is None or t.numel() in (1, x.shape[0]), f"one t, or one for each of {x.shape[0]} samples")
        in_order = [_in_order(value, x.dtype) for value in (gamma, beta, alpha, rows, cols, bias)]
        times = None if t is None or time_map is None else _in_order(t.reshape(-1), x.dtype)
        pixels = None if times is None or time_map is None else _in_order(time_map.permute(1, 2, 0), x.dtype)
        direction = _in_order(along, x.dtype)
        self.x, self.tensors = x, dict(zip(MAPS[1:], (*in_order, times, pixels, direction), strict=True))
        self.op = ConvArguments(
            dtype=8 * x.element_size(),
            batch=x.shape[0],
            in_channels=x.shape[1],
            out_channels=alpha.shape[-1],
            height=x.shape[2],
            width=x.shape[3],
            order=rows.shape[-2] - 1,
            stride=stride,
            reach_y=rows.shape[-1] // 2,
            reach_x=cols.shape[-1] // 2,
            groups=groups,
            activation=NATIVE_ACTIVATIONS.index(activation),
            threads=torch.get_num_threads(),
            times=0 if times is None else len(times),
            own_taps=int(rows.ndim == 4),
            alpha_sample=alpha.shape[1:].numel() if alpha.ndim == 4 else 0,
            rows_sample=rows.shape[1:].numel() if rows.ndim == 3 else 0,
            cols_sample=cols.shape[1:].numel() if cols.ndim == 3 else 0,
            eps=eps,
            x=x.data_ptr(),
            x_strides=MapStrides.of(x),
            **{name: _address(value) for name, value in self.tensors.items()},
        )


def _conv(*arguments: Any) -> tuple[Tensor, Tensor]:
    inputs, (groups, eps, activation, stride) = arguments[: len(MAPS)], arguments[len(MAPS) :]
    call = ConvCall(inputs, groups, eps, activation, stride)
    y = output_like(inputs[0], inputs[3].shape[-1], stride)
    kept = y.new_empty(0) if inputs[-1] is None else torch.empty_like(y)
    call.op.y, call.op.y_strides, call.op.y_along = y.data_ptr(), MapStrides.of(y), kept.data_ptr()
    if y.numel():
        _kernels().norm_act_conv(ctypes.byref(call.op))
    return y, kept


def _conv_vjp(gy: Tensor, kept: Tensor, wanted: Sequence[bool], *arguments: Any) -> list[Tensor]:
    inputs, (groups, eps, activation, stride) = arguments[: len(MAPS)], arguments[len(MAPS) :]
    call = ConvCall(inputs, groups, eps, activation, stride)
    x, op, direction = call.x, call.op, call.tensors["along"]
    _check(gy.dtype == x.dtype, f"the gradient is {gy.dtype}, the map {x.dtype}")
    asked = [name for name, want in zip(MAPS, wanted, strict=True) if want]
    fresh = torch.empty_like if gy.numel() else torch.zeros_like  # no images: no gradient
    made = {name: fresh(value) for name, value in call.tensors.items() if name in asked and value is not None}
    if "x" in asked:
        made["x"] = torch.empty_like(x)
        op.gx, op.gx_strides = made["x"].data_ptr(), MapStrides.of(made["x"])
    if "t" in made:  # one for each sample; summed where they share it
        made["t"] = torch.zeros(len(x), dtype=x.dtype)
    if "cols" in made and direction is not None:
        del made["cols"]
        made["along"] = torch.zeros(len(x), dtype=x.dtype)
        op.y_along, op.y_strides = kept.data_ptr(), MapStrides.of(kept)
    for name in made.keys() - {"x"}:
        setattr(op, f"g_{name}", made[name].data_ptr())
    op.gy, op.gy_strides = gy.data_ptr(), MapStrides.of(gy)
    if gy.numel():
        _kernels().norm_act_conv_vjp(ctypes.byref(op))
    if "along" in made and direction is not None:
        share = made["along"].reshape(-1, 1, 1) if op.cols_sample else made["along"].sum()
        made["cols"] = share * direction
    if "t" in made and op.times == 1:
        made["t"] = made["t"].sum()
    if "time_map" in made:
        made["time_map"] = made["time_map"].permute(2, 0, 1)
    return [_like(made if want else {}, name, value, x) for name, value, want in zip(MAPS, inputs, wanted, strict=True)]


def norm_call(x: Tensor, gamma: Tensor | None, beta: Tensor | None, groups: int, eps: float, activation: str) -> tuple[NormArguments, Any]:
    """The arguments of one call of `norm_act`, and the tensors they point to."""
    _check_map(x, gamma, beta, groups, activation)
    _check(groups > 0, "a group norm has at least one group")
    held = [None if value is None else value.to(x.dtype).contiguous() for value in (gamma, beta)]
    op = NormArguments(
        dtype=8 * x.element_size(),
        batch=x.shape[0],
        channels=x.shape[1],
        height=x.shape[2],
        width=x.shape[3],
        groups=groups,
        activation=NATIVE_ACTIVATIONS.index(activation),
        threads=torch.get_num_threads(),
        eps=eps,
        x=x.data_ptr(),
        x_strides=MapStrides.of(x),
        gamma=_address(held[0]),
        beta=_address(held[1]),
    )
    return op, held


def _norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, groups: int, eps: float, activation: str) -> tuple[Tensor, Tensor]:
    op, _held = norm_call(x, gamma, beta, groups, eps, activation)
    y = torch.empty_like(x)
    op.y, op.y_strides = y.data_ptr(), MapStrides.of(y)
    if y.numel():
        _kernels().norm_act(ctypes.byref(op))
    return y, y.new_empty(0)


def _norm_vjp(gy: Tensor, kept: Tensor, wanted: Sequence[bool], *arguments: Any) -> list[Tensor]:
    x, gamma, beta, groups, eps, activation = arguments
    op, held = norm_call(x, gamma, beta, groups, eps, activation)
    made = {name: torch.zeros_like(value) for name, value, want in zip(MAPS[1:3], held, wanted[1:], strict=True) if want}
    for name, value in made.items():
        setattr(op, f"g_{name}", value.data_ptr())
    if wanted[0]:
        made["x"] = torch.empty_like(x)
        op.gx, op.gx_strides = made["x"].data_ptr(), MapStrides.of(made["x"])
    op.gy, op.gy_strides = gy.data_ptr(), MapStrides.of(gy)
    if gy.numel():
        _kernels().norm_act_vjp(ctypes.byref(op))
    return [_like(made, name, value, x) for name, value in zip(MAPS[:3], (x, gamma, beta), strict=True)]


def _like(made: dict[str, Tensor], name: str, value: Tensor | None, x: Tensor) -> Tensor:
    """The gradient made for an input, in that input's shape and dtype; an empty tensor where none was asked for."""
    if name not in made or value is None:
        return x.new_empty(0)
    gradient = made[name]
    if gradient.shape == value.shape and gradient.dtype is value.dtype:
        return gradient
    return gradient.reshape(value.shape).to(value.dtype)


# --- for autograd and compilers ---------------------------------------------------------------------------------------


def _fake_conv(*arguments: Any) -> tuple[Tensor, Tensor]:
    y = output_like(arguments[0], arguments[3].shape[-1], arguments[-1])
    return y, y.new_empty(0) if arguments[len(MAPS) - 1] is None else torch.empty_like(y)


def _fake_norm(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(0)


def _fake_vjp(gy: Tensor, kept: Tensor, wanted: Sequence[bool], *arguments: Any) -> list[Tensor]:
    x, *others = arguments[: len(wanted)]
    made = [torch.empty_like(x), *(None if value is None else torch.empty(value.shape, dtype=value.dtype) for value in others)]
    place = MAPS.index("time_map")
    if len(made) > place and (time_map := made[place]) is not None:  # lies in memory pixel by pixel
        made[place] = time_map.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    return [gy.new_empty(0) if value is None or not want else value for want, value in zip(wanted, made, strict=True)]


def _register(
    name: str,
    run: Callable[..., tuple[Tensor, Tensor]],
    vjp: Callable[..., list[Tensor]],
    fake: Callable[..., tuple[Tensor, Tensor]],
    plain: Callable[..., Tensor],
) -> None:
    """Everything PyTorch is to know of an operator: its kernels, its shapes, its derivatives, its dtype under autocast."""
    tensors = len(MAPS) if run is _conv else 3
    native_vjp = getattr(torch.ops.continua, f"{name}_vjp")

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        # Detached: an output that its own graph holds, as it would under hooks on saved tensors, would never be freed.
        ctx.save_for_backward(*inputs[:tensors], output[1].detach())
        ctx.options = inputs[tensors:]
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, gy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, kept = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:tensors])
        if gy is None:
            return (None,) * (tensors + len(ctx.options))
        if torch.is_grad_enabled():  # somebody will differentiate this again
            gradients = plain_gradients(lambda *values: plain(*values, *ctx.options), inputs, gy, wanted)
        else:
            made = native_vjp(gy, kept, wanted, *inputs, *ctx.options)
            gradients = [value if want else None for value, want in zip(made, wanted, strict=True)]
        return (*gradients, *(None for _ in ctx.options))

    _operators.impl(name, run, "CPU")
    _operators.impl(f"{name}_vjp", vjp, "CPU")
    torch.library.register_fake(f"continua::{name}", fake, lib=_operators)
    torch.library.register_fake(f"continua::{name}_vjp", _fake_vjp, lib=_operators)
    torch.library.register_autograd(f"continua::{name}", backward, setup_context=remember, lib=_operators)
    torch.library.register_autocast(f"continua::{name}", "cpu", torch.float32, lib=_operators)


def _plain_conv(*arguments: Any) -> Tensor:
    return plain_norm_act_conv(*arguments[: len(MAPS) - 1], *arguments[len(MAPS) :])


_register("norm_act_conv", _conv, _conv_vjp, _fake_conv, _plain_conv)
_register("norm_act", _norm, _norm_vjp, _fake_norm, plain_norm_act)
