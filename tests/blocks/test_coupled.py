"""Coupled blocks against loops written out in the test: both configurations, statistics per step, gradients, what is refused."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from continua import ConfigError, create_model
from continua.blocks import CoupledBlock, CoupledField, PostActResidualBlock
from continua.filters import RDA, Evolved, Grid, Pixel, Static, evolve
from continua.ode import Checkpoint

F64 = torch.float64
CHANNELS = 3


def state(batch: int = 4) -> Tensor:
    return torch.randn(batch, CHANNELS, 6, 7, dtype=F64)


def shaken(module: nn.Module) -> nn.Module:
    """Biases, norms and evolutions that do something."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not name.endswith("inner.weight"):
                parameter.add_(0.2 * torch.randn_like(parameter))
            if name.endswith("tau"):
                parameter.abs_()
    return module


def block(steps: int = 3, weight_steps: int | None = None, clock: float = 1.0, layers: int = 2, **solver) -> CoupledBlock:
    grid = Grid(steps=weight_steps or steps)
    field = CoupledField(CHANNELS, lambda i, o: Evolved(Pixel(i, o), RDA(o), grid=grid, clock=clock), layers=layers, steps=steps)
    return CoupledBlock(shaken(field.double()), solver=dict(method="euler", steps=steps, **solver))


def eq_13(made: RDA, w: Tensor, dt: float) -> Tensor:
    """One step of the weights by complex FFT, written from the paper."""
    k = torch.fft.fftfreq(3, dtype=F64) * 3
    tau, v, rho = (p.reshape(-1, *p.shape[1:], 1, 1, 1) for p in (made.tau, made.v, made.rho))
    rate = -(tau[:, 0] * k[:, None] ** 2 + tau[:, 1] * k**2) + 1j * (v[:, 0] * k[:, None] + v[:, 1] * k) + rho
    return torch.tanh(torch.fft.ifft2(torch.exp(dt * rate) * torch.fft.fft2(w)).real)


def by_hand(made: CoupledBlock, z: Tensor, weights: list[list[Tensor]]) -> Tensor:
    """z ← z + f(z; θ_n)/N with the n-th statistics; `weights[n]` are the kernels of step n."""
    field = made.field
    for n, kernels in enumerate(weights):
        h = z
        for conv, norm, kernel in zip(field.convs, field.norms, kernels, strict=True):
            h = functional.conv2d(h, kernel, conv.bias, padding=1)
            mean, variance = h.mean((0, 2, 3), keepdim=True), h.var((0, 2, 3), keepdim=True, correction=0)
            affine = norm.sets[n]
            h = (h - mean) / (variance + affine.eps).sqrt() * affine.weight[:, None, None] + affine.bias[:, None, None]
            h = h.relu()
        z = z + h / len(weights)
    return z


def test_configuration_one_alternates_a_step_of_the_activations_and_a_step_of_the_weights():
    made, z = block(steps=3), state()
    weights = [[conv.filter.inner.weight for conv in made.field.convs]]
    for _ in range(2):
        moved = [eq_13(conv.filter.evolutions["weight"], w, 1 / 3) for conv, w in zip(made.field.convs, weights[-1], strict=True)]
        weights.append(moved)
    torch.testing.assert_close(made(z), by_hand(made, z, weights), rtol=1e-6, atol=1e-7)


