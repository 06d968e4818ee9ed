"""The options of Runge–Kutta networks, the rules that their periods keep, and how the paper writes them.

A name such as ERKNet-3×2_4×1_2×5_1×1-AB (RKNet §3.2 and table 2) has one term s×r per period: s stages, r time-steps. Suffix A:
attentional transition, B: bottleneck. Rules 1–4 (§3.3) say when a block is a Runge–Kutta time-step.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self

from continua.blocks import Style
from continua.errors import ConfigError
from continua.files import Json
from continua.limits import STAGES
from continua.models.config import ClassifierConfig, Options, check_choice
from continua.ode import find_method
from continua.options import option

Terms = tuple[tuple[int, int], ...]
EXAMPLE = "3x2_4x1_2x5_1x1"
MIXED = "E7x1_I4x1_I4x1"
NAME = re.compile(r"(?P<kind>[EI]?)RKNet-(?P<stages>[^-]+)(?:-(?P<suffix>.*))?", re.IGNORECASE)


# --- names ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spelling:
    """A network as the paper's name says it; `kinds` has an E or an I for each period. `str()` prints the name."""

    kinds: str
    terms: Terms
    attention: bool = False
    bottleneck: bool = False

    def __str__(self) -> str:
        suffix = "A" * self.attention + "B" * self.bottleneck
        mixed = len(set(self.kinds)) > 1
        stages = "_".join(f"{kind if mixed else ''}{s}×{r}" for kind, (s, r) in zip(self.kinds, self.terms, strict=True))
        return f"{'' if mixed else self.kinds[0]}RKNet-{stages}" + (f"-{suffix}" if suffix else "")


def parse_name(name: str) -> Spelling:
    """`ERKNet-7x1_6x1_6x1`, `IRKNet-5×1_5×1_5×1-AB`, or with a letter for each period `RKNet-E7x1_I4x1_I4x1`."""
    match = NAME.fullmatch(name.strip())
    suffix = (match["suffix"] or "").upper() if match else ""
    if match is None or (match["suffix"] is not None and suffix not in ("A", "B", "AB")):
        raise ConfigError(
            f"{name!r} is not a network's name; expected ERKNet- or IRKNet-{EXAMPLE}, or RKNet-{MIXED}, then nothing, -A, -B or -AB"
        )
    stages, kind = match["stages"].split("_"), match["kind"].upper()
    if not kind:
        kinds = "".join(term.strip()[:1].upper() for term in stages)
        if set(kinds) - set("EI"):
            raise ConfigError(f"{name!r} does not say which of its periods are explicit; expected an E or an I before each, RKNet-{MIXED}")
        stages = [term.strip()[1:] for term in stages]
    else:
        kinds = kind * len(stages)
    return Spelling(kinds, parse_stages("_".join(stages)), "A" in suffix, "B" in suffix)


def parse_stages(stages: "str | Sequence[Sequence[int]]") -> Terms:
    """((3, 2), (4, 1)) from "3x2_4x1", "3×2_4×1" or [[3, 2], [4, 1]]."""
    try:
        pairs = [_term(term) for term in stages.split("_")] if isinstance(stages, str) else [tuple(map(int, term)) for term in stages]
        if not pairs or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(
            f"stages={stages!r}; expected one term per period, stages × time-steps, each at least 1, such as '{EXAMPLE}'"
        ) from None
    check_stages(pairs)
    return tuple((s, r) for s, r in pairs)


def _term(term: str) -> tuple[int, ...]:
    """(3, 2) from "3x2"; nothing where it is no term."""
    match = re.fullmatch(r"\s*(\d+)\s*[x×X]\s*(\d+)\s*", term)
    return tuple(map(int, match.groups())) if match else ()


def check_stages(terms: Iterable[Sequence[int]]) -> None:
    """Refuse periods of more stages or time-steps than a limit: the matrix of a step grows with their square."""
    largest = max((number for term in terms for number in term), default=0)
    if STAGES.exceeded(largest):
        raise ConfigError(f"a period has {largest:,} stages or time-steps; {STAGES.advice()}")


def plain_stages(terms: Terms) -> str:
    """The terms as an option: "3x2_4x1"."""
    return "_".join(f"{s}x{r}" for s, r in terms)


