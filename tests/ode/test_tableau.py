"""Tableaux: what is refused, what is found out about a user's own, and the order that every method shows in practice."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from continua import ConfigError
from continua.ode import METHODS, Tableau, solve

EXPLICIT = {name: tableau for name, tableau in METHODS.items() if tableau.explicit}

# Bogacki & Shampine 1989, rows without their zeros, as a user would type it.
OWN = dict(
    a=[[], [1 / 2], [0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]],
    b=[2 / 9, 1 / 3, 4 / 9, 0],
    c=[0, 1 / 2, 3 / 4, 1],
    b_error=[2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8],
)


START = torch.tensor([[-0.8, -0.4, 0.0, 0.3]], dtype=torch.float64)


def wave(t, y):
    """dy/dt of y(t) = exp(sin 2t + C exp(sin 2t)): nonlinear and time-dependent, so that every order condition counts."""
    return 2 * torch.cos(2 * t) * y * (1 + torch.log(y) - torch.sin(2 * t))


def wave_at(t) -> torch.Tensor:
    sine = torch.sin(2 * torch.as_tensor(t, dtype=torch.float64))
    return torch.exp(sine + START * torch.exp(sine))


def error_of(y, t) -> float:
    """Relative, root mean square over several solutions: the error of a single one may pass through zero."""
    return float((y / wave_at(t) - 1).square().mean().sqrt())


@pytest.mark.parametrize("name", EXPLICIT)
def test_observed_order_is_the_theoretical_one(name):
    order = METHODS[name].order
    # Few enough steps that rounding stays far below the error, enough for the leading term to rule.
    counts = {1: (256, 1024), 2: (64, 256), 3: (64, 256), 4: (64, 192), 5: (96, 192), 8: (16, 28)}[order]
    errors = [error_of(solve(wave, wave_at(0.0), 0.0, 1.3, method=name, steps=steps).y1, 1.3) for steps in counts]
    observed = np.log(errors[0] / errors[1]) / np.log(counts[1] / counts[0])
    assert observed == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("name", EXPLICIT)
def test_states_inside_a_step_converge_with_the_order_of_the_interpolant(name):
    """At least order min(order, 3): a dense state must never be the weak point of a smooth curve."""
    order = min(METHODS[name].order, 3)
    counts = (32, 128) if order < 3 else (16, 64)
    times = torch.linspace(0.05, 1.25, 7, dtype=torch.float64)
    errors = []
    for steps in counts:
        ys = solve(wave, wave_at(0.0), 0.0, 1.3, method=name, steps=steps, save_at=times).ys
        errors.append(max(error_of(y, t) for t, y in zip(times, ys, strict=True)))
    assert np.log(errors[0] / errors[1]) / np.log(4) > order - 0.4


def test_a_users_tableau_is_the_method_it_spells_and_its_order_is_found():
    own = Tableau(**OWN)
    assert (own.order, own.estimate_order, own.fsal, own.explicit) == (3, 3, True, True)
    y0 = torch.rand(4, 3, dtype=torch.float64) + 0.5
    ours, known = (solve(wave, y0, 0.0, 1.0, method=m, rtol=1e-6, atol=1e-6) for m in (own, "bosh3"))
    assert torch.equal(ours.y1, known.y1)
    assert ours.stats.nfe == known.stats.nfe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(b=[2 / 9, 1 / 3, 4 / 9 + 1e-6, 0]), "b sums to"),
        (dict(c=[0, 1 / 2, 0.7, 1]), "row 2 of a sums to 0.75, but c\\[2\\] = 0.7"),
        (dict(c=[0, 1 / 2, float("nan"), 1]), "finite"),
        (dict(a=[[], [1 / 2], [0, float("inf")], [2 / 9, 1 / 3, 4 / 9]]), "finite"),
        (dict(order=4), "declared order 4, but its order conditions hold only up to 3"),
        (dict(b_error=[7 / 24, 1 / 4, 1 / 3, 1 / 8]), "b_error sums to 1"),  # the embedded weights, not the difference
        (dict(b_error=[0, 0, 0, 0]), "b_error"),
        (dict(b_error=[0.1, -0.1, float("nan"), 0]), "finite"),
        (dict(b_error=[]), "b_error 0"),
        (dict(b=[1 / 2, 1 / 2]), "a has 4 rows, b 2"),
        (dict(a=[[], [1 / 2], [0, 3 / 4], [2 / 9, 1 / 3, 4 / 9, 0, 0]]), "more than 4 entries"),
        (dict(dense=[[1.0], [0.0]]), "dense"),
        (dict(dense=[[1.0], [0.0], [0.0], [0.0]]), "dense"),  # does not end at b
    ],
)
def test_a_wrong_tableau_is_refused_with_what_is_wrong(change, message):
    with pytest.raises(ConfigError, match=message):
        Tableau(**{**OWN, **change})


def test_a_misspelt_method_is_told_the_nearest():
    y0 = torch.ones(1, 1)
    with pytest.raises(ConfigError, match="did you mean dopri5"):
        solve(wave, y0, 0.0, 1.0, method="dorpi5")


def test_an_appended_end_stage_leaves_the_method_as_it_was():
    for name, tableau in EXPLICIT.items():
        wide = tableau.with_end_stage()
        assert wide.fsal, name
        assert wide.order == tableau.order
        assert wide.with_end_stage() is wide
        y0 = torch.ones(1, 1, dtype=torch.float64)
        plain, end = (solve(wave, y0, 0.0, 1.0, method=m, steps=3).y1 for m in (tableau, wide))
        assert torch.allclose(plain, end, rtol=1e-14, atol=0), name


def test_scaling_the_error_estimate_only_changes_the_steps():
    dopri5 = METHODS["dopri5"]
    eager = replace(dopri5, b_error=[e / 100 for e in dopri5.b_error])
    y0 = torch.ones(2, 1, dtype=torch.float64)
    few, many = (solve(wave, y0, 0.0, 3.0, method=m, rtol=1e-6, atol=1e-6).stats.accepted for m in (eager, dopri5))
    assert few < many
