"""Devices that have no float64 (Apple's GPUs, many of Intel's) get none: here the CPU is said to be one, and a dispatch mode refuses it.

What lies on the host by design, single numbers such as the step of a whole batch, has no dimensions; so any float64 tensor that has some
would have been on the device.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import continua as ct
from continua import float64
from continua.ode.checking import check_times
from continua.ode.error import rms

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class NoFloat64(TorchDispatchMode):
    """Refuses every operation that takes or makes a float64 tensor with dimensions."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, made)):
            if isinstance(leaf, Tensor) and leaf.dtype == torch.float64 and leaf.ndim:
                raise TypeError(f"{func} on a float64 tensor of shape {tuple(leaf.shape)}")
        return made


@pytest.fixture(autouse=True)
def cpu_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "WITHOUT", {"mps", "cpu"})
    monkeypatch.setattr("continua.ode.error.native_error_rms", lambda *_: None)  # which sums on the host


def field(t: Tensor, y: Tensor) -> Tensor:
    return -y * (1 + ct.broadcast_time(t, y))


WAYS: dict[str, dict[str, Any]] = {
    "fixed": dict(method="rk4", steps=3),
    "batch": dict(method="dopri5", rtol=1e-4, atol=1e-4),
    "sample": dict(method="dopri5", rtol=1e-4, atol=1e-4, control="sample"),
}


@pytest.mark.parametrize(
    ("way", "gradient"),
    [(way, gradient) for way in WAYS for gradient in ("direct", "checkpoint", "adjoint", "reversible") if (way, gradient) not in
     {("sample", "adjoint"), ("sample", "reversible"), ("batch", "reversible")}],
)  # fmt: skip
def test_a_solve_and_its_gradient_put_no_float64_on_the_device(way: str, gradient: str) -> None:
    y0 = torch.rand(4, 5, requires_grad=True)
    with NoFloat64():
        solution = ct.solve(field, y0, 0.0, 1.0, gradient=gradient, **WAYS[way])
        (slope,) = torch.autograd.grad(solution.y1.sum(), y0)
    assert slope == pytest.approx(torch.full_like(y0, torch.exp(torch.tensor(-1.5)).item()), abs=5e-3)


@pytest.mark.parametrize("way", WAYS)
def test_end_times_and_asked_times_of_each_sample_are_float32_there(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_the_host(*given: Any) -> Any:  # where asked times are checked
        with _disable_current_modes():
            return check_times(*given)

    monkeypatch.setattr("continua.ode.solving.check_times", on_the_host)
    ends = torch.tensor([0.5, 1.0, 1.0, 2.0])
    with NoFloat64():
        solution = ct.solve(field, torch.ones(4, 2), torch.zeros(4), ends, save_at=ends[None] / 2, **WAYS[way])
    exact = torch.exp(-ends - ends**2 / 2)[:, None].expand(4, 2)
    assert torch.allclose(solution.y1, exact, atol=2e-2 if way == "fixed" else 2e-3)
    assert solution.ys is not None
    assert torch.isfinite(torch.as_tensor(solution.ys)).all()


def test_errors_are_measured_in_float32_there() -> None:
    assert rms([torch.rand(4, 5)], per_sample=False).dtype == torch.float32
    assert rms([torch.rand(4, 5)], per_sample=True).dtype == torch.float32


@pytest.mark.parametrize("way", WAYS)
def test_a_training_step_puts_no_float64_on_the_device(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTINUA_NATIVE", "off")
    net = ct.create_model("dcn_ode", num_classes=3, channels=[4, 4], norm_groups=2, solver=WAYS[way])
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with NoFloat64():
        torch.nn.functional.cross_entropy(net(IMAGES), torch.arange(3)).backward()
        optimiser.step()


def test_the_mode_sees_a_float64_tensor() -> None:
    with NoFloat64(), pytest.raises(TypeError, match="float64 tensor of shape"):
        torch.ones(2).double()
