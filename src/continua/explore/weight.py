"""Kernels that move along depth: those of coupled networks and of N-jets with σ(t), and what each part of the evolution does by itself."""

from typing import Any

import numpy as np

from continua.analysis import LayerPath, short_name, synthetic, weights
from continua.filters import FilterConv2d
from continua.report import Axis, Figure, Maps, Series

MOMENTS = 21


def moving(model: Any) -> list[str]:
    """Names of the layers whose kernels change with t."""
    return [name for name, module in model.named_modules() if isinstance(module, FilterConv2d) and module.filter.time_dependent]


def label(name: str) -> str:
    """`blocks.0.field.convs.1` -> `block 1 conv 2`."""
    first, found, number = short_name(name).rpartition(" convs ")
    return f"{first} conv {int(number) + 1}" if found else number


def layer_path(model: Any, name: str, channel: int, count: int) -> LayerPath:
    """One layer along t: kernels from some input channels to one output channel, and the curves of the whole layer."""
    found = weights(model, times=MOMENTS, channel=channel, kernels=count, points=MOMENTS, layers=[name])
    return next(layer for layer in found.layers if layer.name == name)


def kernel_maps(found: LayerPath) -> Maps:
    """Kernels at each moment."""
    rows = [f"from {place}" for place in range(len(found.kernels))]
    title = f"{label(found.name)}: kernels to channel {found.channel}"
    return Maps("kernels", title, rows, [f"t = {t:.2f}" for t in found.times], found.kernels, "weight")


def curves(found: LayerPath) -> tuple[Figure, Figure]:
    """Norm and centre of mass of all the layer's weights."""
    norm = np.asarray(found.norm) / max(found.norm[0], 1e-12)
    first = Figure(
        "norm", "Norm of the layer's weights", Axis("t"), Axis("norm, relative to t = 0"), [Series("norm", found.curve_times, norm)]
    )
    ways = [
        Series(axis, found.curve_times, found.centre[:, place], dashed=place == 1) for place, axis in enumerate(("down (y)", "right (x)"))
    ]
    return first, Figure("centre", "Centre of mass of w²", Axis("t"), Axis("distance from the middle", "pixels"), ways)


def synthetic_maps() -> Maps:
    """A unit Gaussian under diffusion, advection, reaction and all three (ANODEV2 Fig. 3)."""
    rows = synthetic(25, MOMENTS)
    columns = [f"t = {t:.2f}" for t in rows[0].times]
    values = np.stack([row.images for row in rows])
    return Maps("evolution", "A unit Gaussian under each part of the operator", [row.name for row in rows], columns, values, "weight")
