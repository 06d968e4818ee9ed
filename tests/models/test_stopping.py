"""Images that stop when the network is sure, for every network with ODE blocks; refused where it has no meaning."""

from typing import Any

import pytest
import torch

from continua import ConfigError, create_model
from continua.models import Confident, Network
from continua.ode import Event

ADAPTIVE: dict[str, Any] = dict(method="dopri5", rtol=1e-3, atol=1e-3, steps=None)
SMALL: dict[str, dict[str, Any]] = {
    "dcn_ode": dict(channels=(4, 8), norm_groups=2),
    "odenet": dict(channels=(4, 8), norm_groups=2),
    "dcn_full": dict(channels=(4, 8)),
    "ode_only_net": dict(width=8, norm_groups=2),
    "res_ode_net": dict(width=8, norm_groups=2),
}


def small(name: str, **options: Any) -> Network:
    torch.manual_seed(0)
    net = create_model(name, num_classes=3, **SMALL.get(name, {}), **options).eval()
    with torch.no_grad():
        net.get_classifier().weight.mul_(8)  # pyright: ignore[reportCallIssue]
    return net


def last_stats(net: Network) -> Any:
    assert net.stats[-1] is not None
    return net.stats[-1]


def images(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_an_image_that_stopped_has_the_confidence_asked_for_and_not_before(name: str) -> None:
    net, x = small(name, solver=ADAPTIVE | dict(control="sample")), images()
    end = net(x).softmax(1).amax(1)
    threshold = float(torch.stack([net.forward_head(net.states(x, -1)[0]).softmax(1).amax(1), end]).mean())
    fast = net.with_stop(Confident(threshold, precision=1e-6))
    sure, stats = fast(x).softmax(1).amax(1), last_stats(fast)
    assert stats.stopped.any()
    on_the_way = stats.stopped & (stats.t_end > 0)
    torch.testing.assert_close(sure[on_the_way], torch.full_like(sure[on_the_way], threshold), rtol=0, atol=1e-4)
    assert (sure[stats.stopped & (stats.t_end == 0)] >= threshold).all()
    torch.testing.assert_close(sure[~stats.stopped], end[~stats.stopped])
    assert (stats.nfe <= last_stats(net).nfe).all()
    # the state of the plain network at the time where it stopped is the state that it stopped with
    for place in on_the_way.nonzero().flatten().tolist()[:1]:
        there = net.states(x[place : place + 1], -1, [float(stats.t_end[place])])[0]
        torch.testing.assert_close(net.forward_head(there).softmax(1).amax(), sure[place], rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_threshold_never_reached_changes_no_bit_and_none_takes_a_stop_away() -> None:
    net, x = small("dcn_ode", solver=ADAPTIVE | dict(control="sample")), images(3)
    fast = net.with_stop(Confident(1 - 1e-12))
    assert torch.equal(fast(x), net(x))
    plain = fast.with_stop(None)
    assert plain.stop is None
    assert torch.equal(plain(x), net(x))
    assert last_stats(plain).t_end is None


@torch.no_grad()
def test_weights_are_shared_and_other_solvers_keep_the_stop() -> None:
    net = small("odenet", solver=ADAPTIVE)
    fast = net.with_stop(Confident(0.5)).with_solver(rtol=1e-2)
    assert fast.stop == (1, Confident(0.5))
    assert net.stop is None
    assert all(a is b for a, b in zip(net.parameters(), fast.parameters(), strict=True))
    assert fast.solver is not None
    assert fast.solver.control.per == "sample"


@torch.no_grad()
def test_an_event_of_ones_own_stops_any_block_with_time() -> None:
    net, x = small("dcn_ode", solver=ADAPTIVE), images(3)
    half = net.with_stop(Event(lambda t, h: t - 0.5, direction=1), block=0)
    half(x)
    first: Any = half.stats[0]
    torch.testing.assert_close(first.t_end, torch.full((3,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(half(x), net.with_solver(control="sample")(x, t1={0: 0.5}), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "block", "message"),
    [
        ("resnet_blocks", {}, -1, "without time"),
        ("erknet_k36_7x1_6x1_6x1", {}, -1, "without time"),
        ("dcn_ode", dict(solver=dict(method="rk4", steps=2)), -1, "equal steps"),
        ("dcn_ode", dict(solver=ADAPTIVE), 0, "2 more blocks after it"),
        ("resnet4_anodev2_c1", {}, -1, "equal steps"),
    ],
)
def test_where_it_has_no_meaning_it_is_refused_in_a_sentence(name: str, options: Any, block: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_model(name, **options).with_stop(Confident(0.9), block)


def test_a_network_that_trains_or_has_no_classes_is_not_asked() -> None:
    net = small("dcn_ode", solver=ADAPTIVE)
    with pytest.raises(ConfigError, match=r"net\.eval"):
        net.train().with_stop(Confident(0.9))(images(2))
    with pytest.raises(ConfigError, match="no classifier"):
        create_model("dcn_ode", num_classes=0, channels=(4, 8), solver=ADAPTIVE).with_stop(Confident(0.9))
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Confident(1.5)
