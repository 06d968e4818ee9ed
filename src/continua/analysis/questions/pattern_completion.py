"""Pattern completion: accuracy with the centre masked out, and how far features of masked and intact images differ (DCN §3.2)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from continua.analysis.measure import Measured, black, kept, measured
from continua.analysis.question import DataOptions, Keep, Plotted, Question, Subject, ask_anew, no_progress, register_question
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.models import Network
from continua.options import option
from continua.report import Axis, Column, Figure, Maps, Page, Series, Table
from continua.runs import Batches
from continua.showing import Shown


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """D(t) = Σ|h_intact(t) − h_masked(t)| / A over all features of a block, mean and standard deviation over images.

    A is the amplitude Σ|h_intact| at the same t (`mean`, `std`); with A at the start (`fixed_mean`) growth of h itself does not count.
    `times` are the places 0, 1, … of the states for a block without time. `falls` is the share of images with D(end) < D(start).
    `hole_mean` looks where the mask is, alone: the mean |h_intact − h_masked| there, as it is. `inside_mean` is the same in standard
    deviations of the intact maps (nan where these are constant): it also falls where the maps merely grow, so it is no sign of completion.
    """

    times: list[float]
    mean: list[float]
    std: list[float]
    fixed_mean: list[float]
    fixed_std: list[float]
    inside_mean: list[float]
    inside_std: list[float]
    hole_mean: list[float]
    hole_std: list[float]
    falls: float
    images: int


@dataclass(frozen=True, repr=False)
class Example(Shown):
    """Maps of one channel for one image at each of `times`: rows intact, masked, absolute difference."""

    image: int
    channel: int
    times: list[float]
    maps: np.ndarray


@dataclass(frozen=True, repr=False)
class PatternCompletion(Plotted):
    """The answer of `pattern_completion`. `accuracies` (fractions) and `failed` are for the masks of `sizes` pixels a side."""

    images: int
    sizes: list[int]
    accuracies: list[float]
    failed: list[int]
    block: int
    continuous: bool
    mask: int
    difference: Difference
    example: Example


def masked(images: Tensor, size: int, zero: "Tensor | float" = 0.0) -> Tensor:
    """Images with `size` × `size` pixels in the middle set to `zero` (one pixel up and left of it where it cannot be exact).

    Args:
        images: (…, height, width).
        size: side of the square, in pixels.
        zero: the value of its pixels.

    Returns:
        A copy with the square.

    Raises:
        ConfigError: the mask is larger than the images.

    Examples:
        >>> import torch
        >>> from continua.analysis import masked
        >>> int(masked(torch.ones(8, 8), 4).sum())
        48
    """
    height, width = images.shape[-2:]
    if not 0 <= size <= min(height, width):
        raise ConfigError(f"a mask of {size}×{size} pixels does not fit images of {height}×{width}")
    top, left = (height - size) // 2, (width - size) // 2
    covered = images.clone()
    covered[..., top : top + size, left : left + size] = zero.to(images) if isinstance(zero, Tensor) else zero
    return covered


def default_sizes(side: int) -> list[int]:
    """No mask, then even sizes up to half of the image's side: 0, 2, …, 16 for 32 pixels."""
    step = max(2, 2 * round(side / 32))
    return list(range(0, side // 2 + 1, step))


def pattern_completion(
    model: Network,
    batches: Batches,
    *,
    sizes: Sequence[int] | None = None,
    mask: int = 6,
    block: int = 0,
    times: int = 21,
    trajectories: int = 1000,
    example: int = 0,
    channel: int | None = None,
    zero: "Tensor | float" = 0.0,
    keep: Keep = ask_anew,
    advance: Callable[[int], None] = no_progress,
) -> PatternCompletion:
    """Accuracy against the size of the mask; D(t) inside `block` over up to `trajectories` images for one `mask`; maps of one image.

    Args:
        model: the network.
        batches: pairs (images, labels).
        sizes: sides of masks for the accuracy, in pixels; None: from 0 to half of the image.
        mask: side of the mask for D(t).
        block: which block, from 0.
        times: at how many moments D is measured.
        trajectories: over how many images.
        example: place of the image whose maps are shown.
        channel: of the example; None: the one whose map the mask changes most at the start.
        zero: what a black pixel is to the network (0 unless images are normalised).
        keep: stores pieces of the answer, so that an interrupted analysis can be continued.
        advance: called with the number of images after each batch.

    Returns:
        Accuracy by size, D(t) and the maps.

    Raises:
        ConfigError: there are no images.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import pattern_completion
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> batches = [(torch.rand(2, 1, 16, 16), torch.zeros(2, dtype=torch.long))]
        >>> found = pattern_completion(net, batches, sizes=[0, 4], times=3)
    """
    first = next(iter(batches), None)
    if first is None:
        raise ConfigError("there are no images to look at; the batches are empty")
    sizes = list(sizes) if sizes is not None else default_sizes(min(first[0].shape[-2:]))
    points: list[Measured] = []
    for size in sizes:
        points.append(kept(keep, f"mask {size}", lambda size=size: measured(model, batches, lambda given: masked(given, size, zero))))
        advance(1)
    difference = completion(model, batches, mask=mask, block=block, times=times, images=trajectories, zero=zero)
    advance(1)
    shown = _example(model, batches, mask, block, example, channel, zero)
    return PatternCompletion(
        images=points[-1].images if points else 0,
        sizes=sizes,
        accuracies=[point.accuracy for point in points],
        failed=[point.failed for point in points],
        block=block,
        continuous=isinstance(model.blocks[block], ODEBlock),
        mask=mask,
        difference=difference,
        example=shown,
    )


@torch.no_grad()
def completion(
    model: Network, batches: Batches, *, mask: int = 6, block: int = 0, times: int = 21, images: int = 1000, zero: "Tensor | float" = 0.0
) -> Difference:
    """D(t) inside a block.

    Args:
        model: a network with the block.
        batches: pairs (images, labels).
        mask: side of the black square in the middle, in pixels.
        block: which block, from 0.
        times: at how many moments D is measured.
        images: how many images at most.
        zero: what a black pixel is to the network (0 unless images are normalised).

    Returns:
        Mean and spread of D(t) over the images.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import completion
        >>> net = ct.create_model("dcn_ode", channels=[4, 8], norm_groups=2, in_channels=1).eval()
        >>> found = completion(net, [(torch.rand(2, 1, 16, 16), torch.zeros(2, dtype=torch.long))], times=3)
    """
    moving, fixed, inside, hole, grid, seen = [], [], [], [], None, 0
    for given in _first(batches, images):
        intact, grid = states(model, given, block, times)
        other, _ = states(model, masked(given, mask, zero), block, times)
        amplitude = intact.abs().flatten(2).sum(2, dtype=torch.float64)  # (time, batch)
        apart = (intact - other).abs().flatten(2).sum(2, dtype=torch.float64)
        moving.append((apart / amplitude).cpu())
        fixed.append((apart / amplitude[:1]).cpu())
        absolute, spread = _in_the_hole(intact, other, mask / given.shape[-1])
        inside.append((absolute / torch.where(spread > 0, spread, torch.nan)).cpu())
        hole.append(absolute.cpu())
        seen += len(given)
    curves = [torch.cat(each, 1).numpy() for each in (moving, fixed, inside, hole)]
    falls = float((curves[0][-1] < curves[0][0]).mean())
    both = [numbers for curve in curves for numbers in (curve.mean(1).tolist(), curve.std(1).tolist())]
    return Difference(grid or [], *both, falls=falls, images=seen)


def _in_the_hole(intact: Tensor, other: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Mean difference of maps (time, batch, channels, height, width) in a square in their middle, and the intact ones' deviation."""
    height, width = intact.shape[-2:]
    rows, columns = max(1, round(share * height)), max(1, round(share * width))
    top, left = (height - rows) // 2, (width - columns) // 2
    apart = (intact - other)[..., top : top + rows, left : left + columns].abs().flatten(2).mean(2, dtype=torch.float64)
    return apart, intact.double().std((-2, -1), correction=0).mean(2)


def states(model: Network, images: Tensor, block: int, times: int) -> tuple[Tensor, list[float]]:
    """States inside a block, (time, batch, …), and when they are; a block without time has one after each of its steps.

    Args:
        model: the network.
        images: (batch, channels, height, width), as the network reads them.
        block: which block, from 0.
        times: how many moments, from the block's start to its end.

    Returns:
        The states, (time, batch, …), and their times.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import states
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2, in_channels=1).eval()
        >>> h, times = states(net, torch.rand(1, 1, 16, 16), 0, 3)
    """
    here = model.blocks[block]
    if isinstance(here, ODEBlock):
        grid = torch.linspace(here.t0, here.t1, times, dtype=torch.float64)
        return model.states(images, block=block, times=grid), grid.tolist()
    steps = model.states(images, block=block)
    return steps, [float(place) for place in range(len(steps))]


def _first(batches: Batches, count: int, largest: int = 50) -> Iterable[Tensor]:
    """The first `count` images in batches small enough to hold their trajectories in memory."""
    left = count
    for images, _ in batches:
        yield from images[:left].split(largest)
        left -= min(left, len(images))
        if not left:
            return


@torch.no_grad()
def _example(model: Network, batches: Batches, mask: int, block: int, place: int, channel: int | None, zero: "Tensor | float") -> Example:
    *_, last = _first(batches, place + 1)
    image = last[-1:]
    intact, grid = states(model, image, block, 6)
    other, _ = states(model, masked(image, mask, zero), block, 6)
    if channel is None:
        change = (intact[0, 0] - other[0, 0]).abs().flatten(1).sum(1) / intact[0, 0].abs().flatten(1).sum(1)
        channel = int(change.nan_to_num(0.0).argmax())
    if not 0 <= channel < intact.shape[2]:
        raise ConfigError(f"block {block + 1} has channels 0 … {intact.shape[2] - 1}; got channel {channel}")
    rows = torch.stack([intact[:, 0, channel], other[:, 0, channel], (intact - other)[:, 0, channel].abs()])
    return Example(place, channel, grid, rows.double().cpu().numpy())


@dataclass(frozen=True)
class Options(DataOptions):
    """Which images, which masks."""

    sizes: tuple[int, ...] | None = option(None, "sides of the masks in pixels (default: even sizes up to half of the image)")
    mask: int = option(6, "side of the mask whose features are followed")
    block: int = option(0, "in which block, from 0")
    times: int = option(21, "moments at which D(t) is computed")
    trajectories: int = option(1000, "images over which D(t) is averaged")
    example: int = option(0, "the image whose maps are shown, by its place")
    channel: int | None = option(None, "the channel that is shown (default: the one that the mask changes most)")


def ask(subject: Subject, options: Options) -> PatternCompletion:
    images = subject.images(options)
    sizes = options.sizes or tuple(default_sizes(min(images.first(1)[0].shape[-2:])))
    own, zero = replace(options, sizes=sizes).own(), black(subject.run.preprocess)
    with subject.progress("masks", len(sizes) + 1) as advance:
        return pattern_completion(subject.model, images, zero=zero, keep=subject.keep, advance=advance, **own)


def present(result: PatternCompletion) -> Page:
    d, block = result.difference, f"block {result.block + 1}"
    text = (
        f"{result.images:,} images. With a mask of {result.mask}×{result.mask} pixels the features of masked and intact images differ by "
        f"{d.mean[0]:.3f} at the start of {block} and by {d.mean[-1]:.3f} at its end (D, mean over {d.images:,} images); "
        f"D falls for {d.falls:.0%} of them. Where the mask is, the mean absolute difference goes from {d.hole_mean[0]:.3g} to "
        f"{d.hole_mean[-1]:.3g} ({d.inside_mean[0]:.2f} and {d.inside_mean[-1]:.2f} standard deviations of the intact maps)."
    )
    accuracy = Figure(
        "accuracy",
        "Accuracy against the size of the mask",
        Axis("side of the mask", "pixels"),
        Axis("accuracy", "%", limits=(0, 100)),
        [Series("accuracy", result.sizes, 100 * np.array(result.accuracies), style="both")],
    )
    when = Axis("t") if result.continuous else Axis("state of the block, from its input")
    curves = [
        Series("amplitude at t", d.times, d.mean, d.std, spread="band", style="line" if result.continuous else "both"),
        Series("amplitude at the start", d.times, d.fixed_mean, d.fixed_std, spread="band", dashed=True),
    ]
    caption = "D = Σ|h intact − h masked| / Σ|h intact|, over all features of the block; bands are standard deviations over images."
    difference = Figure("difference", f"Difference of features in {block}", when, Axis("D(t)"), curves, caption)
    hole = [Series("inside the mask", d.times, d.hole_mean, d.hole_std, spread="band", style=curves[0].style)]
    inside = Figure("inside", f"Difference of features of {block} where the mask is", when, Axis("mean absolute difference"), hole)
    shown = result.example
    columns = [f"t = {t:.2g}" if result.continuous else f"state {t:.0f}" for t in shown.times]
    title = f"Channel {shown.channel} of {block}, image {shown.image}"
    maps = Maps("maps", title, ["intact", "masked", "difference"], columns, shown.maps, "h (no unit)")
    rows = [(size, 100 * a, f) for size, a, f in zip(result.sizes, result.accuracies, result.failed, strict=True)]
    table = Table("masks", "Accuracy with a mask", [Column("side of the mask", "pixels"), Column("accuracy", "%", 2), "failed"], rows)
    return Page("Pattern completion", [text, accuracy, difference, inside, maps, table])


register_question(Question("pattern_completion", __doc__ or "", Options, ask, present, version=3))