def test_configuration_two_applies_the_first_weights_and_those_after_all_ten_steps():
    made, z = block(steps=2, weight_steps=10, clock=2.0), state()
    first = [conv.filter.inner.weight for conv in made.field.convs]
    last = first
    for _ in range(10):
        last = [eq_13(conv.filter.evolutions["weight"], w, 1 / 10) for conv, w in zip(made.field.convs, last, strict=True)]
    torch.testing.assert_close(made(z), by_hand(made, z, [first, last]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layers", [1, 2])
def test_one_step_with_static_weights_and_zero_bias_is_z_plus_f(layers):
    field = CoupledField(CHANNELS, lambda i, o: evolve(Pixel(i, o), "static"), layers=layers, steps=1).double()
    made, z = CoupledBlock(field, solver=dict(method="euler", steps=1)), state()
    for conv in field.convs:
        nn.init.zeros_(conv.bias)
    expected = by_hand(made, z, [[conv.filter.weight for conv in field.convs]])
    torch.testing.assert_close(made(z), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(made(z), z + field(torch.tensor(0.0), z), rtol=1e-12, atol=1e-12)


GRADIENTS = [dict(gradient="checkpoint"), dict(gradient=Checkpoint(1)), dict(gradient=Checkpoint("sqrt"))]


@pytest.mark.parametrize("options", GRADIENTS)
def test_a_checkpointed_block_has_the_gradients_and_running_statistics_of_the_direct_one(options):
    direct = block(steps=4, gradient="direct")
    checkpointed = copy.deepcopy(direct)
    checkpointed.solver = direct.solver.replace(**options)
    for _ in range(2):
        z = state()
        for made in (direct, checkpointed):
            (made(z) * torch.linspace(-1, 1, 7, dtype=F64)).sum().backward()
    for (name, ours), (_, theirs) in zip(checkpointed.named_buffers(), direct.named_buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)
    assert all(int(n) == 2 for name, n in checkpointed.named_buffers() if name.endswith("num_batches_tracked"))
    for (name, ours), (_, theirs) in zip(checkpointed.named_parameters(), direct.named_parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-11, msg=name)


def test_statistics_are_those_of_each_step_and_used_in_evaluation():
    made, z = block(steps=2, layers=1), state()
    made(z)
    conv, sets = made.field.convs[0], made.field.norms[0].sets
    first = functional.conv2d(z, conv.filter.inner.weight, conv.bias, padding=1)
    torch.testing.assert_close(sets[0].running_mean, 0.1 * first.mean((0, 2, 3)))
    assert not torch.allclose(sets[0].running_mean, sets[1].running_mean)
    made.eval()
    torch.testing.assert_close(made(z)[:1], made(z[:1]))
    assert int(sets[0].num_batches_tracked) == 1


def test_looking_inside_a_block_in_training_counts_every_batch_once():
    made, z = block(steps=2), state()
    z.requires_grad_()
    path = made.trajectory(z, [0.0, 0.25, 1.0])
    torch.testing.assert_close(path[1], path[0] + 0.5 * (made.trajectory(z, [0.5])[0] - path[0]))
    t1 = torch.tensor(1.0, dtype=F64, requires_grad=True)
    made(z, t1).sum().backward()
    assert t1.grad is not None
    assert {int(norms.num_batches_tracked) for norms in made.field.norms[0].sets} == {3}


@pytest.mark.parametrize(
    ("solver", "reason"),
    [
        (dict(method="dopri5"), "needs fixed steps"),
        (dict(method="dopri5", control="sample"), "needs fixed steps"),
        (dict(method="rk4", steps=3), "needs one evaluation per step; rk4 takes 4"),
        (dict(method="gauss2", steps=3), "one evaluation per step"),
        (dict(method="euler", steps=4), "as many steps; the solver takes 4"),
        (dict(method="euler", steps=3, gradient="adjoint"), "gradient='adjoint' evaluates f elsewhere"),
        (dict(method="euler", steps=3, gradient="reversible"), "gradient='reversible' evaluates f elsewhere"),
    ],
)
def test_statistics_per_step_refuse_other_solvers_when_the_network_is_built(solver, reason):
    field = block(steps=3).field
    with pytest.raises(ConfigError, match=reason) as refused:
        CoupledBlock(field, solver=solver)
    assert "steps=" in str(refused.value)
    made = CoupledBlock(field, solver=dict(method="euler", steps=3))
    with pytest.raises(ConfigError, match=reason):
        made.solver = made.solver.of(solver)
    with pytest.raises(ConfigError, match="norm='group'"):
        made.track_energies("kinetic")
    net = create_model("resnet4_anodev2_c1", channels=(4,), steps=3)
    with pytest.raises(ConfigError, match=reason):
        net.with_solver(solver)


def test_a_field_alone_uses_the_statistics_of_the_step_its_time_lies_in():
    made, z = block(steps=2).eval(), state()
    with torch.no_grad():
        made.field.norms[1].sets[1].bias.add_(1.0)
        middle, end = (made.field(torch.tensor(t, dtype=F64), z) for t in (0.5, 1.0))
    assert float(middle.mean() - made.field(torch.tensor(0.0, dtype=F64), z).detach().mean()) > 0.2
    assert float(end.mean()) > 0.2


def test_an_ordinary_block_is_relu_after_the_addition():
    made, z = PostActResidualBlock(CHANNELS, CHANNELS).double().eval(), state()
    inside = functional.conv2d(z, made.convs[0].weight, padding=1) / (1 + 1e-5) ** 0.5
    change = functional.conv2d(inside.relu(), made.convs[1].weight, padding=1) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(made(z), (z + change).relu())
    wider = PostActResidualBlock(CHANNELS, 5, stride=2).double()
    assert wider(state()).shape == (4, 5, 3, 4)
    assert wider.shortcut[0].weight.shape == (5, CHANNELS, 1, 1)


def test_bad_options_of_a_field_are_refused():
    with pytest.raises(ConfigError, match="'batch' or 'group'"):
        CoupledField(2, lambda i, o: Pixel(i, o), norm="layer")
    with pytest.raises(ConfigError, match="at least one"):
        CoupledField(2, lambda i, o: Pixel(i, o), steps=0)
    with pytest.raises(ConfigError, match="clock"):
        Evolved(Pixel(1, 1), Static(), clock=0.0)


def test_without_a_last_activation_a_rate_has_both_signs():
    torch.manual_seed(0)
    for last in (True, False):
        field = CoupledField(CHANNELS, lambda i, o: evolve(Pixel(i, o), "static"), steps=1, last_activation=last)
        rate = field(torch.tensor(0.0), torch.randn(4, CHANNELS, 6, 6))
        assert bool((rate < 0).any()) is not last
        assert bool((rate > 0).any())
