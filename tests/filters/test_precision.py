"""Where a number type does not work, a convolution computes in float32 and rounds once."""

import pytest
import torch

from continua.filters import FilterConv2d, NJet
from continua.filters.routes import Precision, fast_on_cpu
from continua.machine.number_types import STAND_IN

CPU = torch.device("cpu")


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_a_failed_probe_means_float32_and_one_rounding(narrow: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STAND_IN, "broken")
    assert not fast_on_cpu(narrow)
    assert Precision.of(narrow, CPU) == Precision(torch.float32, narrow, CPU)
    conv, x = FilterConv2d(NJet(3, 4)), torch.randn(2, 3, 9, 9)
    with torch.autocast("cpu", narrow):
        rounded = conv(x)
    torch.testing.assert_close(rounded, conv(x).to(narrow), rtol=0, atol=0)


def test_a_passed_probe_means_its_own_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STAND_IN, "works")
    assert Precision.of(torch.bfloat16, CPU).work == torch.bfloat16


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_wide_types_need_no_probe(wide: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("continua.filters.routes.usable", lambda name: pytest.fail("asked"))
    assert Precision.of(wide, CPU).work == wide
