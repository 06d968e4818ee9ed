"""The native kernels against the same formulas in plain operations: every build, shape, layout and derivative."""

import ctypes
import os
import random
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_cases import conv_case, largest_error, results

from continua.native import Absent, find_library, native_combine, native_conv, native_error_rms, native_norm
from continua.native.build import fingerprint
from continua.native.library import library_path

pytestmark = pytest.mark.skipif(isinstance(find_library(), Absent), reason=f"no native kernels: {find_library()}")
BUILDS = ("avx512", "avx2", "portable")


@pytest.fixture(params=BUILDS)
def build(request):
    """Each build that this processor can run, in turn; then its own again."""
    loaded = ctypes.CDLL(str(library_path()))
    loaded.continua_choose.restype = ctypes.c_char_p
    if loaded.continua_choose(request.param.encode()).decode() != request.param:
        loaded.continua_choose(b"")
        pytest.skip(f"this processor cannot run {request.param}")
    yield request.param
    loaded.continua_choose(b"")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(4))
def test_every_build_computes_what_plain_operations_do(build, seed):
    draw = random.Random(seed)
    for _ in range(6):
        case = conv_case(draw)
        assert largest_error(case) < 1e-9, case


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_any_case_in_float64(seed):
    assert largest_error(conv_case(random.Random(seed))) < 1e-9


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_any_case_in_float32(seed):
    # Without a norm: dividing by the deviation of a map of a few equal pixels multiplies rounding without bound.
    case = conv_case(random.Random(seed), torch.float32)
    case |= dict(groups=0, gamma=None, beta=None)
    assert largest_error(case) < 1e-4


def test_a_network_s_own_shapes_in_float32_with_norm():
    for channels, size in ((32, 30), (64, 15), (128, 7)):
        draw = random.Random(channels)
        case = conv_case(draw, torch.float32)
        while case["rows"].ndim > 2 or case["cols"].ndim > 2 or case["alpha"].ndim == 4 or case["stride"] != 1 or case["along"] is None:
            case = conv_case(draw, torch.float32)
        order = case["rows"].shape[0] - 1
        case |= dict(
            x=torch.randn(3, channels, size, size), alpha=torch.randn((order + 1) * (order + 2) // 2, channels, channels) / channels
        )
        case |= dict(
            gamma=torch.randn(channels), beta=torch.randn(channels), groups=32, bias=None, t=None, time_map=None, activation="celu"
        )
        assert largest_error(case) < 2e-5


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("seed", range(5))
def test_the_number_of_threads_changes_no_bit(seed):
    case = conv_case(random.Random(seed), torch.float32)
    case["x"] = torch.randn(33, *case["x"].shape[1:])
    case |= {name: torch.randn(case[name].shape[-axes:]) for name, axes in (("alpha", 3), ("rows", 2), ("cols", 2))}
    size = [(n - 1) // case["stride"] + 1 for n in case["x"].shape[2:]]
    case |= dict(t=torch.randn(33), time_map=torch.randn(case["alpha"].shape[-1], *size))
    case |= dict(along=None if seed % 2 else torch.randn(case["cols"].shape))
    gradient, answers = None, []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        y, gradients, gradient = results(True, case, gradient)
        answers.append((y, *gradients))
    for other in answers[1:]:
        assert all(torch.equal(a, b) for a, b in zip(answers[0], other, strict=True))


def small(seed: int) -> dict:
    draw = random.Random(seed)
    case = conv_case(draw, most=3)
    while not 0 < case["x"].numel() < 60 or case["rows"].shape[-1] > 5 or case["cols"].shape[-1] > 5 or case["activation"] == "relu":
        case = conv_case(draw, most=3)  # relu has a kink, which finite differences may hit
    return case | {"x": case["x"].contiguous(), "along": None}


@pytest.mark.parametrize("seed", range(6))
def test_first_and_second_derivatives_match_finite_differences(seed):
    case = small(seed)
    names = [name for name, value in case.items() if isinstance(value, torch.Tensor)]
    leaves = [case[name].clone().requires_grad_() for name in names]

    def run(*values):
        return native_conv(**{**case, **dict(zip(names, values, strict=True))})

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


def test_second_derivatives_leave_the_history_of_the_inputs_alone():
    # x is itself a function of alpha, as the state of a solve is.
    torch.manual_seed(0)
    alpha, taps = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True), torch.randn(2, 3, dtype=torch.float64)
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64)

    def twice(alpha):
        return native_conv(native_conv(x, None, None, alpha, taps, taps), None, None, alpha, taps, taps)

    assert torch.autograd.gradgradcheck(twice, (alpha,))


