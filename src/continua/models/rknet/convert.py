"""From DenseNet to ERKNet and from CliqueNet to IRKNet, by the rules of the RKNet paper (§3.3).

    net, report = from_densenet("densenet121")             # ERKNet-3×1_3×1_3×1_1×1-B, new weights
    net, report = from_densenet(trained)                   # the weights of its dense layers carried over
    net, report = from_densenet("densenet169")             # refused: period 4 breaks rule 3 …
    net, report = from_densenet("densenet169", nearest=True)

A Runge–Kutta network adds the groups to y_n where its source concatenates them, so transitions and head read fewer channels: they are new,
and the network wants training. Its periods compute the same increments as the source's blocks.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from continua.errors import ConfigError
from continua.models.config import Options
from continua.models.registry import create_model
from continua.models.rknet.config import BrokenRule, rule_1, rule_2_even, rule_3, rule_4
from continua.models.rknet.network import ImageNetStem, RKNet
from continua.models.rknet.sources import CliqueNet, CliqueNetSpec, DenseNet, DenseNetSpec, densenet_spec

LAYER = re.compile(r"features\.denseblock(\d+)\.denselayer(\d+)\.conv(\d)\.weight")


@dataclass(frozen=True)
class Report:
    """What a conversion did: tensors of the new network that came from the source, that are new, and of the source that have no place."""

    source: str
    name: str
    carried: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]
    carried_values: int
    values: int

    def __str__(self) -> str:
        share = f"{self.carried_values:,} of {self.values:,} values carried over ({self.carried_values / max(1, self.values):.0%})"
        lines = [f"{self.source} → {self.name}: {share}"]
        for title, names in (("carried", self.carried), ("new", self.new), ("left behind", self.left)):
            lines += [f"{title} ({len(names)}):", *(f"  {name}" for name in names)] if names else [f"{title}: nothing"]
        return "\n".join(lines)


class Converted(NamedTuple):
    """A Runge–Kutta network and how it came about."""

    net: RKNet
    report: Report


def from_densenet(source: "str | DenseNetSpec | nn.Module", *, nearest: bool = False, **options: object) -> Converted:
    """The ERKNet of a DenseNet: a name ("densenet121"), a spec, or a module, whose dense layers' weights are carried over.

    Modules are recognised by the usual names of their weights (features.denseblock1.denselayer1…). A DenseNet that breaks a rule is
    refused with the rule and what would keep it; `nearest=True` builds that instead. `options` are those of the model `erknet`.

    Args:
        source: the DenseNet.
        nearest: build the nearest network that keeps the rules where the source breaks one.
        options: of the model `erknet`.

    Returns:
        The network, and what was carried over.

    Raises:
        ConfigError: the source breaks a rule and `nearest` is not set.

    Examples:
        >>> from continua.models import from_densenet
        >>> from_densenet("densenet121", nearest=True)  # doctest: +SKIP
    """
    weights = source.state_dict() if isinstance(source, nn.Module) else {}
    spec = _read_densenet(source) if isinstance(source, nn.Module) else densenet_spec(source) if isinstance(source, str) else source
    shapes = [_explicit_shape(*period, spec.growth, nearest) for period in enumerate(zip(spec.inputs, spec.layers, strict=True))]
    chosen: Options = dict(
        stages="_".join(f"{s}x1" for _, s in shapes),
        growth=spec.growth,
        m=[m for m, _ in shapes],
        bottleneck=spec.bottleneck is not None,
        bottleneck_width=spec.bottleneck,
        stem=spec.stem,
        multiscale=False,
        num_classes=spec.num_classes,
        in_channels=spec.in_channels,
        norm_eps=spec.norm_eps,
    )
    net = cast(RKNet, create_model("erknet", **{**chosen, **options}))
    return Converted(net, _carry(_name_of(source), net, weights, _dense_sources(net, weights)))


def from_cliquenet(source: "CliqueNetSpec | CliqueNet", *, nearest: bool = False, **options: object) -> Converted:
    """The IRKNet of a CliqueNet, given by its spec or as a module, whose kernels between stages are carried over.

    The published CliqueNets have a stem of 64 channels and transitions as wide as a block, so they break rule 1 or 4: y_n must have k
    channels. `nearest=True` builds that network; the kernels from y_n are then new. `options` are those of the model `irknet`.

    Args:
        source: the CliqueNet.
        nearest: build the nearest network that keeps the rules where the source breaks one.
        options: of the model `irknet`.

    Returns:
        The network, and what was carried over.

    Raises:
        ConfigError: the source breaks a rule and `nearest` is not set.

    Examples:
        >>> from continua.models import CliqueNetSpec, from_cliquenet
        >>> from_cliquenet(spec, nearest=True)  # doctest: +SKIP
    """
    weights = source.state_dict() if isinstance(source, nn.Module) else {}
    spec = source.spec if isinstance(source, CliqueNet) else source
    if not isinstance(spec, CliqueNetSpec):
        raise ConfigError(f"from_cliquenet takes a CliqueNet or a CliqueNetSpec, not {type(source).__name__}")
    if not nearest:
        for index, channels in enumerate(spec.inputs):
            rule_4(index, rule_1(index, channels, spec.growth), spec.growth)
    chosen: Options = dict(
        stages="_".join(f"{s}x1" for s in spec.nodes),
        growth=spec.growth,
        bottleneck=spec.bottleneck,
        attention=spec.attention,
        num_classes=spec.num_classes,
        in_channels=spec.in_channels,
        norm_eps=spec.norm_eps,
    )
    net = cast(RKNet, create_model("irknet", **{**chosen, **options}))
    return Converted(net, _carry(_name_of(source), net, weights, _clique_sources(net, weights)))


# --- rules ------------------------------------------------------------------------------------------------------------


def _explicit_shape(index: int, numbers: tuple[int, int], growth: int, nearest: bool) -> tuple[int, int]:
    """m and s of a period; with `nearest`, those closest to what the source has."""
    channels, layers = numbers
    try:
        m = rule_1(index, channels, growth)
        return m, rule_3(index, layers, m)
    except BrokenRule:
        if not nearest:
            raise
    m = max(1, int(channels / growth + 0.5))
    return m, max(1, int(layers / m + 0.5))


def _read_densenet(module: nn.Module) -> DenseNetSpec:
    """The numbers of a module, from the shapes of its weights."""
    if isinstance(module, DenseNet):
        return module.spec
    weights = module.state_dict()
    convs: dict[int, dict[int, list[Tensor]]] = {}
    for key in weights:
        if name := LAYER.fullmatch(key):
            convs.setdefault(int(name[1]), {}).setdefault(int(name[2]), []).append(weights[key])
    if not convs or "features.conv0.weight" not in weights or "classifier.weight" not in weights:
        raise ConfigError(
            f"{type(module).__name__} has no weights named features.conv0, features.denseblock1.denselayer1… and classifier; give a "
            "continua.models.DenseNet, or a DenseNetSpec with its numbers"
        )
    layers = [[convs[block][layer] for layer in sorted(convs[block])] for block in sorted(convs)]
    rates = [rule_2_even(index, [kernels[-1].shape[0] for kernels in block]) for index, block in enumerate(layers)]
    growth = rates[0]
    if len(set(rates)) > 1:
        raise ConfigError(f"the dense blocks have growth rates {rates}; from_densenet reads networks with one rate throughout")
    stem = weights["features.conv0.weight"]
    inputs = [block[0][0].shape[1] for block in layers]
    grown = inputs[0] + len(layers[0]) * growth
    first = layers[0][0]
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    return DenseNetSpec(
        layers=tuple(len(block) for block in layers),
        growth=growth,
        stem_channels=stem.shape[0],
        compression=inputs[1] / grown if len(inputs) > 1 else 1.0,
        bottleneck=first[0].shape[0] // growth if len(first) == 2 else None,
        stem="imagenet" if stem.shape[-1] == 7 else "small",
        num_classes=weights["classifier.weight"].shape[0],
        in_channels=stem.shape[1],
        norm_eps=norms[0].eps if norms else 1e-5,
    )


# --- weights ----------------------------------------------------------------------------------------------------------

Source = tuple[str, Callable[[Tensor], Tensor]]  # a tensor of the source, and which part of it


def _dense_sources(net: RKNet, weights: Mapping[str, Tensor]) -> dict[str, Source]:
    """Where each tensor of an ERKNet comes from in a DenseNet."""
    sources: dict[str, Source] = {}

    def take(target: str, key: str, part: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        if key in weights:
            sources[target] = key, part

    large = isinstance(net.stem, ImageNetStem)
    take("stem.conv.weight" if large else "stem.weight", "features.conv0.weight")
    for what in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        take(f"stem.norm.norm.{what}", f"features.norm0.{what}")
    k = net.shapes[0].growth
    for p, shape in enumerate(net.shapes):
        for index in range(shape.m * shape.stages):
            own, step = f"features.denseblock{p + 1}.denselayer{index + 1}", f"blocks.{p}.steps.0"
            growth = f"{step}.growths.{index}"
            for what in ("weight", "bias"):
                take(f"{growth}.affine.{what}", f"{own}.norm1.{what}")
                take(f"{growth}.neck.{what}", f"{own}.norm2.{what}")
            take(f"{growth}.{'narrow' if net.bottleneck else 'conv'}.filter.weight", f"{own}.conv1.weight")
            take(f"{growth}.conv.filter.weight", f"{own}.conv2.weight")
            for what in ("running_mean", "running_var"):
                # All layers have the same statistics of the same channels; a layer is the first to read the last k of its own.
                newest = (lambda value: value) if index == 0 else (lambda value: value[-k:])
                take(f"{step}.statistics.0.parts.{index}.{what}", f"{own}.norm1.{what}", newest)
                take(f"{step}.statistics.0.necks.{index}.{what}", f"{own}.norm2.{what}")
    return sources


def _clique_sources(net: RKNet, weights: Mapping[str, Tensor]) -> dict[str, Source]:
    """Where each tensor of an IRKNet comes from in a CliqueNet: the blocks have the same names, and transitions and head other shapes."""
    sources: dict[str, Source] = {}
    for target in net.state_dict():
        key = target.replace(".steps.0.", ".")
        if key in weights and (key == "stem.weight" or target.startswith("blocks.")):
            sources[target] = key, lambda value: value
    return sources


@torch.no_grad()
def _carry(source: str, net: RKNet, weights: Mapping[str, Tensor], sources: Mapping[str, Source]) -> Report:
    """Copy what has the right shape. Of a kernel over [y_n, stages] whose y_n has another width, the part over the stages is copied."""
    carried, new, used, count, total = [], [], set(), 0, 0
    for target, value in net.state_dict().items():
        total += value.numel()
        if target not in sources:
            new.append(target)
            continue
        key, part = sources[target]
        theirs = part(weights[key])
        whole = theirs.shape == value.shape
        mine, theirs = (value, theirs) if whole else _over_stages(net, target, value, theirs)
        if mine is None or theirs is None:
            new.append(f"{target}: {tuple(value.shape)}, the source has {tuple(weights[key].shape)}")
            continue
        mine.copy_(theirs)
        used.add(key)
        count += mine.numel()
        carried.append(target if whole else f"{target}: kernels between stages; those from y_n are new")
    left = [key for key in weights if key not in used]
    return Report(source, net.spelling, tuple(carried), tuple(new), tuple(left), count, total)


def _over_stages(net: RKNet, target: str, mine: Tensor, theirs: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The parts of two node kernels (or of the scales of stage I) that read other stages; None where there are none."""
    k, y = net.shapes[0].growth, net.shapes[0].channels
    if not net.implicit or ".nodes." not in target or "neck" in target:
        return None, None
    axis = 1 if mine.ndim == 4 else 0
    stages = mine.shape[axis] - y
    if stages < k or theirs.shape[axis] <= stages:
        return None, None
    return mine.narrow(axis, y, stages), theirs.narrow(axis, theirs.shape[axis] - stages, stages)


def _name_of(source: object) -> str:
    return source if isinstance(source, str) else type(source).__name__