def spelled(name: str) -> tuple[str, Json] | None:
    """The registered model and the options that a name of the paper stands for; None where it is not meant as one."""
    if re.match(r"[ei]?rknet(-|\W?[ei]?\d|_\d)", name.strip(), re.IGNORECASE) is None:  # also with a space or _ in place of the hyphen
        return None
    read = parse_name(name)
    options = dict(stages=plain_stages(read.terms), attention=read.attention, bottleneck=read.bottleneck)
    if len(set(read.kinds)) > 1:
        return "rknet", {**options, "kinds": read.kinds}
    return ("irknet" if read.kinds[0] == "I" else "erknet"), options


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeriodShape:
    """A period that keeps the rules: s stages of m growths of k channels, r time-steps."""

    growth: int
    m: int
    stages: int
    steps: int = 1

    @property
    def channels(self) -> int:
        """Of y_n: m·k (rule 1)."""
        return self.m * self.growth


class BrokenRule(ConfigError):
    """A block that is not a Runge–Kutta step; `rule` is the number of the rule, `nearest` the setting closest to the one asked for."""

    def __init__(self, rule: int, period: int, problem: str, nearest: str) -> None:
        super().__init__(f"period {period + 1} breaks rule {rule} of RKNets: {problem}; nearest valid: {nearest}")
        self.rule, self.period, self.nearest = rule, period, nearest


