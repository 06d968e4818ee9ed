"""Compare: two networks on the same image."""

from collections.abc import Callable

import streamlit as st

from continua.errors import ContinuaError
from continua.explore import compare, depth
from continua.explore.lens import Lens
from continua.explore.network import Explored
from continua.explore.panels import show
from continua.explore.perturb import Change
from continua.explore.plot import player

Open = Callable[[str], Explored | None]


@st.fragment
def panel(lens: Lens, names: list[str], current: str, opened: Open) -> None:
    show.sentence(
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
        show.said(error)
        return
    if other is None:
        return
    second = Lens(other, lens.picture, lens.inverted, lens.answers)
    sides = [_side(one, size / 100) for one in (lens, second)]
    show.table(compare.table(sides, "masked"), key="compare-table")
    one, two = st.columns(2)
    with one:
        show.part(compare.probabilities(sides), key="compare-probabilities")
    with two:
        show.part(compare.differences(sides), key="compare-difference")
    for place, side, column in zip(("left", "right"), sides, st.columns(2), strict=True):
        with column:
            maps = depth.maps(side.path, side.path.liveliest(4), title=f"{side.name}: h(t)")
            show.part(maps, player(maps, across=2), key=f"compare-{place}")


def _side(lens: Lens, share: float) -> compare.Side:
    change = Change(mask=max(1, round(share * min(lens.network.shape[1:]))))
    parameters = sum(parameter.numel() for parameter in lens.network.model.parameters())
    found = lens.outcome(), lens.outcome(change)
    return compare.Side(lens.network.name, lens.network.classes, parameters, *found, lens.path(0), lens.path(0, change))
