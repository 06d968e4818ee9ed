"""Runge–Kutta convolutional networks: periods of time-steps whose Runge–Kutta coefficients are learned (RKNet, ICLR 2019 submission).

    images → stem → period 1 → transition → period 2 → … → head

A period advances one dynamical system by r time-steps of an s-stage method: explicit (ERKNet, a dense block and a sum) or implicit
(IRKNet, a clique block and a sum). Every row of the paper's tables 1–3 is registered under its own name.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any, Literal

from torch import nn

from continua.blocks import ERKStep, IRKStep, Period, Style
from continua.errors import ConfigError
from continua.filters import Filter, NJet, Pixel
from continua.models.network import Network
from continua.models.registry import register_model, register_spelling
from continua.models.rk_parts import ImageNetStem, LastHead, MultiscaleHead, Transition
from continua.models.rk_rules import PeriodShape, rule_1, rule_2, rule_3, rule_4
from continua.models.rk_spelling import Spelling, looks_spelled, parse_name, parse_stages, plain_stages

PerPeriod = "int | Sequence[int]"


class RKNet(Network):
    """An ERKNet or IRKNet.

    stages              "3x2_4x1": s×r of each period; or leave it out and give `growths`, convolutions per time-step of each period
    growth, m           k, and growths per stage: one number, or one per period. y_n has m·k channels (rules 1 and 2); m = 1 if implicit (4)
    channels            those of y_n in each period, instead of m
    bottleneck          a 1×1 convolution to `bottleneck_width`·k channels before each 3×3 (default 4 explicit, 1 implicit)
    share_steps         the r time-steps of a period share their weights
    loops, order, state_in_update    of implicit steps: see `continua.blocks.Clique`
    """

    def __init__(
        self,
        *,
        implicit: bool = False,
        stages: "str | Sequence[Sequence[int]] | None" = None,
        growth: "int | Sequence[int]" = 36,
        m: "int | Sequence[int] | None" = None,
        channels: "int | Sequence[int] | None" = None,
        growths: "Sequence[int] | None" = None,
        bottleneck: bool = False,
        bottleneck_width: int | None = None,
        share_steps: bool = False,
        loops: int = 1,
        order: Literal["gauss-seidel", "jacobi"] = "gauss-seidel",
        state_in_update: bool = False,
        attention: bool = False,
        multiscale: bool = True,
        stem: Literal["small", "imagenet"] = "small",
        num_classes: int = 10,
        in_channels: int = 3,
        dropout: float = 0.0,
        norm: Literal["batch", "group", "identity"] = "batch",
        activation: str = "relu",
        memory_efficient: bool = False,
        norm_eps: float = 1e-3,
        norm_momentum: float = 0.1,
        norm_groups: int = 32,
        filters: Literal["pixel", "njet"] = "pixel",
        filter_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if stem not in ("small", "imagenet") or filters not in ("pixel", "njet"):
            raise ConfigError(f"stem={stem!r}, filters={filters!r}; expected stem small or imagenet, filters pixel or njet")
        switches = dict(bottleneck=bottleneck, share_steps=share_steps, attention=attention, multiscale=multiscale)
        for name, value in {**switches, "state_in_update": state_in_update, "memory_efficient": memory_efficient}.items():
            if not isinstance(value, bool):  # "no" would count as yes
                raise ConfigError(f"{name}={value!r}; expected true or false")
        self.shapes = period_shapes(implicit, stages, growth, m, channels, growths)
        self.implicit, self.attention, self.bottleneck = implicit, attention, bottleneck
        self.filters, self.filter_options = filters, dict(filter_options or {})
        self.style = style = Style(norm, activation, dropout, memory_efficient, norm_eps, norm_momentum, norm_groups)
        widths = [shape.channels for shape in self.shapes]
        clique: dict[str, Any] = dict(loops=loops, order=order, state_in_update=state_in_update) if implicit else {}
        width = bottleneck_width or (1 if implicit else 4)
        self.stem = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        if stem == "imagenet":
            self.stem = ImageNetStem(in_channels, widths[0], style)
        self.blocks = nn.ModuleList(self._period(shape, width, share_steps, clique) for shape in self.shapes)
        self.transitions = nn.ModuleList(Transition(a, b, style, attention) for a, b in pairwise(widths))
        self.multiscale = multiscale
        self.head = MultiscaleHead(widths, num_classes, style) if multiscale else LastHead(widths[-1], num_classes, style)
        initialise(self)

    @property
    def spelling(self) -> str:
        """The paper's name of this network, such as ERKNet-3×2_4×1_2×5_1×1."""
        terms = tuple((shape.stages, shape.steps) for shape in self.shapes)
        return str(Spelling(self.implicit, terms, self.attention, self.bottleneck))

    def make_filter(self, inputs: int, outputs: int) -> Filter:
        """A filter of this network's kind."""
        return (Pixel if self.filters == "pixel" else NJet)(inputs, outputs, **self.filter_options)

    def _period(self, shape: PeriodShape, width: int, share: bool, clique: Mapping[str, Any]) -> Period:
        neck = width * shape.growth if self.bottleneck else None
        common: dict[str, Any] = dict(bottleneck=neck, uses=shape.steps if share else 1, make_filter=self.make_filter, style=self.style)
        count = 1 if share else shape.steps
        if self.implicit:
            return Period([IRKStep(shape.growth, shape.stages, **clique, **common) for _ in range(count)])
        return Period([ERKStep(shape.growth, shape.stages, shape.m, **common) for _ in range(count)])

    def extra_repr(self) -> str:
        return self.spelling


