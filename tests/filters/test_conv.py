"""A realised convolution gives the numbers of the concatenated formulation, whatever the route, dtype, layout or time."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from njet_reference import correlate, njet, radius_of

from continua import ConfigError, ContinuaWarning
from continua.filters import FilterConv2d, NJet, Pixel, ScheduledNJet

ROUTES = ("native", "dense", "separable")


def conv(sigma=1.2, channels=(3, 4), filter_options=None, **options):
    made = FilterConv2d(NJet(channels[0] + options.get("time_channel", False), channels[1], **(filter_options or {})), **options).double()
    with torch.no_grad():
        made.filter.s.fill_(np.log2(sigma))
    return made


def maps(*shape, grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("sigma", "stride", "size"), [(0.4, 1, (9, 7)), (1.3, 2, (9, 7)), (1.3, 2, (8, 10)), (3.1, 3, (11, 6))])
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_routes_equal_the_reference(route, sigma, stride, size):
    made = conv(sigma, route=route, stride=stride)
    x = maps(2, 3, *size)
    weight = njet(made.filter.alpha.detach().numpy(), sigma, 2, radius_of(sigma))
    np.testing.assert_allclose(made(x).detach(), correlate(x.numpy(), weight, stride), rtol=1e-9, atol=1e-11)


@settings(max_examples=30)
@given(
    sigma=st.floats(0.3, 4.0),
    height=st.integers(1, 21),
    width=st.integers(1, 21),
    stride=st.integers(1, 3),
    order=st.integers(0, 4),
    channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    channels_last=st.booleans(),
)
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_routes_agree_in_float32(sigma, height, width, stride, order, channels, channels_last):
    made = conv(sigma, channels, {"order": order}, stride=stride).float()
    x = torch.randn(3, channels[0], height, width)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    x.requires_grad_()
    results = []
    for made.route in ROUTES:
        y = made(x)
        weights = torch.linspace(-1, 1, y.numel()).view(y.shape)
        results.append([y, *torch.autograd.grad((y * weights).sum(), [x, made.filter.alpha, made.filter.s])])
    for native, dense, separable in zip(*results, strict=True):
        assert float((dense - separable).abs().max()) <= 1e-5 * max(1.0, float(dense.abs().max()))
        assert float((dense - native).abs().max()) <= 1e-5 * max(1.0, float(dense.abs().max()))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_route_passes_gradcheck_to_its_parameters(route, channels_last):
    made = conv(channels=(2, 2), time_channel=True, bias=True, stride=2, route=route)
    x = maps(2, 2, 5, 4)
    x = (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()
    t = torch.tensor([0.3, 1.1], dtype=torch.float64, requires_grad=True)

    def apply(x, t, alpha, s, bias):
        swapped = {"filter.alpha": alpha, "filter.s": s, "bias": bias}
        return torch.func.functional_call(made, swapped, (x, t))

    torch.autograd.gradcheck(apply, (x, t, made.filter.alpha, made.filter.s, made.bias), fast_mode=True)
    # The Jacobian regularisers differentiate twice.
    torch.autograd.gradgradcheck(apply, (x, t, made.filter.alpha, made.filter.s, made.bias), fast_mode=True)


@pytest.mark.parametrize(
    "build", [lambda: NJet(4, 5), lambda: Pixel(4, 5), lambda: NJet(4, 5, sharing="pair")], ids=["njet", "pixel", "pair"]
)
@pytest.mark.parametrize("stride", [1, 2])
def test_the_time_term_equals_concatenating_t_as_channel_zero_borders_included(build, stride):
    filter = build().double()
    made = FilterConv2d(filter, stride=stride, time_channel=True, bias=True).double()
    x, t = maps(2, 3, 9, 8, grad=True), torch.tensor(0.7, dtype=torch.float64)
    weight = filter.kernel(filter.state()).weight()
    concatenated = torch.cat([t.expand(2, 1, 9, 8), x], dim=1)
    expected = F.conv2d(concatenated, weight, made.bias, stride=stride, padding=weight.shape[-1] // 2)
    torch.testing.assert_close(made(x, t), expected, rtol=1e-12, atol=1e-13)
    parameters = [x, *made.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(made(x, t).sin().sum(), parameters), torch.autograd.grad(expected.sin().sum(), parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_per_sample_time_equals_one_sample_at_a_time(route, channels_last):
    made = conv(time_channel=True, route=route)
    x, t = maps(3, 3, 8, 8), torch.tensor([0.0, 0.4, 2.0], dtype=torch.float64)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    together = made(x, t)
    for k in range(3):
        torch.testing.assert_close(together[k : k + 1], made(x[k : k + 1], t[k]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("route", ROUTES)
def test_gradients_of_the_realised_tensors_lead_back_to_the_parameters_once_per_solve(route):
    made = conv(time_channel=True, bias=True, route=route)
    x, times = maps(2, 3, 8, 8), (0.1, 0.5, 0.9)
    direct = torch.autograd.grad(sum(made(x, t).square().sum() for t in times), list(made.parameters()))
    ready = made.realise(x.shape, x.dtype)
    leaves = [tensor.detach().requires_grad_() for tensor in ready.tensors]
    collected = [torch.zeros_like(leaf) for leaf in leaves]
    for t in times:
        for total, part in zip(collected, torch.autograd.grad(ready.apply(x, t, *leaves).square().sum(), leaves), strict=True):
            total += part
    torch.autograd.backward(ready.tensors, collected)
    for parameter, expected in zip(made.parameters(), direct, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("route", ROUTES)
def test_parts_add_up_to_the_whole(route):
    made = conv(time_channel=True, route=route)
    x = maps(2, 3, 8, 8)
    ready = made.realise(x.shape, x.dtype)
    y, ones_response = ready.parts(x, 0.6, *ready.tensors)
    assert ones_response.shape == (1, 4, 8, 8)
    torch.testing.assert_close(y + 0.6 * ones_response, ready(x, 0.6))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_autocast_answers_in_bfloat16_and_is_close_to_float32(route, channels_last):
    made = conv(time_channel=True, route=route).float()
    x = torch.randn(2, 3, 9, 9)
    x = (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()
    exact = made(x, 1.5)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = made(x, 1.5)
    assert rounded.dtype == torch.bfloat16
    assert float((rounded.float() - exact).norm() / exact.norm()) < 0.02
    gradients = torch.autograd.grad(rounded.float().square().sum(), list(made.parameters()))
    for got, expected in zip(gradients, torch.autograd.grad(exact.square().sum(), list(made.parameters())), strict=True):
        assert got.dtype == torch.float32
        assert float((got - expected).norm() / expected.norm()) < 0.05


@pytest.mark.parametrize("route", ROUTES)
def test_layout_is_kept_and_changes_no_number(route):
    made = conv(time_channel=True, route=route)
    x = maps(2, 3, 9, 8)
    plain, last = made(x, 0.5), made(x.to(memory_format=torch.channels_last), 0.5)
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain, last, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("route", ROUTES)
def test_works_without_gradients_and_survives_copy_and_pickle(route):
    made = conv(time_channel=True, bias=True, route=route)
    x = maps(2, 3, 8, 8)
    with torch.no_grad():
        expected = made(x, 0.5)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(twin(x, 0.5), expected)


@pytest.mark.parametrize("route", ROUTES)
def test_a_frozen_convolution_exports_with_its_kernel_as_constants(route):
    made = conv(time_channel=True, bias=True, route=route).float()
    x, t = torch.randn(2, 3, 8, 8), torch.tensor(0.4)
    program = torch.export.export(made.freeze(), (x, t))
    torch.testing.assert_close(program.module()(x, t), made(x, t), rtol=1e-4, atol=1e-5)
    assert made.filter.alpha.requires_grad  # the original still trains


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_taps_outside_the_map_are_not_built_and_change_nothing(route):
    sigma = 30.0
    made = conv(sigma, route=route)
    x = maps(1, 3, 5, 6)
    ready = made.realise(x.shape, x.dtype)
    assert max(tensor.numel() for tensor in ready.tensors) <= 3 * 4 * 9 * 11
    weight = njet(made.filter.alpha.detach().numpy(), sigma, 2, radius_of(sigma))
    np.testing.assert_allclose(ready(x).detach(), correlate(x.numpy(), weight), rtol=1e-8, atol=1e-14)


def test_a_kernel_that_outgrows_its_map_is_named_once():
    made = conv(3.0)
    made.filter.label = "blocks.2.conv1"
    with pytest.warns(ContinuaWarning, match=r"blocks\.2\.conv1 is 15×15 on a map of 7×7"):
        made(maps(1, 3, 7, 7))
    made(maps(1, 3, 7, 7))


def per_channel(channels, **options):
    """A convolution whose output channels have scales from 0.4 to 2.2."""
    made = FilterConv2d(NJet(channels[0] + options.get("time_channel", False), channels[1], sharing="channel"), **options).double()
    with torch.no_grad():
        made.filter.s.copy_(torch.linspace(0.4, 2.2, channels[1], dtype=torch.float64).log2())
    return made


@pytest.mark.parametrize(("channels", "stride", "time_channel"), [((5, 7), 1, False), ((17, 3), 2, True), ((4, 20), 3, False)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_sigma_for_each_output_channel_has_the_same_numbers_by_both_routes(channels, stride, time_channel, channels_last):
    made = per_channel(channels, stride=stride, time_channel=time_channel)
    x = maps(3, channels[0], 12, 9)
    x = (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()
    results = []
    for made.route in ("native", "dense"):
        y = made(x, 0.7) if time_channel else made(x)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
        results.append([y, *torch.autograd.grad((y * weights).sum(), [x, made.filter.alpha, made.filter.s])])
        assert made.realise(x.shape).route == made.route
    for native, dense in zip(*results, strict=True):
        torch.testing.assert_close(native, dense, rtol=1e-10, atol=1e-10)


def test_each_output_channel_is_filtered_by_its_own_scale():
    made = per_channel((2, 3), route="native")
    x, alpha = maps(1, 2, 12, 12), made.filter.alpha.detach()
    whole = made(x).detach()
    for channel, sigma in enumerate((0.4, 1.3, 2.2)):
        alone = conv(sigma, (2, 1))
        with torch.no_grad():
            alone.filter.alpha.copy_(alpha[:, :, channel : channel + 1])
        torch.testing.assert_close(whole[:, channel : channel + 1], alone(x).detach(), rtol=1e-9, atol=1e-9)


def test_a_sigma_for_each_output_channel_passes_gradcheck_twice():
    made = per_channel((3, 4), route="native")
    inputs = (maps(2, 3, 12, 13, grad=True), made.filter.alpha, made.filter.s)
    ready = made.realise((2, 3, 12, 13))

    def run(x, alpha, s):
        kernel = made.filter.kernel({"alpha": alpha, "s": s})
        return ready.apply(x, None, alpha, kernel.rows[None], kernel.cols[None])

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


def test_with_a_sigma_for_each_output_channel_small_kernels_stay_dense():
    def route(sigma, channels, **options):
        made = FilterConv2d(NJet(channels, 8, sharing="channel"), **options)
        with torch.no_grad():
            made.filter.s.fill_(np.log2(sigma))
        return made.realise((4, channels, 16, 16)).route

    assert route(0.2, 64) == "dense"  # 3×3
    assert route(0.2, 64, route="native") == "native"
    assert route(0.5, 8) == "dense"  # 5×5 with few channels
    assert route(1.0, 16) == "native"
    assert FilterConv2d(NJet(64, 8, sharing="pair")).realise((4, 64, 16, 16)).route == "dense"


def test_the_native_route_is_taken_where_it_can_be(monkeypatch):
    assert conv(0.2, (64, 64)).realise((8, 64, 16, 16)).route == "native"
    assert conv(2.0, (1, 64)).realise((8, 1, 16, 16)).route != "native"  # whole vectors of channels for one
    assert conv(2.0, (64, 64), {"order": 5}).realise((8, 64, 16, 16)).route != "native"
    monkeypatch.setattr("continua.filters.routes.why_no_library", lambda: "not built")
    assert conv(2.0, (64, 64)).realise((8, 64, 16, 16)).route == "separable"
    with pytest.raises(ConfigError, match="cannot be taken: not built"):
        conv(2.0, (64, 64), route="native").realise((8, 64, 16, 16))


def test_without_the_kernels_small_filters_are_dense_and_large_ones_separable(monkeypatch):
    monkeypatch.setattr("continua.filters.routes.why_no_library", lambda: "not built")
    assert conv(0.2, (64, 64)).realise((8, 64, 16, 16)).route == "dense"
    assert conv(2.0, (64, 64)).realise((8, 64, 16, 16)).route == "separable"
    assert conv(2.0, (64, 64), route="dense").realise((8, 64, 16, 16)).route == "dense"
    assert FilterConv2d(Pixel(8, 8, 5)).realise((8, 8, 16, 16)).route == "dense"


def test_pixel_filters_start_and_compute_as_conv2d_does():
    torch.manual_seed(3)
    theirs = torch.nn.Conv2d(5, 6, 4, stride=2, padding=1)
    torch.manual_seed(3)
    ours = FilterConv2d(Pixel(5, 6, 4), stride=2, padding=1, bias=True)
    x = torch.randn(2, 5, 9, 9)
    torch.testing.assert_close(ours(x), theirs(x))


def test_what_cannot_work_is_refused_when_it_is_built():
    with pytest.raises(ConfigError, match="separable"):
        FilterConv2d(NJet(2, 2, sharing="pair"), route="separable")
    with pytest.raises(ConfigError, match="route is one of auto, native, dense, separable; got 'hybrid'"):
        FilterConv2d(NJet(2, 2), route="hybrid")
    with pytest.raises(ConfigError, match="padding"):
        FilterConv2d(Pixel(2, 2, 4))
    with pytest.raises(ConfigError, match="padding"):
        FilterConv2d(NJet(2, 2), padding=1)
    with pytest.raises(ConfigError, match="reads 2 channels and the time"):
        FilterConv2d(NJet(3, 2), time_channel=True)(torch.randn(1, 3, 8, 8), 0.0)
    with pytest.raises(ConfigError, match="time"):
        FilterConv2d(NJet(3, 2), time_channel=True)(torch.randn(1, 2, 8, 8))
    with pytest.raises(ConfigError, match="radius"):
        FilterConv2d(ScheduledNJet(2, 2)).freeze()


@pytest.mark.parametrize("route", ROUTES)
def test_a_map_without_a_batch_is_taken_as_conv2d_takes_it(route):
    made, x = FilterConv2d(NJet(8, 6), route=route), torch.randn(8, 9, 11)
    torch.testing.assert_close(made(x), made(x[None])[0])
    with pytest.raises(ConfigError, match="without the batch"):
        made(x[0])
