"""A network as a subject of Brain-Score's benchmarks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from continua.blocks import ODEBlock
from continua.data import open_image, to_rgb
from continua.errors import ConfigError, unknown_name
from continua.models import Network, model_entry

TimeBin = tuple[float, float]
SAMPLES = 5  # moments of a bin whose mean is its answer


class ContinuousBrain:
    """The interface `brainscore_vision.model_interface.BrainModel` for a network of ODE blocks.

    Args:
        net: The network; its blocks are `ODEBlock`s. It is put into evaluation mode.
        regions: Which block answers for which recording target: {"V1": 0, "V4": 1, "IT": 2}.
        identifier: What Brain-Score calls it; the model's name by default.
        visual_degrees: How much of the visual field its images cover.
        tau: Milliseconds per unit of depth.
        latency: Milliseconds from the image to the first block.
        size: Pixels per side to which stimuli are brought; that of the model by default.
        prepare: From images (batch, 3, size, size) in [0, 1] to what the network reads; None: as they are, or their mean for one channel.
        labels: The classes, for `start_task("label", labels)`.
        batch_size: Images at a time.

    Raises:
        ConfigError: A block without a time, or a region that is no block.
    """

    def __init__(
        self,
        net: Network,
        regions: Mapping[str, int],
        *,
        identifier: str = "",
        visual_degrees: int = 8,
        tau: float = 20.0,
        latency: float = 50.0,
        size: int | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        labels: Sequence[str] = (),
        batch_size: int = 32,
    ) -> None:
        blocks = [block for block in net.blocks if isinstance(block, ODEBlock)]
        if len(blocks) < len(net.blocks) or not blocks:
            raise ConfigError(f"{net.title} has blocks without a time, so it has no state to answer a time bin; expected ODE blocks")
        if not regions or any(not 0 <= block < len(blocks) for block in regions.values()):
            raise ConfigError(f"regions={dict(regions)}; expected recording targets and the blocks for them, 0 … {len(blocks) - 1}")
        if tau <= 0 or latency < 0 or batch_size < 1:
            raise ConfigError(f"tau={tau}, latency={latency}, batch_size={batch_size}; expected above 0, at least 0, at least 1")
        self.net, self.blocks, self.regions = net.eval(), blocks, dict(regions)
        self.tau, self.latency, self.batch_size, self.labels = tau, latency, batch_size, tuple(labels)
        self.size = size or (model_entry(net.name).image_size if net.name else 32)
        self.prepare, self._identifier, self._degrees = prepare or self._as_read, identifier or net.title, visual_degrees
        self._doing: Callable[[Any, Sequence[str], list[Path]], Any] | None = None

    @property
    def identifier(self) -> str:
        """What Brain-Score calls this model."""
        return self._identifier

    def visual_degrees(self) -> int:
        """How much of the visual field an image covers."""
        return self._degrees

    def start_recording(self, recording_target: str, time_bins: Sequence[TimeBin]) -> None:
        """Have `look_at` return the mean of h(t) over each bin, given as (start, end) in ms after the image."""
        target, bins = self._target(recording_target), _bins(time_bins)
        self._doing = lambda stimuli, names, paths: self._assembly(stimuli, names, paths, target, bins)

    def start_task(self, task: str, fitting_stimuli: Any = None) -> None:
        """Passive fixation, or naming one of the network's own classes. Readouts that must be fitted are not offered."""
        if task == "passive":
            self._doing = lambda stimuli, names, paths: None
        elif task == "label" and self.labels and not isinstance(fitting_stimuli, str) and set(fitting_stimuli or ()) <= set(self.labels):
            allowed = [self.labels.index(label) for label in fitting_stimuli or self.labels]
            self._doing = lambda stimuli, names, paths: self._named(stimuli, names, paths, allowed)
        else:
            raise ConfigError(
                f"task {task!r} with {fitting_stimuli!r}; expected 'passive', or 'label' with labels among {list(self.labels)}: "
                "this network was trained on them and fits no other readout"
            )

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> Any:
        """Show a `StimulusSet` or a list of image files; a network does not vary from trial to trial, so their number does not matter."""
        if self._doing is None:
            raise ConfigError("nothing is recorded yet: call start_recording(target, time_bins) or start_task(task) first")
        if hasattr(stimuli, "get_stimulus"):
            names = [str(name) for name in stimuli["stimulus_id"]]
            paths = [Path(stimuli.get_stimulus(name)) for name in stimuli["stimulus_id"]]
        else:
            paths = [Path(path) for path in stimuli]
            names = [path.stem for path in paths]
        return self._doing(stimuli, names, paths)

    # --- h(t) in time bins ------------------------------------------------------------------------------------------------

    def wakes(self, block: int) -> float:
        """Milliseconds from the image until a block begins."""
        return self.latency + self.tau * sum(part.t1 - part.t0 for part in self.blocks[:block])

    @torch.no_grad()
    def record(self, images: Float[Tensor, "batch 3 height width"], region: str, time_bins: Sequence[TimeBin]) -> Tensor:
        """The mean response of every unit of a region in each bin, (batch, bins, channels, height, width), to images in [0, 1]."""
        index = self.regions[self._target(region)]
        block, pairs = self.blocks[index], _bins(time_bins)
        self._check_images(images)
        starts, ends = (torch.tensor([pair[place] for pair in pairs], dtype=torch.float64) for place in (0, 1))
        inside = (torch.arange(SAMPLES, dtype=torch.float64) + 0.5) / SAMPLES
        moments = starts[:, None] + inside * (ends - starts)[:, None]  # (bins, samples)
        depth = block.t0 + (moments - self.wakes(index)) / self.tau
        asleep = depth < block.t0
        times, place = torch.unique(depth.clamp(block.t0, block.t1), return_inverse=True)
        states = self.net.states(self.prepare(images), index, times.tolist())
        answers = states[place]  # (bins, samples, batch, channels, height, width)
        if bool(asleep.any()):
            grey = self.prepare(torch.full_like(images[:1], 0.5))
            answers[asleep] = self.net.states(grey, index, [block.t1])[-1].expand_as(answers[asleep])
        return answers.mean(1).transpose(0, 1)

    def _target(self, region: str) -> str:
        if str(region) not in self.regions:
            raise unknown_name("recording target", str(region), self.regions)
        return str(region)

    def _check_images(self, images: Tensor) -> None:
        if images.ndim != 4 or tuple(images.shape[1:]) != (3, self.size, self.size):
            raise ConfigError(
                f"images have shape {tuple(images.shape)}; expected (batch, 3, {self.size}, {self.size}): resize them, or give size="
            )
        low, high = float(images.min()), float(images.max())
        if not (low >= -1e-6 and high <= 1 + 1e-6):
            raise ConfigError(f"images have values from {low:.4g} to {high:.4g}; expected luminances in [0, 1] (bytes: images / 255)")

    def _as_read(self, images: Tensor) -> Tensor:
        return images.mean(1, keepdim=True) if self.net.in_channels == 1 else images

    def _images(self, paths: Sequence[Path]) -> Tensor:
        """Files as (batch, 3, size, size) in [0, 1]."""
        import numpy as np

        read = []
        for path in paths:
            with open_image(path.read_bytes(), path) as image:
                pixels = np.asarray(to_rgb(image).resize((self.size, self.size)), dtype=np.float32)
            read.append(torch.from_numpy(pixels / 255).permute(2, 0, 1))
        return torch.stack(read)

    def _batches(self, paths: list[Path]) -> list[list[Path]]:
        return [paths[place : place + self.batch_size] for place in range(0, len(paths), self.batch_size)]

    # --- as Brain-Score's assemblies --------------------------------------------------------------------------------------

    def _assembly(self, stimuli: Any, names: Sequence[str], paths: list[Path], target: str, bins: Sequence[TimeBin]) -> Any:
        answers = torch.cat([self.record(self._images(part), target, bins).cpu() for part in self._batches(paths)])
        _, _, channels, height, width = answers.shape
        places = torch.cartesian_prod(torch.arange(channels), torch.arange(height), torch.arange(width))
        coords = {
            **_presented(stimuli, names),
            "neuroid_id": ("neuroid", [f"{self.identifier}.{target}.{channel}.{row}.{column}" for channel, row, column in places.tolist()]),
            "channel": ("neuroid", places[:, 0].numpy()),
            "row": ("neuroid", places[:, 1].numpy()),
            "column": ("neuroid", places[:, 2].numpy()),
            "region": ("neuroid", [target] * len(places)),
            "time_bin_start": ("time_bin", [start for start, _ in bins]),
            "time_bin_end": ("time_bin", [end for _, end in bins]),
        }
        values = answers.flatten(2).transpose(1, 2).numpy()
        return _assemblies().NeuroidAssembly(values, coords=coords, dims=["presentation", "neuroid", "time_bin"])

    @torch.no_grad()
    def _named(self, stimuli: Any, names: Sequence[str], paths: list[Path], allowed: Sequence[int]) -> Any:
        logits = torch.cat([self.net(self.prepare(self._images(part))).cpu() for part in self._batches(paths)])
        chosen = [self.labels[allowed[place]] for place in logits[:, list(allowed)].argmax(1).tolist()]
        values = [[label] for label in chosen]
        return _assemblies().BehavioralAssembly(values, coords=_presented(stimuli, names), dims=["presentation", "choice"])


