"""Perturb: change the image or the solver, and see what that does to the prediction and its cost. Compare: two networks on one image."""

from collections.abc import Callable

import streamlit as st

from continua.errors import ContinuaError
from continua.explore import changes, side_by_side, trajectory
from continua.explore.changes import ADAPTIVE, FIXED, Change, Solver
from continua.explore.lens import Lens
from continua.explore.network import Explored
from continua.explore.panels import parts
from continua.explore.panels.parts import enlarged
from continua.explore.plot import player

OWN = "the network's own"
Open = Callable[[str], Explored | None]


@st.fragment
def perturb_panel(lens: Lens) -> None:
    parts.sentence(
        "Mask, dim or disturb the image, or solve it otherwise: each row says what that alone does to the prediction, to the evaluations "
        "of f and to the time.",
        "Masks: Figure 3c of the DCN paper; contrast with and without scaled integration time: its Figure 4b; steps of the solver: Table "
        "1 of Carrara et al.",
    )
    controls, picture = st.columns([3, 1])
    with controls:
        change, scaled = _change(lens)
        solver = _solver(lens)
    with picture:
        st.image(enlarged(lens.shown(change)), caption="the changed image", width=190)
    rows = lens.trials(change, solver, scaled)
    parts.table(changes.table(rows, lens.network.classes), key="perturb-changes")
    parts.part(changes.probabilities(rows, lens.network.classes), key="perturb-probabilities")


def _change(lens: Lens) -> tuple[Change, bool]:
    side = min(lens.network.shape[1:])
    left, middle, right = st.columns(3)
    mask = left.slider("Mask (pixels a side)", 0, side, max(1, side // 4), key=f"perturb-mask-{side}")
    x = middle.slider("Mask: left to right (%)", 0, 100, 50, key="perturb-x")
    y = right.slider("Mask: top to bottom (%)", 0, 100, 50, key="perturb-y")
    left, middle, right = st.columns(3, vertical_alignment="center")  # again: on a phone columns stand below each other
    contrast = left.slider("Contrast", 0.05, 3.0, 1.0, 0.05, key="perturb-contrast")
    noise = middle.slider("Noise (σ, of white)", 0.0, 1.0, 0.0, 0.02, key="perturb-noise")
    scaled = right.toggle(
        "Time follows contrast",
        True,
        key="perturb-scaled",
        help="With everything together, the end time of block 1 is multiplied by the contrast.",
    )
    return Change(mask=mask, y=y / 100, x=x / 100, contrast=contrast, noise=noise), scaled


def _solver(lens: Lens) -> Solver:
    if not lens.continuous:
        st.caption("This network has no ODE block, and so no solver, tolerance or time to change.")
        return Solver()
    left, middle, right = st.columns(3, vertical_alignment="center")
    method = left.selectbox("Solver", [OWN, *ADAPTIVE, *FIXED], key="perturb-method")
    chosen = None if method == OWN else str(method)
    fixed = chosen in FIXED or middle.toggle("Fixed steps", False, key="perturb-fixed", disabled=chosen is None)
    if chosen is not None and fixed:
        return Solver(chosen, steps=right.slider("Steps", 1, 32, 4, key="perturb-steps"))
    options = [OWN, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    tolerance = right.select_slider("Tolerance", options, OWN, key="perturb-tolerance", format_func=lambda v: v if v == OWN else f"{v:g}")
    return Solver(chosen, None if tolerance == OWN else float(tolerance))


@st.fragment
def compare_panel(lens: Lens, names: list[str], current: str, opened: Open) -> None:
    parts.sentence(
        "Two networks look at the same image: what they say, what it costs them, and how the state of their first block moves.",
        "Models side by side, feature maps and D(t): Figures 6 and 7 of the DCN paper.",
    )
    others = [name for name in names if name != current] or names
    left, right = st.columns([2, 1])
    name = left.selectbox("Compare with", others, key="compare-other")
    size = right.slider("Mask for D(t) (% of the side)", 5, 50, 20, 5, key="compare-mask")
    try:
        other = opened(name)
    except ContinuaError as error:
        parts.problem(error)
        return
    if other is None:
        return
    second = Lens(other, lens.picture, lens.inverted, lens.answers)
    sides = [_side(each, size / 100) for each in (lens, second)]
    parts.table(side_by_side.table(sides, "masked"), key="compare-table")
    left, right = st.columns(2)
    with left:
        parts.part(side_by_side.probabilities(sides), key="compare-probabilities")
    with right:
        parts.part(side_by_side.differences(sides), key="compare-difference")
    for place, side, column in zip(("left", "right"), sides, st.columns(2), strict=True):
        with column:
            maps = trajectory.maps(side.trajectory, side.trajectory.liveliest(4), title=f"{side.name}: h(t)")
            parts.part(maps, player(maps, across=2), key=f"compare-{place}")


def _side(lens: Lens, share: float) -> side_by_side.Side:
    change = Change(mask=max(1, round(share * min(lens.network.shape[1:]))))
    parameters = sum(parameter.numel() for parameter in lens.network.model.parameters())
    return side_by_side.Side(
        lens.network.name,
        lens.network.classes,
        parameters,
        lens.outcome(),
        lens.outcome(change),
        lens.trajectory(0),
        lens.trajectory(0, change),
    )