def period_shapes(
    implicit: bool,
    stages: "str | Sequence[Sequence[int]] | None",
    growth: "int | Sequence[int]",
    m: "int | Sequence[int] | None",
    channels: "int | Sequence[int] | None",
    growths: "Sequence[int] | None",
) -> list[PeriodShape]:
    """The periods that the options describe, rules 1–4 checked."""
    if (stages is None) == (growths is None):
        raise ConfigError(f"stages={stages!r} and growths={growths!r}; give one: stages '7x1_6x1_6x1', or the growths of each period")
    terms = parse_stages(stages) if stages is not None else tuple((0, 1) for _ in growths or ())
    count = len(terms)
    rates = _each("growth", growth, count)
    wide = None if channels is None else _each("channels", channels, count)
    given = None if m is None else _each("m", m, count)
    shapes = []
    for index, ((s, r), k) in enumerate(zip(terms, rates, strict=True)):
        own = given[index] if given is not None else 1 if wide is None else rule_1(index, wide[index], k)
        if wide is not None:
            rule_1(index, wide[index], k)
            rule_2(index, wide[index], k, own)
        if implicit:
            rule_4(index, own, k)
        if growths is not None:
            s = rule_3(index, _each("growths", growths, count)[index], own)
        shapes.append(PeriodShape(k, own, s, r))
    return shapes


def _each(name: str, value: "int | Sequence[int]", periods: int) -> list[int]:
    """One number per period."""
    listed = [value] * periods if isinstance(value, int) else list(value)
    if len(listed) != periods or not all(isinstance(one, int) and one >= 1 for one in listed):
        raise ConfigError(f"{name}={value!r}; expected one whole number of at least 1, or {periods} of them, one per period")
    return listed


