"""Edges of the filters: a change of one sign or one number there is noticed."""

import math
import warnings

import pytest
import torch

from continua.errors import ConfigError, ContinuaWarning
from continua.filters import RDA, Evolved, FilterConv2d, LinearEvolution, NJet, Pixel, PixelKernel, ScaleDiffusion, ScheduledNJet
from continua.filters.basis import ScaleWatch, SigmaBounds
from continua.filters.filter import Filter
from continua.filters.history import remembering
from continua.filters.rda import operate
from continua.filters.routes import CHUNK, Geometry, chunks, dense_operator
from continua.filters.separable import band_blocks, jet_orders, separable_plain


@pytest.mark.parametrize(("size", "rows", "cols", "left"), [((5, 7), 1, 2, (3, 5)), ((5, 7), 9, 9, (5, 7)), ((9, 3), 2, 0, (5, 1))])
def test_a_kernel_of_odd_size_is_cropped_around_its_middle(size: tuple[int, int], rows: int, cols: int, left: tuple[int, int]) -> None:
    height, width = size
    pixels = torch.arange(height * width, dtype=torch.float64).reshape(1, 1, height, width)
    cropped = PixelKernel(pixels).cropped(rows, cols).pixels
    assert tuple(cropped.shape[-2:]) == left
    assert cropped[0, 0, left[0] // 2, left[1] // 2] == pixels[0, 0, height // 2, width // 2]


@pytest.mark.parametrize("size", [(4, 5), (5, 4), (4, 4), (6, 5)])
def test_a_kernel_without_a_middle_is_not_cropped(size: tuple[int, int]) -> None:
    kernel = PixelKernel(torch.rand(1, 1, *size))
    assert kernel.cropped(1, 1) is kernel


def test_a_number_is_bounded_as_a_tensor_is() -> None:
    bounds = SigmaBounds((0.5, 8.0))
    for s in (-3.0, -1.0, 0.0, 1.0, 2.5, 10.0):
        limited = bounds(torch.tensor(s, dtype=torch.float64))
        assert bounds(s) == pytest.approx(float(limited), rel=1e-12)
        assert 0.5 < 2 ** bounds(s) < 8.0
        if abs(s) < 3:
            assert float(bounds.inverse(limited)) == pytest.approx(s, rel=1e-9, abs=1e-9)
    assert bounds(bounds.middle) == bounds.middle == 1.0
    for wrong in ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, float("inf"))):
        with pytest.raises(ConfigError, match="two positive numbers"):
            SigmaBounds(wrong)


