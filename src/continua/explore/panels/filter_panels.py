"""Space: what the filters of a layer are, and one of them to turn and widen. Weight: kernels that evolve along depth."""

import streamlit as st

from continua.analysis import find_question, scales
from continua.errors import ConfigError
from continua.explore import kernels
from continua.explore.lens import Lens
from continua.explore.panels import parts
from continua.explore.plot import player
from continua.filters import NJet
from continua.report import Figure


@st.fragment
def space_panel(lens: Lens) -> None:
    parts.sentence(
        "The filters of a layer: their kernels, the weights α of the Gaussian derivatives they are made of, and the scale σ; turn or widen "
        "one and see what it then answers to the image.",
        "A filter as a sum of Gaussian derivatives: Figure 1 of the DCN paper; σ by depth and its distribution: Figures 3a and 3b.",
    )
    known = kernels.layers(lens.network.model)
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


@st.fragment
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
    parts.part(maps, player(maps), key="weight-evolution")


def _moving_layer(lens: Lens, names: list[str]) -> None:
    left, right = st.columns([2, 1])
    name = left.selectbox("Layer", names, format_func=kernels.label, key=f"weight-layer-{lens.network.key}")
    outputs = next(layer.outputs for layer in kernels.layers(lens.network.model) if layer.name == name)
    channel = int(right.number_input("To channel", 0, outputs - 1, 0, key=f"weight-to-{name}"))
    path = lens.kernels_over_time(name, channel, 8)
    maps = kernels.moving_kernel_maps(path)
    parts.part(maps, player(maps), key="weight-kernels")
    for figure, place in zip(kernels.weight_curves(path), st.columns(2), strict=True):
        with place:
            parts.part(figure, key=f"weight-{figure.name}", height=240)
