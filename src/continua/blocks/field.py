"""The papers' field: dh/dt = norm(F2 * g(F1 * g(h) + time) + time), g = activation of norm (DCN eq. 2)."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from continua.blocks.norm import Activation, group_norm
from continua.filters import Filter, FilterConv2d

Rate = Callable[[Tensor, Tensor], Tensor]


@runtime_checkable
class Field(Protocol):
    """dh/dt = f(t, h), made ready for one solve at a time."""

    def prepare(self, h: Tensor, t0: Any, t1: Any) -> tuple[Rate, tuple[Tensor, ...]]:
        """f for maps like h, its filters realised, and the tensors that need gradients."""
        ...


class ConvField(nn.Module):
    """norm → act → conv → norm → act → conv → norm. `make_filter(in, out)` gives each convolution its filter.

    With `time=True` both convolutions also read the constant map t as their channel 0 (Chen et al. 2018), so their filters have one input
    channel more than the state.
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
        options: dict[str, Any] = dict(bias=bias, time_channel=time, **(conv_options or {}))
        self.norm1 = group_norm(channels, norm_groups)
        self.conv1 = FilterConv2d(make_filter(channels + time, channels), **options)
        self.norm2 = group_norm(channels, norm_groups)
        self.conv2 = FilterConv2d(make_filter(channels + time, channels), **options)
        self.norm3 = group_norm(channels, norm_groups)
        self.act = Activation(activation)

    def prepare(self, h: Tensor, t0: Any = None, t1: Any = None) -> tuple[Rate, tuple[Tensor, ...]]:
        first = self.conv1.realise(h.shape, h.dtype, h.device)
        second = self.conv2.realise(h.shape, h.dtype, h.device)
        act = self.act

        def rate(t: Tensor, h: Tensor) -> Tensor:
            h = first(act(self.norm1(h), overwrite=True), t)
            h = second(act(self.norm2(h), overwrite=True), t)
            return self.norm3(h)

        # Time-dependent filters choose their route while the solve runs, so the block asks afterwards.
        rate.routes = lambda: {"conv1": first.route, "conv2": second.route}  # pyright: ignore[reportFunctionMemberAccess]
        norms = (*self.norm1.parameters(), *self.norm2.parameters(), *self.norm3.parameters())
        return rate, (*norms, *first.tensors, *second.tensors)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        rate, _ = self.prepare(h)
        return rate(t, h)
