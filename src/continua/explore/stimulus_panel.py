"""The panels Stimulus and Metamers: a network as a physiologist's preparation. Streamlit only; what they show is computed elsewhere."""

import math
from typing import Any

import numpy as np
import streamlit as st

from continua.errors import ConfigError
from continua.explore import metamers, parts
from continua.explore.lens import Lens
from continua.explore.panels import across, panel
from continua.explore.parts import on_a_phone, player
from continua.explore.stimulus import (
    FINEST,
    FilterChange,
    Preparation,
    Recorded,
    Stimulus,
    course_figure,
    film_maps,
    has_jets,
    record,
    screen_of,
    tuned,
    tuning_figure,
)
from continua.neuro import Screen

MOST = 8


@panel
def stimulus_panel(lens: Lens) -> None:
    parts.sentence(
        "Show the network a film of grey and then a grating or a bar, and record from it in milliseconds: maps of a block, single units, "
        "and what those units are tuned to, which changes as you make the block's filters larger or turn them.",
        "How a film drives the blocks is under Visual neuroscience in the documentation; σ and rotation of an N-jet are those of equation "
        "7 of the DCN paper.",
    )
    controls = st.container(key="controls-stimulus")
    with controls:
        setting, row, column = _setting(lens)
        stimulus = _stimulus(lens, setting)
        change = _filters(lens, setting)
    recorded = _recorded(lens, stimulus, setting, change)
    curves = None if recorded is not None else _curves(lens, stimulus, setting, FilterChange())
    count = recorded.states.shape[1] if recorded is not None else curves[0].units if curves else 1
    first = recorded.liveliest(3) if recorded is not None else list(range(min(3, count)))
    channels = controls.multiselect(
        "Channels", range(count), default=first, max_selections=MOST, key=f"stimulus-channels-{lens.network.key}-{setting.block}"
    )
    if not channels:
        st.info("Choose at least one channel.")
        return
    if recorded is not None:
        maps = film_maps(recorded, channels, setting.block)
        parts.part(maps, player(maps, across=across()), key="stimulus-film")
        parts.part(course_figure(recorded, channels, row, column), key="stimulus-units")
    _tuning(lens, stimulus, setting, change, channels)


def _setting(lens: Lens) -> tuple[Preparation, float, float]:
    """The block, and what a preparation has: how large pixels are, how fast depth is, where the unit is."""
    blocks = len(lens.network.model.blocks)
    left, middle, right = st.columns(3)
    block = left.selectbox("Block", range(blocks), format_func=lambda index: f"block {index + 1}", key="stimulus-block")
    degrees = middle.number_input("Degrees per pixel", 0.01, 5.0, 0.1, 0.05, key="stimulus-degrees")
    duration = right.slider("Shown for (ms)", 40, 400, 100, 20, key="stimulus-duration")
    first, second, third, fourth = st.columns(4)
    tau = first.slider("τ (ms per unit of depth)", 2, 50, 10, 1, key="stimulus-tau")
    gain = second.slider(
        "Drive", 0.0, 4.0, 1.0, 0.1, key="stimulus-gain", help="How strongly the film pulls the first block, and each block the next."
    )
    column = third.slider("Unit: left to right (%)", 0, 100, 50, key="stimulus-column")
    row = fourth.slider("Unit: top to bottom (%)", 0, 100, 50, key="stimulus-row")
    return Preparation(block, float(tau), gain, float(duration), degrees), row / 100, column / 100


def _stimulus(lens: Lens, setting: Preparation) -> Stimulus:
    screen = screen_of(lens.network, setting)
    kind = st.segmented_control("Show", ["grating", "bar"], default="grating", required=True, key="stimulus-kind")
    left, middle, right, last = st.columns(4)
    orientation = left.slider(
        "Orientation (°)", 0, 175, 90, 5, key=f"stimulus-orientation-{kind}", help="Of the stripes, counter-clockwise: 90 is upright."
    )
    contrast = middle.slider("Contrast", -1.0, 1.0, 1.0, 0.05, key=f"stimulus-contrast-{kind}")
    where = f"{screen.height}-{screen.width}-{setting.degrees_per_pixel}"
    look: dict[str, Any] = dict(kind=kind, orientation=float(orientation), contrast=contrast)
    if kind == "grating":
        finest, coarsest = FINEST / setting.degrees_per_pixel, 1 / max(screen.degrees)
        steps = [float(f"{value:.3g}") for value in np.geomspace(coarsest, finest, 25)]
        frequency = right.select_slider("Frequency (cycles/°)", steps, steps[12], key=f"stimulus-frequency-{where}")
        speed = last.slider("Drift (cycles/s)", 0.0, 32.0, 8.0, 1.0, key="stimulus-drift")
        return Stimulus(frequency=frequency, speed=speed, **look)
    return _bar(screen, where, look, (right, last))