def rule_1(period: int, channels: int, growth: int) -> int:
    """m: y_n has m·k channels."""
    if channels % growth or channels < growth:
        options = sorted({max(1, channels // growth), -(-channels // growth)}, key=lambda m: abs(m * growth - channels))
        nearest = " or ".join(f"{m * growth} channels (m = {m})" for m in options)
        raise BrokenRule(1, period, f"y_n has {channels} channels, not a multiple of the growth rate k = {growth}", nearest)
    return channels // growth


def rule_2(period: int, channels: int, growth: int, m: int) -> None:
    """m successive growths are a group, which is added to y_n."""
    if m * growth != channels:
        problem = (
            f"m = {m} growths of k = {growth} channels make groups of {m * growth}, which cannot be added to y_n of {channels} channels"
        )
        raise BrokenRule(2, period, problem, f"m = {max(1, round(channels / growth))}")


def rule_2_even(period: int, widths: list[int]) -> int:
    """k: all growths of a period have the same width."""
    if len(set(widths)) > 1:
        usual = Counter(widths).most_common(1)[0][0]
        odd = next(index for index, width in enumerate(widths) if width != usual)
        problem = f"growth {odd + 1} has {widths[odd]} channels and most have {usual}, so that m successive growths are no group of m·k"
        raise BrokenRule(2, period, problem, f"k = {usual} in every growth")
    return widths[0]


def rule_3(period: int, growths: int, m: int) -> int:
    """s: there are m·s growths."""
    if growths % m or growths < m:
        options = sorted({max(1, growths // m), -(-growths // m)}, key=lambda s: (abs(s * m - growths), -s))
        nearest = " or ".join(f"{s * m} growths ({s} stage{'s' if s > 1 else ''})" for s in options)
        raise BrokenRule(3, period, f"{growths} growths are no whole number of groups of m = {m}", nearest)
    return growths // m


def rule_4(period: int, m: int, growth: int) -> None:
    """IRKNets have m = 1."""
    if m != 1:
        raise BrokenRule(4, period, f"an implicit step has m = 1, and here m = {m}", f"m = 1, so y_n has k = {growth} channels")


# --- textbook methods -------------------------------------------------------------------------------------------------

EXPLICIT = {1: "euler", 2: "heun", 4: "rk4", 6: "fehlberg45", 7: "dopri5"}
IMPLICIT = {1: "gauss2", 2: "gauss4", 3: "radau5"}


def familiar_method(stages: int, implicit: bool) -> tuple[str, list[list[float]]]:
    """Name and matrix a_ij of a known method with as many stages; where there is none, ones wherever such a method may have a number.

    Args:
        stages: how many.
        implicit: whether stages may depend on later ones.

    Returns:
        Its name and its matrix.

    Examples:
        >>> from continua.models import familiar_method
        >>> familiar_method(4, implicit=False)[0]  # doctest: +SKIP
    """
    name = (IMPLICIT if implicit else EXPLICIT).get(stages)
    if name is not None:
        return name, [list(row) for row in find_method(name).a]
    kind = "implicit" if implicit else "explicit"
    return f"any {kind} method", [[1.0 if implicit or j < i else 0.0 for j in range(stages)] for i in range(stages)]


# --- options ----------------------------------------------------------------------------------------------------------


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
        return Style(**{item.name: getattr(self, item.name) for item in fields(Style)})

    def period_kinds(self, periods: int) -> str:
        """E or I for each period."""
        return "E" * periods

    def shapes(self) -> list[PeriodShape]:
        """The periods that the options describe, rules 1–4 checked."""
        stages, growths = self.stages, self.growths
        if (stages is None) == (growths is None):
            raise ConfigError(f"stages={stages!r} and growths={growths!r}; give one: stages '7x1_6x1_6x1', or the growths of each period")
        terms = parse_stages(stages) if stages is not None else tuple((0, 1) for _ in growths or ())
        count = len(terms)
        wide = None if self.channels is None else _each("channels", self.channels, count)
        given = None if self.m is None else _each("m", self.m, count)
        shapes = []
        for index, ((s, r), k) in enumerate(zip(terms, _each("growth", self.growth, count), strict=True)):
            least = 1 if wide is None else rule_1(index, wide[index], k)
            m = least if given is None else given[index]
            if wide is not None:
                rule_2(index, wide[index], k, m)
            if self.period_kinds(count)[index] == "I":
                rule_4(index, m, k)
            if growths is not None:
                s = rule_3(index, _each("growths", growths, count)[index], m)
            shapes.append(PeriodShape(k, m, s, r))
        return shapes


@dataclass(frozen=True, kw_only=True)
class ERKConfig(RKConfig):
    """Explicit: dense blocks and a sum."""

    form: Literal["concatenated", "summed"] = option(
        "concatenated", "what a stage reads: all terms side by side (F_i of eq. 4), or summed first (f_i)"
    )

    def check(self) -> None:
        super().check()
        check_choice("form", self.form, ("concatenated", "summed"))


@dataclass(frozen=True, kw_only=True)
class IRKConfig(RKConfig):
    """Implicit: clique blocks and a sum."""

    stages: str | Sequence[Sequence[int]] | None = option(
        "4x1_4x1_4x1", "s×r of each period, stages × time-steps: 3x2_4x1; or leave it out and give growths"
    )
    loops: int = option(1, "how often all stages are renewed; see continua.blocks.Clique")
    order: Literal["gauss-seidel", "jacobi"] = option("gauss-seidel", "in which order: gauss-seidel or jacobi")
    state_in_update: bool = option(False, "y_n is read again when stages are renewed")

    def period_kinds(self, periods: int) -> str:
        return "I" * periods


@dataclass(frozen=True, kw_only=True)
class MixedConfig(IRKConfig):
    """Explicit and implicit periods in one network."""

    stages: str | Sequence[Sequence[int]] | None = option(
        "7x1_4x1_4x1", "s×r of each period, stages × time-steps: 3x2_4x1; or leave it out and give growths"
    )
    kinds: str = option("EII", "E, explicit, or I, implicit, for each period")

    def check(self) -> None:
        self._settle("kinds", self.kinds.upper())
        super().check()

    def period_kinds(self, periods: int) -> str:
        if len(self.kinds) != periods or set(self.kinds) - set("EI"):
            raise ConfigError(f"kinds={self.kinds!r}; expected an E or an I for each of the {periods} periods, such as 'EII'")
        return self.kinds


def _each(name: str, value: "int | Sequence[int]", periods: int) -> list[int]:
    """One number per period."""
    listed = [value] * periods if isinstance(value, int) else list(value)
    if len(listed) != periods or not all(isinstance(number, int) and number >= 1 for number in listed):
        raise ConfigError(f"{name}={value!r}; expected one whole number of at least 1, or {periods} of them, one per period")
    return listed
