"""What a Butcher tableau achieves: order conditions over rooted trees, and interpolants derived from them.

A rooted tree τ stands for one elementary differential of f. A method has order p when, for every tree of at most p nodes,

    Σ_i b_i u_i(τ) = 1 / γ(τ),        u(τ)_i = Π_children (A u(child))_i,        γ(τ) = |τ| Π_children γ(child)

(Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, §II.2). Replacing b by polynomials b_i(θ) and the right side by
θ^|τ| / γ(τ) gives the conditions of a continuous extension y(t + θh) = y + h Σ b_i(θ) k_i (§II.6).
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement
from math import prod

import numpy as np

MAX_ORDER = 8
Tree = tuple  # the sorted tuple of a node's subtrees; a leaf is ()


@cache
def trees(nodes: int) -> tuple[Tree, ...]:
    """All rooted trees with this many nodes: 1, 1, 2, 4, 9, 20, 48, 115 for 1 … 8."""
    if nodes == 1:
        return ((),)
    distinct = {tuple(sorted(forest)) for split in _partitions(nodes - 1, nodes - 1) for forest in _forests(split)}
    return tuple(sorted(distinct))


def _partitions(total: int, largest: int) -> list[tuple[int, ...]]:
    if total == 0:
        return [()]
    return [(part, *rest) for part in range(min(total, largest), 0, -1) for rest in _partitions(total - part, part)]


def _forests(sizes: tuple[int, ...]) -> list[tuple[Tree, ...]]:
    """Every multiset of trees with these sizes."""
    forests: list[tuple[Tree, ...]] = [()]
    for size in sorted(set(sizes)):
        groups = combinations_with_replacement(trees(size), sizes.count(size))
        forests = [(*forest, *group) for group in groups for forest in forests]
    return forests


@cache
def size(tree: Tree) -> int:
    return 1 + sum(map(size, tree))


@cache
def density(tree: Tree) -> int:
    return size(tree) * prod(map(density, tree))


def elementary_weights(a: np.ndarray, order: int) -> dict[Tree, np.ndarray]:
    """u(τ), one number per stage, for every tree of at most `order` nodes."""
    weights: dict[Tree, np.ndarray] = {}
    for nodes in range(1, order + 1):
        for tree in trees(nodes):
            weights[tree] = np.prod([a @ weights[child] for child in tree], axis=0) if tree else np.ones(len(a))
    return weights


def achieved_order(a: np.ndarray, b: np.ndarray, at_most: int = MAX_ORDER, tolerance: float = 1e-10) -> int:
    """The largest p ≤ `at_most` whose conditions all hold for the weights b."""
    weights = elementary_weights(a, at_most)
    for order in range(1, at_most + 1):
        if any(abs(b @ weights[tree] - 1 / density(tree)) > tolerance for tree in trees(order)):
            return order - 1
    return at_most


def continuous_extension(a: np.ndarray, b: np.ndarray, order: int, fsal: bool, stiff: bool = False) -> tuple[np.ndarray, int]:
    """Coefficients B with b_i(θ) = Σ_p B[i, p] θ^(p+1), of the highest order the stages allow, and that order.

    The polynomials meet b at θ = 1; where the last stage is f at the end of the step (FSAL) they also have the right slope at both
    ends, so that pieces join smoothly. Those of a diagonally implicit method (`stiff`) are to be good where f is infinitely stiff, too.
    Among solutions the one of least norm is taken.
    """
    for target in range(min(order, 6), 0, -1):
        if stiff and not a[0].any() and (coefficients := _stiff_extension(a, b, target)) is not None:
            return coefficients, target
        for degree in dict.fromkeys((target, target + 1, max(target, 3))) if not stiff or target <= 3 else ():
            coefficients = _extension_of(a, b, target, degree, smooth=fsal and degree >= 3)
            if coefficients is not None:
                return coefficients, target
    raise ArithmeticError("a consistent method always has a linear interpolant")


def _stiff_extension(a: np.ndarray, b: np.ndarray, order: int) -> np.ndarray | None:
    """One for stages of which the first is explicit, bounded as z = hλ → −∞ in y' = λy + …, where stages are values on a slow curve.

    With A and a_1 the matrix and its first column without their first row, k = A⁻¹ (Y − y − h a_1 k_1) / h, so that y(t + θh) is y plus
    h (b_1 − bᵀA⁻¹ a_1) k_1, where k_1 grows with λ, plus bᵀA⁻¹ (Y − y): the first bracket must be 0, and a cubic is to be met, where the
    stages allow it: bᵀA⁻¹ c³ = θ³ (lower powers follow from stage order 2).
    """
    if np.linalg.matrix_rank(a[1:, 1:]) < len(a) - 1:
        return None
    inverse = np.linalg.inv(a[1:, 1:])
    bounded = (np.array([1.0, *-inverse @ a[1:, 0]]), 0)
    cubic = (np.array([0.0, *inverse @ a.sum(1)[1:] ** 3]), 3)
    for conditions in ([bounded, cubic], [bounded]) if order <= 3 else ([bounded, cubic],):
        for degree in (order, order + 1):
            coefficients = _extension_of(a, b, order, max(degree, 3), False, conditions)
            if coefficients is not None:
                return coefficients
    return None


def _extension_of(
    a: np.ndarray, b: np.ndarray, order: int, degree: int, smooth: bool, conditions: "Sequence[tuple[np.ndarray, int]]" = ()
) -> np.ndarray | None:
    stages = len(b)
    unknown = np.arange(stages * degree).reshape(stages, degree)
    rows: list[np.ndarray] = []
    right: list[float] = []

    def require(coefficients: np.ndarray, value: float) -> None:
        rows.append(coefficients.ravel())
        right.append(value)

    for tree, weight in elementary_weights(a, order).items():
        for power in range(degree):
            row = np.zeros(unknown.shape)
            row[:, power] = weight
            require(row, 1 / density(tree) if power + 1 == size(tree) else 0.0)
    for stage in range(stages):
        row = np.zeros(unknown.shape)
        row[stage] = 1.0
        require(row, b[stage])
        if smooth:
            start, end = np.zeros(unknown.shape), np.zeros(unknown.shape)
            start[stage, 0] = 1.0
            require(start, float(stage == 0))
            end[stage] = np.arange(1, degree + 1)
            require(end, float(stage == stages - 1))
    for weights, exponent in conditions:  # weights · b(θ) = θ^exponent, or 0
        for power in range(degree):
            row = np.zeros(unknown.shape)
            row[:, power] = weights
            require(row, float(power + 1 == exponent))
    matrix, vector = np.stack(rows), np.array(right)
    solution = np.linalg.lstsq(matrix, vector, rcond=1e-11)[0]
    if np.abs(matrix @ solution - vector).max() > 1e-9:
        return None
    return solution.reshape(stages, degree)
