"""The frame of the page: which network, which image (of its data or uploaded), what it says, and the panel that is open."""

import gc
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import streamlit as st
from PIL import Image

from continua.data import IMAGE_FORMATS
from continua.errors import ContinuaError
from continua.explore import parts
from continua.explore.answers import Answers, Pending
from continua.explore.demo_networks import Demo, DemoTraining, demos
from continua.explore.image import MAX_MEGABYTES, Picture, UploadError, read_upload
from continua.explore.lens import Lens
from continua.explore.network import Explored, known_runs, open_run, run_label
from continua.explore.panels import compare_panel, depth_panel, perturb_panel, space_panel, weight_panel
from continua.explore.parts import SIDE, enlarged
from continua.explore.stimulus_panel import metamer_panel, stimulus_panel

# And Compare, which opens a second network.
PANELS = {
    "Depth": depth_panel,
    "Space": space_panel,
    "Weight": weight_panel,
    "Stimulus": stimulus_panel,
    "Metamers": metamer_panel,
    "Perturb": perturb_panel,
}
STYLE = """<style>
.block-container {padding-top: 3.75rem; max-width: 1180px}
[data-testid="stImage"] img {image-rendering: pixelated; border-radius: 4px}
.numbers {overflow-x: auto}
.numbers table {border-collapse: collapse; font-size: 0.9rem}
.numbers th, .numbers td {padding: 0.3rem 0.7rem 0.3rem 0; text-align: left; vertical-align: top}
.numbers tr {border-bottom: 1px solid rgba(128, 128, 128, 0.3)}
.numbers td + td {font-variant-numeric: tabular-nums}
@media (max-width: 640px) {
  .block-container {padding: 3.25rem 0.9rem 2rem}
  .numbers table {font-size: 0.8rem}
  .numbers th, .numbers td {padding-right: 0.4rem}
  [data-testid="stLayoutWrapper"]:has(> [class*="st-key-controls-"]) {order: 1}
}
</style>"""
STRANGE = 1.15  # times what one training image in a thousand reaches: no test digit does, what is no digit does


def page(words: Sequence[str]) -> None:
    """Everything, for the words of the command line."""
    st.set_page_config("Continua explorer", _icon(), layout="wide", initial_sidebar_state=380)
    st.html(STYLE)
    given, runs, data_dir = _arguments(words)
    places = _places(given, runs)
    with st.sidebar:
        st.markdown("## Continua")
        name = st.selectbox("Network", list(places), format_func=lambda name: _label(places[name]), key="network")
    try:
        network = _opened(places[name], data_dir)
    except ContinuaError as error:
        parts.problem(error)
        st.caption("Choose another network on the left.")
        return
    if network is None:
        return
    with st.sidebar:
        st.caption(network.about)
        picture, inverted = _chosen_picture(network)
    lens = Lens(network, picture, inverted, _answers())
    try:
        _head(lens)
        _panel(lens, places, name, data_dir)
    except Pending as pending:
        parts.waiting(pending)
    except ContinuaError as error:
        parts.problem(error)


def _icon() -> Image.Image:
    """A wave, drawn here: streamlit would fetch any icon it has a name for from elsewhere."""
    x, y = np.meshgrid(np.linspace(0, 2 * np.pi, 64), np.linspace(1.6, -1.6, 64))
    ink = np.clip(1.6 - 5 * np.abs(y - np.sin(x)), 0, 1)
    return Image.fromarray(np.dstack([0 * x, 0 * x + 114, 0 * x + 178, 255 * ink]).astype(np.uint8))


def _arguments(words: Sequence[str]) -> tuple[list[str], str | None, Path | None]:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("run", nargs="*")
    parser.add_argument("--runs", default=None)
    parser.add_argument("--data_dir", type=Path, default=None)
    given = parser.parse_args(list(words))
    return given.run, given.runs, given.data_dir


@st.cache_resource(show_spinner=False)
def _answers() -> Answers:
    gc.collect()
    gc.freeze()  # what was imported stays: to look for garbage among it took 0.2 s, every few changes
    return Answers()


@st.cache_resource(show_spinner=False)
def _demos() -> list[Demo]:
    return demos()


_known = st.cache_data(ttl=20, show_spinner=False)(known_runs)  # reading the recipes of many runs takes longer than a click may
_described = st.cache_data(ttl=20, show_spinner=False)(run_label)
_read_picture = st.cache_data(max_entries=4, show_spinner=False)(read_upload)


def _places(given: list[str], runs: str | None) -> dict[str, "Path | Demo"]:
    """Names of networks to choose from: those asked for, those that were trained, then the demos."""
    folders = [Path(folder) for folder in given]
    folders += [folder for folder in _known(runs) if folder.resolve() not in {asked.resolve() for asked in folders}]
    # The demo's continuous network first, where `continua demo` has trained it.
    ordered = folders[: len(given)] + sorted(folders[len(given) :], key=lambda folder: folder.parts[-2:] != ("demo", "dcn_ode"))
    places: dict[str, Path | Demo] = {}
    for folder in ordered:
        name = folder.name if folder.name not in places else str(folder)
        places[name if folder.parent.name != "demo" else f"demo/{folder.name}"] = folder
    trained = any(folder.parts[-2:] == ("demo", "dcn_ode") for folder in folders)
    for demo in _demos():
        if not (trained and demo.recipe.model == "dcn_ode"):
            places[demo.name] = demo
    return places


