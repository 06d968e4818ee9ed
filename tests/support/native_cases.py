"""Random calls of the native operators, and what plain operations make of them. Run as a program it is the fuzz under a sanitiser."""

import random
import sys

import torch
from torch import Tensor

from continua.native import NATIVE_ACTIVATIONS, FieldConv, FieldNorm, NativeField, native_conv, native_norm
from continua.native.plain import plain_norm_act, plain_norm_act_conv

LAYOUTS = ("contiguous", "channels last", "every second column", "every second channel", "turned", "one image many times")


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers in another order of memory."""
    if layout == "channels last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "every second column":
        return torch.stack([x, -x], dim=-1).flatten(-2)[..., ::2]
    if layout == "every second channel":
        return torch.stack([x, -x], dim=2).flatten(1, 2)[:, ::2]
    if layout == "turned":
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    return x[:1].expand_as(x) if layout == "one image many times" else x


def conv_case(draw: random.Random, dtype: torch.dtype = torch.float64, most: int = 40) -> dict:
    """The arguments of `native_conv`: any shape, order, stride, reach, layout, taps, with or without each part."""
    batch, channels, out = draw.choice([0, 1, 2, 5, 9]), draw.randint(1, most), draw.randint(1, most)
    height, width, order, stride = draw.randint(1, 14), draw.randint(1, 14), draw.randint(0, 4), draw.choice([1, 1, 2, 3])
    basis, taps = (order + 1) * (order + 2) // 2, [2 * draw.randint(0, 9) + 1 for _ in range(2)]
    torch.manual_seed(draw.randrange(1 << 30))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype)

    def maybe(value: Tensor) -> Tensor | None:
        return value if draw.random() < 0.6 else None

    alternating = draw.random() < 0.6  # even and odd in turn, as a Gaussian's derivatives are; other taps take other ways

    def taps_of(*shape: int) -> Tensor:
        values = normal(*shape)
        signs = torch.tensor([(-1.0) ** i for i in range(shape[-2])], dtype=dtype)[:, None]
        return values + signs * values.flip(-1) if alternating else values

    each = [(batch,) if draw.random() < 0.25 else () for _ in range(3)]
    if own := draw.random() < 0.2:  # taps for each output channel
        each = [(), (1, out), (1, out)]
    groups = draw.choice([0, *(n for n in range(1, channels + 1) if channels % n == 0)])
    time = draw.choice([(), (batch,)]) if draw.random() < 0.6 and batch else None
    size = [(n - 1) // stride + 1 for n in (height, width)]
    cols = taps_of(*each[2], order + 1, taps[1])
    direction = taps_of(*cols.shape)
    return dict(
        x=laid_out(normal(batch, channels, height, width), draw.choice(LAYOUTS)),
        gamma=maybe(normal(channels)) if groups else None,
        beta=maybe(normal(channels)) if groups else None,
        alpha=normal(*each[0], basis, channels, out) / channels,
        rows=taps_of(*each[1], order + 1, taps[0]),
        cols=cols,
        bias=maybe(normal(out)),
        t=None if time is None else normal(*time),
        time_map=None if time is None else normal(out, *size),
        along=None if own else maybe(direction / direction.norm(dim=(-2, -1), keepdim=True)),
        groups=groups,
        eps=1e-3,
        activation=draw.choice(NATIVE_ACTIVATIONS),
        stride=stride,
    )


def results(native: bool, case: dict, gradient: Tensor | None = None) -> tuple[Tensor, list[Tensor], Tensor]:
    """y, the gradients of all tensors given, and the gradient of y they are of."""
    along = case.get("along")
    tensors = {name: value for name, value in case.items() if isinstance(value, Tensor) and name != "along"}
    leaves = {name: value.detach().requires_grad_() for name, value in tensors.items()}
    arguments = {**case, **leaves}
    if native:
        y = native_conv(**arguments) if "alpha" in case else native_norm(**arguments)
    else:
        arguments.pop("along", None)
        y = plain_norm_act_conv(*arguments.values()) if "alpha" in case else plain_norm_act(*arguments.values())
    if gradient is None:
        gradient = torch.randn_like(y)
    gradients = dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), gradient), strict=True))
    if not native and along is not None and case["stride"] == 1:  # what is left of it in the direction that was named
        gradients["cols"] = (gradients["cols"] * along).sum((-2, -1), keepdim=True) * along
    return y, list(gradients.values()), gradient


def largest_error(case: dict, reference: dict | None = None) -> float:
    """Of y and all gradients, over the size of each; against plain operations on the same numbers in float64."""
    reference = {name: value.double() if isinstance(value, Tensor) else value for name, value in (reference or case).items()}
    y, gradients, g = results(True, case)
    exact, expected, _ = results(False, reference, g.double())
    pairs = zip((y, *gradients), (exact, *expected), strict=True)
    return max((float((a.double() - b).abs().max() / b.abs().max().clamp(min=1.0)) for a, b in pairs if b.numel()), default=0.0)


def field_case(draw: random.Random, dtype: torch.dtype = torch.float64, most: int = 40) -> tuple[NativeField, Tensor, Tensor]:
    """A field of two convolutions and a norm with kernels for all samples, a state and a time; what is differentiated needs gradients."""
    cases: list[dict] = []
    while len(cases) < 2:
        case = conv_case(draw, dtype, most)
        if case["stride"] == 1 and case["alpha"].ndim == 3 and case["rows"].ndim == case["cols"].ndim == 2 and len(case["x"]):
            cases.append(case)
    first, second = cases
    middle, out = first["alpha"].shape[-1], second["alpha"].shape[-1]
    basis, (height, width) = second["alpha"].shape[0], first["x"].shape[2:]
    second["alpha"] = torch.randn(basis, middle, out, dtype=dtype) / middle
    second["groups"] = draw.choice([0, *(n for n in range(1, middle + 1) if middle % n == 0)])
    second["gamma"], second["beta"] = (
        torch.randn(middle, dtype=dtype) if second["groups"] and draw.random() < 0.6 else None for _ in range(2)
    )
    for case, channels in ((first, middle), (second, out)):
        case["time_map"] = None if case["time_map"] is None else torch.randn(*draw.choice([(), (1,)]), channels, height, width, dtype=dtype)
        case["bias"] = None if case["bias"] is None else torch.randn(channels, dtype=dtype)
    x = first["x"].detach().requires_grad_()
    convs = []
    for case in cases:
        needs = ("gamma", "beta", "alpha", "rows", "cols", "bias", "time_map")
        tensors = {name: None if case[name] is None else case[name].detach().requires_grad_() for name in needs}
        convs.append(FieldConv(**tensors, along=case["along"], groups=case["groups"], eps=1e-3, activation=case["activation"]))
    gamma, beta = (torch.randn(out, dtype=dtype).requires_grad_() if draw.random() < 0.6 else None for _ in range(2))
    groups = draw.choice([n for n in range(1, out + 1) if out % n == 0])
    time = torch.randn(draw.choice([(), (len(x),)]), dtype=dtype)
    return NativeField(*convs, FieldNorm(gamma, beta, groups, 1e-3)), time, x


def one_by_one(field: NativeField, t: Tensor, x: Tensor) -> Tensor:
    """The same field by three operators."""
    for conv in field.convs:
        time_map = None if conv.time_map is None else conv.time_map[0] if conv.time_map.ndim == 4 else conv.time_map
        tensors = (conv.gamma, conv.beta, conv.alpha, conv.rows, conv.cols, conv.bias, None if time_map is None else t, time_map)
        x = native_conv(x, *tensors, along=conv.along, groups=conv.groups, eps=conv.eps, activation=conv.activation)
    return native_norm(x, field.last.gamma, field.last.beta, groups=field.last.groups, eps=field.last.eps)


def field_gradients(y: Tensor, field: NativeField, x: Tensor) -> list[Tensor]:
    """Of x and all tensors of the field, for one gradient of y."""
    leaves = [x, *(value for value in field.tensors if value is not None)]
    seed = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return list(torch.autograd.grad(y, leaves, seed))


if __name__ == "__main__":
    draw = random.Random(int(sys.argv[2]))
    for _ in range(int(sys.argv[1])):
        torch.set_num_threads(draw.choice([1, 2, 3]))
        dtype = draw.choice([torch.float32, torch.float64])
        if draw.random() < 0.3:
            field, t, x = field_case(draw, dtype, most=draw.choice([3, 20, 70]))
            field_gradients(field(t, x), field, x)
            with torch.no_grad():
                field(t, x)
            continue
        case = conv_case(draw, dtype, most=draw.choice([3, 20, 70]))
        if draw.random() < 0.2 and case["groups"]:
            case = {name: case[name] for name in ("x", "gamma", "beta", "groups", "eps", "activation")}
        results(True, case)
    print(f"{sys.argv[1]} calls")
