"""Reconstruction: images beside what a decoder makes of their features, and its error (DCN Table 2b, Fig. 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from continua.analysis.accuracy import Batches
from continua.analysis.question import DataOptions, Question
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


def _check(model: Any) -> None:
    if not isinstance(model, Reconstructor):
        raise ConfigError("reconstruction is asked of a decoder: train one with `continua train --recipe reconstruction --encoder RUN`")


@torch.no_grad()
def reconstruction(model: Any, batches: Batches, *, examples: int = 8, advance: Callable[[int], None] = no_progress) -> Reconstruction:
    """What a `Reconstructor` makes of images."""
    _check(model)
    errors, targets, made, kept = [], [], [], 0
    for images, _ in batches:
        found = model(images)
        wanted = model.target(images)
        errors.append((found - wanted).square().flatten(1).mean(1).double().cpu())
        if kept < examples:
            targets.append(wanted[: examples - kept].cpu())
            made.append(found[: examples - kept].cpu())
            kept += len(made[-1])
        advance(1)
    each = torch.cat(errors).numpy()
    return Reconstruction(len(each), float(each.mean()), each, torch.cat(targets).double().numpy(), torch.cat(made).double().numpy())


@dataclass(frozen=True)
class Options(DataOptions):
    """Which images."""

    examples: int = option(8, "images that are shown")


def ask(subject: Subject, options: Options) -> Reconstruction:
    _check(subject.model)  # before a progress bar appears
    images = subject.images(options)
    with subject.progress("reconstructing", len(images)) as advance:
        return reconstruction(subject.model, images, examples=options.examples, advance=advance)


def present(found: Reconstruction) -> Page:
    density, edges = np.histogram(found.errors, bins=30, density=True)
    middles = (edges[:-1] + edges[1:]) / 2
    spread = Figure(
        "errors",
        "Error of each image",
        Axis("mean squared error per pixel"),
        Axis("density"),
        [Series("images", middles, density, style="steps")],
    )
    text = f"Mean squared error per pixel {found.error:.5f} over {found.images:,} images."
    return Page("Reconstruction", [text, examples_maps(found), spread])


def examples_maps(found: Reconstruction, name: str = "examples") -> Maps:
    """Images in the first row, reconstructions below."""
    pictures = np.stack([found.targets, found.reconstructed]).clip(0, 1)  # (2, image, channel, height, width)
    values = np.moveaxis(pictures, 2, -1) if pictures.shape[2] == 3 else pictures[:, :, 0]
    columns = [str(place + 1) for place in range(pictures.shape[1])]
    return Maps(name, "Images and their reconstructions", ["image", "reconstructed"], columns, values, "intensity, 0 to 1", one_scale=True)


QUESTION = Question("reconstruction", "images beside what a decoder makes of their features", Options, ask, present)
