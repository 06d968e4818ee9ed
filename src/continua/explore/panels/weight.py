"""Weight: kernels that evolve along depth."""

import streamlit as st

from continua.explore import weight
from continua.explore.lens import Lens
from continua.explore.panels import show
from continua.explore.plot import player


@st.fragment
def panel(lens: Lens) -> None:
    show.sentence(
        "Kernels as they evolve while the activations pass: the same layer has another kernel at each t.",
        "Figures 1, 4 and 5 of the ANODEV2 paper; what each part of the evolution does to a Gaussian: its Figure 3.",
    )
    names = weight.moving(lens.network.model)
    if names:
        _layer(lens, names)
    else:
        st.info(
            "The filters of this network are the same at every t. Choose a coupled network on the left, such as **demo: ANODEV2**; "
            "below, what such an evolution does to a Gaussian."
        )
    maps = lens.evolution()
    show.part(maps, player(maps), key="weight-evolution")


def _layer(lens: Lens, names: list[str]) -> None:
    left, right = st.columns([2, 1])
    name = left.selectbox("Layer", names, format_func=weight.label, key=f"weight-layer-{lens.network.key}")
    outputs = lens.network.model.get_submodule(name).out_channels
    channel = int(right.number_input("To channel", 0, int(outputs) - 1, 0, key=f"weight-to-{name}"))  # pyright: ignore[reportArgumentType]
    found = lens.kernels_over_time(name, channel, 8)
    maps = weight.kernel_maps(found)
    show.part(maps, player(maps), key="weight-kernels")
    for figure, place in zip(weight.curves(found), st.columns(2), strict=True):
        with place:
            show.part(figure, key=f"weight-{figure.name}", height=240)