@pytest.mark.parametrize("seed", range(3))
def test_the_operators_keep_pytorch_s_rules(seed):
    case = small(seed)
    arguments = [value.detach().requires_grad_() if isinstance(value, torch.Tensor) else value for value in case.values()]
    torch.library.opcheck(torch.ops.continua.norm_act_conv.default, tuple(arguments))
    every = dict(gamma=torch.randn(4), beta=torch.randn(4), alpha=torch.randn(3, 4, 5), rows=torch.randn(2, 3), cols=torch.randn(2, 5))
    every |= dict(bias=torch.randn(5), t=torch.randn(2), time_map=torch.randn(5, 3, 3).permute(0, 2, 1))
    leaves = [value.requires_grad_() for value in (torch.randn(2, 4, 3, 3), *every.values())]
    for along in (None, torch.randn(2, 5)):
        torch.library.opcheck(torch.ops.continua.norm_act_conv.default, (*leaves, along, 2, 1e-5, "celu", 1))
    x, gamma = torch.randn(2, 4, 3, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    torch.library.opcheck(torch.ops.continua.norm_act.default, (x, gamma, None, 2, 1e-5, "celu"))


@pytest.mark.parametrize("activation", ["identity", "celu", "relu", "gelu", "silu", "softplus", "tanh"])
def test_norm_and_activation_alone(activation):
    x = torch.randn(5, 12, 6, 7, dtype=torch.float64)
    for layout in (torch.contiguous_format, torch.channels_last):
        case = dict(x=x.contiguous(memory_format=layout), gamma=torch.randn(12).double(), beta=torch.randn(12).double())
        assert largest_error(case | dict(groups=4, eps=1e-5, activation=activation)) < 1e-11
        assert native_norm(case["x"], None, None, groups=3).is_contiguous(memory_format=layout)


def test_a_map_far_from_zero_keeps_its_digits():
    x = 1e4 + torch.randn(2, 8, 9, 9)
    expected = torch.nn.functional.group_norm(x.double(), 4)
    torch.testing.assert_close(native_norm(x, None, None, groups=4).double(), expected, rtol=0, atol=2e-3)


def test_autocast_computes_in_float32():
    x, alpha, taps = torch.randn(2, 3, 5, 5).bfloat16(), torch.randn(1, 3, 4).bfloat16(), torch.randn(1, 3)
    with torch.autocast("cpu"):
        assert native_conv(x, None, None, alpha, taps, taps).dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(x=torch.zeros(2, 4, 5)), "batch, channels, height, width"),
        (dict(x=torch.zeros(2, 4, 5, 5).half()), "float32 and float64"),
        (dict(groups=3), "do not divide into 3 groups"),
        (dict(alpha=torch.zeros(3, 5, 4)), r"alpha is \(3, 4, out\)"),
        (dict(rows=torch.zeros(2, 4)), "odd number"),
        (dict(rows=torch.zeros(6, 3), cols=torch.zeros(6, 3)), "orders up to 4"),
        (dict(rows=torch.zeros(3, 2, 3)), "2 samples, and 3 kernels"),
        (dict(stride=0), "stride"),
        (dict(bias=torch.zeros(5)), "bias"),
        (dict(t=torch.zeros(()), time_map=torch.zeros(4, 5, 6)), "time_map"),
        (dict(t=torch.zeros(3), time_map=torch.zeros(4, 5, 5)), "one t"),
        (dict(gamma=torch.zeros(5), groups=2), "gamma"),
        (dict(along=torch.zeros(2, 5), cols=torch.zeros(2, 3, requires_grad=True)), "along is like cols"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_pointer_is_read(change, message):
    case = dict(
        x=torch.zeros(2, 4, 5, 5), gamma=None, beta=None, alpha=torch.zeros(3, 4, 4), rows=torch.zeros(2, 3), cols=torch.zeros(2, 3)
    )
    with pytest.raises(RuntimeError, match=message):
        native_conv(**{**case, **change})


def test_the_variable_turns_the_kernels_off_or_chooses_a_build():
    program = "from continua.native import find_library; print(find_library())"

    def says(value: str) -> str:
        environment = os.environ | {"CONTINUA_NATIVE": value}
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True).stdout

    assert "Absent(reason='CONTINUA_NATIVE=off')" in says("off")
    assert "isa='portable'" in says("portable")
    assert "none of off, avx512, avx2, portable" in says("quantum")
    assert "there is no such file" in says("/nowhere/libcontinua.so")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("size", [1 << 14, 100_003])
