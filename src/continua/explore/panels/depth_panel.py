"""Depth: the state of a block as it moves through time."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from continua.explore import trajectory
from continua.explore.changes import Change
from continua.explore.lens import Lens
from continua.explore.panels import parts
from continua.explore.plot import player

MOST = 8  # channels at a time


@st.fragment
def depth_panel(lens: Lens) -> None:
    parts.sentence(
        "The state h(t) of a block as it moves from its input to its output, what the network would say if the block ended at t, and how "
        "far a masked or dimmed image stays from the intact one.",
        "Feature maps and D(t): Figures 4a, 6 and 7 of the DCN paper; steps of single images: Figure 1 of Carrara et al.",
    )
    blocks = len(lens.network.model.blocks)
    left, middle, right = st.columns([1, 1, 2])
    block = left.selectbox("Block", range(blocks), format_func=lambda index: f"block {index + 1}", key="depth-block")
    change = _change(lens, middle)
    plain, other = lens.trajectory(block), lens.trajectory(block, change)
    channels = right.multiselect(
        "Channels", range(plain.states.shape[1]), default=plain.liveliest(4), max_selections=MOST, key=f"depth-channels-{lens.key}-{block}"
    )
    what = st.segmented_control(
        "Show", ["image", "changed image", "difference"], default="image", key="depth-what", label_visibility="collapsed"
    )
    if channels:
        _maps(lens, plain, other, change, channels, what or "image")
    else:
        st.info("Choose at least one channel.")
    first, second = st.columns(2)
    with first:
        parts.part(trajectory.probability_curves(plain, lens.probabilities(block), lens.network.classes), key="depth-probabilities")
    with second:
        parts.part(trajectory.difference_curve(plain, {_name(change): trajectory.difference(plain, other)}), key="depth-difference")
    if plain.steps is None:
        st.caption(f"Block {block + 1} has no time and no solver: its states are before and after each of its steps.")
    else:
        parts.part(trajectory.step_sizes(plain), key="depth-steps", height=240)


def _maps(lens: Lens, plain: trajectory.Trajectory, other: trajectory.Trajectory, change: Change, channels: list[int], what: str) -> None:
    values = {"image": plain.states, "changed image": other.states, "difference": abs(plain.states - other.states)}[what]
    title = {"image": "h(t)", "changed image": "h(t) of the changed image", "difference": "|h(t) − h(t) of the changed image|"}[what]
    probabilities = lens.probabilities(plain.block, change if what == "changed image" else None)
    maps = trajectory.maps(plain, channels, values, title)
    parts.part(maps, player(maps, (lens.network.classes[:20], probabilities[:, :20])), key="depth-maps")


def _change(lens: Lens, place: DeltaGenerator) -> Change:
    side = min(lens.network.shape[1:])
    kind = place.radio("Compare with", ["masked", "contrast"], horizontal=True, key="depth-kind")
    if kind == "masked":
        return Change(mask=place.slider("Mask (pixels)", 1, side // 2, side * 3 // 8, key=f"depth-mask-{side}"))
    return Change(contrast=place.slider("Contrast", 0.05, 2.0, 0.5, 0.05, key="depth-contrast"))


def _name(change: Change) -> str:
    return f"mask {change.mask}×{change.mask}" if change.mask else f"contrast {change.contrast:g}"
