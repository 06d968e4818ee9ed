"""The optimality system (ANODEV2 eq. 7, corrected): it converges to the discrete gradient at the order of its scheme."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from continua import ConfigError, create_model
from continua.blocks import CoupledBlock, CoupledField, Field, ODEBlock, Prepared, optimality_gradients
from continua.blocks.optimality import SCHEMES
from continua.filters import RDA, Evolved, FilterConv2d, Grid, Pixel, evolve
from continua.filters.history import remembering

F64 = torch.float64
MEMORIES = {
    "dirac": None,
    "exponential, as printed": dict(kind="exponential", rate=3.0, normalise=False),
    "exponential, normalised": dict(kind="exponential", rate=3.0),
}


class Smooth(Field):
    """f(z) = tanh(θ(t) * z + bias): no norm, so that θ(0) = 0 of an unnormalised memory is nothing special."""

    def __init__(self, steps: int, memory, nonlinearity: str) -> None:
        super().__init__()
        evolution = RDA(2, nonlinearity=nonlinearity, around="rate")
        for parameter in evolution.parameters():
            nn.init.normal_(parameter, std=0.4)
        with torch.no_grad():
            evolution.tau.abs_()
        self.conv = FilterConv2d(Evolved(Pixel(2, 2), remembering(evolution, memory), grid=Grid(steps=steps)), bias=True)

    def prepare(self, h: Tensor, t0=0.0, t1=1.0) -> Prepared:
        ready = self.conv.realise(h.shape, h.dtype)
        return Prepared(lambda t, z: torch.tanh(ready(z, t)), ready.tensors)


def loss(z: Tensor) -> Tensor:
    return z.square().mean() + z.sin().mean()


def gap(steps: int, scheme: str, memory, nonlinearity: str) -> float:
    """Distance of the two gradients relative to their size, over w(0), τ, v, ρ and the bias."""
    torch.manual_seed(3)
    field = Smooth(steps, memory, nonlinearity).double()
    block = ODEBlock(field, solver=dict(method=scheme, steps=steps, gradient="direct"))
    z = torch.randn(2, 2, 4, 4, dtype=F64).requires_grad_()
    names = ["z", *(name for name, _ in block.named_parameters())]
    discrete = dict(zip(names, torch.autograd.grad(loss(block(z)), [z, *block.parameters()]), strict=True))
    gradients = optimality_gradients(block, z, loss, scheme=scheme)
    ours = {"z": gradients.state, **gradients.parameters}
    assert ours.keys() == discrete.keys()
    assert gradients.loss == pytest.approx(loss(block(z)).item(), rel=1e-9)
    worst = [float((ours[name] - discrete[name]).norm() / discrete[name].norm()) for name in names]
    return max(worst)


# The exponential memory, as printed, starts from θ(0) = 0 and reaches its order later.
CASES = [("dirac", nonlinearity, scheme, (8, 16)) for nonlinearity in ("identity", "tanh") for scheme in ("euler", "heun")]
CASES += [("exponential, as printed", "identity", scheme, (16, 32)) for scheme in ("euler", "heun")]
SLOW = [("exponential, as printed", "tanh", scheme, (24, 48)) for scheme in ("euler", "heun")]


@pytest.mark.parametrize(
    ("memory", "nonlinearity", "scheme", "steps"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_optimise_then_discretise_converges_to_the_discrete_gradient_at_the_order_of_its_scheme(memory, nonlinearity, scheme, steps):
    errors = [gap(count, scheme, MEMORIES[memory], nonlinearity) for count in steps]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert errors[-1] < 0.2
    assert orders == pytest.approx([SCHEMES[scheme]] * len(orders), abs=0.3)


def test_a_normalised_memory_converges_too():
    errors = [gap(steps, "heun", MEMORIES["exponential, normalised"], "identity") for steps in (6, 12, 24)]
    assert errors[0] > 2.5 * errors[1] > 6 * errors[2]
    assert errors[2] < 0.01


def test_it_works_over_the_fields_of_the_models():
    net = create_model("resnet4_anodev2_c1", channels=(4,), norm="group", nonlinearity="identity", steps=24).double()
    block, z = net.blocks[0], torch.randn(2, 4, 6, 6, dtype=F64)
    block.field.act.name = "tanh"
    block.solver = block.solver.replace(gradient="direct")
    gradients = optimality_gradients(block, z, loss)
    loss(block(z)).backward()
    for name, parameter in block.named_parameters():
        if name.endswith(("inner.weight", "tau", "v")):
            assert float((gradients.parameters[name] - parameter.grad).norm() / parameter.grad.norm()) < 0.15, name


def test_a_regulariser_adds_its_gradient_to_first_weights_and_evolution():
    """7d and 7e: what weight decay on w(0) and p does to the discrete gradient, it does to this one, to rounding."""
    torch.manual_seed(0)
    block = ODEBlock(Smooth(6, None, "tanh").double(), solver=dict(method="euler", steps=6, gradient="direct"))
    z = torch.randn(2, 2, 4, 4, dtype=F64)

    def decay(named):
        shares = [0.3 if name.endswith(("tau", "v", "rho")) else 0.1 for name in named]
        return sum(share * p.square().sum() for share, p in zip(shares, named.values(), strict=True)) / 2

    without, with_it = optimality_gradients(block, z, loss), optimality_gradients(block, z, loss, regulariser=decay)
    named = dict(block.named_parameters())
    assert with_it.loss == pytest.approx(without.loss + decay(named).item(), rel=1e-12)
    for name, parameter in named.items():
        share = 0.3 if name.endswith(("tau", "v", "rho")) else 0.1
        torch.testing.assert_close(with_it.parameters[name] - without.parameters[name], share * parameter.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(with_it.state, without.state)


def test_what_has_no_optimality_system_is_refused():
    z = torch.zeros(1, 2, 4, 4)

    def block(evolution: str = "rda", norm: str = "group", clock: float = 1.0, **options) -> CoupledBlock:
        field = CoupledField(2, lambda i, o: evolve(Pixel(i, o), evolution, options=options, clock=clock), steps=2, norm=norm)
        return CoupledBlock(field, solver=dict(method="euler", steps=2))

    with pytest.raises(ConfigError, match="no rate of change"):
        optimality_gradients(block(), z, loss)
    with pytest.raises(ConfigError, match="norm='group'"):
        optimality_gradients(block(norm="batch"), z, loss)
    with pytest.raises(ConfigError, match="faster clock"):
        optimality_gradients(block(nonlinearity="identity", clock=2.0), z, loss)
    with pytest.raises(ConfigError, match="euler or heun"):
        optimality_gradients(block(nonlinearity="identity"), z, loss, scheme="rk4")