def _label(place: "Path | Demo") -> str:
    """A network as the list of networks names it."""
    if isinstance(place, Path):
        return _described(place)
    return place.name if place.ready else f"{place.name} (to be trained first)"


def _opened(place: "Path | Demo", data_dir: Path | None) -> Explored | None:
    """The network; None where it must be trained first, which the page then offers or shows."""
    if isinstance(place, Path):
        return _read(str(place), str(data_dir or ""), _stamp(place))
    if not place.ready:
        _train(place)
        return None
    return _read(str(place.folder), "", _stamp(place.folder))


@st.cache_resource(show_spinner="reading the network …", max_entries=8)
def _read(folder: str, data_dir: str, stamp: float) -> Explored:
    return open_run(folder, Path(data_dir) if data_dir else None)


def _stamp(folder: Path) -> float:
    """When its files last changed: a run that was trained anew is read anew."""
    return max(
        (path.stat().st_mtime for path in (*folder.glob("best/*"), *folder.glob("config.*"), *folder.glob("*.safetensors"))), default=0.0
    )


@st.cache_resource(show_spinner=False)
def _trainings() -> dict[str, DemoTraining]:
    return {}


def _train(demo: Demo) -> None:
    """The first use of a demo network: offer to train it; while it trains, say how far it is."""
    training = _trainings().setdefault(demo.name, DemoTraining(demo))
    st.markdown(f"### {demo.name}")
    st.markdown(f"A small network on the bundled digits, {demo.text}. It is trained once, in a minute or two on two cores, and then kept.")
    if training.running:
        _training_bar(demo.name)
    elif st.button("Continue its training" if training.run.exists else "Train it now", key=f"train-{demo.name}", type="primary"):
        training.start()
        st.rerun()


@st.fragment(run_every=1.0)
def _training_bar(name: str) -> None:
    training = _trainings()[name]
    try:
        if training.finished():
            st.rerun()
    except ContinuaError as error:
        parts.problem(error)
        return
    st.progress(*training.progress())
    if training.ours and st.button("Stop", key=f"stop-{name}", help="What it has learnt is kept: it can be continued later."):
        training.stop()
        st.rerun()


def _chosen_picture(network: Explored) -> tuple[Picture, bool]:
    """What the person chose, and whether black and white change places."""
    source = st.radio("Image", ["of the data set", "your own"], horizontal=True, key="image-source")
    picture = _uploaded() if source == "your own" else None
    inverted = (
        source == "your own"
        and network.shape[0] == 1
        and st.toggle(
            "Invert",
            True,
            key="image-invert",
            help="The digits this network knows are white on black; ink on paper is the other way round.",
        )
    )
    if picture is not None:
        return picture, bool(inverted)
    if network.absent:
        st.caption(network.absent)
    place = st.slider("Which image", 1, len(network.pictures), 1, key=f"image-place-{network.key}")
    return network.pictures[place - 1], False


def _uploaded() -> Picture | None:
    what = f"A file of at most {MAX_MEGABYTES} MB ({', '.join(IMAGE_FORMATS)})"
    file = st.file_uploader(what, key="image-file", max_upload_size=MAX_MEGABYTES)
    if file is None:
        st.caption("Until you choose a file, an image of the data set is shown. It stays on this machine.")
        return None
    try:
        picture = _read_picture(file.getvalue(), file.name)
    except UploadError as error:
        st.error(f"{error} An image of the data set is shown instead.", icon=":material/image_not_supported:")
        return None
    for note in picture.notes:
        st.info(note, icon=":material/info:")
    return picture


def _head(lens: Lens) -> None:
    """What the network says of the image, and the image; side by side on a phone too."""
    outcome, classes = lens.outcome(), lens.network.classes
    with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="medium", key="head"):
        st.image(enlarged(lens.shown()), width=SIDE if not parts.on_a_phone() else SIDE // 2, caption="what the network sees")
        with st.container(gap="xxsmall"):
            if outcome.problem:
                st.warning(outcome.problem)
                return
            label = lens.picture.label
            verdict = "" if label is None else (" · correct" if label == classes[outcome.best] else f" · wrong: it is {label}")
            st.markdown(f"### {classes[outcome.best]}  \n{100 * outcome.probabilities.max():.1f} %{verdict}")
            each = " + ".join(map(str, outcome.nfe))
            cost = (
                f"{sum(outcome.nfe)} evaluations of f ({each}), {sum(outcome.rejected)} rejected steps, " if outcome.nfe else "no solver, "
            )
            st.caption(f"{lens.network.name}: {cost}{1000 * outcome.seconds:.1f} ms for this pass.")
    strangeness = lens.strangeness
    if strangeness is not None and strangeness > STRANGE:
        st.warning(
            "This picture is unlike the images that the network was trained on, so its answer means little: its distance from them is "
            f"{strangeness:.1f} times what one training image in a thousand reaches. Every picture gets one of the {len(classes)} classes.",
            icon=":material/question_mark:",
        )


def _panel(lens: Lens, places: dict[str, "Path | Demo"], name: str, data_dir: Path | None) -> None:
    """Only the panel that is open is computed."""
    names = [*PANELS, "Compare"]
    opened = st.segmented_control("Panel", names, default=names[0], required=True, key="panel", label_visibility="collapsed")
    if opened == "Compare":
        labels = {name: _label(place) for name, place in places.items()}
        compare_panel(lens, labels, name, lambda other: _opened(places[other], data_dir))
    else:
        PANELS[opened](lens)
