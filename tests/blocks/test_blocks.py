"""Fields and blocks against plain PyTorch written out in the test: the time term, the solve, the residual step, per-sample time."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from continua import ConfigError, solve
from continua.blocks import Activation, ConvField, Field, ODEBlock, Prepared, ResidualBlock, group_norm
from continua.filters import FilterConv2d, NJet, Pixel, ScheduledNJet

FILTERS = {
    "pixel": lambda i, o: Pixel(i, o),
    "njet": lambda i, o: NJet(i, o, s_std=0.3),
    "njet_pair": lambda i, o: NJet(i, o, sharing="pair", s_std=0.3),
    "sigma_t": lambda i, o: ScheduledNJet(i, o),
    "sigma_alpha_t": lambda i, o: ScheduledNJet(i, o, scale="quadratic", alpha="linear"),
}
CHANNELS = 4


def field(kind: str, **options) -> ConvField:
    made = ConvField(CHANNELS, FILTERS[kind], **options).double()
    for name, parameter in made.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter, 1.0, 0.3)  # norms that do nothing would hide a wrong one
    return made


def states(batch: int = 2, size: int = 9) -> Tensor:
    return torch.randn(batch, CHANNELS, size, size - 1, dtype=torch.float64)


def reference(made: ConvField, t: Tensor, h: Tensor, act) -> Tensor:
    """norm → act → conv → norm → act → conv → norm with a map of t concatenated as channel 0: the papers' formulation."""

    def convolve(conv: FilterConv2d, h: Tensor) -> Tensor:
        weight = conv.filter.kernel(conv.filter.state(), t).weight()
        with_time = torch.cat([t.expand(len(h), 1, *h.shape[2:]), h], dim=1)
        return functional.conv2d(with_time, weight, conv.bias, padding=weight.shape[-1] // 2)

    def norm(layer: nn.GroupNorm, h: Tensor) -> Tensor:
        grouped = h.reshape(len(h), layer.num_groups, -1)
        mean, variance = grouped.mean(-1, keepdim=True), grouped.var(-1, keepdim=True, correction=0)
        whitened = ((grouped - mean) / (variance + layer.eps).sqrt()).reshape(h.shape)
        return whitened * layer.weight[:, None, None] + layer.bias[:, None, None]

    h = convolve(made.conv1, act(norm(made.norm1, h)))
    h = convolve(made.conv2, act(norm(made.norm2, h)))
    return norm(made.norm3, h)


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("groups", [2, "channels"])
def test_the_field_equals_concatenating_t_as_channel_0_up_to_the_border(kind, groups):
    made, h, t = field(kind, norm_groups=groups, bias=kind == "pixel"), states(), torch.tensor(1.7, dtype=torch.float64)
    torch.testing.assert_close(made(t, h), reference(made, t, h, functional.celu), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["pixel", "njet", "sigma_alpha_t"])
def test_gradients_of_the_field_equal_those_of_the_concatenated_form(kind):
    made, t = field(kind, activation="relu"), torch.tensor(0.6, dtype=torch.float64)
    h = states().requires_grad_()
    leaves = [h, *made.parameters()]
    ours = torch.autograd.grad(made(t, h).sin().sum(), leaves)
    theirs = torch.autograd.grad(reference(made, t, h, functional.relu).sin().sum(), leaves)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["pixel", "njet", "sigma_t"])
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_a_time_per_sample_equals_one_sample_at_a_time(kind):
    made, h, times = field(kind), states(3), torch.tensor([0.0, 0.9, 2.0], dtype=torch.float64)
    together = made(times, h)
    for k in range(3):
        torch.testing.assert_close(together[k : k + 1], made(times[k], h[k : k + 1]), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["pixel", "sigma_t"])
@torch.no_grad()
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_steps_per_sample_with_any_filter_equal_one_at_a_time_solves(kind):
    block = ODEBlock(field(kind), 1.5, solver=dict(method="bosh3", rtol=0.03, atol=0.03, control="sample"))
    h = states(3, 6) * torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64).reshape(-1, 1, 1, 1)
    t1 = torch.tensor([0.6, 0.2, 0.9], dtype=torch.float64)
    together, stats = block(h, t1), block.stats
    assert stats is not None
    for k in range(3):
        torch.testing.assert_close(together[k : k + 1], block(h[k : k + 1], t1[k : k + 1]), rtol=1e-8, atol=1e-8)
        assert block.stats is not None
        assert int(block.stats.nfe[0]) == int(stats.nfe[k])


@pytest.mark.parametrize("kind", ["njet", "sigma_t"])
def test_an_end_time_per_sample_under_batch_control_equals_separate_solves(kind):
    block = ODEBlock(field(kind), solver=dict(method="midpoint", steps=2))
    h, t1 = states(3), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    together = block(h, t1)
    for k in range(3):
        torch.testing.assert_close(together[k : k + 1], block(h[k : k + 1], float(t1[k])), rtol=1e-9, atol=1e-10)


