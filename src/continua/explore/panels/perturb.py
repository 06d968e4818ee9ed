"""Perturb: change the image or the solver, and see what that does to the prediction and to its cost."""

import streamlit as st

from continua.explore import perturb
from continua.explore.lens import Lens
from continua.explore.panels import show
from continua.explore.panels.picture import enlarged
from continua.explore.perturb import ADAPTIVE, FIXED, Change, Solver

OWN = "the network's own"


@st.fragment
def panel(lens: Lens) -> None:
    show.sentence(
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
    show.table(perturb.table(rows, lens.network.classes), key="perturb-changes")
    show.part(perturb.probabilities(rows, lens.network.classes), key="perturb-probabilities")


def _change(lens: Lens) -> tuple[Change, bool]:
    side = min(lens.network.shape[1:])
    one, two, three = st.columns(3)
    mask = one.slider("Mask (pixels a side)", 0, side, max(1, side // 4), key=f"perturb-mask-{side}")
    x = two.slider("Mask: left to right (%)", 0, 100, 50, key="perturb-x")
    y = three.slider("Mask: top to bottom (%)", 0, 100, 50, key="perturb-y")
    one, two, three = st.columns(3, vertical_alignment="center")  # again: on a phone columns stand below each other
    contrast = one.slider("Contrast", 0.05, 3.0, 1.0, 0.05, key="perturb-contrast")
    noise = two.slider("Noise (σ, of white)", 0.0, 1.0, 0.0, 0.02, key="perturb-noise")
    scaled = three.toggle(
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
    one, two, three = st.columns(3, vertical_alignment="center")
    method = one.selectbox("Solver", [OWN, *ADAPTIVE, *FIXED], key="perturb-method")
    chosen = None if method == OWN else str(method)
    fixed = chosen in FIXED or two.toggle("Fixed steps", False, key="perturb-fixed", disabled=chosen is None)
    if chosen is not None and fixed:
        return Solver(chosen, steps=three.slider("Steps", 1, 32, 4, key="perturb-steps"))
    options = [OWN, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    tolerance = three.select_slider("Tolerance", options, OWN, key="perturb-tolerance", format_func=lambda v: v if v == OWN else f"{v:g}")
    return Solver(chosen, None if tolerance == OWN else float(tolerance))
