"""The options of Runge–Kutta networks, and the periods they describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from continua.blocks import Style
from continua.errors import ConfigError
from continua.models.config import ClassifierConfig, Options
from continua.models.rknet.names import parse_stages, plain_stages
from continua.models.rknet.rules import PeriodShape, rule_1, rule_2, rule_3, rule_4
from continua.options import option


@dataclass(frozen=True, kw_only=True)
class RKConfig(ClassifierConfig):
    """What ERKNets and IRKNets have."""

    stages: str | Sequence[Sequence[int]] | None = option(
        "7x1_7x1_7x1", "s×r of each period, stages × time-steps: 3x2_4x1; or leave it out and give growths"
    )
    growth: int | Sequence[int] = option(36, "k, channels of a growth: one number, or one per period")
    m: int | Sequence[int] | None = option(None, "growths per stage; y_n has m·k channels (rules 1 and 2), and m = 1 if implicit (4)")
    channels: int | Sequence[int] | None = option(None, "channels of y_n in each period, instead of m")
    growths: Sequence[int] | None = option(None, "convolutions per time-step of each period, instead of stages")
    bottleneck: bool = option(False, "a 1×1 convolution before each 3×3")
    bottleneck_width: int | None = option(None, "its channels as a multiple of k (default: 4 explicit, 1 implicit)")
    share_steps: bool = option(False, "the r time-steps of a period share their weights")
    attention: bool = option(False, "attentional transitions, as in CliqueNet")
    multiscale: bool = option(True, "the head reads the states after all periods, not the last alone")
    stem: Literal["small", "imagenet"] = option("small", "small, a 3×3 convolution; or imagenet, 7×7 and a pooling")
    dropout: float = option(0.0, "share of channels left out in training")
    norm: Literal["batch", "group", "identity"] = option("batch", "batch, group or identity")
    activation: str = option("relu", "relu, celu, gelu, silu, tanh, ...")
    memory_efficient: bool = option(False, "compute norms and activations anew in the backward pass")
    norm_eps: float = option(1e-3, "ε of the norms")
    norm_momentum: float = option(0.1, "momentum of the statistics of batch norms")
    norm_groups: int = option(32, "groups of group norms")
    filters: Literal["pixel", "njet"] = option("pixel", "what a 3×3 filter is: pixel or njet")
    filter_options: Options | None = option(None, "further options of the filters")

    def check(self) -> None:
        super().check()
        if self.stem not in ("small", "imagenet") or self.filters not in ("pixel", "njet"):
            raise ConfigError(f"stem={self.stem!r}, filters={self.filters!r}; expected stem small or imagenet, filters pixel or njet")
        if self.stages is not None:
            self._settle("stages", plain_stages(parse_stages(self.stages)))
        self.shapes()
        self.style()

    def vary(self, **options: object) -> Self:
        """Growths take the place of this configuration's own stages."""
        if options.get("growths") is not None and "stages" not in options:
            options["stages"] = None
        return super().vary(**options)

    def style(self) -> Style:
        """Norm, activation and dropout of all layers."""
        return Style(
            norm=self.norm,
            activation=self.activation,
            dropout=self.dropout,
            memory_efficient=self.memory_efficient,
            norm_eps=self.norm_eps,
            norm_momentum=self.norm_momentum,
            norm_groups=self.norm_groups,
        )

    def shapes(self) -> list[PeriodShape]:
        """The periods that the options describe, rules 1–4 checked."""
        return period_shapes(self)


@dataclass(frozen=True, kw_only=True)
class ERKConfig(RKConfig):
    """Explicit: dense blocks and a sum."""


@dataclass(frozen=True, kw_only=True)
class IRKConfig(RKConfig):
    """Implicit: clique blocks and a sum."""

    stages: str | Sequence[Sequence[int]] | None = option(
        "4x1_4x1_4x1", "s×r of each period, stages × time-steps: 3x2_4x1; or leave it out and give growths"
    )
    loops: int = option(1, "how often all stages are renewed; see continua.blocks.Clique")
    order: Literal["gauss-seidel", "jacobi"] = option("gauss-seidel", "in which order: gauss-seidel or jacobi")
    state_in_update: bool = option(False, "y_n is read again when stages are renewed")


def period_shapes(config: RKConfig) -> list[PeriodShape]:
    """The periods that a configuration describes, rules 1–4 checked."""
    stages, growths = config.stages, config.growths
    if (stages is None) == (growths is None):
        raise ConfigError(f"stages={stages!r} and growths={growths!r}; give one: stages '7x1_6x1_6x1', or the growths of each period")
    terms = parse_stages(stages) if stages is not None else tuple((0, 1) for _ in growths or ())
    count = len(terms)
    rates = _each("growth", config.growth, count)
    wide = None if config.channels is None else _each("channels", config.channels, count)
    given = None if config.m is None else _each("m", config.m, count)
    shapes = []
    for index, ((s, r), k) in enumerate(zip(terms, rates, strict=True)):
        own = given[index] if given is not None else 1 if wide is None else rule_1(index, wide[index], k)
        if wide is not None:
            rule_1(index, wide[index], k)
            rule_2(index, wide[index], k, own)
        if isinstance(config, IRKConfig):
            rule_4(index, own, k)
        if growths is not None:
            s = rule_3(index, _each("growths", growths, count)[index], own)
        shapes.append(PeriodShape(k, own, s, r))
    return shapes


def _each(name: str, value: "int | Sequence[int]", periods: int) -> list[int]:
    """One number per period."""
    listed = [value] * periods if isinstance(value, int) else list(value)
    if len(listed) != periods or not all(isinstance(number, int) and number >= 1 for number in listed):
        raise ConfigError(f"{name}={value!r}; expected one whole number of at least 1, or {periods} of them, one per period")
    return listed
