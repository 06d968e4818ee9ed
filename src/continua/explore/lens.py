"""One network, one image: everything a panel asks of them, each answer computed once."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from continua.analysis import LayerPath, black
from continua.blocks import ODEBlock
from continua.explore import kernels, trajectory
from continua.explore.cache import Answers
from continua.explore.changes import Change, Outcome, Solver, Trial, changed, outcome, trials
from continua.explore.image import Picture, fitted
from continua.explore.network import Explored
from continua.report import Maps


@dataclass(frozen=True, eq=False)
class Lens:
    """`answers` may be shared by many lenses: their questions name the network's weights and the image's bytes."""

    network: Explored
    picture: Picture
    inverted: bool
    answers: Answers

    @cached_property
    def image(self) -> Tensor:
        """The bytes the network sees, (1, channels, height, width)."""
        return fitted(self.picture, self.network.shape, inverted=self.inverted)

    @cached_property
    def key(self) -> tuple[Hashable, ...]:
        return self.network.key, hashlib.sha256(self.image.numpy().tobytes()).hexdigest()

    @property
    def continuous(self) -> bool:
        """Whether the network has a block with time, and so a solver."""
        return any(isinstance(block, ODEBlock) for block in self.network.model.blocks)

    def seen(self, change: Change | None = None) -> Tensor:
        """The image as the network reads it, after a change."""
        floats, preprocess = self.network.floats(self.image), self.network.preprocess
        unit = 1 / torch.tensor(preprocess.std or (1.0,)).reshape(-1, 1, 1)
        return changed(floats, change or Change(), black(preprocess), unit)

    def shown(self, change: Change | None = None) -> np.ndarray:
        """The same in pixel values 0 … 1, (height, width) or (height, width, 3)."""
        mean, std = (torch.tensor(values or (default,)).reshape(-1, 1, 1) for values, default in self._scale())
        pixels = (self.seen(change)[0] * std + mean).clamp(0, 1)
        return pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()

    def _scale(self) -> list[tuple[tuple[float, ...] | None, float]]:
        return [(self.network.preprocess.mean, 0.0), (self.network.preprocess.std, 1.0)]

    def trajectory(self, block: int, change: Change | None = None) -> trajectory.Trajectory:
        """The image's way through a block."""
        change = change or Change()
        question = (*self.key, "trajectory", block, change)
        return self.answers(question, lambda: trajectory.follow(self.network.model, self.seen(change), block))

    def probabilities(self, block: int, change: Change | None = None) -> np.ndarray:
        """Class probabilities along that way, (time, class)."""
        change, way = change or Change(), self.trajectory(block, change)
        question = (*self.key, "probabilities", block, change)
        return self.answers(question, lambda: trajectory.probabilities_on_the_way(self.network.model, self.seen(change), way))

    def outcome(self, change: Change | None = None, solver: Solver | None = None, scaled: bool = False) -> Outcome:
        """One forward pass; `scaled`: the time of block 1 follows the contrast."""
        change, solver = change or Change(), solver or Solver()
        factor = change.contrast if scaled else 1.0

        def make() -> Outcome:
            return outcome(self.network.model, self.seen(change), solver=solver, time_factor=factor)

        return self.answers((*self.key, "outcome", change, solver, factor), make)

    def trials(self, change: Change, solver: Solver, scaled: bool) -> list[Trial]:
        """Each part of a change alone, and all together."""
        return [Trial(what, self.outcome(part, by, follows)) for what, part, by, follows in trials(change, solver, scaled)]

    def kernels_over_time(self, name: str, channel: int, count: int) -> LayerPath:
        """A layer's kernels along t."""
        question = (self.network.key, "weights", name, channel, count)
        return self.answers(question, lambda: kernels.layer_path(self.network.model, name, channel, count))

    def evolution(self) -> Maps:
        """ANODEV2's Fig. 3, which no network is needed for."""
        return self.answers("evolution", kernels.synthetic_maps)
