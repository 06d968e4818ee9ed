"""The default gradient keeps the graph of a small solve, as `direct` does, and forgets it where the solve grows: exact either way."""

import pytest
import torch
from fields import VectorField
from solves import gradients, rand, relative

from continua import ConfigError
from continua.ode import Checkpoint, Event, Stats, solve

ROOM = 10**9


def backward(field, y0, **options) -> Stats:
    solution = solve(field, y0.detach().requires_grad_(), 0.0, 1.5, **options)
    solution.y1.sum().backward()
    return solution.stats


@pytest.fixture
def field() -> VectorField:
    torch.manual_seed(0)
    return VectorField(4).double()


@pytest.mark.parametrize(
    "options", [dict(steps=5), {}, dict(save_at=[0.0, 0.4, 1.5]), dict(event=Event(lambda t, y: t - 1.1)), dict(control=dict(max_step=0.1))]
)
@pytest.mark.parametrize("room", [0, 25_000, ROOM])  # an evaluation holds about 500 bytes, a step six of those
def test_the_gradient_is_that_of_the_steps_whatever_is_kept(field, options, room):
    y0, close = rand(6, 4), dict(rtol=1e-6, atol=1e-6)
    exact = gradients(field, y0, 0.0, 1.5, gradient="direct", **options, **close)
    assert relative(gradients(field, y0, 0.0, 1.5, gradient=Checkpoint(direct_below=room), **options, **close), exact) < 1e-10


def test_a_small_solve_evaluates_nothing_again(field):
    for options in (dict(steps=5), dict(rtol=1e-6, atol=1e-6)):
        kept, replayed = (backward(field, rand(6, 4), gradient=Checkpoint(direct_below=room), **options) for room in (ROOM, 0))
        assert kept.nfe_backward == 0
        assert replayed.nfe_backward == 6 * replayed.accepted


@pytest.mark.parametrize("options", [dict(steps=8), dict(method="rk4", steps=8), dict(rtol=1e-6, atol=1e-6)], ids=str)
def test_a_larger_solve_keeps_the_graph_of_its_first_steps(field, options):
    y0 = rand(6, 4)
    every, some, none = (backward(field, y0, gradient=Checkpoint(direct_below=room), **options) for room in (ROOM, 10_000, 0))
    assert every.nfe_backward == 0 < some.nfe_backward < none.nfe_backward
    assert (every.nfe, every.accepted, every.last_step) == (some.nfe, some.accepted, some.last_step)


