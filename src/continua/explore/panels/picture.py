"""The image under the lens: picked from the network's data, or uploaded."""

import numpy as np
import streamlit as st

from continua.explore.image import FORMATS, MAX_MEGABYTES, Picture, UploadError, read_upload
from continua.explore.network import Explored

SIDE = 160  # pixels on the page


def chosen(network: Explored) -> tuple[Picture, bool]:
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


@st.cache_data(max_entries=4, show_spinner=False)
def _read(content: bytes, name: str) -> Picture:
    return read_upload(content, name)


def _uploaded() -> Picture | None:
    file = st.file_uploader(f"A file of at most {MAX_MEGABYTES} MB ({', '.join(FORMATS)})", key="image-file", max_upload_size=MAX_MEGABYTES)
    if file is None:
        st.caption("Until you choose a file, an image of the data set is shown. It stays on this machine.")
        return None
    try:
        picture = _read(file.getvalue(), file.name)
    except UploadError as error:
        st.error(f"{error} An image of the data set is shown instead.", icon=":material/image_not_supported:")
        return None
    for note in picture.notes:
        st.info(note, icon=":material/info:")
    return picture


def enlarged(values: np.ndarray) -> np.ndarray:
    """Bytes of an image 0 … 1, its pixels as squares large enough to see."""
    times = max(1, -(-2 * SIDE // max(values.shape[:2])))
    return np.kron((255 * values).round().astype(np.uint8), np.ones((times, times) if values.ndim == 2 else (times, times, 1), np.uint8))
