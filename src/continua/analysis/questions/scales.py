"""Learned scales: σ of every N-jet layer by depth, and how the σ_ji of each block are distributed (DCN §3.2, Fig. 3a and 3b)."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from continua.analysis.measure import ks_distance, rank_correlation, skewness
from continua.analysis.question import Plotted, Question, Subject, register_question
from continua.blocks import ODEBlock
from continua.errors import ConfigError
from continua.filters import Evolved, Filter, NJet, ScheduledNJet
from continua.models import Network
from continua.options import option
from continua.report import Axis, Column, Figure, Page, Part, Series, Table
from continua.showing import Shown


@dataclass(frozen=True, repr=False)
class LayerScale(Shown):
    """σ of one layer in pixels: one value, one per channel or one per pair of channels; along `times` where it follows t."""

    name: str
    block: int | None
    sigma: np.ndarray
    times: list[float]

    @property
    def typical(self) -> float:
        """The median of its σ."""
        return float(np.median(self.sigma))


@dataclass(frozen=True, repr=False)
class Distribution(Shown):
    """Many σ and the log-normal that fits them best (maximum likelihood): ln σ ~ N(log_mean, log_std²).

    `distance` is that of Kolmogorov and Smirnov between the two; `log_skewness` is the skewness of ln σ, 0 for a log-normal.
    """

    where: str
    count: int
    median: float
    mean: float
    skewness: float
    log_mean: float
    log_std: float
    log_skewness: float
    distance: float
    edges: np.ndarray
    density: np.ndarray


@dataclass(frozen=True, repr=False)
class Scales(Plotted):
    """The answer of `scales`: layers in the order of depth, and a distribution for each block that has more than a few σ."""

    layers: list[LayerScale]
    distributions: list[Distribution]
    correlation: float  # of σ with depth, by rank (Spearman); NaN for fewer than three layers

    @property
    def typical(self) -> np.ndarray:
        """One σ per layer: its median."""
        return np.array([layer.typical for layer in self.layers])


def scales(model: Network, *, times: int = 21, bins: int = 40, least: int = 20) -> Scales:
    """σ of every layer. A block's σ are taken together where a layer has one for each of at least `least` channels or pairs.

    Args:
        model: a network with N-jets.
        times: moments at which a σ(t) is read.
        bins: bars of each histogram.
        least: how many σ a layer must have for a histogram.

    Returns:
        σ by layer and block.

    Raises:
        ConfigError: the network has no N-jet.

    Examples:
        >>> import continua as ct
        >>> from continua.analysis import scales
        >>> found = scales(ct.create_model("dcn_ode", channels=[4, 8], norm_groups=2))
    """
    named = sorted(
        ((name, module) for name, module in model.named_modules() if isinstance(module, NJet | ScheduledNJet)),
        key=lambda layer: _depth(layer[0]),
    )
    layers = [_layer(model, name, module, times) for name, module in named]
    if not layers:
        raise ConfigError(f"{model.name or 'this network'} has no N-jet layer, so it has no scale to look at")
    groups: dict[str, list[np.ndarray]] = {}
    for layer in layers:
        if not layer.times and layer.sigma.size >= least:
            groups.setdefault("outside blocks" if layer.block is None else f"block {layer.block + 1}", []).append(layer.sigma.ravel())
    distributions = [distribution(np.concatenate(values), where, bins) for where, values in groups.items()]
    return Scales(layers, distributions, rank_correlation(np.arange(len(layers)), [layer.typical for layer in layers]))


def distribution(sigma: np.ndarray, where: str = "", bins: int = 40) -> Distribution:
    """The distribution of some σ, and its log-normal."""
    sigma = np.sort(np.asarray(sigma, float).ravel())
    logs = np.log(sigma)
    mean, std = float(logs.mean()), float(logs.std())
    density, edges = np.histogram(sigma, bins=bins, density=True)
    return Distribution(
        where=where,
        count=len(sigma),
        median=float(np.median(sigma)),
        mean=float(sigma.mean()),
        skewness=skewness(sigma),
        log_mean=mean,
        log_std=std,
        log_skewness=skewness(logs),
        distance=ks_distance(logs, mean, std),
        edges=edges,
        density=density,
    )


def _depth(name: str) -> int:
    """Where a layer stands on an image's way: the stem, block 1, transition 1, block 2, … (modules are named in another order)."""
    part, place, *_ = [*name.split("."), ""]
    return 2 * int(place) + (part == "transitions") if part in ("blocks", "transitions") and place.isdigit() else -1


def block_of(name: str) -> int | None:
    """The index of the block that a layer of this name is in; None where it is in none."""
    part, place, *_ = [*name.split("."), ""]
    return int(place) if part == "blocks" and place.isdigit() else None


def interval_of(model: Network, name: str, filter: Filter) -> tuple[float, float] | None:
    """From when to when a layer is used: its ODE block's times, else those its filter was made for; None where neither says.

    Args:
        model: the network.
        name: name of the layer within it.
        filter: the layer's filter.

    Returns:
        Start and end on the time axis of the layer's block, or None.

    Examples:
        >>> import continua as ct
        >>> from continua.analysis import interval_of
        >>> net = ct.create_model("dcn_ode", channels=[4], norm_groups=2)
        >>> interval_of(net, "blocks.0.field.conv1", net.blocks[0].field.conv1.filter)
        (0.0, 2.0)
    """
    index = block_of(name)
    block = model.blocks[index] if index is not None else None
    if isinstance(block, ODEBlock):
        return float(block.t0), float(block.t1)
    return filter.interval if isinstance(filter, Evolved | ScheduledNJet) else None


