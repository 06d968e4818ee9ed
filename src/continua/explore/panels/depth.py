"""Depth: the state of a block as it moves through time."""

from typing import Any

import streamlit as st

from continua.explore import depth
from continua.explore.lens import Lens
from continua.explore.panels import show
from continua.explore.perturb import Change
from continua.explore.plot import player

MOST = 8  # channels at a time


@st.fragment
def panel(lens: Lens) -> None:
    show.sentence(
        "The state h(t) of a block as it moves from its input to its output, what the network would say if the block ended at t, and how "
        "far a masked or dimmed image stays from the intact one.",
        "Feature maps and D(t): Figures 4a, 6 and 7 of the DCN paper; steps of single images: Figure 1 of Carrara et al.",
    )
    blocks = len(lens.network.model.blocks)
    left, middle, right = st.columns([1, 1, 2])
    block = left.selectbox("Block", range(blocks), format_func=lambda index: f"block {index + 1}", key="depth-block")
    change = _change(lens, middle)
    plain, other = lens.path(block), lens.path(block, change)
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
        show.part(depth.probability_curves(plain, lens.chances(block), lens.network.classes), key="depth-probabilities")
    with second:
        show.part(depth.difference_curve(plain, {_name(change): depth.difference(plain, other)}), key="depth-difference")
    if plain.steps is None:
        st.caption(f"Block {block + 1} has no time and no solver: its states are before and after each of its steps.")
    else:
        show.part(depth.step_sizes(plain), key="depth-steps", height=240)


def _maps(lens: Lens, plain: depth.Path, other: depth.Path, change: Change, channels: list[int], what: str) -> None:
    values = {"image": plain.states, "changed image": other.states, "difference": abs(plain.states - other.states)}[what]
    title = {"image": "h(t)", "changed image": "h(t) of the changed image", "difference": "|h(t) − h(t) of the changed image|"}[what]
    chances = lens.chances(plain.block, change if what == "changed image" else None)
    maps = depth.maps(plain, channels, values, title)
    show.part(maps, player(maps, (lens.network.classes[:20], chances[:, :20])), key="depth-maps")


def _change(lens: Lens, place: Any) -> Change:
    side = min(lens.network.shape[1:])
    kind = place.radio("Compare with", ["masked", "contrast"], horizontal=True, key="depth-kind")
    if kind == "masked":
        return Change(mask=place.slider("Mask (pixels)", 1, side // 2, side * 3 // 8, key=f"depth-mask-{side}"))
    return Change(contrast=place.slider("Contrast", 0.05, 2.0, 0.5, 0.05, key="depth-contrast"))


def _name(change: Change) -> str:
    return f"mask {change.mask}×{change.mask}" if change.mask else f"contrast {change.contrast:g}"
