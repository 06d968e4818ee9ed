"""Images of a run's data as its network expects them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from continua.data import Augmentation, DataSet, Loader, Split, permutation
from continua.errors import ConfigError


class Images:
    """Batches (images, labels) of a split, as the network expects them. Can be gone through many times; streams sets that are large."""

    def __init__(
        self,
        split: Split,
        batch_size: int,
        preprocess: Augmentation,
        device: "torch.device | str",
        classes: tuple[str, ...],
        *,
        data: str = "",
        name: str = "",
    ) -> None:
        self.split, self.batch_size, self.classes, self.data, self.name = split, batch_size, classes, data, name
        self.loader = Loader(split, batch_size, augmentation=preprocess, device=device)

    def __len__(self) -> int:
        """Batches."""
        return len(self.loader)

    @property
    def count(self) -> int:
        """Images."""
        return len(self.split)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.loader.epoch(0):
            if bool(batch.valid.all()):
                yield batch.images, batch.labels
            elif bool(batch.valid.any()):  # images that could not be decoded are left out
                yield batch.images[batch.valid], batch.labels[batch.valid]

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` images and labels in one batch."""
        images, labels, have = [], [], 0
        for batch, classes in self:
            images.append(batch)
            labels.append(classes)
            have += len(batch)
            if have >= count:
                break
        return torch.cat(images)[:count], torch.cat(labels)[:count]


def reported_split(data: DataSet) -> str:
    """The split that results are reported on: "test", or "val" for sets whose test labels are not public."""
    for name in ("test", "val"):
        if name in data.splits:
            return name
    raise ConfigError(
        f"{data.name} has no test or val split here, so no result can be reported; choose with --split from {', '.join(data.splits)}"
    )


def drawn(split: Split, limit: int | None) -> Split:
    """At most `limit` images, drawn once for all; not the first, as folders of images are sorted by class."""
    if limit is None or limit >= len(split):
        return split
    return split.select(permutation(len(split), 0, 0)[:limit].sort().values)