def _bins(time_bins: Sequence[Any]) -> list[TimeBin]:
    """Time bins as pairs, if they are."""
    # Benchmarks of a single bin hand it over as an array of no dimensions that holds the pair.
    pairs = [each.item() if getattr(each, "ndim", None) == 0 else each for each in time_bins]
    try:
        bins = [(float(start), float(end)) for start, end in pairs]
    except (TypeError, ValueError):
        bins = []
    if not bins or not all(start < end for start, end in bins):
        raise ConfigError(f"time_bins={list(time_bins)}; expected pairs (start, end) in ms, each end after its start, as in [(50, 60)]")
    return bins


def _presented(stimuli: Any, names: Sequence[str]) -> dict[str, Any]:
    """The coordinates of what was shown: every column of a stimulus set, or the names of the files."""
    if not hasattr(stimuli, "get_stimulus"):
        return {"stimulus_id": ("presentation", list(names)), "stimulus_path": ("presentation", [str(path) for path in stimuli])}
    return {str(column): ("presentation", stimuli[column].values) for column in stimuli.columns}


def _assemblies() -> Any:
    """Brain-Score's own classes of results: of brainscore_core, or of brainio before it."""
    from importlib import import_module

    for name in ("brainscore_core.supported_data_standards.brainio.assemblies", "brainio.assemblies"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ConfigError(
        "look_at returns assemblies of Brain-Score, which is not installed: pip install brainscore_vision, in an environment of its own "
        "(it asks for NumPy below 2). `record(images, region, time_bins)` gives the same numbers without it"
    )
