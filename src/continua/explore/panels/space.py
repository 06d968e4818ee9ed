"""Space: what the filters of a layer are, and one of them to turn and widen."""

import streamlit as st

from continua.analysis import find_question, scales
from continua.errors import ConfigError
from continua.explore import space
from continua.explore.lens import Lens
from continua.explore.panels import show
from continua.filters import NJet
from continua.report import Figure


@st.fragment
def panel(lens: Lens) -> None:
    show.sentence(
        "The filters of a layer: their kernels, the weights α of the Gaussian derivatives they are made of, and the scale σ; turn or widen "
        "one and see what it then answers to the image.",
        "A filter as a sum of Gaussian derivatives: Figure 1 of the DCN paper; σ by depth and its distribution: Figures 3a and 3b.",
    )
    known = space.layers(lens.network.model)
    names = [layer.name for layer in known]
    start = next((place for place, layer in enumerate(known) if layer.kind == "njet"), 0)
    one, two, three = st.columns([2, 1, 1])
    layer = known[
        one.selectbox("Layer", range(len(names)), start, format_func=lambda k: _told(known[k]), key=f"space-layer-{lens.network.key}")
    ]
    output = int(two.number_input("To channel", 0, layer.outputs - 1, 0, key=f"space-to-{layer.name}"))
    source = int(three.number_input("From channel", 0, layer.inputs - 1, 0, key=f"space-from-{layer.name}"))
    t = st.slider("t", *layer.interval, layer.interval[0], key=f"space-t-{layer.name}") if layer.interval else None
    learned = space.jet(layer, output, source, t)
    if learned is None:
        st.info("The kernels of this layer are pixels: they have no σ, and turning one would need pixels that are not there.")
    else:
        _turn(lens, layer, learned, output, source)
    show.part(space.kernel_maps(layer, output, source, t), key="space-kernels")
    _scales(lens)


def _turn(lens: Lens, layer: space.Layer, learned: NJet, output: int, source: int) -> None:
    sigma = float(learned.sigma)
    key = f"{layer.name}-{output}-{source}"
    left, right = st.columns(2)
    wanted = left.slider("σ (pixels)", 0.2, max(6.0, 2 * sigma), round(sigma, 2), 0.05, key=f"space-sigma-{key}")
    degrees = right.slider("Rotation (degrees)", -180, 180, 0, 5, key=f"space-turn-{key}")
    view = space.turned(learned, wanted, degrees)
    first, second, third = st.columns(3)
    with first:
        show.part(space.filter_maps(view), key="space-filter")
    with second:
        show.part(space.response_maps(view, lens.seen()), key="space-response")
    with third:
        show.part(space.coefficients(view), key="space-coefficients", height=200)


def _scales(lens: Lens) -> None:
    try:
        found = lens.answers((lens.network.key, "scales"), lambda: scales(lens.network.model))
    except ConfigError as error:  # no N-jet in this network
        st.caption(f"{error}.")
        return
    figures = find_question("scales").present(found).every(Figure)
    for figure, place in zip(figures, st.columns(max(2, len(figures))), strict=False):
        with place:
            show.part(figure, key=f"space-{figure.name}", height=260)


def _told(layer: space.Layer) -> str:
    kind = {"njet": "N-jet", "moving": "moves with t", "pixel": "pixels"}[layer.kind]
    return f"{layer.label} ({kind}, {layer.inputs} → {layer.outputs})"