def initialise(net: nn.Module) -> None:
    """Convolutions normal by their inputs (He et al. 2015), linear layers Xavier uniform with bias 0. N-jets keep their own."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | Pixel):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)


# --- names ------------------------------------------------------------------------------------------------------------

FIXED = ("implicit",)
IMPLICIT_ONLY = ("loops", "order", "state_in_update")
TINY = dict(growth=8)


def _register(
    name: str, row: str, parameters: int, printed: str, tiny: Mapping[str, Any], *, image_size: int = 32, **defaults: Any
) -> None:
    """A network of the paper: explicit or implicit stays fixed, the other arguments of `RKNet` are its options."""
    implicit = name.startswith("irknet")
    hidden = FIXED if implicit else (*FIXED, *IMPLICIT_ONLY)
    own = [p for p in signature(RKNet, eval_str=True).parameters.values() if p.name not in hidden]
    resolved = {p.name: defaults.get(p.name, p.default) for p in own}

    def build(**options: Any) -> RKNet:
        chosen = {**resolved, **options}
        if options.get("growths") is not None and "stages" not in options:
            chosen["stages"] = None  # growths take the place of this model's own stages
        net = RKNet(implicit=implicit, **chosen)
        net.options = {**chosen, "stages": None if chosen["stages"] is None else plain_stages(parse_stages(chosen["stages"]))}
        return net

    build.__name__ = name
    build.__signature__ = signature(RKNet, eval_str=True).replace(  # pyright: ignore[reportFunctionMemberAccess]
        parameters=[p.replace(default=resolved[p.name], kind=Parameter.KEYWORD_ONLY) for p in own]
    )
    register_model(paper="RKNet", row=row, parameters=parameters, printed=printed, image_size=image_size, tiny=tiny)(build)


_register("erknet", "ERKNet-7×1_7×1_7×1", 990_838, "0.99M", {**TINY, "stages": "2x2_1x1"}, stages="7x1_7x1_7x1")
_register("irknet", "IRKNet-4×1_4×1_4×1", 569_638, "0.57M", {**TINY, "stages": "2x2_2x1"}, stages="4x1_4x1_4x1")
for _stages, _parameters, _printed in (
    ("6x1_6x1_6x1", 744_382, "0.74M"),
    ("7x1_6x1_6x1", 826_534, "0.83M"),
    ("7x1_7x1_6x1", 908_686, "0.91M"),
    ("7x1_7x1_7x1", 990_838, "0.99M"),
):
    _register(f"erknet_k36_{_stages}", f"table 1, ERKNet-{_stages.replace('x', '×')}", _parameters, _printed, TINY, stages=_stages)
for _stages, _parameters, _printed in (
    ("3x1_3x1_3x1", 322_534, "0.32M"),
    ("4x1_3x1_3x1", 404_902, "0.40M"),
    ("4x1_4x1_3x1", 487_270, "0.49M"),
    ("4x1_4x1_4x1", 569_638, "0.57M"),
):
    _register(f"irknet_k36_{_stages}", f"table 1, IRKNet-{_stages.replace('x', '×')}", _parameters, _printed, TINY, stages=_stages)
for _growth, _parameters, _printed in ((150, 4_866_010, "4.87M"), (180, 6_994_810, "6.99M")):
    _stages = "5x1_5x1_5x1"
    _row = f"table 2, IRKNet-{_stages.replace('x', '×')}-AB, k = {_growth}"
    _ab: dict[str, Any] = dict(stages=_stages, growth=_growth, attention=True, bottleneck=True)
    _register(f"irknet_k{_growth}_{_stages}_ab", _row, _parameters, _printed, TINY, **_ab)
for _stages, _m, _parameters, _printed in (
    ("3x1_3x1_3x1_1x1", 16, 6_947_048, "6.95M"),
    ("3x1_3x1_4x1_2x1", 20, 14_485_992, "14.49M"),
    ("3x1_3x1_6x1_2x1", 28, 25_513_960, "25.51M"),
):
    _row = f"table 3, ERKNet-{_stages.replace('x', '×')}-B, m₃ = {_m}"
    _imagenet: dict[str, Any] = dict(stem="imagenet", multiscale=False, bottleneck=True, growth=32, m=(2, 4, 8, _m), num_classes=1000)
    _small: dict[str, Any] = dict(growth=4, m=(2, 2, 2, 2), num_classes=10)
    _register(f"erknet_imagenet_{_stages}_b", _row, _parameters, _printed, _small, image_size=224, stages=_stages, **_imagenet)


def _spelled(name: str) -> tuple[str, dict[str, Any]] | None:
    """The registered model and the options that a name of the paper stands for."""
    if not looks_spelled(name):
        return None
    found = parse_name(name)
    options = dict(stages=plain_stages(found.terms), attention=found.attention, bottleneck=found.bottleneck)
    return ("irknet" if found.implicit else "erknet"), options


register_spelling(_spelled)
