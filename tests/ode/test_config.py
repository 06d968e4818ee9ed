"""A configuration as plain data: what is written is read again; old spellings are told the new ones, and old files understood."""

import json
from dataclasses import fields
from typing import Any

import pytest
import torch
from fields import VectorField
from hypothesis import given
from hypothesis import strategies as st

from continua import ConfigError, Tableau
from continua.blocks import ODEBlock
from continua.ode import (
    METHODS,
    Adjoint,
    Checkpoint,
    Direct,
    ForwardPass,
    Gradient,
    Implicit,
    Integration,
    ParameterGradients,
    Reversible,
    Solution,
    SolverConfig,
    StepControl,
    connect,
    solve,
    upgrade_solver_options,
)

F64 = torch.float64
CONTROLS = st.builds(
    StepControl,
    kind=st.sampled_from(["i", "pi"]),
    first_step=st.sampled_from([None, 0.1]),
    max_steps=st.sampled_from([1000, 50]),
    safety=st.sampled_from([0.9, 0.8]),
    factor_min=st.sampled_from([0.2, 0.3]),
    alpha=st.sampled_from([None, 0.7, 1.0]),
    hold_after_rejection=st.sampled_from([None, True, False]),
)
GRADIENTS = st.one_of(
    st.builds(Checkpoint, segments=st.sampled_from([None, 1, 3, "sqrt"])),
    st.just(Direct()),
    st.just(Reversible()),
    st.builds(Adjoint, norm=st.sampled_from(["semi", "full"]), rtol=st.sampled_from([None, 1e-6]), control=st.none() | CONTROLS),
    st.builds(Adjoint, method=st.sampled_from(["rk4", "rk38"]), steps=st.sampled_from([3, 4])),
)
EXPLICIT = st.builds(
    SolverConfig,
    method=st.sampled_from(["dopri5", "tsit5", "bosh3"]),
    rtol=st.sampled_from([1e-3, 1e-5]),
    steps=st.sampled_from([None, 4]),
    control=CONTROLS,
    gradient=GRADIENTS,
    on_failure=st.sampled_from(["raise", "status"]),
    record_steps=st.booleans(),
)
IMPLICIT = st.builds(
    SolverConfig,
    method=st.builds(
        Implicit, st.sampled_from(["gauss4", "radau5"]), solver=st.sampled_from(["newton", "fixed_point"]), krylov=st.integers(1, 60)
    ),
    steps=st.just(3),
)


# --- plain data -------------------------------------------------------------------------------------------------------


@given(EXPLICIT | IMPLICIT)
def test_what_is_written_is_read_again(config: SolverConfig) -> None:
    again = SolverConfig.of(json.loads(json.dumps(config.plain())))
    assert again.plain() == config.plain()
    assert again.tableau is config.tableau
    if isinstance(config.method, str):  # an Implicit without options of its own is written as its name
        assert again == config


@pytest.mark.parametrize(
    ("config", "plain"),
    [
        (SolverConfig(), {}),
        (SolverConfig("rk4", steps=2, gradient="direct"), dict(method="rk4", steps=2, gradient="direct")),
        (SolverConfig(control="sample"), dict(control="sample")),
        (SolverConfig(control=StepControl("sample", "pi")), dict(control=dict(per="sample", kind="pi"))),
        (SolverConfig(gradient=Checkpoint("sqrt")), dict(gradient=dict(kind="checkpoint", segments="sqrt"))),
        (SolverConfig(gradient=Adjoint("full", control="batch")), dict(gradient=dict(kind="adjoint", norm="full", control="batch"))),
        (SolverConfig(Implicit("radau5"), steps=1), dict(method="radau5", steps=1)),
        (SolverConfig(Implicit("radau5", krylov=9), steps=1), dict(method=dict(tableau="radau5", krylov=9), steps=1)),
        (SolverConfig(METHODS["rk4"], steps=1), dict(method="rk4", steps=1)),
    ],
    ids=str,
)
def test_a_configuration_is_written_as_what_was_chosen(config: SolverConfig, plain: dict[str, object]) -> None:
    assert config.plain() == plain
    assert SolverConfig.of(plain).plain() == plain


def test_a_tableau_of_your_own_is_its_numbers_in_a_file() -> None:
    tableau = Tableau(a=[[], [1 / 3], [0, 2 / 3]], b=[1 / 4, 0, 3 / 4], c=[0, 1 / 3, 2 / 3], name="heun3")
    stored = json.loads(json.dumps(SolverConfig(tableau, steps=1).plain()))
    back = SolverConfig.of(stored).tableau
    assert (back.a, back.b, back.c, back.order, back.name) == (tableau.a, tableau.b, tableau.c, tableau.order, "heun3")
    with pytest.raises(ConfigError, match="unknown entry of a tableau: 'd'"):
        SolverConfig.of({**stored, "method": {**stored["method"], "d": 1}})


