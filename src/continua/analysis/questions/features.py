"""Features of images at any time: the pooled state h(t) of an ODE block from one solve, or the state after each residual block."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from continua.analysis.question import DataOptions, Plotted, Question, Subject, no_progress, register_question
from continua.analysis.stream import StreamedArrays, read_arrays
from continua.blocks import ODEBlock
from continua.data import CATALOGUE, take_per_class
from continua.errors import ConfigError
from continua.models import Network
from continua.options import option
from continua.report import Axis, Column, Figure, Look, Page, Series, Table
from continua.runs import Batches, Images
from continua.showing import Shown

Pool = Literal["head", "plain"]
Made = tuple[Callable[[], np.ndarray], np.ndarray]  # how the features of a batch are made, and its labels
BATCH = 64  # of images given as one tensor


@runtime_checkable
class PoolingHead(Protocol):
    """A head that begins with one norm and activation, whose mean over the pixels its linear layer reads."""

    norm: nn.GroupNorm

    def pool(self, h: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False, repr=False)
class Features(Shown):
    """Pooled features `values` (points, images, width) at `points`: times, or places of blocks spread evenly over [0, 1] (their Fig. 2).

    `labels` are those that came with the images, −1 where none did. `timed`: whether `points` are times.
    """

    points: list[float]
    names: list[str]
    values: np.ndarray
    labels: np.ndarray
    timed: bool = True

    @classmethod
    def read(cls, file: "str | Path") -> "Features":
        """What `features(..., file=...)` wrote."""
        arrays = read_arrays(Path(file))
        points, timed = arrays["points"].tolist(), bool(arrays["timed"][0])
        return cls(points, _names(points, timed), arrays["features"], np.asarray(arrays["labels"]), timed)


@torch.no_grad()
def features(
    model: Network,
    images: "Tensor | Batches",
    times: "Sequence[float] | Tensor | None" = None,
    *,
    block: int | None = None,
    pool: Pool = "head",
    file: "str | Path | None" = None,
    count: int | None = None,
    advance: Callable[[int], None] = no_progress,
) -> Features:
    """Features of images (a tensor, or batches of images and labels), each mean-pooled over the pixels.

    Args:
        model: the network.
        images: a tensor, or batches of (images, labels).
        times: where in the block's interval; None: 21 from start to end. All come from one solve, by its interpolant. A network without
            time has the input of its first block and the output of every block instead.
        block: which block; None: the last that has time, or without time all of them.
        pool: "head": the mean of act(norm(h)) with the norm of the head; "plain": the mean of h itself.
        file: where features go that are larger than memory, .safetensors or .npz; an interrupted writing is continued.
        count: how many images there are, where batches do not say.
        advance: called with the number of images after each batch.

    Returns:
        Features, (points, images, features), with the names and times of the points.

    Raises:
        ConfigError: there are no images, or a file is to be written and `count` is missing.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> from continua.analysis import features
        >>> net = ct.create_model("ode_only_net", width=16, num_classes=4).eval()
        >>> features(net, torch.rand(2, 3, 32, 32), times=[0.0, 1.0]).values.shape
        (2, 2, 16)
    """
    where = _chosen_block(model, block)
    grid = _grid(model, where, times)
    if isinstance(images, Tensor):
        count = len(images)
        images = ((part, torch.full((len(part),), -1)) for part in images.split(BATCH))
    if count is None:
        count = sum(len(labels) for _, labels in images) if isinstance(images, list | tuple) else getattr(images, "count", None)
    states = _states(model, images, where, grid, pool)
    if file is None:
        pieces, labels = [], []
        for make, names in states:
            pieces.append(make())
            labels.append(names)
            advance(len(names))
        if not pieces:
            raise ConfigError("there are no images to take features of; the batches are empty or used up")
        values = np.concatenate(pieces, 1)
        points, timed = _points(grid, len(values)), grid is not None
        return Features(points, _names(points, timed), values, np.concatenate(labels), timed)
    if count is None:
        raise ConfigError("features: a file is laid out before it is filled; say how many images there are with count=N")
    key = _fingerprint(model, where, grid, pool, count)
    return _streamed(states, Path(file), count, grid, key, advance)


def _streamed(
    states: Iterator[Made], file: Path, count: int, grid: list[float] | None, key: str, advance: Callable[[int], None]
) -> Features:
    """Fill the file batch by batch. The first batch is always made: it tells the shape, and whether a file left behind fits."""
    out: StreamedArrays | None = None
    done = 0
    for make, labels in states:
        end = done + len(labels)
        if end > count:
            raise ConfigError(f"features: count={count}, but there are more images than that")
        if out is None:
            first = make()
            key = hashlib.sha256(key.encode() + first.tobytes()).hexdigest()
            points = _points(grid, len(first))
            shape = (len(first), count, first.shape[2])
            shapes = {"features": ("F32", shape), "labels": ("I64", (count,)), "points": ("F64", (len(points),)), "timed": ("I64", (1,))}
            out = StreamedArrays(file, shapes, key)
            out.arrays["points"][:] = points
            out.arrays["timed"][:] = grid is not None
            out.arrays["features"][:, :end] = first
        elif end > out.done:
            out.arrays["features"][:, done:end] = make()
        out.arrays["labels"][done:end] = labels
        done = end
        if done > out.done:
            out.reached(done)
        advance(len(labels))
    if out is None or done != count:
        raise ConfigError(f"features: count={count}, but there were {done} images")
    return Features.read(out.finish())


def _states(model: Network, batches: Batches, block: int | None, grid: list[float] | None, pool: Pool) -> Iterator[Made]:
    """For each batch, a function that gives its pooled features (points, images, width), and its labels."""
    pooled = _pooling(model, block, pool)

    def make(images: Tensor) -> np.ndarray:
        if grid is not None and block is not None:
            states: Iterable[Tensor] = model.states(images, block=block, times=grid)
        else:
            states = _after_each_block(model, images, block)
        points = [pooled(state).float().cpu().numpy() for state in states]
        widths = sorted({point.shape[1] for point in points})
        if len(widths) > 1:
            raise ConfigError(f"the blocks of this network have {', '.join(map(str, widths))} channels; name one with block=0, 1, …")
        return np.stack(points)

    for images, labels in batches:
        yield (lambda images=images: make(images)), labels.cpu().numpy()


def _after_each_block(model: Network, images: Tensor, block: int | None) -> Iterable[Tensor]:
    """The input of the first block and the output of each, from one pass."""
    if block is not None:
        return model.states(images, block=block)
    begin: list[Tensor] = []
    hook = model.blocks[0].register_forward_pre_hook(lambda module, given: begin.append(given[0]))
    try:
        outputs = model.forward_scales(images)
    finally:
        hook.remove()
    return [*begin, *outputs]


def _pooling(model: Network, block: int | None, pool: Pool) -> Callable[[Tensor], Tensor]:
    if pool == "plain":
        return lambda state: state.mean((2, 3))
    if pool != "head":
        raise ConfigError(f"pool={pool!r}; expected 'head' (norm and activation of the head first) or 'plain'")
    head = model.head
    if not isinstance(head, PoolingHead):
        raise ConfigError(f"the head of {model.name or 'this network'} does not begin with one norm and activation; use pool='plain'")
    width = head.norm.num_channels

    def pooled(state: Tensor) -> Tensor:
        if state.shape[1] != width:
            where = f" of block {block}" if block is not None else ""
            raise ConfigError(f"the head's norm is for {width} channels, the state{where} has {state.shape[1]}; use pool='plain'")
        return head.pool(state)

    return pooled


def _chosen_block(model: Network, block: int | None) -> int | None:
    """The index of the block; None where all blocks of a network without time are meant."""
    if block is None:
        timed = [index for index, here in enumerate(model.blocks) if isinstance(here, ODEBlock)]
        return timed[-1] if timed else None
    if not -len(model.blocks) <= block < len(model.blocks):
        raise ConfigError(f"there is no block {block}; the network has blocks 0 … {len(model.blocks) - 1}")
    return block % len(model.blocks)


def _grid(model: Network, block: int | None, times: "Sequence[float] | Tensor | None") -> list[float] | None:
    """The times asked for, inside the block's interval; None for blocks without time."""
    here = model.blocks[block or 0]
    if block is None or not isinstance(here, ODEBlock):
        if times is not None:
            raise ConfigError(f"{model.name or 'this network'} has no ODE block here, so no times; leave them out for one point per block")
        return None
    if times is None:
        return np.linspace(here.t0, here.t1, 21).tolist()
    grid = torch.as_tensor(times, dtype=torch.float64).reshape(-1).tolist()
    outside = [t for t in grid if not min(here.t0, here.t1) <= t <= max(here.t0, here.t1)]
    if outside:
        raise ConfigError(f"time {outside[0]:g} is outside the interval [{here.t0:g}, {here.t1:g}] of block {block}")
    if not grid or grid != sorted(grid, reverse=here.t1 < here.t0):
        raise ConfigError(f"times {grid}; expected at least one, in the order the block goes through them")
    return grid