def _bar(screen: Screen, where: str, look: dict[str, Any], places: tuple[Any, Any]) -> Stimulus:
    """A bar, placed by sliders."""
    pixel, (height, width) = screen.degrees_per_pixel, screen.degrees
    keys = {name: f"stimulus-{name}-{where}" for name in ("width", "length", "x", "y", "speed")}
    thick = places[0].slider("Width (°)", pixel, float(max(height, width)), 3 * pixel, pixel, key=keys["width"])
    long = places[1].slider("Length (°)", pixel, float(max(height, width)), float(max(height, width)), pixel, key=keys["length"])
    left, middle, right = st.columns(3)
    x = left.slider("x (° to the right)", -width / 2, width / 2, 0.0, pixel, key=keys["x"])
    y = middle.slider("y (° up)", -height / 2, height / 2, 0.0, pixel, key=keys["y"])
    speed = right.slider(
        "Moves (°/s)", 0.0, 100.0, 0.0, 5.0, key=keys["speed"], help="At right angles to its length, through the middle of the screen."
    )
    return Stimulus(width=thick, length=long, x=x, y=y, speed=speed, **look)


def _filters(lens: Lens, setting: Preparation) -> FilterChange:
    if not has_jets(lens.network.model, setting.block):
        st.caption(f"The filters of block {setting.block + 1} are pixels: they have no σ to change, and cannot be turned.")
        return FilterChange()
    left, right = st.columns(2)
    factor = left.slider("σ of the block's filters, times", 0.4, 2.5, 1.0, 0.05, key=f"stimulus-sigma-{lens.network.key}")
    degrees = right.slider(
        "Turn the block's filters (°)", -90, 90, 0, 5, key=f"stimulus-turn-{lens.network.key}", help="Counter-clockwise."
    )
    return FilterChange(factor, float(degrees))


def _recorded(lens: Lens, stimulus: Stimulus, setting: Preparation, change: FilterChange) -> Recorded | None:
    """What the film does; None where it cannot drive this network, which the page then says."""
    question = (lens.network.key, "driven", stimulus, setting, change)
    try:
        return lens.answers(question, lambda: record(lens.network, stimulus, setting, change))
    except ConfigError as error:
        parts.problem(error)
        return None


def _curves(lens: Lens, stimulus: Stimulus, setting: Preparation, change: FilterChange) -> Any:
    plain = Preparation(block=setting.block, degrees_per_pixel=setting.degrees_per_pixel)  # nothing else matters here
    grating = Stimulus(stimulus.kind, stimulus.orientation, stimulus.contrast, stimulus.frequency)
    question = (lens.network.key, "tuned", grating, plain, change)
    return lens.answers(question, lambda: tuned(lens.network, grating, plain, change))


def _tuning(lens: Lens, stimulus: Stimulus, setting: Preparation, change: FilterChange, channels: list[int]) -> None:
    """Orientation and frequency tuning of one unit, at its block's end, as trained and as changed."""
    channel = st.selectbox("Tuning of channel", channels, key=f"stimulus-tuned-{lens.network.key}-{setting.block}")
    trained = _curves(lens, stimulus, setting, FilterChange())
    changed = trained if change.nothing else _curves(lens, stimulus, setting, change)
    for one, other, place in zip(trained, changed, st.columns(2), strict=True):
        with place:
            figure = tuning_figure(one, other, channel, change.nothing)
            parts.part(figure, key=f"stimulus-{figure.name}", height=260)
    shown = f"{stimulus.frequency:g} cycles/°" if stimulus.kind == "grating" else "a middle frequency"
    st.caption(
        f"Unit in the middle of the map, at the end of block {setting.block + 1}; full-field gratings at four phases. Orientation at "
        f"{shown}, frequency at {stimulus.orientation:g}°. The response is the mean over phases, or the modulation by them where that is "
        "larger."
    )


@panel
def metamer_panel(lens: Lens) -> None:
    parts.sentence(
        "Noise that was changed until a block, stopped at t, answers to it as it does to the image: what still differs between the two is "
        "what the block has thrown away by then.",
        "Metamers of a model of the ventral stream: the paper by Freeman and Simoncelli (2011).",
    )
    left, right = st.container(key="controls-metamers").columns(2)
    blocks = len(lens.network.model.blocks)
    block = left.selectbox("Block", range(blocks), format_func=lambda index: f"block {index + 1}", key="metamer-block")
    steps = right.select_slider(
        "Steps for each", [25, 50, 100, 200, 400], 50, key="metamer-steps", help="More steps come nearer, and take longer."
    )
    question = (*lens.key, "metamers", block, steps)
    film = lens.answers(question, lambda: metamers.metamers(lens.network, lens.image, block, steps))
    maps = film.maps()
    parts.part(maps, player(maps, across=1 if on_a_phone() else 3, row=220), key="metamer-film")
    if film.times is None:
        share = 100 * math.sqrt(float(film.losses[0]))
        st.caption(f"Block {block + 1} has no time: one metamer, of its output. The responses differ by {share:.1f} % of the noise's.")
    else:
        parts.part(film.figure(), key="metamer-figure", height=240)