def test_a_changed_kind_brings_its_own_constants() -> None:
    assert StepControl("sample", safety=0.8).replace(kind="pi") == StepControl("sample", "pi", safety=0.8)


def test_the_keywords_of_solve_are_those_of_a_configuration() -> None:
    assert [field.name for field in fields(SolverConfig)] == [
        *("method", "rtol", "atol", "steps", "control", "gradient", "on_failure", "record_steps")
    ]


# --- old spellings ----------------------------------------------------------------------------------------------------

OLD = dict(
    segments=(2, r"Checkpoint\(segments=...\)"),
    adjoint_options=(dict(norm="full"), r"Adjoint\(norm"),
    controller=("pi", r"StepControl\(kind=...\)"),
    first_step=(0.1, r"StepControl\(first_step=...\)"),
    max_steps=(10, r"StepControl\(max_steps=...\)"),
    implicit_options=(dict(krylov=3), r"Implicit\('radau5'"),
)


@pytest.mark.parametrize("name", OLD)
def test_an_old_spelling_is_told_the_new_one(name: str) -> None:
    value, words = OLD[name]
    options = {name: value}
    for attempt in (
        lambda: SolverConfig(**options),
        lambda: SolverConfig.of(options),
        lambda: SolverConfig().replace(**options),
        lambda: solve(lambda t, y: -y, torch.ones(1, 1), 0.0, 1.0, **options),
    ):
        with pytest.raises(ConfigError, match=f"'{name}' is no option of its own: write .*{words}"):
            attempt()


def test_an_unknown_keyword_of_solve_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown solver option 'save_et'; did you mean save_at"):
        solve(lambda t, y: -y, torch.ones(1, 1), 0.0, 1.0, save_et=[0.5])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (dict(method="rk4", steps=2, gradient="direct"), SolverConfig("rk4", steps=2, gradient="direct")),
        (dict(segments="sqrt"), SolverConfig(gradient=Checkpoint("sqrt"))),
        (dict(control="sample", controller="pi", max_steps=9), SolverConfig(control=StepControl("sample", "pi", max_steps=9))),
        (dict(controller=dict(kind="pi", safety=0.8), first_step=0.1), SolverConfig(control=StepControl("batch", "pi", 0.1, safety=0.8))),
        (dict(gradient="adjoint", adjoint_options=dict(norm="full", atol=1e-6)), SolverConfig(gradient=Adjoint("full", atol=1e-6))),
        (
            dict(gradient="adjoint", max_steps=9, adjoint_options=dict(controller="pi")),
            SolverConfig(control=StepControl(max_steps=9), gradient=Adjoint(control=StepControl(kind="pi", max_steps=9))),
        ),
        (
            dict(method="radau5", steps=3, implicit_options=dict(solver="fixed_point", tol=1e-3)),
            SolverConfig(Implicit("radau5", solver="fixed_point", tol=1e-3), steps=3),
        ),
        (dict(segments=None, controller="i", max_steps=None, implicit_options=None), SolverConfig()),
    ],
    ids=str,
)
def test_options_of_version_0_1_are_read_as_they_were_meant(old: dict[str, object], new: SolverConfig) -> None:
    assert SolverConfig.of(upgrade_solver_options(old)) == new
    assert upgrade_solver_options(new.plain()) == new.plain()


# --- a gradient of one's own ------------------------------------------------------------------------------------------


class Replayed(Gradient):
    """A checkpointed gradient in a few lines: backward goes through the steps once more, by the stepper's own vector–Jacobian products."""

    def integrate(self, integration: Integration) -> Solution:
        steps, rate, stepper = integration.steps(), integration.rate, integration.stepper
        integration.probe(self)

        def take() -> ForwardPass:
            taken = list(steps)

            def backward(params, saved, cotangents):
                gradients, g = ParameterGradients(params), cotangents
                for step in reversed(taken):
                    g = stepper.pull_back(rate, step.t, step.t_next, step.y0, g, gradients)
                return g, gradients.sums

            return ForwardPass(steps.detached(), (), backward)

        return connect(integration, steps, take)