def test_a_solve_that_is_kept_in_part_has_second_derivatives_and_those_of_its_end(field):
    y0, t1, found = rand(3, 4), torch.tensor(1.5, dtype=torch.float64, requires_grad=True), []
    for gradient in ("direct", Checkpoint(direct_below=10_000)):
        start = y0.clone().requires_grad_()
        y1 = solve(field, start, 0.0, t1, steps=8, gradient=gradient).y1
        first = torch.autograd.grad((y1**2).sum(), (start, t1), create_graph=True)
        second = torch.autograd.grad((first[0] ** 2).sum(), start)
        found.append([g.detach() for g in (*first, *second)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_room_is_256_mebibytes_by_default(field, monkeypatch):
    monkeypatch.undo()  # the fixture of this folder
    assert backward(field, rand(6, 4), steps=5).nfe_backward == 0
    wide = VectorField(4).double()
    assert backward(wide, rand(60_000, 4), steps=12).nfe_backward > 0  # 4.3 MB an evaluation, 72 of them


def graph_size(y0, **options) -> int:
    """Bytes that autograd holds of a solve, without the parameters."""
    field, sizes = VectorField(y0.shape[1]).double(), {}
    held = {p.data_ptr() for p in field.parameters()}

    def note(x):
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        solution = solve(field, y0.requires_grad_(), 0.0, 1.5, **options)
    assert solution.success
    return sum(size for place, size in sizes.items() if place not in held)


@pytest.mark.parametrize("options", [dict(steps=50), dict(rtol=1e-9, atol=1e-9), dict(control=dict(max_step=0.02))])
def test_what_is_kept_stays_within_the_room(options):
    y0 = rand(60, 4)
    states = 100 * y0.numel() * y0.element_size()  # of the steps, where states alone are kept
    for room in (0, 10**5, 2 * 10**5):
        assert graph_size(y0, gradient=Checkpoint(direct_below=room), **options) <= room + states
    assert graph_size(y0, gradient=Checkpoint(direct_below=ROOM), **options) > 4 * 10**5


def test_random_numbers_and_hidden_tensors_are_refused_whatever_the_size():
    weight = torch.ones(3, requires_grad=True)
    for f, words in ((lambda t, y: weight * y, "was not told about"), (lambda t, y: torch.nn.functional.dropout(y), "random numbers")):
        with pytest.raises(ConfigError, match=words):
            solve(f, torch.ones(2, 3, requires_grad=True), 0.0, 1.0, gradient=Checkpoint(direct_below=ROOM))


@pytest.mark.parametrize("gradient", ["checkpoint", Checkpoint(direct_below=0), "reversible", "adjoint"], ids=str)
@pytest.mark.parametrize("options", [{}, dict(steps=3), dict(control="sample"), dict(method="kvaerno3")], ids=str)
def test_a_hidden_tensor_is_refused_also_where_the_state_needs_no_gradient(gradient, options):
    if gradient in ("reversible", "adjoint") and options.keys() & {"control" if gradient == "adjoint" else "method", "method"}:
        return  # refused for another reason
    weight, start = torch.ones(3, dtype=torch.float64, requires_grad=True), torch.ones(2, 3, dtype=torch.float64)

    def f(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -weight * y

    with pytest.raises(ConfigError, match=r"was not told about.*params=.*no_grad"):
        solve(f, start, 0.0, 1.0, gradient=gradient, **options)
    assert solve(f, start, 0.0, 1.0, gradient=gradient, params=[weight], **options).y1.requires_grad
    with torch.no_grad():
        solve(f, start, 0.0, 1.0, gradient=gradient, **options)


@pytest.mark.parametrize("own", [False, True], ids=["the state", "a copy"])
def test_a_field_may_mark_its_state_where_nothing_else_needs_a_gradient(own):
    def f(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -(y.detach() if own else y).requires_grad_()

    torch.testing.assert_close(solve(f, torch.ones(2, 3), 0.0, 1.0).y1, torch.full((2, 3), 0.3679), rtol=1e-3, atol=0, check_dtype=False)


def test_a_field_may_ask_for_gradients_to_its_state():
    """As continuous normalising flows do, for the trace of the Jacobian."""

    class Flow(VectorField):
        def forward(self, t, y):
            z = y[0]
            with torch.enable_grad():
                z.requires_grad_()
                dz = super().forward(t, z)
                trace = sum(torch.autograd.grad(dz[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
            return dz, -trace

    torch.manual_seed(0)
    flow, points = Flow(2).double(), rand(5, 2)
    density = torch.zeros(5, dtype=torch.float64)
    exact, *found = (
        gradients(flow, (points, density), 0.0, 1.0, rtol=1e-6, atol=1e-6, gradient=gradient)
        for gradient in ("direct", Checkpoint(direct_below=ROOM), Checkpoint(direct_below=0))
    )
    for each in found:
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(each, exact, strict=True))
    start = torch.randn(5, 2, dtype=torch.float64)
    solve(flow, (start, density), 0.0, 1.0)
    assert not start.requires_grad  # f was given a tensor of its own


def test_what_does_not_share_steps_or_is_asked_for_between_keeps_states_alone(field):
    for options in (dict(control="sample"), dict(dense=True), dict(gradient=Checkpoint(1, direct_below=ROOM))):
        assert torch.as_tensor(backward(field, rand(6, 4), **{"gradient": Checkpoint(direct_below=ROOM), **options}).nfe_backward).min() > 0


@pytest.mark.parametrize("wrong", [-1, 1.5, "much"])
def test_a_bound_is_a_number_of_bytes(wrong):
    with pytest.raises(ConfigError, match="direct_below"):
        Checkpoint(direct_below=wrong)