@pytest.mark.parametrize(("size", "outgrown"), [((9, 7), False), ((10, 7), True), ((9, 8), True), ((1, 1), False)])
def test_a_kernel_has_outgrown_its_map_when_a_tap_can_never_touch_it(size: tuple[int, int], outgrown: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ScaleWatch().check_size("conv", size, (5, 4))
    assert [warning.category for warning in caught] == [ContinuaWarning] * outgrown


def test_one_sigma_is_shown_as_a_number_and_several_as_a_range() -> None:
    one, several = NJet(2, 3, order=1), NJet(2, 3, order=1, sharing="channel")
    assert f"sigma={float(one.sigma.detach()):.3g} per layer" in repr(one)
    low, high = several.sigma.detach().aminmax()
    assert f"sigma={low:.3g}…{high:.3g} per channel" in repr(several)


@pytest.mark.parametrize(("size", "stride", "reach"), [(64, 1, 3), (65, 2, 3), (40, 1, 1), (100, 3, 4)])
def test_blocks_of_a_band_write_every_output_once_and_read_what_it_needs(size: int, stride: int, reach: int) -> None:
    blocks = band_blocks(size, stride, reach)
    assert len(blocks) > 1
    assert [output for write, _ in blocks for output in range(write.start, write.stop)] == list(range(-(-size // stride)))
    for write, read in blocks:
        for output in range(write.start, write.stop):
            needed = range(max(0, output * stride - reach), min(size, output * stride + reach + 1))
            assert read.start <= needed.start
            assert needed.stop <= read.stop
    assert band_blocks(16, 1, 3) == [(slice(0, 16), slice(0, 16))], "a band that fills its matrix"


def test_many_blocks_give_the_numbers_of_the_dense_kernel() -> None:
    conv = FilterConv2d(NJet(2, 3, order=2), route="dense").double()
    x = torch.rand(2, 2, 64, 64, dtype=torch.float64)
    dense = conv(x)
    conv.route = "separable"
    torch.testing.assert_close(conv(x), dense)


def test_the_plain_sum_for_compilers_is_the_sum_over_all_pairs_of_orders() -> None:
    x, rows, cols = (torch.rand(*shape, dtype=torch.float64) for shape in ((2, 2, 4, 5), (3, 4, 4), (3, 5, 5)))
    alpha = torch.rand(6, 2, 3, dtype=torch.float64)
    terms = [torch.einsum("gh,bchw,co,vw->bogv", rows[i], x, alpha[f], cols[j]) for f, (i, j) in enumerate(jet_orders(2))]
    torch.testing.assert_close(separable_plain(x, rows, alpha, cols), torch.stack(terms).sum(0))


@pytest.mark.parametrize("route", ["separable", "auto"])
def test_sigma_learns_also_where_the_map_needs_no_gradient(route: str) -> None:
    """As in the first layer of a network."""
    x, found = torch.rand(2, 2, 32, 32, dtype=torch.float64), []
    filter = NJet(2, 3, order=2).double()
    for way in ("dense", route):
        (FilterConv2d(filter, route=way, bias=False).double()(x).square().sum()).backward()
        found.append([parameter.grad for parameter in filter.parameters()])
        filter.zero_grad()
    for dense, other in zip(*found, strict=True):
        assert bool(dense.any())
        torch.testing.assert_close(other, dense)


def test_a_kernel_that_is_longer_than_wide_keeps_its_map_in_place() -> None:
    pixels, x = torch.rand(3, 2, 3, 7, dtype=torch.float64), torch.rand(2, 2, 8, 9, dtype=torch.float64)
    operator = dense_operator(PixelKernel(pixels), Geometry(8, 9, 1, None))
    expected = torch.nn.functional.conv2d(x, pixels, padding=(1, 3))
    torch.testing.assert_close(operator.linear(x, None, *operator.tensors), expected)
    assert PixelKernel(pixels.expand(4, -1, -1, -1, -1)).size == PixelKernel(pixels).size == (3, 7)


@pytest.mark.parametrize(("batch", "each", "parts"), [(3, 2 * CHUNK, 3), (3, CHUNK, 3), (5, CHUNK // 2, 3), (4, 10, 1), (0, 10, 0)])
def test_a_batch_is_walked_once_in_parts_of_at_most_so_many_numbers(batch: int, each: int, parts: int) -> None:
    x = torch.empty(1).expand(batch, each)
    walked = chunks(x)
    assert len(walked) == parts
    assert [row for part in walked for row in range(part.start, part.stop)] == list(range(batch))
    assert all((part.stop - part.start) * each <= CHUNK for part in walked if part.stop - part.start > 1)


# --- weights that evolve --------------------------------------------------------------------------------------------------


def evolving(kind: str) -> Evolved:
    """Filters of which one part evolves and another stays, or both evolve."""
    made: dict[str, tuple[Filter, dict[str, torch.nn.Module]]] = {
        "scale of a layer": (NJet(2, 3, order=1), {"s": ScaleDiffusion()}),
        "scales of channels": (NJet(2, 3, order=1, sharing="channel"), {"s": ScaleDiffusion()}),
        "coefficients": (NJet(2, 3, order=1, sharing="channel"), {"alpha": LinearEvolution((3, 2, 3), axes=(0,))}),
        "both": (NJet(2, 3, order=1), {"alpha": LinearEvolution((3, 2, 3), axes=(0,)), "s": ScaleDiffusion()}),
        "pixels": (Pixel(2, 3), {"weight": RDA(3)}),
    }
    return Evolved(*made[kind]).double()


KINDS = ["scale of a layer", "scales of channels", "coefficients", "both", "pixels"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_has_the_kernel_of_its_own_time(kind: str) -> None:
    filter = evolving(kind)
    for parameter in filter.evolutions.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    state = filter.state()
    host, times = filter.read_host(state), torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    each = filter.kernel(state, times, host).weight()
    for found, t in zip(each, times.tolist(), strict=True):
        torch.testing.assert_close(found, filter.kernel(state, t, host).weight())
    assert not torch.equal(each[0], each[2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_filter_learns_nothing_and_keeps_its_files_as_they_were(kind: str) -> None:
    filter = evolving(kind)
    frozen = filter.freeze()
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in filter.parameters())
    assert frozen.state_dict().keys() == filter.state_dict().keys()


def test_a_clock_is_shown_where_it_is_not_that_of_the_state() -> None:
    assert ", clock=2" in repr(Evolved(Pixel(2, 3), RDA(3), clock=2.0))
    assert "clock" not in repr(Evolved(Pixel(2, 3), RDA(3)))


def test_a_memory_of_the_present_alone_is_none() -> None:
    evolution = RDA(3)
    for memory in (None, "dirac", {"kind": "dirac"}):
        assert remembering(evolution, memory) is evolution
    assert remembering(evolution, {"kind": "exponential", "rate": 5.0}) is not evolution


def test_a_batch_of_kernels_changes_as_each_of_them() -> None:
    kernels, rda = torch.rand(4, 3, 2, 5, 4, dtype=torch.float64), RDA(3).double()
    for parameter in rda.parameters():
        torch.nn.init.normal_(parameter)
    rates = rda.rates(kernels)
    torch.testing.assert_close(operate(kernels, *rates), torch.stack([operate(kernel, *rates) for kernel in kernels]))


@pytest.mark.parametrize("slope", [-2.0, 2.0])
def test_the_longest_radius_of_a_schedule_is_that_of_its_largest_scale_from_0_to_2(slope: float) -> None:
    filter = ScheduledNJet(1, 1, radius="max").double()
    with torch.no_grad():
        for name, value in (("a", slope), ("b", 1.0)):
            filter.get_parameter(name).fill_(value)
    largest = max(filter.sigma_at(t).item() for t in (0.0, 2.0))
    radius = math.ceil(2 * largest + 0.5)
    assert filter.kernel(filter.state(), 1.0).size == (2 * radius + 1, 2 * radius + 1)
