"""What every filter answers: its scale, by a method of its own; and that a filter of one's own is one short file."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from continua.filters import Evolved, Filter, FilterConv2d, Grid, NJet, Pixel, ScaleDiffusion, ScheduledNJet

OWN_PARTS = Path(__file__).parents[2] / "docs" / "own-parts.md"
F64 = torch.float64


def names_of(filter: Filter) -> list[str]:
    """The names of the parameters that make a filter's scale."""
    own = {id(parameter): name for name, parameter in filter.named_parameters()}
    return [own[id(parameter)] for parameter in filter.scale_parameters()]


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        (Pixel(2, 3), []),
        (NJet(2, 3), ["s"]),
        (NJet(2, 3, sharing="pair"), ["s"]),
        (ScheduledNJet(2, 3, scale="linear"), ["a", "b"]),
        (ScheduledNJet(2, 3, scale="quadratic", alpha="linear"), ["a", "b", "c"]),
        (NJet(2, 3).freeze(), []),
        (ScheduledNJet(2, 3, radius="max").freeze(), []),
        (Evolved(NJet(2, 3), {"s": ScaleDiffusion()}), []),  # they are the inner filter's, which answers for itself
    ],
)
def test_a_filter_names_the_parameters_of_its_scale(filter: Filter, names: list[str]) -> None:
    assert names_of(filter) == names


def test_a_filter_tells_its_scale_at_a_time() -> None:
    jet, moving = NJet(2, 3).double(), ScheduledNJet(2, 3, scale="diffusion").double()
    torch.testing.assert_close(jet.scale_at(0.7), 2**jet.s)
    torch.testing.assert_close(moving.scale_at(0.7), moving.sigma_at(0.7))
    assert Pixel(2, 3).scale_at(0.7) is None
    assert Evolved(Pixel(2, 3), nn.Tanh()).scale_at(0.7) is None


def test_the_scale_of_an_evolved_filter_is_that_of_its_path() -> None:
    jet, diffusion = NJet(2, 3).double(), ScaleDiffusion(log2_tau=-1.0).double()
    filter = Evolved(jet, {"s": diffusion}, grid=Grid(0.0, 2.0, steps=4))
    expected = torch.sqrt(jet.sigma**2 + 2 * 0.5 * 1.3)  # σ² = σ0² + 2 τ t
    torch.testing.assert_close(filter.scale_at(torch.tensor(1.3, dtype=F64)), expected)


def test_the_filter_of_the_guide_is_one_file_of_under_forty_lines_and_works_like_ours() -> None:
    code = next(
        code for code in re.findall(r"^```python\n(.*?)^```", OWN_PARTS.read_text("utf-8"), flags=re.M | re.S) if "(Filter)" in code
    )
    assert len(code.splitlines()) < 40
    made: dict = {}
    exec(code, made)  # by itself: nothing of the page before it is needed
    filter = made["Gabor"](2, 3).double()
    assert isinstance(filter, Filter)
    assert names_of(filter) == ["s"]
    assert filter.scale_at(0.0).tolist() == [2.0]
    conv, x = FilterConv2d(filter), torch.randn(2, 2, 7, 7, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(conv, x)
    conv(x).sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.abs().sum() > 0) for parameter in filter.parameters())