@pytest.mark.parametrize("options", [{}, dict(method="rk4", steps=3), dict(method="gauss4", steps=3)], ids=str)
def test_a_gradient_of_ones_own_is_passed_as_an_object(options: dict[str, object]) -> None:
    field, y0 = VectorField(), torch.randn(4, 3, dtype=F64, requires_grad=True)
    ways = []
    for gradient in (Replayed(), "checkpoint"):
        solution = solve(field, y0, 0.0, 1.0, gradient=gradient, **options)
        ways.append((solution.y1, *torch.autograd.grad(solution.y1.square().sum(), [y0, *field.parameters()])))
    for mine, theirs in zip(*ways, strict=True):
        assert torch.equal(mine, theirs)


def test_a_gradient_of_ones_own_serves_a_block() -> None:
    gradient = Replayed()
    block = ODEBlock(VectorField(), solver=dict(gradient=gradient))
    block(torch.randn(2, 3, dtype=F64)).sum().backward()
    assert block.solver.plain() == {"gradient": gradient}
    assert "gradient=Replayed()" in repr(block)


def test_a_class_or_an_unknown_name_is_no_gradient() -> None:
    with pytest.raises(ConfigError, match="an object such as Checkpoint"):
        SolverConfig(gradient=Checkpoint)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="unknown gradient 'checkpont'; did you mean checkpoint"):
        SolverConfig(gradient="checkpont")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(control=[]), r"control=\[\]; expected 'batch', 'sample'"),
        (dict(control=dict(kind=[])), r"kind=\[\]; expected one of 'i'"),
        (dict(control=dict(safety=torch.tensor([]))), "safety=tensor.*expected a finite number"),
        (dict(control=dict(alpha="x")), "alpha='x'; expected a finite number"),
        (dict(method=[]), r"unknown method '\[\]'"),
        (dict(method={}), "tableau is missing"),
        (dict(rtol=["σ"]), "rtol=.*expected numbers"),
        (dict(atol=[]), "a tolerance must be a finite number"),
        (dict(rtol=10**400), "a tolerance must be a finite number"),
        (dict(control=dict(first_step=10**400)), "first_step=1000.*expected a finite number above 0"),
        (dict(control=dict(safety=10**400)), "safety=1000.*expected a finite number"),
        (dict(control=dict(jump_at=[10**400])), "jump_at=.*expected times"),
        (dict(steps=10**400), "steps=1000"),
        (dict(save_at=[10**400]), "save_at = .*expected a list or a tensor of times"),
        (dict(params=-1), "params=-1; expected the tensors"),
        (dict(params=[True]), r"params=\[True\]; expected the tensors"),
    ],
)
def test_a_value_of_another_kind_is_named_and_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        solve(lambda t, y: -y, torch.ones(2, 3), 0.0, 1.0, **options)


def test_a_whole_number_too_large_for_pytorch_is_a_number_all_the_same() -> None:
    loose = solve(lambda t, y: -y, torch.ones(2, 3), 0.0, 1.0, rtol=10**30)
    assert torch.equal(loose.y1, solve(lambda t, y: -y, torch.ones(2, 3), 0.0, 1.0, rtol=1e30).y1)
    with pytest.raises(ConfigError, match=r"t1 = 1000.*expected a number"):
        solve(lambda t, y: -y, torch.ones(2, 3), 0.0, 10**400)


def test_a_field_that_returns_no_tensor_is_told_so_under_end_times_per_sample() -> None:
    with pytest.raises(ConfigError, match="returned a float; expected one tensor"):
        solve(lambda t, y: 1.0, torch.ones(2), 0.0, torch.tensor([1.0, 2.0]))  # pyright: ignore[reportArgumentType]


# --- lengths of steps --------------------------------------------------------------------------------------------------


def test_lengths_of_steps_are_written_and_read_again():
    config = SolverConfig(method="rk4", steps=[1, 2, 5])
    assert (config.count, config.shares) == (3, (1 / 8, 3 / 8, 1.0))
    assert SolverConfig.of(json.loads(json.dumps(config.plain()))) == config
    assert config.replace(steps=3) != config
    assert (config.replace(steps=3).count, config.replace(steps=3).shares) == (3, None)
    assert (SolverConfig().count, SolverConfig().shares) == (None, None)


@pytest.mark.parametrize("steps", [[], [1, 0], [1, -2], [1, "2"], [float("nan")], [float("inf"), 1], [True, 2], [None], 0, 2.5, "3"])
def test_steps_that_are_no_lengths_are_refused(steps: Any):
    with pytest.raises(ConfigError, match=r"steps=.*whole number of at least 1, or the relative lengths"):
        SolverConfig(method="rk4", steps=steps)
