"""The panels: Depth, Space, Weight, Perturb and Compare. Streamlit only; what they show is computed elsewhere."""

from collections.abc import Callable, Mapping
from functools import wraps

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from continua.analysis import conv_name, find_question, scales
from continua.errors import ConfigError, ContinuaError
from continua.explore import changes, kernels, parts, trajectory
from continua.explore.answers import Pending
from continua.explore.changes import ADAPTIVE, AS_IS, FIXED, OWN_SOLVER, Change, Solver
from continua.explore.lens import Lens, side_differences, side_of, side_probabilities, side_table
from continua.explore.network import Explored
from continua.explore.parts import on_a_phone, player
from continua.filters import NJet
from continua.report import Figure

MOST = 8  # channels at a time
OWN = "the network's own"
Open = Callable[[str], Explored | None]


def panel(draw: Callable[..., None]) -> Callable[..., None]:
    """A part of the page that is drawn again by itself when one of its controls moves, and says so while an answer takes long."""

    @wraps(draw)
    def drawn(lens: Lens, *others: object) -> None:
        try:
            draw(lens, *others)
        except Pending as pending:
            parts.waiting(pending)

    return st.fragment(drawn)


# --- Depth: the state of a block as it moves through time -----------------------------------------------------------------


@panel
def depth_panel(lens: Lens) -> None:
    parts.sentence(
        "The state h(t) of a block as it moves from its input to its output, what the network would say if the block ended at t, and how "
        "far a masked or dimmed image stays from the intact one.",
        "Feature maps and D(t): Figures 4a, 6 and 7 of the DCN paper; steps of single images: Figure 1 of Carrara et al.",
    )
    blocks = len(lens.network.model.blocks)
    left, middle, right = st.container(key="controls-depth").columns([1, 1, 2])
    block = left.selectbox("Block", range(blocks), format_func=lambda index: f"block {index + 1}", key="depth-block")
    change = _depth_change(lens, middle)
    plain, other = lens.trajectory(block), lens.trajectory(block, change)
    channels = right.multiselect(
        "Channels", range(plain.states.shape[1]), default=plain.liveliest(4), max_selections=MOST, key=f"depth-channels-{lens.key}-{block}"
    )
    what = st.segmented_control(
        "Show", ["image", "changed image", "difference"], default="image", required=True, key="depth-what", label_visibility="collapsed"
    )
    if channels:
        _depth_maps(lens, plain, other, change, channels, what)
    else:
        st.info("Choose at least one channel.")
    first, second = st.columns(2)
    with first:
        parts.part(trajectory.probability_curves(plain, lens.probabilities(block), lens.network.classes), key="depth-probabilities")
    with second:
        what_changed = f"mask {change.mask}×{change.mask}" if change.mask else f"contrast {change.contrast:g}"
        parts.part(trajectory.difference_curve(plain, {what_changed: trajectory.difference(plain, other)}), key="depth-difference")
    if plain.steps is None:
        st.caption(f"Block {block + 1} has no time and no solver: its states are before and after each of its steps.")
    else:
        parts.part(trajectory.step_sizes(plain), key="depth-steps", height=240)


def _depth_maps(
    lens: Lens, plain: trajectory.Trajectory, other: trajectory.Trajectory, change: Change, channels: list[int], what: str
) -> None:
    values = {"image": plain.states, "changed image": other.states, "difference": abs(plain.states - other.states)}[what]
    title = {"image": "h(t)", "changed image": "h(t) of the changed image", "difference": "|h(t) − h(t) of the changed image|"}[what]
    probabilities = lens.probabilities(plain.block, change if what == "changed image" else AS_IS)
    maps = trajectory.maps(plain, channels, values, title)
    bars = lens.network.classes[:20], probabilities[:, :20]
    parts.part(maps, player(maps, bars, across=across()), key="depth-maps")


def across() -> int:
    """Maps beside each other: few enough that pixels can be seen."""
    return 2 if on_a_phone() else 4


