"""Metamers of h(t) as a film: noise that was changed until a block, stopped at t, answers as it does to the image."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from continua.blocks import ODEBlock
from continua.explore.network import Explored
from continua.neuro import Percept, metamer, metamer_film
from continua.report import Axis, Figure, Maps, Series

MOMENTS = 6
RATE = 0.05  # larger than usual: few steps, and the eye forgives


@dataclass(frozen=True, eq=False)
class MetamerFilm:
    """One metamer for each moment of a block: `images` (moment, height, width), the mean of their channels.

    `times` are None for a block that has none.

    `losses` are what is left of the distance between the responses, as a share of the noise's; `distances` those of the images.
    """

    block: int
    times: tuple[float, ...] | None
    target: np.ndarray
    start: np.ndarray
    images: np.ndarray
    losses: np.ndarray
    distances: np.ndarray

    def maps(self) -> Maps:
        """The image, the noise and the metamers, by t."""
        count = len(self.images)
        values = np.stack([np.repeat(self.target[None], count, 0), np.repeat(self.start[None], count, 0), self.images])
        columns = ["at its end"] if self.times is None else [f"t = {t:.2f}" for t in self.times]
        rows = ["the image", "first noise", "its metamer"]
        return Maps("metamers", f"Metamers of block {self.block + 1}", rows, columns, values, "luminance", one_scale=True)

    def figure(self) -> Figure:
        """How far the metamer is from the image, and its response from that to the image."""
        x = (1.0,) if self.times is None else self.times
        style = "both"
        series = [
            Series("images: metamer and image", x, 100 * self.distances, style=style),
            Series("responses, as a share of the noise's", x, 100 * np.sqrt(self.losses), style=style),
        ]
        title = "What is left of the difference"
        return Figure("metamer-distances", title, Axis("t"), Axis("difference (root mean square)", "%"), series)


def metamers(network: Explored, image: Tensor, block: int, steps: int) -> MetamerFilm:
    """Metamers of one image, bytes (1, channels, height, width), at some moments of a block, all from the same noise."""
    preprocess = network.preprocess
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (preprocess.mean or (0.0,), preprocess.std or (1.0,)))
    here = network.model.blocks[block]
    times = torch.linspace(here.t0, here.t1, MOMENTS).tolist() if isinstance(here, ODEBlock) else None
    wanted = image.float() / 255

    def prepare(pixels: Tensor) -> Tensor:
        return (pixels - mean) / std

    if times is None:
        made = [metamer(Percept(network.model, block, prepare=prepare), wanted, steps=steps, rate=RATE)]
    else:
        _, made = metamer_film(network.model, wanted, block, times, prepare=prepare, steps=steps, rate=RATE)
    return MetamerFilm(
        block,
        None if times is None else tuple(times),
        wanted[0].mean(0).numpy(),
        made[0].start[0].mean(0).numpy(),
        np.stack([part.image[0].mean(0).numpy() for part in made]),
        np.array([part.losses[-1] for part in made]),
        np.array([part.distance for part in made]),
    )
