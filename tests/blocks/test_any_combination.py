"""What combines with what: filters × integrators × gradients, each built from configuration alone and trained for a step.

The only exclusions are those of SolverConfig (a step per sample has no adjoint gradient); batch statistics per step, which
allow Euler steps only, are in test_coupled.py. Each is refused when the network is built, with its reason.
"""

import itertools

import pytest
import torch

from continua import ConfigError, create_model

pytestmark = pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")  # tiny maps: a kernel may outgrow them

FILTERS = {
    "pixel": dict(evolution="static"),
    "N-jet": dict(filters="njet", evolution="static"),
    "scheduled N-jet": dict(filters="njet_schedule", filter_options=dict(scale="diffusion"), evolution="static"),
    "evolved pixel": dict(evolution="rda"),
    "evolved N-jet": dict(filters="njet", evolution={"alpha": "linear", "s": "diffusion"}),
}
INTEGRATORS = {
    "Euler": dict(method="euler", steps=2),
    "RK4": dict(method="rk4", steps=1),
    "dopri5 per batch": dict(method="dopri5", rtol=0.1, atol=0.1),
    "dopri5 per sample": dict(method="dopri5", rtol=0.1, atol=0.1, control="sample"),
}
GRADIENTS = ("direct", "checkpoint", "reversible", "adjoint")
EVERY = list(itertools.product(FILTERS, INTEGRATORS, GRADIENTS))
REFUSED = {("dopri5 per sample", "adjoint")}


def network(filters: str, integrator: str, gradient: str):
    """From plain data, as a recipe's `model_options` would have it."""
    solver = dict(INTEGRATORS[integrator], gradient=gradient)
    return create_model(
        "resnet4_anodev2_c1", channels=[3], coupling="free", weight_steps=2, norm="group", solver=solver, **FILTERS[filters]
    )


@pytest.mark.parametrize(("filters", "integrator", "gradient"), [c for c in EVERY if c[1:] not in REFUSED])
def test_every_combination_trains_a_step_with_finite_gradients_for_every_parameter(filters, integrator, gradient):
    net = network(filters, integrator, gradient)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    images, labels = torch.rand(2, 3, 5, 5), torch.tensor([1, 7])
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    missing = [name for name, p in net.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    assert missing == []
    optimiser.step()
    assert bool(net(images).isfinite().all())
    stats = net.stats[0]
    assert stats is not None
    assert stats.routes.keys() == {"conv1", "conv2"}


@pytest.mark.parametrize(("filters", "integrator", "gradient"), [c for c in EVERY if c[1:] in REFUSED])
def test_the_exclusions_are_refused_when_the_network_is_built(filters, integrator, gradient):
    with pytest.raises(ConfigError, match=f"gradient='{gradient}' cannot be combined with control='sample'"):
        network(filters, integrator, gradient)


@pytest.mark.parametrize("filters", FILTERS)
def test_gradients_of_the_same_steps_agree_whatever_computes_them(filters):
    torch.manual_seed(5)
    net, images = network(filters, "RK4", "direct").double(), torch.rand(2, 3, 5, 5, dtype=torch.float64)
    net(images).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    net.with_solver(gradient="checkpoint")(images).square().sum().backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-8, atol=1e-10, msg=name)
