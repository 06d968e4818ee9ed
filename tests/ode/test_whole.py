"""An adaptive solve as one graph: the steps, states and gradients of the same solve outside it."""

import pytest
import torch
from fields import VectorField
from torch import Tensor, nn

from continua import ConfigError
from continua.ode import StepControl, solve

F64 = torch.float64
SAVED = [0.0, 0.3, 1.0]


class Ends(nn.Module):
    """y1 and states at asked times."""

    def __init__(self, save_at: list[float] | None = None, **options) -> None:
        super().__init__()
        self.field, self.save_at, self.options = VectorField(3, 4), save_at, dict(rtol=1e-5, atol=1e-5) | options

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        solution = solve(self.field, y, 0.0, 1.0, save_at=self.save_at, **self.options)
        ys = solution.y1[None] if solution.ys is None else solution.ys
        counts = [torch.as_tensor(count) for count in (solution.stats.accepted, solution.stats.rejected)]
        return solution.y1, ys, *counts


def both(model: nn.Module):
    torch._dynamo.reset()
    return model, torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize(
    ("save_at", "options"),
    [
        (None, dict(control=StepControl(one_graph=True))),
        (SAVED, dict(control=StepControl(one_graph=True, per="sample"))),
        (SAVED, dict(control=dict(one_graph=True, kind="pid", first_step=0.7), method="bosh3")),
    ],
    ids=["batch", "sample", "pid"],
)
def test_states_steps_and_gradients_are_those_outside_the_graph(save_at, options):
    model, y0 = Ends(save_at, **options), torch.randn(3, 3, dtype=F64)
    outcomes = []
    for call in both(model):
        y1, ys, accepted, rejected = call(y0)
        weights = torch.arange(1.0, len(ys) + 1, dtype=F64)[:, None, None]
        gradients = torch.autograd.grad((y1.square() + (weights * ys).square().sum(0)).sum(), list(model.parameters()))
        outcomes.append((y1, ys, *gradients, accepted, rejected))
    for inside, outside in zip(*reversed(outcomes), strict=True):
        torch.testing.assert_close(inside, outside, rtol=1e-9, atol=1e-12)
    assert "pid" not in str(options) or int(outcomes[0][-1]) > 0, "this problem is to reject a step"


class Counted(nn.Module):
    """How often f was evaluated, and how many steps were accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.field = VectorField(3, 4)

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = solve(self.field, y, 0.0, 2.0, method="bosh3", rtol=1e-6, atol=1e-6, control=StepControl(one_graph=True))
        return found.y1, torch.as_tensor(found.stats.nfe), torch.as_tensor(found.stats.accepted)


def test_evaluations_are_counted_in_the_graph_as_outside_it():
    """Three for each step that is tried; where the solve is differentiated, accepted steps are taken twice."""
    model, y0 = Counted(), torch.randn(3, 3, dtype=F64)
    outside, inside = both(model)
    with torch.no_grad():
        (_, expected, accepted), (_, counted, _) = outside(y0), inside(y0)
    assert int(accepted) > 5
    assert int(counted) == int(expected)
    assert int(inside(y0)[1]) == int(expected) + 3 * int(accepted)


class Root(nn.Module):
    """dy/dt = −w √y, which the first step leaves where it is not defined."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0, dtype=F64))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return -self.w * y.sqrt()


@pytest.mark.parametrize("per", ["batch", "sample"])
def test_a_rejected_step_that_was_not_finite_leaves_no_trace_in_the_gradient(per):
    model = Ends(SAVED, control=StepControl(one_graph=True, per=per, first_step=1.0))
    model.field = Root()
    y0 = torch.tensor([[0.3], [4.0]], dtype=F64, requires_grad=True)
    outcomes = []
    for call in both(model):
        y1, ys, _, rejected = call(y0)
        assert int(rejected.sum()) > 0, "this problem is to reject a step"
        outcomes.append(torch.autograd.grad(y1.sum() + ys.square().sum(), (y0, model.field.w)))
    for inside, outside in zip(*reversed(outcomes), strict=True):
        torch.testing.assert_close(inside, outside, rtol=1e-9, atol=1e-12)


def test_more_steps_than_can_be_kept_are_refused_where_gradients_are_wanted():
    torch._dynamo.reset()
    model = Ends(control=StepControl(one_graph=True, max_steps=10**6))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(2, 3, dtype=F64))[0], model(torch.ones(2, 3, dtype=F64))[0])
    with pytest.raises(Exception, match="max_steps=1000000"):
        compiled(torch.ones(2, 3, dtype=F64))


def test_a_compiled_solve_that_fails_says_so():
    torch._dynamo.reset()

    def blow_up(y: Tensor) -> Tensor:
        return solve(lambda t, y: y**2, y, 0.0, 1.0, control=StepControl(one_graph=True)).y1

    with pytest.raises(RuntimeError, match="did not reach its end time"):
        torch.compile(blow_up, backend="eager", fullgraph=True)(torch.full((2, 1), 4.0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(method="kvaerno5"), "implicit"),
        (dict(gradient="adjoint"), "gradient"),
        (dict(record_steps=True), "record_steps"),
        (dict(control=dict(one_graph=True, step_at=[0.5])), "step_at"),
    ],
    ids=str,
)
def test_what_one_graph_cannot_have_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        solve(VectorField(), torch.randn(2, 3, dtype=F64), 0.0, 1.0, **(dict(control=dict(one_graph=True)) | options))