def _depth_change(lens: Lens, place: DeltaGenerator) -> Change:
    side = min(lens.network.shape[1:])
    kind = place.radio("Compare with", ["masked", "contrast"], horizontal=True, key="depth-kind")
    if kind == "masked":
        return Change(mask=place.slider("Mask (pixels)", 1, side // 2, side * 3 // 8, key=f"depth-mask-{side}"))
    return Change(contrast=place.slider("Contrast", 0.05, 2.0, 0.5, 0.05, key="depth-contrast"))


# --- Space: what the filters of a layer are, and one of them to turn and widen. Weight: kernels that evolve along depth --------


@panel
def space_panel(lens: Lens) -> None:
    parts.sentence(
        "The filters of a layer: their kernels, the weights α of the Gaussian derivatives they are made of, and the scale σ; turn or widen "
        "one and see what it then answers to the image.",
        "A filter as a sum of Gaussian derivatives: Figure 1 of the DCN paper; σ by depth and its distribution: Figures 3a and 3b.",
    )
    known = kernels.filter_layers(lens.network.model)
    start = next((place for place, layer in enumerate(known) if layer.kind == "njet"), 0)
    left, middle, right = st.columns([2, 1, 1])
    place = left.selectbox(
        "Layer", range(len(known)), start, format_func=lambda k: _layer_name(known[k]), key=f"space-layer-{lens.network.key}"
    )
    layer = known[place]
    output = int(middle.number_input("To channel", 0, layer.outputs - 1, 0, key=f"space-to-{layer.name}"))
    source = int(right.number_input("From channel", 0, layer.inputs - 1, 0, key=f"space-from-{layer.name}"))
    t = st.slider("t", *layer.interval, layer.interval[0], key=f"space-t-{layer.name}") if layer.interval else None
    learned = kernels.jet(layer, output, source, t)
    if learned is None:
        st.info("The kernels of this layer are pixels: they have no σ, and turning one would need pixels that are not there.")
    else:
        _turn(lens, layer, learned, output, source)
    parts.part(kernels.kernel_maps(layer, output, source, t), key="space-kernels")
    _scales(lens)


def _turn(lens: Lens, layer: kernels.Layer, learned: NJet, output: int, source: int) -> None:
    sigma = float(learned.sigma)
    key = f"{layer.name}-{output}-{source}"
    left, right = st.columns(2)
    wanted = left.slider("σ (pixels)", 0.2, max(6.0, 2 * sigma), round(sigma, 2), 0.05, key=f"space-sigma-{key}")
    degrees = right.slider("Rotation (degrees)", -180, 180, 0, 5, key=f"space-turn-{key}")
    view = kernels.turned(learned, wanted, degrees)
    first, second, third = st.columns(3)
    with first:
        parts.part(kernels.filter_maps(view), key="space-filter")
    with second:
        parts.part(kernels.response_maps(view, lens.seen()), key="space-response")
    with third:
        parts.part(kernels.coefficients(view), key="space-coefficients", height=200)


def _scales(lens: Lens) -> None:
    try:
        answer = lens.answers((lens.network.key, "scales"), lambda: scales(lens.network.model))
    except ConfigError as error:  # no N-jet in this network
        st.caption(f"{error}.")
        return
    figures = find_question("scales").present(answer).every(Figure)
    for figure, place in zip(figures, st.columns(max(2, len(figures))), strict=False):
        with place:
            parts.part(figure, key=f"space-{figure.name}", height=260)


def _layer_name(layer: kernels.Layer) -> str:
    kind = {"njet": "N-jet", "moving": "moves with t", "pixel": "pixels"}[layer.kind]
    return f"{layer.label} ({kind}, {layer.inputs} → {layer.outputs})"


@panel
def weight_panel(lens: Lens) -> None:
    parts.sentence(
        "Kernels as they evolve while the activations pass: the same layer has another kernel at each t.",
        "Figures 1, 4 and 5 of the ANODEV2 paper; what each part of the evolution does to a Gaussian: its Figure 3.",
    )
    names = kernels.moving_layers(lens.network.model)
    if names:
        _moving_layer(lens, names)
    else:
        st.info(
            "The filters of this network are the same at every t. Choose a coupled network on the left, such as **demo: ANODEV2**; "
            "below, what such an evolution does to a Gaussian."
        )
    maps = lens.evolution()
    parts.part(maps, player(maps, across=across()), key="weight-evolution")


def _moving_layer(lens: Lens, names: list[str]) -> None:
    left, right = st.columns([2, 1])
    name = left.selectbox("Layer", names, format_func=conv_name, key=f"weight-layer-{lens.network.key}")
    outputs = next(layer.outputs for layer in kernels.filter_layers(lens.network.model) if layer.name == name)
    channel = int(right.number_input("To channel", 0, outputs - 1, 0, key=f"weight-to-{name}"))
    path = lens.kernels_over_time(name, channel, 8)
    maps = kernels.moving_kernel_maps(path)
    parts.part(maps, player(maps, across=across()), key="weight-kernels")
    for figure, place in zip(kernels.weight_curves(path), st.columns(2), strict=True):
        with place:
            parts.part(figure, key=f"weight-{figure.name}", height=240)


# --- Perturb: change the image or the solver, and see what that does. Compare: two networks on one image -----------------------


@panel
def perturb_panel(lens: Lens) -> None:
    parts.sentence(
        "Mask, dim or disturb the image, or solve it otherwise: each row says what that alone does to the prediction, to the evaluations "
        "of f and to the time.",
        "Masks: Figure 3c of the DCN paper; contrast with and without scaled integration time: its Figure 4b; steps of the solver: Table "
        "1 of Carrara et al.",
    )
    controls, picture = st.container(key="controls-perturb").columns([3, 1])
    with controls:
        change, scaled = _change(lens)
        solver = _solver(lens)
    with picture:
        st.image(parts.enlarged(lens.shown(change)), caption="the changed image", width=190)
    rows = lens.trials(change, solver, scaled)
    parts.part(changes.trials_table(rows, lens.network.classes), key="perturb-changes")
    parts.part(changes.trial_probabilities(rows, lens.network.classes), key="perturb-probabilities")


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
        "T × contrast",
        True,
        key="perturb-scaled",
        help="With everything together, the end time of block 1 is multiplied by the contrast.",
    )
    return Change(mask=mask, y=y / 100, x=x / 100, contrast=contrast, noise=noise), scaled


def _solver(lens: Lens) -> Solver:
    if not lens.continuous:
        st.caption("This network has no ODE block, and so no solver, tolerance or time to change.")
        return OWN_SOLVER
    left, middle, right = st.columns(3, vertical_alignment="center")
    method = left.selectbox("Solver", [OWN, *ADAPTIVE, *FIXED], key="perturb-method")
    chosen = None if method == OWN else str(method)
    fixed = chosen in FIXED or middle.toggle("Fixed steps", False, key="perturb-fixed", disabled=chosen is None)
    if chosen is not None and fixed:
        return Solver(chosen, steps=right.slider("Steps", 1, 32, 4, key="perturb-steps"))
    options = [OWN, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
    tolerance = right.select_slider("Tolerance", options, OWN, key="perturb-tolerance", format_func=lambda v: v if v == OWN else f"{v:g}")
    return Solver(chosen, None if tolerance == OWN else float(tolerance))


@panel
def compare_panel(lens: Lens, labels: Mapping[str, str], current: str, opened: Open) -> None:
    parts.sentence(
        "Two networks look at the same image: what they say, what it costs them, and how the state of their first block moves.",
        "Models side by side, feature maps and D(t): Figures 6 and 7 of the DCN paper.",
    )
    others = [name for name in labels if name != current] or list(labels)
    left, right = st.container(key="controls-compare").columns([2, 1])
    name = left.selectbox("Compare with", others, format_func=lambda name: labels[name], key="compare-other")
    size = right.slider("Mask for D(t) (% of the side)", 5, 50, 20, 5, key="compare-mask")
    try:
        other = opened(name)
    except ContinuaError as error:
        parts.problem(error)
        return
    if other is None:
        return
    second = Lens(other, lens.picture, lens.inverted, lens.answers)
    sides = []
    for each in (lens, second):
        mask = max(1, round(size / 100 * min(each.network.shape[1:])))
        sides.append(side_of(each, Change(mask=mask)))
    parts.part(side_table(sides, "masked"), key="compare-table")
    left, right = st.columns(2)
    with left:
        parts.part(side_probabilities(sides), key="compare-probabilities")
    with right:
        parts.part(side_differences(sides), key="compare-difference")
    first, last = (trajectory.maps(side.trajectory, side.trajectory.liveliest(4), title=f"{side.name}: h(t)") for side in sides)
    names = "above" if not on_a_phone() else "first", "below" if not on_a_phone() else "then"
    title = f"h(t) of both, moved by one slider: {names[0]} {sides[0].name}, {names[1]} {sides[1].name}"
    parts.pair(first, last, player([first, last], across=across()), title=title, key="compare-maps")
