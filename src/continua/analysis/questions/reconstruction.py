"""Reconstruction: images beside what a decoder makes of their features, and its error (DCN Table 2b, Fig. 5)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from continua.analysis.question import DataOptions, Plotted, Question, Subject, no_progress, register_question
from continua.errors import ConfigError
from continua.models import Reconstructor
from continua.options import option
from continua.report import Axis, Figure, Maps, Page, Series
from continua.runs import Batches


@dataclass(frozen=True, repr=False)
class Reconstruction(Plotted):
    """Mean squared error per pixel, over all images and of each; the first of them beside their reconstructions, (image, channel, y, x)."""

    images: int
    error: float
    errors: np.ndarray
    targets: np.ndarray
    reconstructed: np.ndarray


def _decoder(model: nn.Module) -> Reconstructor:
    if not isinstance(model, Reconstructor):
        raise ConfigError("reconstruction is asked of a decoder: train one with `continua train --recipe reconstruction --encoder RUN`")
    return model


@torch.no_grad()
def reconstruction(
    model: nn.Module, batches: Batches, *, examples: int = 8, advance: Callable[[int], None] = no_progress
) -> Reconstruction:
    """What a `Reconstructor` makes of images.

    Args:
        model: the network with its decoder.
        batches: pairs (images, labels).
        examples: how many images are kept to be shown.
        advance: called with the number of images after each batch.

    Returns:
        Mean squared error, and the examples.

    Examples:
        >>> from continua.analysis import reconstruction
        >>> from continua.runs import RunView, load_reconstructor
        >>> run = RunView("runs/decoder")  # doctest: +SKIP
        >>> reconstruction(load_reconstructor(run.folder), run.images())  # doctest: +SKIP
    """
    decoder = _decoder(model)
    errors, targets, made, kept = [], [], [], 0
    for images, _ in batches:
        output, wanted = decoder(images), decoder.target(images)
        errors.append((output - wanted).square().flatten(1).mean(1).double().cpu())
        if kept < examples:
            targets.append(wanted[: examples - kept].cpu())
            made.append(output[: examples - kept].cpu())
            kept += len(made[-1])
        advance(1)
    each = torch.cat(errors).numpy()
    return Reconstruction(len(each), float(each.mean()), each, torch.cat(targets).double().numpy(), torch.cat(made).double().numpy())


@dataclass(frozen=True)
class Options(DataOptions):
    """Which images."""

    examples: int = option(8, "images that are shown")


def ask(subject: Subject, options: Options) -> Reconstruction:
    _decoder(subject.model)  # before a progress bar appears
    images = subject.images(options)
    with subject.progress("reconstructing", len(images)) as advance:
        return reconstruction(subject.model, images, examples=options.examples, advance=advance)


def present(result: Reconstruction) -> Page:
    density, edges = np.histogram(result.errors, bins=30, density=True)
    middles = (edges[:-1] + edges[1:]) / 2
    histogram = Series("images", middles, density, style="steps")
    spread = Figure("errors", "Error of each image", Axis("mean squared error per pixel"), Axis("density"), [histogram])
    text = f"Mean squared error per pixel {result.error:.5f} over {result.images:,} images."
    return Page("Reconstruction", [text, examples_maps({"image": result.targets, "reconstructed": result.reconstructed}), spread])


def examples_maps(rows: Mapping[str, np.ndarray]) -> Maps:
    """Images (image, channel, y, x) and what was made of them, each in a row of its own.

    Args:
        rows: images by the name of their row, in [0, 1].

    Returns:
        The rows as one grid of pictures.

    Examples:
        >>> import numpy as np
        >>> from continua.analysis import examples_maps
        >>> maps = examples_maps({"original": np.zeros((2, 1, 8, 8)), "decoded": np.ones((2, 1, 8, 8))})
    """
    pictures = np.stack(list(rows.values())).clip(0, 1)  # (row, image, channel, height, width)
    values = np.moveaxis(pictures, 2, -1) if pictures.shape[2] == 3 else pictures[:, :, 0]
    columns = [str(place + 1) for place in range(pictures.shape[1])]
    return Maps("examples", "Images and their reconstructions", list(rows), columns, values, "intensity, 0 to 1", one_scale=True)


register_question(Question("reconstruction", __doc__ or "", Options, ask, present))