def test_sums_of_states_are_pytorch_s_own_to_the_bit(wide, size):
    torch.manual_seed(0)
    dtype = torch.float64 if wide else torch.float32
    base, terms, weights = (
        torch.randn(size, dtype=dtype),
        [torch.randn(size, dtype=dtype) for _ in range(6)],
        [0.3, -1.7, 2.0, 1e-3, 5.0, -0.1],
    )
    expected = torch.add(base, terms[0], alpha=weights[0])
    without = terms[0] * weights[0]
    for weight, term in zip(weights[1:], terms[1:], strict=True):
        expected.add_(term, alpha=weight)
        without.add_(term, alpha=weight)
    assert torch.equal(native_combine(base, weights, terms), expected)
    assert torch.equal(native_combine(None, weights, terms), without)


def test_an_error_in_units_of_its_tolerance():
    torch.manual_seed(0)
    error, y0, y1 = (torch.randn(3, 32, 30, 30) for _ in range(3))
    expected = (error.double() / (1e-3 + 1e-2 * torch.maximum(y0.abs(), y1.abs()).double())).square().mean().sqrt()
    torch.testing.assert_close(native_error_rms(error, y0, y1, 1e-2, 1e-3), expected, rtol=1e-6, atol=0)
    y1[2, 5, 7, 9] = torch.nan
    assert native_error_rms(error, y0, y1, 1e-2, 1e-3).isnan()


def test_sums_are_left_to_pytorch_where_somebody_differentiates_or_memory_differs():
    a, b = torch.randn(2, 8, 40, 40), torch.randn(2, 8, 40, 40)
    assert native_combine(a, [1.0], [b]) is not None
    assert native_combine(a, [1.0], [b.contiguous(memory_format=torch.channels_last)]) is None
    assert native_combine(a[:, ::2], [1.0], [b[:, ::2]]) is None
    assert native_combine(a, [1.0], [b.clone().requires_grad_()]) is None
    _, slope = torch.func.jvp(lambda x: x if native_combine(x, [1.0], [b]) is None else None, (a,), (b,))
    assert torch.equal(slope, b)


def test_forward_mode_and_functions_of_torch_func_take_plain_operations():
    torch.manual_seed(0)
    alpha, taps, gamma = torch.randn(6, 5, 4).double(), torch.randn(3, 5).double(), torch.randn(5).double()
    x, tangent = torch.randn(2, 5, 6, 6).double(), torch.randn(2, 5, 6, 6).double()

    def run(x, alpha=alpha):
        return native_norm(native_conv(x, gamma, None, alpha, taps, taps, groups=5, activation="celu"), None, None, groups=2)

    _, slope = torch.func.jvp(run, (x,), (tangent,))
    step = 1e-6
    torch.testing.assert_close(slope, (run(x + step * tangent) - run(x - step * tangent)) / (2 * step), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.vmap(run, in_dims=(None, 0))(x, torch.stack([alpha, 2 * alpha]))[1], run(x, 2 * alpha))
    each = torch.func.vmap(torch.func.grad(lambda x: run(x[None]).square().sum()))(x)
    torch.testing.assert_close(each, torch.func.grad(lambda x: run(x).square().sum())(x))


def test_a_library_of_other_sources_is_not_loaded(tmp_path):
    spoilt = tmp_path / "libcontinua.so"
    content = library_path().read_bytes()
    mark = fingerprint().encode()
    assert content.count(mark) >= 1
    spoilt.write_bytes(content.replace(mark, b"0" * len(mark)))
    program = "from continua.native import find_library; print(find_library())"
    environment = os.environ | {"CONTINUA_NATIVE": str(spoilt)}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True).stdout
    assert "other sources" in said
