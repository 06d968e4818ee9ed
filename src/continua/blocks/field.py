"""A field dh/dt = f(t, h), made ready for one solve at a time; and the papers' field, two convolutions (DCN eq. 2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from continua.blocks.norm import Activation, can_fuse, group_norm, norm_then_act
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, Preceding, RealisedConv, why_no_library
from continua.native import FieldNorm, NativeField
from continua.ode import SolverConfig

Time = float | Tensor


@dataclass(frozen=True, eq=False)
class Prepared:
    """A field made ready for one solve.

    Attributes:
        rate: f(t, h)
        tensors: what f is made of and needs gradients of: they are collected there over all evaluations, and carried back once
        on_step: called before the evaluations of a step with its index, and with True where it is taken again for a gradient
        layout: in which layout of the state f is fastest
        routes: how each convolution is applied; asked after the solve, since filters that depend on t choose while it runs
    """

    rate: Callable[[Tensor, Tensor], Tensor]
    tensors: tuple[Tensor, ...] = ()
    on_step: Callable[[int, bool], None] | None = None
    routes: Callable[[], dict[str, str]] | None = None
    layout: torch.memory_format = torch.contiguous_format

    @property
    def f(self) -> Callable[[Tensor, Tensor], Tensor]:
        """What the solver is given: `rate` itself (it knows the parameters of a module), or with `on_step` one that hears of steps."""
        return self.rate if self.on_step is None else self

    def __call__(self, t: Tensor, h: Tensor) -> Tensor:
        return self.rate(t, h)


class Field(nn.Module):
    """dh/dt = f(t, h) with something to make once per solve. A subclass defines `prepare`.

    A module with nothing to make needs no `Field`: any module with `forward(t, h)` can be integrated.
    """

    stepwise: bool = False
    """True where f changes from step to step, as batch statistics of each step do: it is then no function of t and h."""

    def prepare(self, h: Tensor, t0: Time = 0.0, t1: Time = 1.0) -> Prepared:
        """f for maps like h between t0 and t1, its filters realised."""
        raise TypeError(f"{type(self).__name__} must define prepare(h, t0, t1).")

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f alone, outside a solve."""
        return self.prepare(h, t, t).rate(t, h)

    def check_solver(self, solver: SolverConfig) -> None:
        """Refuse a solver that this field does not allow; by default it allows all."""


class ConvField(Field):
    """norm → act → conv → norm → act → conv → norm: dh/dt = norm(F2 * g(F1 * g(h) + time) + time), g = activation of norm.

    `make_filter(in, out)` gives each convolution its filter. With `time=True` both convolutions also read the constant map t as their
    channel 0 (Chen et al. 2018), so their filters have one input channel more than the state.
    """

    def __init__(
        self,
        channels: int,
        make_filter: Callable[[int, int], Filter],
        *,
        activation: str = "celu",
        norm_groups: "int | str" = 32,
        bias: bool = False,
        time: bool = True,
        conv_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(make_filter, Filter):
            raise ConfigError(
                "ConvField makes two filters and takes what makes them, such as NJet or lambda i, o: NJet(i, o, order=3); "
                f"got a filter, {make_filter}."
            )
        options: dict[str, Any] = dict(bias=bias, time_channel=time, **(conv_options or {}))
        if options.get("stride", 1) != 1:
            raise ConfigError(f"the rate of a state has its shape: a field's convolutions have stride 1; got {options['stride']!r}.")
        self.norm1 = group_norm(channels, norm_groups)
        self.conv1 = FilterConv2d(make_filter(channels + time, channels), **options)
        self.norm2 = group_norm(channels, norm_groups)
        self.conv2 = FilterConv2d(make_filter(channels + time, channels), **options)
        self.norm3 = group_norm(channels, norm_groups)
        self.act = Activation(activation)

    def prepare(self, h: Tensor, t0: Time = 0.0, t1: Time = 1.0) -> Prepared:
        first = self.conv1.realise(h.shape, h.dtype, h.device)
        second = self.conv2.realise(h.shape, h.dtype, h.device)
        read1, read2, last = read_by(first, self.norm1, self.act), read_by(second, self.norm2, self.act), norm_then_act(self.norm3)

        whole = whole_field((first, second), (self.norm1, self.norm2, self.norm3), self.act)

        def rate(t: Tensor, h: Tensor) -> Tensor:
            return whole(t, h) if whole is not None and whole.serves(t, h) else last(read2(read1(h, t), t))

        norms = (*self.norm1.parameters(), *self.norm2.parameters(), *self.norm3.parameters())
        return Prepared(
            rate,
            (*norms, *first.tensors, *second.tensors),
            routes=lambda: {"conv1": first.route, "conv2": second.route},
            layout=first.layout,
        )


def read_by(conv: RealisedConv, norm: nn.Module, act: Activation) -> Callable[[Tensor, Tensor], Tensor]:
    """conv(act(norm(h)), t) as a function of h and t, in one pass where the convolution's route can."""
    plain = norm_then_act(norm, act)
    if not can_fuse(norm, act):
        return lambda h, t: conv(plain(h), t)
    before = Preceding(norm, act.name, plain)
    return lambda h, t: conv.after(before, h, t)


def whole_field(
    convs: tuple[RealisedConv, RealisedConv], norms: tuple[nn.Module, nn.Module, nn.Module], act: Activation
) -> NativeField | None:
    """The field in one call of the native kernels, where they know all of it; else None."""
    last, parts = norms[2], []
    if not can_fuse(last, None) or why_no_library() is not None:
        return None
    for conv, norm in zip(convs, norms, strict=False):
        part = conv.part_of_field(Preceding(norm, act.name, norm_then_act(norm, act))) if can_fuse(norm, act) else None
        if part is None:
            return None
        parts.append(part)
    return NativeField(parts[0], parts[1], FieldNorm(last.weight, last.bias, last.num_groups, last.eps))
