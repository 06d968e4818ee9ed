"""The dial of speed and accuracy: what it measures at each position, and what it refuses."""

import numpy as np
import pytest
import torch

from continua import ConfigError, create_model
from continua.analysis.questions.tolerance import present, tolerance

IMAGES = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def some_net(**options):
    torch.manual_seed(1)
    net = create_model("ode_only_net", width=8, norm_groups=4, **options).eval()
    with torch.no_grad():
        net.blocks[0].field.norm3.weight.mul_(4.0)
    return net


@torch.no_grad()
def labelled(net) -> list:
    """Images with the classes that the network itself gives them when it solves tightly, so that its accuracy there is 1."""
    labels = net.with_solver(rtol=1e-6, atol=1e-6)(IMAGES).argmax(1)
    return list(zip(IMAGES.split(5), labels.split(5), strict=True))


def test_every_position_is_the_network_with_that_solver():
    net = some_net()
    result = tolerance(net, labelled(net), tolerances=(1e-1, 1e-5), fixed=("rk4:2", "euler:3"))
    assert [s.name for s in result.settings] == ["dopri5, 1e-05", "dopri5, 0.1", "rk4, 2 steps", "euler, 3 steps"]
    tight, loose, rk4, euler = result.settings
    assert (tight.accuracy, tight.same, result.images) == (1.0, 1.0, 12)
    assert loose.nfe[0] < tight.nfe[0]
    assert (rk4.nfe, euler.nfe, rk4.steps, rk4.tolerance) == ([8.0], [3.0], 2, None)
    with torch.no_grad():
        right = net.with_solver(method="euler", steps=3)(IMAGES).argmax(1) == torch.cat([labels for _, labels in labelled(net)])
    assert euler.accuracy == pytest.approx(float(right.float().mean()))
    assert net.blocks[0].solver.rtol == 1e-3, "the network itself is left alone"


def test_a_network_is_compared_as_it_was_trained():
    net = some_net(solver=dict(method="bosh3", steps=[1, 2, 4]))
    fine, own = tolerance(net, labelled(some_net()), tolerances=(1e-3,), fixed=("own",)).settings
    assert (own.name, own.method, own.steps, own.tolerance) == ("as trained", "bosh3", 3, None)
    net(IMAGES[:1])
    assert own.nfe == [net.stats[0].nfe] != fine.nfe


def test_the_page_recommends_the_cheapest_position_that_loses_nothing():
    net = some_net()
    result = tolerance(net, labelled(net), tolerances=(1e-5, 1e-3), fixed=())
    page = present(result)
    assert "dopri5, 0.001 takes" in page.parts[1]
    assert "trained with dopri5, rtol 0.001" in page.parts[0]


def test_fixed_and_adjoint_networks_have_a_dial_too():
    for solver in (dict(method="rk4", steps=2), dict(gradient="adjoint"), dict(gradient="reversible")):
        net = some_net(solver=solver)
        result = tolerance(net, labelled(some_net()), tolerances=(1e-2,), fixed=("rk4:1",))
        assert [s.method for s in result.settings] == ["dopri5", "rk4"]


def test_failed_solves_count_as_wrong():
    net = some_net()
    batches = labelled(net)
    batches[1][0][0, 0, 0, 0] = torch.nan
    result = tolerance(net, batches, tolerances=(1e-3,), fixed=())
    assert result.settings[0].failed == 5
    assert result.settings[0].accuracy <= 7 / 12
    assert np.isfinite(result.settings[0].nfe).all()
    IMAGES[5, 0, 0, 0] = 0.5


def test_pieces_are_kept():
    net, store = some_net(), {}

    def keep(name, make):
        return store.setdefault(name, None) or store.__setitem__(name, make()) or store[name]

    first = tolerance(net, labelled(net), tolerances=(1e-3,), fixed=("rk4:1",), keep=keep)
    assert list(store) == ["dopri5, 0.001", "rk4, 1 step"]
    assert tolerance(net, [], tolerances=(1e-3,), fixed=("rk4:1",), keep=keep) == first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(fixed=("rk4",)), "a method and a number of steps"),
        (dict(fixed=("rk4:0",)), "a method and a number of steps"),
        (dict(tolerances=(), fixed=()), "nothing to compare"),
        (dict(method="rk4"), "steps=N"),
    ],
)
def test_what_cannot_be_set_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        tolerance(some_net(), [(IMAGES, torch.zeros(12))], **options)


def test_a_network_without_time_is_refused():
    with pytest.raises(ConfigError, match="no ODE block"):
        tolerance(create_model("residual_net", width=8, num_blocks=1), [])
    with pytest.raises(ConfigError, match="no images"):
        tolerance(some_net(), [])
