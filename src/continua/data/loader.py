"""Batches of a split, epoch by epoch, the same on every machine and for every number of ranks."""

import signal
import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import NoReturn, cast

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from continua.data.augment import Augmentation
from continua.data.crop import ResizedCrop
from continua.data.dataset import MemorySplit, Split
from continua.data.draws import permutation
from continua.data.image_folder import ImageFolder, UndecodableImage
from continua.errors import ConfigError, ContinuaWarning, DataError
from continua.float64 import has_float64
from continua.machine import usable_cores


@dataclass(frozen=True, eq=False)
class Batch:
    """Some images of a split with their labels and places in it. Only samples that are `valid` count."""

    images: Tensor
    labels: Int64[Tensor, "n"]
    indices: Int64[Tensor, "n"]
    valid: Bool[Tensor, "n"]

    def to(self, device: torch.device | str) -> "Batch":
        """On that device; page-locked memory is copied to a GPU while the host goes on."""
        parts = (self.images, self.labels, self.indices, self.valid)
        if torch.device(device).type == "cuda":
            parts = tuple(part.pin_memory() if part.device.type == "cpu" else part for part in parts)
        return Batch(*(part.to(device, non_blocking=part.is_pinned()) for part in parts))


@dataclass(eq=False)
class Loader:
    """Batches of `batch_size` images, counted over all ranks.

    - The order of an epoch is `permutation(n, seed, epoch)`, or that of the split. Batch k is places k·B … (k+1)·B − 1 of it.
    - Of each batch, rank r of w gets samples r, r + w, r + 2w, …: the ranks' k-th batches together are the single process's k-th.
    - The last, smaller batch of an epoch is kept, or dropped with `drop_last`. No sample is ever seen twice in an epoch.
    - All ranks have the same number of batches, and their k-th batches the same size. Where a batch does not divide by w, the ranks
      with one sample fewer repeat the batch's first sample, marked as not `valid`. Mean losses and counts must use valid samples only.
    - Images are augmented on `device`, or stay uint8 without an `augmentation`. Random numbers depend on (seed, epoch, index).
    - An image folder's files are decoded by `workers` processes (0: in this one). With on_bad_image="skip", an image that cannot be
      decoded is black and not `valid`; `skipped` collects the reasons by index, and a warning at the end of the epoch counts them.
    """

    split: Split
    batch_size: int
    _: KW_ONLY
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    augmentation: Augmentation | None = None
    rank: int = 0
    world_size: int = 1
    workers: int | None = None
    device: torch.device | str | None = None
    skipped: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.split, MemorySplit | ImageFolder):
            raise ConfigError(f"loader: got a split of type {type(self.split).__name__}; expected MemorySplit or ImageFolder")
        if self.batch_size < 1 or not 0 <= self.rank < self.world_size:
            given = f"batch_size {self.batch_size}, rank {self.rank} of {self.world_size}"
            raise ConfigError(f"loader: {given}; expected batch_size >= 1 and 0 <= rank < world_size")
        if len(self.split) < (self.batch_size if self.drop_last else 1):
            raise ConfigError(
                f"loader: {len(self.split)} images give no batch of {self.batch_size} with drop_last={self.drop_last}; "
                "use more images, a smaller batch or drop_last=False"
            )
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"loader: workers is {self.workers}; expected 0 (decode in this process) or more")

    def __len__(self) -> int:
        """Batches per epoch, the same on every rank."""
        return len(self.split) // self.batch_size if self.drop_last else -(-len(self.split) // self.batch_size)

    def __iter__(self) -> NoReturn:
        raise ConfigError("a Loader has epochs, each in its own order: for batch in loader.epoch(0)")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch; a run that was stopped after `start` batches goes on with exactly those it would have seen."""
        if not 0 <= start <= len(self):
            raise ConfigError(f"loader: asked to start at batch {start}; an epoch has {len(self)} batches")
        shares = self._shares(epoch, start)
        if isinstance(self.split, MemorySplit):
            return (self._from_memory(self.split, epoch, *share) for share in shares)
        return self._from_files(cast(ImageFolder, self.split), epoch, list(shares))

    def _shares(self, epoch: int, start: int) -> Iterator[tuple[Int64[Tensor, "n"], Bool[Tensor, "n"]]]:
        """This rank's indices, and which of them count, for each batch from `start` on."""
        n = len(self.split)
        order = permutation(n, self.seed, epoch) if self.shuffle else torch.arange(n)
        for batch in order.split(self.batch_size)[start : len(self)]:
            mine = batch[self.rank :: self.world_size]
            missing = -(-len(batch) // self.world_size) - len(mine)  # 0 or 1
            yield torch.cat([mine, batch[:missing]]), torch.arange(len(mine) + missing) < len(mine)

    def _from_memory(self, split: MemorySplit, epoch: int, indices: Tensor, valid: Tensor) -> Batch:
        # index_select is ten times faster than split.images[indices] on uint8 images.
        images = split.images.index_select(0, indices.to(split.images.device))
        return self._finished(Batch(images, split.labels[indices.to(split.labels.device)], indices, valid), epoch, self.augmentation)

    def _from_files(self, split: ImageFolder, epoch: int, shares: list[tuple[Tensor, Tensor]]) -> Iterator[Batch]:
        crop = self.augmentation.resized_crop if self.augmentation else None
        rest = self.augmentation.after_decoding() if self.augmentation else None
        decoded = torch.utils.data.DataLoader(
            _Decoder(split, crop, self.seed, epoch),
            batch_size=None,
            sampler=[indices.tolist() for indices, _ in shares],
            num_workers=min(8, usable_cores()) if self.workers is None else self.workers,
            worker_init_fn=_leave_signals_to_the_parent,
            generator=torch.Generator(),  # else every epoch would advance PyTorch's global random state
        )
        known = len(self.skipped)
        for (indices, valid), (images, failures) in zip(shares, decoded, strict=True):
            for place, failure in failures:
                if split.on_bad_image == "raise" or not isinstance(failure, UndecodableImage):
                    raise failure
                valid[place] = False
                self.skipped[int(indices[place])] = str(failure)
            yield self._finished(Batch(images, split.labels[indices], indices, valid), epoch, rest)
        if len(self.skipped) > known:
            example = next(iter(self.skipped.values()))
            warnings.warn(
                f"{len(self.skipped)} of {len(split)} images under {split.root} could not be decoded and were skipped; {example}",
                ContinuaWarning,
                stacklevel=2,
            )

    def _finished(self, batch: Batch, epoch: int, augmentation: Augmentation | None) -> Batch:
        # Random numbers are drawn in float64: on the host, where the device has none.
        device = self.device
        first = device is not None and has_float64(device)
        batch = batch.to(device) if first and device is not None else batch
        if augmentation is not None:
            images = augmentation.apply(batch.images, self.seed, epoch, batch.indices)
            batch = Batch(images, batch.labels, batch.indices, batch.valid)
        return batch if first or device is None else batch.to(device)


def _leave_signals_to_the_parent(worker: int) -> None:
    """A terminal, `timeout` and Slurm signal every process of a group. The one that trains needs its workers to finish the step."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class _Decoder(torch.utils.data.Dataset):
    """What a worker process does: decode the images of one batch. Failures come back as values, to be raised where they are understood."""

    def __init__(self, split: ImageFolder, crop: ResizedCrop | None, seed: int, epoch: int) -> None:
        self.split, self.crop, self.seed, self.epoch = split, crop, seed, epoch

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, list[tuple[int, DataError]]]:
        images = torch.zeros(len(indices), 3, self.split.size, self.split.size, dtype=torch.uint8)
        failures: list[tuple[int, DataError]] = []
        for place, index in enumerate(indices):
            try:
                images[place] = self.split.decode(index, self.crop, self.seed, self.epoch)
            except DataError as error:
                failures.append((place, error))
        return images, failures
