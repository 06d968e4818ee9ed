"""A whole field in one call is the same numbers, bit for bit, as its operators one by one; where those must be seen, it steps aside."""

import random

import pytest
import torch
from native_cases import field_case, field_gradients, one_by_one
from torch.utils._python_dispatch import TorchDispatchMode

import continua.blocks.field as fields
from continua.blocks import ConvField
from continua.filters import NJet
from continua.native import Absent, find_library

if isinstance(find_library(), Absent):
    pytest.skip("the native kernels were not built", allow_module_level=True)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_one_call_is_the_three_operators_to_the_bit_for_any_number_of_threads(seed, wide):
    field, t, x = field_case(random.Random(seed), torch.float64 if wide else torch.float32)
    assert field.serves(t, x)
    torch.set_num_threads(1)
    exact = one_by_one(field, t, x)
    expected = field_gradients(exact, field, x)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y = field(t, x)
        assert torch.equal(y, exact)
        assert y.stride() == exact.stride()
        assert all(torch.equal(a, b) for a, b in zip(field_gradients(y, field, x), expected, strict=True))
        with torch.no_grad():
            assert torch.equal(field(t, x), exact)  # nothing is kept, and nothing else changes


def small_field(channels: int = 4) -> tuple[ConvField, torch.Tensor]:
    torch.manual_seed(0)
    field = ConvField(channels, NJet, norm_groups=2).double()
    for parameter in field.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    for conv in (field.conv1, field.conv2):
        conv.filter.s.data.fill_(-1.1)  # a kernel that is smaller than the map
    return field, torch.randn(2, channels, 5, 6, dtype=torch.float64, requires_grad=True)


def test_first_and_second_derivatives_match_finite_differences():
    field, h = small_field()
    prepared = field.prepare(h)
    t = torch.tensor(0.3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda h: prepared.rate(t, h), (h,))
    assert torch.autograd.gradgradcheck(lambda h: prepared.rate(t, h), (h,), atol=1e-4)

    def by_parameters(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(field, dict(zip(names, values, strict=True)), (t, h.detach()))

    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in field.named_parameters()), strict=True)
    assert torch.autograd.gradcheck(by_parameters, values)


class Calls(TorchDispatchMode):
    """Which operators of ours are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "continua":
            self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_it_steps_aside_where_the_operators_must_be_seen(monkeypatch):
    field, h = small_field()
    t, calls = torch.tensor(0.3, dtype=torch.float64), []
    prepared = field.prepare(h)
    whole = fields.NativeField.__call__
    monkeypatch.setattr(fields.NativeField, "__call__", lambda self, t, h: calls.append(1) or whole(self, t, h))
    expected = prepared.rate(t, h)
    assert len(calls) == 1
    with Calls() as seen:
        assert torch.equal(prepared.rate(t, h), expected)
    assert seen.names == {"continua::norm_act_conv", "continua::norm_act"}
    moving = t.clone().requires_grad_()
    assert torch.autograd.grad(prepared.rate(moving, h).square().sum(), moving)[0].abs() > 0
    torch.func.vjp(lambda h: prepared.rate(t, h), h.detach())
    torch.testing.assert_close(torch.compile(lambda h: prepared.rate(t, h), backend="aot_eager")(h), expected)
    with torch.autocast("cpu", torch.bfloat16):
        prepared.rate(t, h)
    assert len(calls) == 1
    with torch.inference_mode():
        assert torch.equal(prepared.rate(t, h), expected)
    assert len(calls) == 2


def test_hooks_on_a_norm_are_called():
    field, h = small_field()
    seen = []
    field.norm3.register_forward_hook(lambda *_: seen.append(1))
    field.prepare(h).rate(torch.tensor(0.3, dtype=torch.float64), h)
    assert seen == [1]


def test_no_images_give_no_numbers():
    field, h = small_field()
    empty = h.detach()[:0].requires_grad_()
    y = field.prepare(empty).rate(torch.tensor(0.3, dtype=torch.float64), empty)
    assert y.shape == empty.shape
    assert torch.autograd.grad(y.sum(), empty)[0].shape == empty.shape