def _points(grid: list[float] | None, count: int) -> list[float]:
    return grid if grid is not None else np.linspace(0, 1, count).tolist()


def _names(points: Sequence[float], timed: bool) -> list[str]:
    if timed:
        return [f"t = {point:.4g}" for point in points]
    return ["input", *(f"block {index}" for index in range(1, len(points)))]


def _fingerprint(model: Network, block: int | None, grid: list[float] | None, pool: str, count: int) -> str:
    """What decides the features, but for the images; the weights by a digest of their bytes."""
    digest = hashlib.sha256(repr((model.config, block, grid, pool, count)).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# --- the command --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Described(Plotted):
    """What is said of features in a table: one number per point. The features themselves are in `file`."""

    file: str
    images: int
    width: int
    points: list[float]
    names: list[str]
    norm: list[float]
    dimensions: list[float]
    separation: list[float]
    timed: bool = True


def describe_features(taken: Features, file: str = "") -> Described:
    """Mean norm, effective dimensions (Σλ)² / Σλ² of the covariance, and the share of the variance that lies between classes."""
    rows = [_described(np.asarray(values, np.float64), taken.labels) for values in taken.values]
    norm, dimensions, separation = (list(column) for column in zip(*rows, strict=True))
    shape = taken.values.shape
    return Described(file, shape[1], shape[2], taken.points, taken.names, norm, dimensions, separation, taken.timed)


def _described(values: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    centred = values - values.mean(0)
    spectrum = np.linalg.eigvalsh(centred.T @ centred)
    total = float(spectrum.sum())
    between = sum((labels == name).sum() * np.square(centred[labels == name].mean(0)).sum() for name in np.unique(labels))
    return float(np.linalg.norm(values, axis=1).mean()), total**2 / float(np.square(spectrum).sum() or 1), float(between) / (total or 1.0)


@dataclass(frozen=True)
class FeatureOptions(DataOptions):
    """Which images, and which features of them."""

    times: int = option(21, "how many times, evenly from the start to the end of the block's interval")
    block: int | None = option(None, "which block, from 0 (default: the last with time; without time, all)")
    pool: Pool = option("head", "head: after the norm and activation of the head; plain: the state itself")
    image_size: int | None = option(None, "resize images to this side first (default: that of the run's own data)")


@dataclass(frozen=True)
class Options(FeatureOptions):
    """Also where to write them."""

    file: str | None = option(None, "the .safetensors or .npz file to write (default: in the run's folder)")


def images_for(subject: Subject, options: FeatureOptions, per_class: int | None = None) -> "ResizedImages":
    """The images of the options, at the size the network was trained on. Batches are small: each image has many states."""
    size = options.batch_size or min(BATCH, subject.run.batch_size)
    images = subject.images(options, batch_size=size)
    if per_class is not None:
        split = take_per_class(images.split, per_class, classes=images.classes)
        images = Images(split, min(size, len(split)), subject.run.preprocess, subject.run.device, images.classes)
    own = CATALOGUE[subject.data].shape[-1] if subject.data in CATALOGUE else None
    return ResizedImages(images, options.image_size or own)


class ResizedImages:
    """Batches resized to a side (bilinear, anti-aliased); as they are where `size` is None."""

    def __init__(self, images: Images, size: int | None) -> None:
        self.images, self.size, self.count, self.labels = images, size, images.count, images.split.labels

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self.images:
            if self.size is not None and tuple(images.shape[-2:]) != (self.size, self.size):
                images = torch.nn.functional.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
            yield images, labels


def chosen_times(model: Network, options: FeatureOptions) -> list[float] | None:
    """The grid of the options in the block's interval; None for a network without time."""
    block = _chosen_block(model, options.block)
    here = model.blocks[block] if block is not None else None
    if not isinstance(here, ODEBlock):
        return None
    if options.times < 1:
        raise ConfigError(f"times is {options.times}; expected at least 1")
    return np.linspace(here.t0, here.t1, options.times).tolist() if options.times > 1 else [here.t1]


def ask(subject: Subject, options: Options) -> Described:
    images = images_for(subject, options)
    name = f"{options.data or subject.data}-{options.split or 'reported'}-{options.limit or images.count}-{options.pool}.safetensors"
    file = Path(options.file) if options.file else subject.folder / "features" / name
    times = chosen_times(subject.model, options)
    with subject.progress("features", images.count) as advance:
        taken = features(subject.model, images, times, block=options.block, pool=options.pool, file=file, advance=advance)
    return describe_features(taken, str(file))


def present(result: Described) -> Page:
    axis = Axis("time t" if result.timed else "depth, input to last block")
    look: Look = {"style": "line" if result.timed else "both"}
    written = f", written to `{result.file}`." if result.file else "."
    text = f"{result.images:,} images, {result.width} features at {len(result.points)} points{written}"
    curve = Series("features", result.points, result.dimensions, **look)
    share = Series("features", result.points, 100 * np.array(result.separation), **look)
    figures = [
        Figure("dimensions", "Effective dimensions of the features", axis, Axis("dimensions"), [curve]),
        Figure("separation", "Variance between classes", axis, Axis("share of all variance", "%"), [share]),
    ]
    columns = ["point", Column("mean norm", digits=3), Column("dimensions", digits=1), Column("between classes", "%", 1)]
    rows = [
        (name, norm, dims, 100 * part)
        for name, norm, dims, part in zip(result.names, result.norm, result.dimensions, result.separation, strict=True)
    ]
    return Page("Features", [text, *figures, Table("features", "All points", columns, rows)])


register_question(Question("features", __doc__ or "", Options, ask, present, version=2))
