"""Order conditions: the trees, the order of every method and of its embedded one, and interpolants derived from them."""

from math import factorial

import numpy as np
import pytest

from continua.ode import METHODS
from continua.ode.order import achieved_order, continuous_extension, density, elementary_weights, size, trees

# Order of the method, order of its embedded one, order of the interpolant (published, or the best that its stages allow).
KNOWN = {
    "euler": (1, None, 1),
    "midpoint": (2, None, 2),
    "heun": (2, 1, 2),
    "ralston": (2, 1, 2),
    "rk4": (4, None, 3),
    "rk38": (4, None, 3),
    "bosh3": (3, 2, 3),
    "fehlberg45": (5, 4, 4),
    "dopri5": (5, 4, 4),
    "rk45": (5, 4, 4),
    "tsit5": (5, 4, 4),
    "dopri8": (8, 7, 5),
    "gauss2": (2, None, 1),
    "gauss4": (4, None, 2),
    "radau3": (3, None, 2),
    "radau5": (5, None, 3),
    "kvaerno3": (3, 2, 3),
    "kvaerno5": (5, 4, 3),
}


def extension_order(a: np.ndarray, dense: np.ndarray) -> int:
    """The largest p with Σ_i b_i(θ) u_i(τ) = θ^|τ| / γ(τ) for every tree of at most p nodes, at several θ."""
    weights = elementary_weights(a, 6)
    order = 0
    while order < 6:
        for theta in (0.13, 0.5, 0.77, 1.0):
            b = dense @ theta ** np.arange(1, dense.shape[1] + 1)
            if any(abs(b @ weights[tree] - theta ** size(tree) / density(tree)) > 1e-8 for tree in trees(order + 1)):
                return order
        order += 1
    return order


def test_rooted_trees_are_counted_as_in_the_literature():
    # Hairer, Nørsett & Wanner I, table II.2.1.
    assert [len(trees(nodes)) for nodes in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]
    assert all(size(tree) == nodes for nodes in range(1, 8) for tree in trees(nodes))


@pytest.mark.parametrize("nodes", range(1, 8))
def test_densities_count_the_monotone_labellings(nodes):
    """Σ over trees of n!/(γ σ) is (n−1)!, where σ is the symmetry of the tree."""

    def symmetry(tree) -> int:
        kinds = set(tree)
        return int(np.prod([symmetry(kind) ** tree.count(kind) * factorial(tree.count(kind)) for kind in kinds])) if tree else 1

    assert sum(factorial(nodes) / (density(tree) * symmetry(tree)) for tree in trees(nodes)) == pytest.approx(factorial(nodes - 1))


def test_every_method_is_listed():
    assert set(METHODS) == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_a_method_has_exactly_the_order_it_states(name):
    tableau, (order, embedded, _) = METHODS[name], KNOWN[name]
    a, b = np.array(tableau.a), np.array(tableau.b)
    assert tableau.order == order == achieved_order(a, b, at_most=order + 1)
    if embedded is None:
        assert tableau.b_error is None
    else:
        assert achieved_order(a, b - np.array(tableau.b_error), at_most=embedded + 1) == embedded
        assert tableau.estimate_order == embedded + 1


@pytest.mark.parametrize("name", KNOWN)
def test_interpolants_have_the_order_their_stages_allow_and_join_the_steps(name):
    tableau = METHODS[name].with_end_stage() if KNOWN[name][0] > 2 else METHODS[name]
    a, dense = np.array(tableau.a), np.array(tableau.interpolant)
    assert extension_order(a, dense) >= KNOWN[name][2]
    assert np.allclose(dense.sum(1), tableau.b, atol=1e-9)
    if tableau.fsal and dense.shape[1] >= 3:
        slopes = dense @ np.arange(1, dense.shape[1] + 1)
        assert np.allclose(dense[:, 0], np.eye(len(a))[0], atol=1e-9), "b'(0) must be the first stage"
        assert np.allclose(slopes, np.eye(len(a))[-1], atol=1e-9), "b'(1) must be the last stage"


def test_the_published_interpolant_of_dopri5_is_not_beaten_by_a_derived_one():
    a, b = np.array(METHODS["dopri5"].a), np.array(METHODS["dopri5"].b)
    _, order = continuous_extension(a, b, 5, fsal=True)
    assert order == extension_order(a, np.array(METHODS["dopri5"].interpolant)) == 4


def test_coefficients_are_right_to_their_last_digits():
    """One digit of a fraction with ten of them is more than rounding: every coefficient stands in a condition that it would break."""

    def broken(weights: dict, b: np.ndarray, order: int, theta: float = 1.0) -> float:
        conditions = [tree for nodes in range(1, order + 1) for tree in trees(nodes)]
        return max(abs(b @ weights[tree] - theta ** size(tree) / density(tree)) for tree in conditions)

    for name, (order, embedded, between) in KNOWN.items():
        tableau = METHODS[name]
        a, b = np.array(tableau.a), np.array(tableau.b)
        weights = elementary_weights(a, order)
        assert np.abs(a.sum(1) - tableau.c).max() < 1e-12, name
        assert broken(weights, b, order) < 1e-13, name
        if tableau.b_error is not None and embedded is not None:
            assert broken(weights, b - np.array(tableau.b_error), embedded) < 1e-13, name
        if tableau.dense is not None:
            dense = np.array(tableau.dense)
            assert np.abs(dense.sum(1) - b).max() < 1e-13, name
            for theta in (0.13, 0.5, 0.77):
                assert broken(weights, dense @ theta ** np.arange(1, dense.shape[1] + 1), between, theta) < 1e-13, name


def test_explicit_and_diagonally_implicit_are_what_stands_above_the_diagonal():
    for name, tableau in METHODS.items():
        a = np.array(tableau.a)
        assert tableau.explicit == (not np.triu(a).any()), name
        assert tableau.diagonal == (not np.triu(a, 1).any() and np.diag(a).any()), name


def test_stiff_methods_damp_every_decay_and_forget_an_infinite_one():
    """L-stability: of y' = λy a step makes R(hλ) = 1 + z bᵀ(1 − zA)⁻¹1, at most 1 on the imaginary axis, and 0 far to the left of it."""

    def step(a: np.ndarray, b: np.ndarray, z: complex) -> float:
        return abs(1 + z * b @ np.linalg.solve(np.eye(len(b)) - z * a, np.ones(len(b))))

    for name in ("radau3", "radau5", "kvaerno3", "kvaerno5"):
        a, b = np.array(METHODS[name].a), np.array(METHODS[name].b)
        assert max(step(a, b, 1j * y) for y in np.logspace(-3, 4, 200)) <= 1 + 1e-9, name
        assert step(a, b, -1e7) < 1e-5, name
