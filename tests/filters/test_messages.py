"""What a filter or a block of one's own may get wrong, said in words: who, what was given, what was expected."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, ContinuaWarning, create_model
from continua.blocks import ConvField, ODEBlock
from continua.filters import Evolved, Filter, FilterConv2d, Grid, NJet, Pixel, PixelKernel, evolve


class Own(Filter):
    """A filter whose kernel is whatever `make` makes of its pixels."""

    def __init__(self, make: Callable[[Tensor], object], taps: int = 3) -> None:
        super().__init__(2, 4)
        self.make = make
        self.weight = nn.Parameter(torch.rand(4, 2, taps, taps))

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def kernel(self, state: dict[str, Tensor], t: object = None, host: object = None) -> PixelKernel:
        return self.make(state["weight"])  # pyright: ignore[reportReturnType]


MAP = torch.rand(1, 2, 6, 6)


@pytest.mark.parametrize(
    ("filter", "said"),
    [
        (Own(lambda w: w), r"Own\(2, 4\): Own\.kernel\(\) returned a tensor \(4, 2, 3, 3\); return continua\.filters\.PixelKernel"),
        (Own(lambda w: None), r"returned a NoneType; return continua\.filters\.PixelKernel"),
        (Own(lambda w: PixelKernel(w.transpose(0, 1))), r"pixels \(2, 4, 3, 3\); expected .* with 4 out and 2 in"),
        (Own(PixelKernel, taps=4), r"returned 4×4 taps; padding='same' needs an odd number each way"),
    ],
)
def test_a_kernel_that_cannot_be_applied_is_refused_with_the_layer(filter: Filter, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FilterConv2d(filter)(MAP)


def test_a_kernel_that_can_be_applied_keeps_the_size_of_the_map() -> None:
    assert FilterConv2d(Own(PixelKernel))(MAP).shape == (1, 4, 6, 6)


@pytest.mark.parametrize(("start", "end"), [(0.0, 2.0), (-1.0, 1.0), (2.0, 0.0)])
def test_weights_that_evolve_on_a_part_of_the_interval_only_are_refused(start: float, end: float) -> None:
    def make(inputs: int, outputs: int) -> Filter:
        return evolve(Pixel(inputs, outputs), "rda", grid=Grid(0.0, 1.0, 4))

    with pytest.raises(ConfigError, match=r"conv1\.filter evolve on \[0, 1\], and the block runs on .*grid=Grid\("):
        ODEBlock(ConvField(4, make), end, t0=start)
    block = ODEBlock(ConvField(4, make), 1.0)
    assert any(isinstance(module, Evolved) for module in block.modules())


def outgrown(module: nn.Module, images: Tensor) -> list[str]:
    """What is said of kernels that are larger than their maps."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for filter in (part for part in module.modules() if isinstance(part, NJet)):
            filter.s.fill_(3.0)
        module(images)
    return [str(item.message) for item in caught if issubclass(item.category, ContinuaWarning) and "outgrown" in str(item.message)]


def test_a_kernel_that_outgrows_its_map_is_named_by_its_place() -> None:
    said = outgrown(create_model("dcn_ode", channels=(4, 8)).eval(), torch.rand(2, 3, 8, 8))
    assert said
    assert all("The kernel of blocks." in text for text in said)
    (first, second) = outgrown(ODEBlock(ConvField(4, NJet), solver=dict(method="euler", steps=1)), torch.rand(2, 4, 5, 5))
    assert "The kernel of field.conv1, NJet(5, 4), is" in first
    assert "The kernel of field.conv2, NJet(5, 4), is" in second
    (alone,) = outgrown(FilterConv2d(NJet(2, 4)), torch.rand(2, 2, 5, 5))
    assert "The kernel of NJet(2, 4) is" in alone
