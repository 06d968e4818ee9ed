"""A recipe: everything that decides the result of a training, as plain data. Each field is also an option of `continua train`."""

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Literal

from continua.data import Augmentation
from continua.errors import ConfigError
from continua.files import Json
from continua.options import option


@dataclass(frozen=True)
class Optimiser:
    """How parameters follow gradients. N-jet scales and evolution parameters may have a weight decay and learning rate of their own."""

    kind: Literal["sgd", "adamw"] = option("sgd", "how parameters follow gradients")
    lr: float = option(0.1, "learning rate, which the schedule multiplies")
    momentum: float = option(0.9, "sgd: how much of the last update goes on")
    nesterov: bool = option(False, "sgd: Nesterov's momentum")
    betas: tuple[float, float] = option((0.9, 0.999), "adamw: decays of the two moving averages")
    weight_decay: float = option(0.0, "of all parameters")
    scale_weight_decay: float | None = option(None, "of the scales of N-jets (else as all other parameters)")
    scale_lr_factor: float = option(1.0, "learning rate of the scales of N-jets, × lr")
    evolution_weight_decay: float | None = option(None, "of the parameters of weight evolution (else as all other parameters)")
    evolution_lr_factor: float = option(1.0, "learning rate of the parameters of weight evolution, × lr")
    clip_norm: float = option(0.0, "largest norm of the gradient; 0: no clipping")

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

    kind: Literal["constant", "multistep", "step", "cosine", "plateau"] = option("constant", "how the learning rate changes")
    milestones: tuple[float, ...] = option((), "multistep: × factor at each of these epochs")
    every: float = option(0.0, "step: × factor each time this many epochs have passed")
    factor: float = option(0.1, "multistep, step, plateau: what the learning rate is multiplied by")
    final: float = option(0.0, "cosine: the share of the learning rate that is left at the end")
    warmup: float = option(0.0, "the learning rate grows linearly over this many epochs first")
    patience: int = option(10, "plateau: epochs without a better held-out accuracy before × factor")
    threshold: float = option(1e-4, "plateau: better means by this share")

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

    policy: Literal["skip", "loosen", "tighten", "stop"] = option("skip", "when a solve fails or a loss or gradient is not finite")
    max_skipped: int = option(20, "more batches skipped in one epoch end the training")
    tolerance_factor: float = option(10.0, "loosen, tighten: by this factor at each try")
    retries: int = option(2, "loosen, tighten: so many tries before the batch is skipped")
    divergence: float = option(10.0, "a loss above this many times the first batch's counts as diverging; 0: no guard")
    divergence_batches: int = option(20, "so many diverging batches in a row end the training")

    def __post_init__(self) -> None:
        _expect(self.max_skipped >= 0, "failure.max_skipped", self.max_skipped, "0 or more")
        _expect(self.tolerance_factor > 1, "failure.tolerance_factor", self.tolerance_factor, "a number above 1")
        _expect(self.retries >= 1, "failure.retries", self.retries, "at least 1")
        _expect(self.divergence == 0 or self.divergence > 1, "failure.divergence", self.divergence, "0 (off) or above 1")
        _expect(self.divergence_batches >= 1, "failure.divergence_batches", self.divergence_batches, "at least 1")


@dataclass(frozen=True)
class Regularise:
    """What else keeps trajectories simple: energies and errors of ODE blocks in the loss, summed over blocks, and random end times.

    kinetic, jacobian: Finlay et al. 2020. error: the solver's own estimate of its error, Σ_j ‖E_j‖ |h_j| over accepted steps (Pal et al.
    2021). end_time: in training every ODE block runs to a T drawn anew for each batch from T ± end_time · (T − t0) (STEER, Ghosh et al.
    2020); the draws are a function of seed and step.
    """

    kinetic: float = option(0.0, "weight of the kinetic energy of ODE blocks in the loss")
    jacobian: float = option(0.0, "weight of the Jacobian norm of ODE blocks in the loss")
    error: float = option(0.0, "weight of the solver's error estimates in the loss; needs solver.gradient direct")
    end_time: float = option(0.0, "draw the end time of ODE blocks anew for each batch, within this share of the interval")

    def __post_init__(self) -> None:
        for name in ("kinetic", "jacobian", "error"):
            _expect(getattr(self, name) >= 0, f"regularise.{name}", getattr(self, name), "0 (off) or more")
        _expect(
            0 <= self.end_time < 1, "regularise.end_time", self.end_time, "0 (off) or a share of the interval below 1, for example 0.25"
        )

    @property
    def weights(self) -> dict[str, float]:
        """What is weighed in the loss, by the name that a block gives it."""
        weights = {"kinetic": self.kinetic, "jacobian": self.jacobian, "error": self.error}
        return {name: weight for name, weight in weights.items() if weight}


