"""f_i of RKNet eq. 4, stages that read one sum, beside F_i, stages that read terms side by side."""

import pytest
import torch
from torch import Tensor

from continua import ConfigError, create_model
from continua.blocks import ERKStep, Style, SummedStep, as_concatenated
from continua.ode import find_method

F64 = torch.float64
LINEAR = Style(norm="identity", activation="identity")


def seeded(style: Style = LINEAR, **options) -> SummedStep:
    torch.manual_seed(1)
    step = SummedStep(3, 4, options.pop("m", 1), style=style, **options).double()
    torch.nn.init.normal_(step.coefficients)
    return step


@pytest.mark.parametrize("m", [1, 2])
def test_both_forms_are_the_same_where_they_are_linear(m):
    step = seeded(m=m)
    y = torch.randn(2, 3 * m, 6, 5, dtype=F64)
    other = as_concatenated(step)
    assert isinstance(other, ERKStep)
    for mine, theirs in zip(step.increments(y), other.increments(y), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(step.dependence()[:, 0], step.dependence()[:, 0])
    assert other.dependence()[3, 1] == pytest.approx(float(step.dependence()[3, 1]), rel=1e-5)


def test_behind_an_activation_only_the_first_stage_is_the_same():
    step = seeded()
    other, y = as_concatenated(step), torch.randn(2, 3, 6, 5, dtype=F64)
    for one in (step, other):
        for part in one.growths:
            part.style = Style(norm="identity", activation="relu")
    mine, theirs = step.increments(y), other.increments(y)
    torch.testing.assert_close(mine[0], theirs[0])
    assert not torch.allclose(mine[1], theirs[1], rtol=1e-2)
    with torch.no_grad():
        step.coefficients.zero_()  # nothing to sum: every stage reads y_n alone
    for stage, found in enumerate(step.increments(y)):
        expected = torch.nn.functional.conv2d(y.relu(), step.growths[stage].conv.filter.weight, padding=1)
        torch.testing.assert_close(found, expected)


def test_a_sum_with_the_coefficients_of_rk4_is_rk4():
    tableau, rate, h = find_method("rk4"), 0.3 * torch.randn(3, 3, dtype=F64), 0.7
    step = seeded()
    with torch.no_grad():
        step.coefficients.copy_(torch.tensor([tableau.a[i][j] / tableau.b[j] for i in range(4) for j in range(i)]))
        for stage, part in enumerate(step.growths):
            part.conv.filter.weight.zero_()
            part.conv.filter.weight[:, :, 1, 1] = h * tableau.b[stage] * rate
    y = torch.randn(1, 3, 4, 4, dtype=F64)
    through = torch.eye(3, dtype=F64) + sum(torch.matrix_power(h * rate, n) / f for n, f in ((1, 1), (2, 2), (3, 6), (4, 24)))
    torch.testing.assert_close(step(y), torch.einsum("ij,bjxy->bixy", through, y), rtol=1e-12, atol=1e-12)


def test_what_is_not_linear_has_no_other_form():
    with pytest.raises(ConfigError, match="where they are linear"):
        as_concatenated(SummedStep(3, 2))


def gradients(step: SummedStep, y: Tensor) -> list[bool]:
    step(y).square().sum().backward()
    return [bool(parameter.grad is not None and parameter.grad.abs().sum() > 0) for parameter in step.parameters()]


def test_every_number_of_a_sum_learns():
    step = SummedStep(4, 3, uses=2, bottleneck=6)
    y = torch.randn(3, 4, 6, 6)
    assert all(gradients(step, y))
    assert not torch.equal(step(y, use=0), step(y, use=1)) or step.training
    assert "bottleneck=6" in repr(step)
    assert "uses=2" in repr(step)


def test_networks_are_built_of_either():
    nets = {form: create_model("erknet", stages="3x2_2x1", growth=6, form=form) for form in ("concatenated", "summed")}
    images = torch.rand(2, 3, 16, 16)
    assert {net(images).shape for net in nets.values()} == {(2, 10)}
    assert [type(net.blocks[0].first) for net in nets.values()] == [ERKStep, SummedStep]
    with pytest.raises(ConfigError, match="unknown form"):
        create_model("erknet", form="added")
