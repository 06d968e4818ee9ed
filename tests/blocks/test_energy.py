"""Energies of a trajectory against closed forms, brute force and finite differences."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import create_model


class Linear(nn.Module):
    """dh/dt = A h on every pixel."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        return torch.einsum("ij,bjxy->bixy", self.matrix, h)


def block_of(matrix: Tensor, *names: str, **solver: Any) -> ODEBlock:
    block = ODEBlock(Linear(matrix), 1.0, solver=dict(method="dopri5", rtol=1e-9, atol=1e-9) | solver)
    block.track_energies(*names)
    return block


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_kinetic_energy_of_exponential_decay_has_a_closed_form(control: str) -> None:
    a, h = torch.tensor([[-0.7]], dtype=torch.float64), torch.randn(3, 1, 2, 2, dtype=torch.float64)
    block = block_of(a, "kinetic", control=control)
    y = block(h)
    torch.testing.assert_close(y, h * torch.exp(a[0, 0]))
    # f = a h0 e^(a t): ∫ f² dt = a h0² (e^(2a) − 1) / 2
    expected = (a[0, 0] * (torch.exp(2 * a[0, 0]) - 1) / 2 * h.square()).mean((1, 2, 3))
    assert block.energies is not None
    torch.testing.assert_close(block.energies["kinetic"], expected)


def test_the_jacobian_energy_of_a_linear_field_is_its_matrix_seen_by_the_probe() -> None:
    matrix, h = torch.randn(3, 3, dtype=torch.float64) / 2, torch.randn(4, 3, 2, 2, dtype=torch.float64)
    block, jacobian = block_of(matrix, "kinetic", "jacobian"), []
    for seed in range(60):
        torch.manual_seed(seed)
        block(h)
        assert block.energies is not None
        jacobian.append(block.energies["jacobian"].detach())
        torch.manual_seed(seed)
        probe = torch.randint_like(h, 2) * 2 - 1
        torch.testing.assert_close(jacobian[-1], torch.einsum("ij,bixy->bjxy", matrix, probe).square().mean((1, 2, 3)))
    # On average ‖A‖_F² per pixel over 3 channels, whatever h is.
    assert torch.stack(jacobian).mean() == pytest.approx(float(matrix.square().sum() / 3), rel=0.05)


@pytest.mark.parametrize("gradient", ["checkpoint", "direct"])
def test_gradients_of_the_energies_match_finite_differences(gradient: str) -> None:
    torch.manual_seed(1)
    solver = dict(method="rk4", steps=2, gradient=gradient)
    # tanh: the second derivative of CELU jumps at 0, which differences step over.
    options: dict[str, Any] = dict(num_classes=3, in_channels=1, channels=(2, 3), stem_padding=1, activation="tanh", solver=solver)
    net = create_model("dcn_ode", **options).double()
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    blocks: Any = net.blocks
    for block in blocks:
        block.track_energies("kinetic", "jacobian")

    def penalty() -> Tensor:
        torch.manual_seed(3)
        loss = net(images).square().sum()
        return loss + sum((energy.sum() * weight for block in blocks for energy, weight in zip(block.energies.values(), (2.0, 0.5))), 0.0)  # noqa: B905

    parameters = [net.stem.filter.weight, blocks[0].field.conv1.filter.alpha, blocks[1].field.conv2.filter.s, blocks[0].field.norm1.weight]
    grads = torch.autograd.grad(penalty(), parameters)
    for parameter, gradient_of in zip(parameters, grads, strict=True):
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            sides = []
            for sign in (1, -1):
                parameter.add_(direction, alpha=sign * 1e-5)
                with torch.enable_grad():
                    sides.append(penalty().detach())
                parameter.add_(direction, alpha=-sign * 1e-5)
        torch.testing.assert_close((gradient_of * direction).sum(), (sides[0] - sides[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_nothing_is_tracked_in_evaluation_and_the_output_is_the_same() -> None:
    matrix, h = torch.randn(2, 2), torch.randn(3, 2, 4, 4)
    plain, tracked = block_of(matrix, method="rk4", steps=3), block_of(matrix, "kinetic", "jacobian", method="rk4", steps=3)
    torch.testing.assert_close(tracked(h), plain(h))
    assert plain.energies is None
    before = tracked.energies
    tracked.eval()(h)
    with torch.no_grad():
        tracked.train()(h)
    assert tracked.energies is before


@pytest.mark.parametrize(
    ("names", "solver", "said"),
    [
        (("potential",), {}, "unknown energy 'potential'"),
        (("kinetic",), dict(gradient="adjoint"), "need gradient='checkpoint' or 'direct'"),
        (("jacobian",), dict(control="sample"), "use control='batch'"),
    ],
)
def test_what_cannot_be_tracked_is_refused(names: tuple[str, ...], solver: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        block_of(torch.eye(2), *names, **solver)


@pytest.mark.parametrize("control", ["batch", "sample"])
def test_the_error_of_a_trajectory_is_what_its_steps_estimate(control: str) -> None:
    """One Bogacki–Shampine step of dh/dt = a h: with z = a H the third stages and the embedded one give (z³ − …) in closed form."""
    from continua.ode import METHODS

    a, h = torch.tensor([[-0.7]], dtype=torch.float64), torch.randn(3, 1, 2, 2, dtype=torch.float64)
    how: dict[str, Any] = dict(steps=1) if control == "batch" else dict(rtol=10.0, atol=10.0, control=dict(per="sample", first_step=1.0))
    block = block_of(a, "error", method="bosh3", gradient="direct", **how)
    block(h)
    tableau, z = METHODS["bosh3"], a[0, 0]
    stages: list[Tensor] = []
    for row in tableau.a:
        stages.append(z * (1 + sum((weight * stage for weight, stage in zip(row, stages, strict=False)), torch.zeros(()))))
    assert tableau.b_error is not None
    factor = sum((weight * stage for weight, stage in zip(tableau.b_error, stages, strict=False)), torch.zeros(())).abs()
    expected = factor * h.square().mean((1, 2, 3)).sqrt()
    assert block.energies is not None
    torch.testing.assert_close(block.energies["error"], expected)


def test_the_gradient_of_the_error_matches_finite_differences() -> None:
    torch.manual_seed(2)
    h = torch.randn(2, 3, 2, 2, dtype=torch.float64)

    def total(matrix: Tensor) -> Tensor:
        block = block_of(matrix, "kinetic", "error", method="bosh3", steps=3, gradient="direct")
        y = block(h)
        assert block.energies is not None
        total = y.sum() + 5.0 * block.energies["error"].sum() + block.energies["kinetic"].sum()
        total.backward()
        gradient = block.field.matrix.grad  # pyright: ignore
        assert isinstance(gradient, Tensor)
        return torch.stack([total.detach(), (gradient * direction).sum()])

    matrix, direction = torch.randn(2, 3, 3, dtype=torch.float64)
    ours = total(matrix)[1]
    apart = (total(matrix + 1e-6 * direction)[0] - total(matrix - 1e-6 * direction)[0]) / 2e-6
    torch.testing.assert_close(ours, apart, rtol=1e-7, atol=1e-7)


def test_an_error_that_nothing_estimates_or_keeps_is_refused() -> None:
    matrix = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ConfigError, match="gradient='direct'"):
        block_of(matrix, "error")
    with pytest.raises(ConfigError, match="estimates no error"):
        block_of(matrix, "error", method="rk4", steps=2, gradient="direct")
