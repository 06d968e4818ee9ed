"""A recipe: everything that decides the result of a training, as plain data. Each field is also an option of `continua train`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from continua.data import Augmentation
from continua.errors import ConfigError


@dataclass(frozen=True)
class Optimiser:
    """How parameters follow gradients. N-jet scales and evolution parameters may have a weight decay and learning rate of their own."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    scale_weight_decay: float | None = None  # None: as all other parameters
    scale_lr_factor: float = 1.0
    evolution_weight_decay: float | None = None
    evolution_lr_factor: float = 1.0
    clip_norm: float = 0.0  # 0: no clipping

    def __post_init__(self) -> None:
        decays = (self.weight_decay, self.scale_weight_decay or 0.0, self.evolution_weight_decay or 0.0)
        _expect(self.lr > 0, "optimiser.lr", self.lr, "a number above 0")
        _expect(0 <= self.momentum < 1, "optimiser.momentum", self.momentum, "at least 0 and below 1")
        _expect(all(0 <= beta < 1 for beta in self.betas), "optimiser.betas", self.betas, "two numbers, each at least 0 and below 1")
        _expect(min(decays) >= 0, "optimiser.weight_decay", decays, "0 or more (also those of scales and evolution)")
        _expect(self.scale_lr_factor >= 0, "optimiser.scale_lr_factor", self.scale_lr_factor, "0 or more")
        _expect(self.evolution_lr_factor >= 0, "optimiser.evolution_lr_factor", self.evolution_lr_factor, "0 or more")
        _expect(self.clip_norm >= 0, "optimiser.clip_norm", self.clip_norm, "0 (off) or more")
        if self.nesterov and (self.kind != "sgd" or self.momentum == 0):
            raise ConfigError("optimiser.nesterov needs optimiser.kind 'sgd' with a momentum above 0; else set it to false")


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a multiple of `optimiser.lr`. Times are in epochs and may be fractions."""

    kind: Literal["constant", "multistep", "step", "cosine", "plateau"] = "constant"
    milestones: tuple[float, ...] = ()  # multistep: × factor at each
    every: float = 0.0  # step: × factor each time this many epochs have passed
    factor: float = 0.1
    final: float = 0.0  # cosine: what is left at the end
    warmup: float = 0.0  # grows linearly over this many epochs first
    patience: int = 10  # plateau: epochs without a better held-out accuracy before × factor
    threshold: float = 1e-4  # plateau: better means by this share

    def __post_init__(self) -> None:
        times = self.milestones
        _expect(0 < self.factor <= 1, "schedule.factor", self.factor, "above 0 and at most 1")
        _expect(0 <= self.final <= 1, "schedule.final", self.final, "between 0 and 1")
        _expect(self.warmup >= 0, "schedule.warmup", self.warmup, "0 or more epochs")
        _expect(self.patience >= 0 and self.threshold >= 0, "schedule.patience", (self.patience, self.threshold), "0 or more, as threshold")
        _expect(all(a < b for a, b in zip((0.0, *times), times, strict=False)), "schedule.milestones", times, "rising epochs above 0")
        if (self.kind == "multistep") != bool(times):
            raise ConfigError(
                f"schedule.kind is {self.kind!r} with milestones {list(times)}; milestones belong to 'multistep', which needs them"
            )
        if (self.kind == "step") != (self.every > 0):
            raise ConfigError(
                f"schedule.kind is {self.kind!r} with every={self.every}; `every` (above 0) belongs to 'step', which needs it"
            )


@dataclass(frozen=True)
class Failure:
    """What to do when a solve fails, or when a loss or gradient is not finite.

    skip: leave the batch out. loosen, tighten: try it again up to `retries` times, each with tolerances × or ÷ `tolerance_factor`, then
    skip. stop: end the training. More than `max_skipped` batches of one epoch skipped ends it too, as does a loss above `divergence` times
    that of the first batch for `divergence_batches` batches in a row.
    """

    policy: Literal["skip", "loosen", "tighten", "stop"] = "skip"
    max_skipped: int = 20
    tolerance_factor: float = 10.0
    retries: int = 2
    divergence: float = 10.0  # 0: no guard
    divergence_batches: int = 20

    def __post_init__(self) -> None:
        _expect(self.max_skipped >= 0, "failure.max_skipped", self.max_skipped, "0 or more")
        _expect(self.tolerance_factor > 1, "failure.tolerance_factor", self.tolerance_factor, "a number above 1")
        _expect(self.retries >= 1, "failure.retries", self.retries, "at least 1")
        _expect(self.divergence == 0 or self.divergence > 1, "failure.divergence", self.divergence, "0 (off) or above 1")
        _expect(self.divergence_batches >= 1, "failure.divergence_batches", self.divergence_batches, "at least 1")


@dataclass(frozen=True)
class Regularise:
    """Weights of trajectory regularisers, summed over ODE blocks (Finlay et al. 2020): kinetic energy and Jacobian norm of the field."""

    kinetic: float = 0.0
    jacobian: float = 0.0

    def __post_init__(self) -> None:
        _expect(self.kinetic >= 0, "regularise.kinetic", self.kinetic, "0 (off) or more")
        _expect(self.jacobian >= 0, "regularise.jacobian", self.jacobian, "0 (off) or more")


@dataclass(frozen=True)
class Recipe:
    """One training. Two runs with equal resolved recipes are the same run."""

    task: Literal["classify", "reconstruct"] = "classify"
    model: str = "dcn_ode"
    model_options: dict[str, Any] = field(default_factory=dict)
    encoder: str | None = None  # task reconstruct: the run whose network is decoded
    data: str = "cifar10"
    per_class: int | None = None
    holdout: float | None = None  # this share of the training images is kept apart
    seed: int = 0
    epochs: int = 100
    length_by_per_class: dict[int, float] = field(default_factory=dict)  # epochs, milestones … × this, by per_class
    batch_size: int = 128  # over all ranks
    evaluation_batch_size: int = 256
    drop_last: bool | Literal["auto"] = "auto"  # auto: where there is at least one full batch
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    channels_last: bool = False
    label_smoothing: float = 0.0
    ema: float = 0.0  # decay of an exponential moving average of the weights, which is then what is evaluated and saved; 0: none
    selection: Literal["last", "paper", "holdout"] = (
        "last"  # which epoch's weights: the last; best on test (as the papers); on the hold-out
    )
    test_every: int = 0  # look at the test images every so many epochs, for curves only; 0: at the end
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    failure: Failure = field(default_factory=Failure)
    regularise: Regularise = field(default_factory=Regularise)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "evaluation_batch_size"):
            _expect(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _expect(self.per_class is None or self.per_class >= 1, "per_class", self.per_class, "at least 1")
        _expect(self.holdout is None or 0 < self.holdout < 1, "holdout", self.holdout, "a fraction between 0 and 1")
        _expect(self.seed >= 0, "seed", self.seed, "0 or more")
        _expect(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "at least 0 and below 1")
        _expect(0 <= self.ema < 1, "ema", self.ema, "0 (off) or a decay below 1, for example 0.999")
        _expect(self.test_every >= 0, "test_every", self.test_every, "0 (only at the end) or more epochs")
        _expect(all(factor > 0 for factor in self.length_by_per_class.values()), "length_by_per_class", self.length_by_per_class, "above 0")
        self._check_together()

    def _check_together(self) -> None:
        if self.selection == "holdout" and self.holdout is None:
            raise ConfigError("selection is 'holdout' but nothing is held out; set holdout, for example 0.1")
        if self.schedule.kind == "plateau" and self.holdout is None and self.selection != "paper":
            raise ConfigError(
                "schedule.kind 'plateau' watches the hold-out; set holdout (0.1), or selection: paper to watch the test images"
            )
        if (self.task == "reconstruct") != (self.encoder is not None):
            raise ConfigError(
                f"task is {self.task!r} and encoder is {self.encoder!r}; `encoder` (a run) belongs to task 'reconstruct', which needs it"
            )
        if self.task == "reconstruct":
            used = [name for name in ("label_smoothing", "model_options") if getattr(self, name)]
            if used:
                raise ConfigError(f"{used[0]} has no meaning for task 'reconstruct'; leave it out")
        if self.schedule.warmup >= self.epochs:
            raise ConfigError(f"schedule.warmup is {self.schedule.warmup:g} epochs of {self.epochs}; it must end before the training does")

    @property
    def solver(self) -> Mapping[str, Any]:
        """The solver options among the model's."""
        return self.model_options.get("solver") or {}


def _expect(right: bool, name: str, given: object, expected: str) -> None:
    if not right:
        raise ConfigError(f"{name} is {given}; expected {expected}")