@torch.no_grad()
def _layer(model: Network, name: str, module: NJet | ScheduledNJet, times: int) -> LayerScale:
    block, label = block_of(name), name.removesuffix(".filter")
    if isinstance(module, NJet):
        return LayerScale(label, block, module.sigma.detach().cpu().double().numpy(), [])
    grid = torch.linspace(*(interval_of(model, name, module) or module.interval), times)
    sigma = torch.stack([torch.as_tensor(module.sigma_at(t)).reshape(()) for t in grid])
    return LayerScale(label, block, sigma.cpu().double().numpy(), grid.tolist())


@dataclass(frozen=True)
class Options:
    """Nothing of the data is looked at."""

    bins: int = option(40, "bins of each histogram")
    times: int = option(21, "moments at which a σ that follows t is read")


def ask(subject: Subject, options: Options) -> Scales:
    return scales(subject.model, bins=options.bins, times=options.times)


def present(result: Scales) -> Page:
    typical = result.typical
    names = [short_name(layer.name) for layer in result.layers]
    trend = "" if math.isnan(result.correlation) else f" Rank correlation of σ with depth: {result.correlation:+.2f}."
    first = f"Scales of {len(names)} N-jet layers, from {typical.min():.2f} to {typical.max():.2f} pixels.{trend}"
    pixels = Axis("σ", "pixels")
    depth = Figure(
        "sigma_by_depth", "Learned σ by depth", Axis("layer, from input to output"), pixels, [Series("σ", names, typical, style="both")]
    )
    rows = [(layer.name, layer.sigma.size, layer.typical, layer.sigma.min(), layer.sigma.max()) for layer in result.layers]
    columns = ["layer", "values", *(Column(f"{what} σ", "pixels", 3) for what in ("median", "least", "largest"))]
    parts: list[Part] = [first, depth, Table("layers", "Layers", columns, rows)]
    moving = [layer for layer in result.layers if layer.times]
    if moving:
        curves = [Series(short_name(layer.name), layer.times, layer.sigma) for layer in moving]
        parts.append(Figure("sigma_of_t", "σ along the depth of a block", Axis("t"), pixels, curves))
    if result.distributions:
        parts += [_histograms(result.distributions), _statistics(result.distributions)]
    return Page("Scales", parts)


def _histograms(distributions: list[Distribution]) -> Figure:
    series: list[Series] = []
    for place, block in enumerate(distributions):
        middles = (block.edges[:-1] + block.edges[1:]) / 2
        x = np.linspace(block.edges[0], block.edges[-1], 121)[1:]
        fit = np.exp(-0.5 * ((np.log(x) - block.log_mean) / block.log_std) ** 2) / (x * block.log_std * math.sqrt(2 * math.pi))
        series += [
            Series(block.where, middles, block.density, style="steps", colour=place),
            Series(f"{block.where}, log-normal", x, fit, dashed=True, colour=place),
        ]
    return Figure("distribution", "Distribution of σ by block", Axis("σ", "pixels"), Axis("density", "1/pixel"), series)


def _statistics(distributions: list[Distribution]) -> Table:
    columns = ["where", "values", Column("median σ", "pixels", 3), Column("skewness", digits=3), Column("mean of ln σ", digits=3)]
    columns += [Column("standard deviation of ln σ", digits=3), Column("skewness of ln σ", digits=3), Column("KS distance", digits=4)]
    rows = [(d.where, d.count, d.median, d.skewness, d.log_mean, d.log_std, d.log_skewness, d.distance) for d in distributions]
    caption = "KS distance: Kolmogorov–Smirnov distance of the values to the fitted log-normal."
    return Table("distributions", "Distributions and their log-normal fit", columns, rows, caption)


def short_name(name: str) -> str:
    """`blocks.0.field.conv1` -> `block 1 conv1`.

    Args:
        name: a module's name within its network.

    Returns:
        The same in words.

    Examples:
        >>> from continua.analysis import short_name
        >>> short_name("blocks.0.field.conv1")
        'block 1 conv1'
    """
    parts = [part for part in name.split(".") if part not in ("field", "filter")]
    numbered = [f"{parts[0].removesuffix('s')} {int(parts[1]) + 1}", *parts[2:]] if len(parts) > 1 and parts[1].isdigit() else parts
    return " ".join(numbered)


def conv_name(name: str) -> str:
    """`blocks.0.field.convs.1` -> `block 1 conv 2`.

    Args:
        name: a module's name within its network.

    Returns:
        The same in words.

    Examples:
        >>> from continua.analysis import conv_name
        >>> conv_name("blocks.0.field.convs.1")
        'block 1 conv 2'
    """
    first, _, number = short_name(name).rpartition(" convs ")
    return f"{first} conv {int(number) + 1}" if first else number


register_question(Question("scales", __doc__ or "", Options, ask, present))
