"""Reconstruction: images beside what a decoder makes of their features, and its error (DCN Table 2b, Fig. 5)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from continua.analysis.accuracy import Batches
from continua.analysis.question import DataOptions, Question, register_question
from continua.analysis.subject import Subject, no_progress
from continua.errors import ConfigError
from continua.models import Reconstructor
from continua.options import option
from continua.report import Axis, Figure, Maps, Page, Series


@dataclass(frozen=True)
class Reconstruction:
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
    """What a `Reconstructor` makes of images."""
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
    spread = Figure(
        "errors",
        "Error of each image",
        Axis("mean squared error per pixel"),
        Axis("density"),
        [Series("images", middles, density, style="steps")],
    )
    text = f"Mean squared error per pixel {result.error:.5f} over {result.images:,} images."
    return Page("Reconstruction", [text, examples_maps(result), spread])


def examples_maps(result: Reconstruction, name: str = "examples") -> Maps:
    """Images in the first row, reconstructions below."""
    pictures = np.stack([result.targets, result.reconstructed]).clip(0, 1)  # (2, image, channel, height, width)
    values = np.moveaxis(pictures, 2, -1) if pictures.shape[2] == 3 else pictures[:, :, 0]
    columns = [str(place + 1) for place in range(pictures.shape[1])]
    return Maps(name, "Images and their reconstructions", ["image", "reconstructed"], columns, values, "intensity, 0 to 1", one_scale=True)


QUESTION = register_question(
    Question(
        "reconstruction",
        "Reconstruction: images beside what a decoder makes of their features, and its error (DCN Table 2b, Fig. 5).",
        Options,
        ask,
        present,
    )
)