@dataclass(frozen=True)
class Refine:
    """Coarse to fine: ODE blocks train with few steps, or loose tolerances, first, and with the network's own solver at last.

    `steps: [1, 2]` with `epochs: [10, 15]` takes one step up to epoch 10, two up to epoch 15, and then as many as the solver says (after
    Queiruga et al. 2021, whose networks also gain weights on the way). Evaluation always takes the network's own solver.
    """

    steps: tuple[int, ...] = option((), "fixed steps of ODE blocks up to each of `epochs`, rising; then the solver's own")
    tolerances: tuple[float, ...] = option((), "rtol = atol of adaptive ODE blocks up to each of `epochs`, falling; then the solver's own")
    epochs: tuple[float, ...] = option((), "when each of them ends")

    def __post_init__(self) -> None:
        times, tolerances = self.epochs, self.tolerances
        _expect(all(a < b for a, b in pairwise((0, *self.steps))), "refine.steps", self.steps, "rising whole numbers of at least 1")
        falling = all(a > b for a, b in pairwise(tolerances)) and all(0 < value < inf for value in tolerances)
        _expect(falling, "refine.tolerances", tolerances, "falling numbers above 0")
        _expect(all(a < b for a, b in pairwise((0.0, *times))), "refine.epochs", times, "rising epochs above 0")
        if self.steps and tolerances:
            raise ConfigError("refine has both steps and tolerances; a solver has one of them: leave the other out")
        if len(times) != len(self.steps or tolerances):
            given = len(self.steps or tolerances)
            raise ConfigError(f"refine has {given} steps or tolerances and {len(times)} epochs; each of them needs the epoch where it ends")


MOST = 1_000_000_000  # epochs, images of a batch: what is larger is a slip or an attack


@dataclass(frozen=True)
class Recipe:
    """One training. Two runs with equal resolved recipes are the same run."""

    task: Literal["classify", "reconstruct"] = option("classify", "what is learnt")
    model: str = option("dcn_ode", "a network of `continua models`")
    model_options: Json = option(dict, "its options, as in `--model_options.solver.rtol 1e-4`; `--print_config` shows all")
    encoder: str | None = option(None, "reconstruct: the run whose network is decoded")
    data: str = option("cifar10", "a data set of `continua data list`")
    per_class: int | None = option(None, "train on this many images of each class, drawn by the seed (else all)")
    holdout: float | None = option(None, "this share of the training images is kept apart")
    seed: int = option(0, "decides the first weights, the subset, the order and the augmentation")
    epochs: int = option(100, "times through the training images")
    length_by_per_class: dict[int, float] = option(dict, "epochs, milestones and the like × this, by per_class")
    batch_size: int = option(128, "images per update, over all ranks")
    evaluation_batch_size: int = option(256, "images at a time where nothing is learnt")
    drop_last: bool | Literal["auto"] = option("auto", "leave out an incomplete last batch; auto: where there is at least one full batch")
    precision: Literal["float32", "bfloat16", "auto"] = option("float32", "auto: bfloat16 where the device computes it fast")
    channels_last: bool = option(False, "memory format of images and filters")
    label_smoothing: float = option(0.0, "this share of the target is spread over all classes")
    ema: float = option(0.0, "decay of a moving average of the weights, which is then what is evaluated and saved; 0: none")
    selection: Literal["last", "paper", "holdout"] = option("last", "which epoch's weights; paper: best on test; holdout: best on it")
    test_every: int = option(0, "look at the test images every so many epochs, for curves only; 0: at the end")
    augmentation: Augmentation = option(Augmentation, "what happens to an image on its way to the network")
    optimiser: Optimiser = option(Optimiser, "how parameters follow gradients")
    schedule: Schedule = option(Schedule, "how the learning rate changes")
    failure: Failure = option(Failure, "what to do when a batch fails")
    regularise: Regularise = option(Regularise, "what else is in the loss, and random end times")
    refine: Refine = option(Refine, "coarse to fine: few steps first")

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "evaluation_batch_size"):
            _expect(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
            _expect(getattr(self, name) <= MOST, name, getattr(self, name), f"at most {MOST:,}")
        _expect(self.per_class is None or self.per_class >= 1, "per_class", self.per_class, "at least 1")
        _expect(self.holdout is None or 0 < self.holdout < 1, "holdout", self.holdout, "a fraction between 0 and 1")
        _expect(0 <= self.seed < 2**63, "seed", self.seed, "0 or more, and below 2^63")
        _expect(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "at least 0 and below 1")
        _expect(0 <= self.ema < 1, "ema", self.ema, "0 (off) or a decay below 1, for example 0.999")
        _expect(self.test_every >= 0, "test_every", self.test_every, "0 (only at the end) or more epochs")
        factors = self.length_by_per_class.values()
        _expect(all(0 < factor <= MOST for factor in factors), "length_by_per_class", self.length_by_per_class, "above 0, and finite")
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
        if self.refine.epochs and self.refine.epochs[-1] >= self.epochs:
            raise ConfigError(
                f"refine.epochs ends at {self.refine.epochs[-1]:g} of {self.epochs} epochs; leave some for the network's own solver"
            )

    @property
    def solver(self) -> Json:
        """The solver options among the model's."""
        return self.model_options.get("solver") or {}


def _expect(right: bool, name: str, given: object, expected: str) -> None:
    if not right:
        raise ConfigError(f"{name} is {given}; expected {expected}")