def test_a_block_is_the_solve_of_its_field():
    made = field("njet")
    block, h = ODEBlock(made, 1.0, solver=dict(rtol=1e-3, atol=1e-3)), states()
    expected = solve(made, h, 0.0, 1.0, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(block(h), expected.y1, rtol=1e-10, atol=1e-10)
    assert block.stats is not None
    assert block.stats.nfe == expected.stats.nfe
    assert set(block.stats.routes) == {"conv1", "conv2"}


def test_a_trajectory_starts_at_the_input_ends_at_the_output_and_goes_on_from_any_state():
    block, h = ODEBlock(field("pixel"), 1.0, solver=dict(rtol=1e-6, atol=1e-6)), states()
    with torch.no_grad():
        path = block.trajectory(h, [0.0, 0.4, 1.0])
    torch.testing.assert_close(path[0], h)
    torch.testing.assert_close(path[-1], block(h).detach())
    rest = ODEBlock(block.field, 1.0, t0=0.4, solver=block.solver)
    torch.testing.assert_close(rest(path[1]), path[-1], rtol=1e-4, atol=1e-4)


def broken_by(block: ODEBlock, h: Tensor, c: float) -> float:
    """How far states of c times the input, after c times as long, are from c times the states, as a share of how far these have moved."""
    times = torch.linspace(0, block.t1, 4, dtype=torch.float64)
    with torch.no_grad():
        path, scaled = block.trajectory(h, times), block.trajectory(c * h, c * times, c * block.t1)
    return float((scaled / c - path)[1:].norm() / (path[1:] - h).norm())


@pytest.mark.parametrize("kind", ["pixel", "njet"])
@pytest.mark.parametrize("c", [0.01, 30.0])
def test_without_explicit_time_scaling_state_and_time_scales_the_trajectory(kind, c):
    """f(c h) = f(h), so c h(t / c) solves the equation too, and equal numbers of steps take it along to rounding.

    The ε of the norms (1e-5) breaks it by less than ε over the smaller variance of both states: here by a hundredth at c = 0.01, and by a
    millionth at c = 30. With t among the inputs of f little of it is left."""
    torch.manual_seed(0)
    autonomous, timed = (ODEBlock(field(kind, time=time), 2.0, solver=dict(method="rk4", steps=[1, 2, 3])) for time in (False, True))
    h = states()
    assert 1e-8 < broken_by(autonomous, h, c) < 1e-5 / min(1.0, c) ** 2
    assert broken_by(timed, h, c) > 0.1
    for norm in (part for part in autonomous.modules() if isinstance(part, nn.GroupNorm)):
        norm.eps = 0.0
    assert broken_by(autonomous, h, c) < 1e-14, "exact to rounding"


class Amplified(Field):
    """dh/dt = a · h, with a = softplus(p) made once per solve; it writes down which steps it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
        self.made, self.heard = 0, []

    def prepare(self, h: Tensor, t0=0.0, t1=1.0) -> Prepared:
        self.made += 1
        a = functional.softplus(self.p)
        return Prepared(lambda t, h: a * h, (a,), lambda index, replayed: self.heard.append((index, replayed)), lambda: {"a": "product"})


@pytest.mark.parametrize("gradient", ["checkpoint", "direct"])
def test_a_field_is_prepared_once_told_its_steps_and_asked_for_its_routes(gradient):
    made, h = Amplified(), states()
    block = ODEBlock(made, 1.0, solver=dict(method="midpoint", steps=2, gradient=gradient))
    block(h).sum().backward()
    a = functional.softplus(made.p.detach()).requires_grad_()
    grown = ((1 + a / 2 + a**2 / 8) ** 2 * h).sum()
    slope = torch.autograd.grad(grown, a)[0] * torch.sigmoid(made.p.detach())  # through softplus
    torch.testing.assert_close(made.p.grad, slope, rtol=1e-9, atol=1e-10)
    assert made.made == 1
    assert {index for index, _ in made.heard} == {0, 1}
    assert {replayed for _, replayed in made.heard} == ({False, True} if gradient == "checkpoint" else {False})
    assert block.stats is not None
    assert block.stats.routes == {"a": "product"}


def test_a_field_called_alone_is_prepared_for_that_moment():
    made, h = Amplified(), states()
    torch.testing.assert_close(made(torch.tensor(0.5), h), functional.softplus(made.p) * h)


def test_a_field_that_prepares_a_tuple_is_told_what_to_return():
    class Old(Field):
        def prepare(self, h: Tensor, t0=0.0, t1=1.0):  # pyright: ignore
            return (lambda t, h: -h), ()

    with pytest.raises(ConfigError, match=r"Old\.prepare returned a tuple; return continua\.blocks\.Prepared"):
        ODEBlock(Old())(states())


def test_a_plain_function_is_a_field_too():
    block, h = ODEBlock(lambda t, h: -h, solver=dict(method="euler", steps=1)), states()  # pyright: ignore[reportArgumentType]
    assert not block(h).any()


def test_a_plain_module_is_a_field_too():
    class Decay(nn.Module):
        def forward(self, t: Tensor, h: Tensor) -> Tensor:
            return -h

    block, h = ODEBlock(Decay(), 1.0, solver=dict(rtol=1e-9, atol=1e-9)), states()
    torch.testing.assert_close(block(h), h * torch.exp(torch.tensor(-1.0, dtype=torch.float64)), rtol=1e-7, atol=1e-7)


def test_augmented_channels_start_at_zero_take_part_and_are_dropped():
    wide = ConvField(CHANNELS + 3, FILTERS["pixel"]).double()
    block, h = ODEBlock(wide, 1.0, augment=3, solver=dict(method="rk4", steps=2)), states()
    whole = ODEBlock(wide, 1.0, solver=block.solver)(torch.cat([h, torch.zeros(2, 3, 9, 8, dtype=torch.float64)], dim=1))
    torch.testing.assert_close(block(h), whole[:, :CHANNELS])
    assert block.trajectory(h, [0.0, 1.0]).shape == (2, *h.shape)
    assert block.solve(h).y1.shape[1] == CHANNELS + 3


@torch.no_grad()
@pytest.mark.parametrize("kind", ["pixel", "njet"])
def test_a_residual_block_is_one_euler_step_of_size_1_of_its_own_change(kind):
    block, h = ResidualBlock(CHANNELS, FILTERS[kind]).double(), states()

    class Change(nn.Module):
        def forward(self, t: Tensor, h: Tensor) -> Tensor:
            change = block.conv1(torch.relu(block.norm1(h)))
            return block.conv2(torch.relu(block.norm2(change)))

    euler = ODEBlock(Change(), 1.0, solver=dict(method="euler", steps=1))
    torch.testing.assert_close(block(h), euler(h))


@pytest.mark.parametrize(("kind", "route"), [("pixel", "dense"), ("njet", "dense"), ("njet", "separable"), ("sigma_t", "separable")])
@pytest.mark.filterwarnings("ignore::continua.ContinuaWarning")
def test_the_field_can_be_differentiated_twice(kind, route):
    """Penalties on a Jacobian need it; so the routes' own backward passes must be differentiable."""
    made = field(kind, conv_options=dict(route=route))
    h = states(1, 5).requires_grad_()
    t = torch.tensor(0.3, dtype=torch.float64)
    (first,) = torch.autograd.grad(made(t, h).square().sum(), h, create_graph=True)
    exact = torch.autograd.grad(first.square().sum(), next(made.conv1.filter.parameters()))[0]
    weight = next(made.conv1.filter.parameters())
    direction, eps = torch.randn_like(weight), 1e-5
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(sign * eps * direction)
        (g,) = torch.autograd.grad(made(t, h).square().sum(), h)
        values.append(g.square().sum())
        with torch.no_grad():
            weight.sub_(sign * eps * direction)
    torch.testing.assert_close((exact * direction).sum(), (values[0] - values[1]) / (2 * eps), rtol=1e-4, atol=1e-6)


def test_the_norm_takes_the_groups_that_divide_its_channels():
    assert [group_norm(c).num_groups for c in (4, 32, 48, 64, 7)] == [4, 32, 16, 32, 7]
    assert group_norm(6, "channels").num_groups == 6
    assert group_norm(6, 4).num_groups == 2
    with pytest.raises(ConfigError, match="norm_groups"):
        group_norm(6, 0)


@pytest.mark.parametrize("name", ["celu", "relu", "gelu", "silu", "softplus", "tanh", "identity"])
def test_an_activation_that_may_overwrite_gives_the_same(name):
    act, x = Activation(name), torch.randn(50)
    torch.testing.assert_close(act(x.clone(), overwrite=True), act(x))


def test_a_misspelt_activation_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean celu"):
        Activation("celo")


def test_a_block_says_what_it_is():
    text = repr(ODEBlock(field("njet"), 2.0, solver=dict(method="rk4", steps=3)))
    assert "t in [0, 2], rk4, 3 steps, gradient=checkpoint" in text
    assert "rtol=0.001" in repr(ODEBlock(field("pixel")))


def test_a_field_takes_what_makes_filters_not_a_filter():
    with pytest.raises(ConfigError, match="takes what makes them"):
        ConvField(4, NJet(4, 4))
