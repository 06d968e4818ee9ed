"""Where functions that change their sign on [0, 1] are zero: Chandrupatla's method (1997), for all rows of a step at once.

Everything here is Python's or NumPy's float64 on the host: a trial takes thirty operations on a number for each row, for which PyTorch
would take longer than a look at the function does.
"""

from collections.abc import Callable

import numpy as np

Numbers = float | np.ndarray  # one for the whole batch, or one for each row of a step
Answers = bool | np.ndarray
MOST_TRIALS = 100


def changes_sign(old: Numbers, new: Numbers, direction: int) -> Answers:
    """Where a value crosses zero or arrives there; one that starts there does not."""
    up, down = (old < 0) & (new >= 0), (old > 0) & (new <= 0)
    return up if direction > 0 else down if direction < 0 else up | down


def is_any(answers: Answers) -> bool:
    """Whether one of them is yes."""
    return answers if isinstance(answers, bool) else bool(answers.any())


@np.errstate(all="ignore")
def locate(function: "Callable[[np.ndarray], Numbers]", old: np.ndarray, new: np.ndarray, precision: float) -> np.ndarray:
    """The zero of each function on (0, 1], to `precision`; where it is not hit, the near end beyond it.

    old, new: the values at 0 and 1, of which the second has another sign, or none.

    The crossing lies between x1, the latest trial, and x2; x3 is the end that was given up last. Each trial lies at least half the
    precision inside, so that one beyond the crossing closes the bracket.
    """
    x1, x2 = np.ones_like(new), np.zeros_like(new)
    g1, g2 = new, old
    share = g1 / (g1 - g2)  # where a straight line crosses
    for _ in range(MOST_TRIALS):
        gap = np.abs(x2 - x1)
        if ((gap <= precision) | (g1 == 0)).all():
            break
        margin = np.minimum(0.5 * precision / np.maximum(gap, precision), 0.5)
        share = np.minimum(np.maximum(np.where(np.isfinite(share), share, 0.5), margin), 1 - margin)
        arrived = g1 == 0  # such a row stays
        x = np.where(arrived, x1, x1 + share * (x2 - x1))
        g = np.where(arrived, g1, function(x))
        same = arrived | (((g > 0) == (g1 > 0)) & (g != 0))
        x3, g3 = np.where(same, x1, x2), np.where(same, g1, g2)
        x2, g2 = np.where(same, x2, x1), np.where(same, g2, g1)
        x1, g1 = x, g
        share = _share((x1, x2, x3), (g1, g2, g3))
    return np.where(g1 == 0, x1, np.maximum(x1, x2))


def _share(x: tuple[np.ndarray, ...], g: tuple[np.ndarray, ...]) -> np.ndarray:
    """How far the next trial lies from the latest towards the other end: by inverse quadratic interpolation where that can be trusted, else
    half way."""
    (x1, x2, x3), (g1, g2, g3) = x, g
    xi, phi = (x1 - x2) / (x3 - x2), (g1 - g2) / (g3 - g2)
    trusted = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)  # no number is not: differences of 0 are halved
    curved = g1 / (g2 - g1) * g3 / (g2 - g3) + (x3 - x1) / (x2 - x1) * g1 / (g3 - g1) * g2 / (g3 - g2)
    return np.where(trusted, curved, 0.5)
