"""ANODEV2 (Zhang, Yao, Gholami et al. 2019): small networks on CIFAR-10 whose kernels evolve by a differential equation of their own.

    alexnet     conv 5×5 → pool → [conv 5×5] → pool → three linear layers
    resnet4     conv → [two convs] → pool → linear
    resnet10    conv, block → [two convs] → block ÷2 → [two convs] → pool → linear

What stands in brackets are the `blocks`: ordinary residual blocks in the baselines, ODE blocks in the others. No code of the authors is
public; the layouts come from the parameter counts of their table 3 (docs/anodev2.md says which reading is ours, and where the
printed counts cannot be explained).
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from itertools import pairwise
from math import sqrt
from typing import Any

from torch import Tensor, nn

from continua.blocks import Activation, CoupledBlock, CoupledField, PostActResidualBlock
from continua.errors import ConfigError
from continua.filters import Filter, Grid, NJet, Pixel, ScheduledNJet, evolve
from continua.models.network import Network
from continua.models.registry import register_model
from continua.ode import SolverConfig

FILTERS: dict[str, Callable[..., Filter]] = {"pixel": Pixel, "njet": NJet, "njet_schedule": ScheduledNJet}
COUPLINGS = (1, 2, "free")


class _Classifier(Network):
    """What the baselines and their continuous forms share: everything but the blocks."""

    def _build(self, architecture: str, in_channels: int, channels: Sequence[int], num_classes: int) -> None:
        if isinstance(channels, str) or len(channels) != WIDTHS[architecture] or not all(isinstance(c, int) and c > 0 for c in channels):
            raise ConfigError(f"channels={channels!r}; {architecture} has {WIDTHS[architecture]} width(s), whole numbers of at least 1")
        first, last = channels[0], channels[-1]
        self.size = 5 if architecture == "alexnet" else 3
        self.layers = 1 if architecture == "alexnet" else 2
        stem: list[nn.Module] = [
            nn.Conv2d(in_channels, first, self.size, padding=self.size // 2, bias=architecture == "alexnet"),
            nn.BatchNorm2d(first),
            Activation("relu"),
        ]
        if architecture == "alexnet":
            stem.append(nn.MaxPool2d(2))
        if architecture == "resnet10":
            stem.append(PostActResidualBlock(first, first))
        self.stem = nn.Sequential(*stem)
        self.transitions = nn.ModuleList([PostActResidualBlock(first, last, stride=2)] if architecture == "resnet10" else [])
        self.blocks = nn.ModuleList(self._block(width) for width in channels)
        pixels, hidden = HEADS[architecture]
        self.head = PooledHead(last, pixels, hidden, num_classes)
        _start_like_anode(self)

    def _block(self, channels: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} must define _block().")


class Baseline(_Classifier):
    """The ordinary network: residual blocks with ReLU after the addition."""

    def __init__(self, *, architecture: str, num_classes: int = 10, in_channels: int = 3, channels: Sequence[int] = (16,)) -> None:
        super().__init__()
        self.architecture = architecture
        self._build(architecture, in_channels, tuple(channels), num_classes)

    def _block(self, channels: int) -> nn.Module:
        return PostActResidualBlock(channels, channels, layers=self.layers, size=self.size, bias=self.architecture == "alexnet")


class Anodev2(_Classifier):
    """The network with ODE blocks and evolving weights.

    steps          N_t, the Euler steps of the activations, each with its own BatchNorm
    coupling       1: weights and activations on one grid; 2: weights on `weight_steps` steps of their own, taken at `steps` times from
                   θ(0) to θ(1); "free": θ(t) at the activations' own time, for any solver
    evolution      by name: "static" (Neural ODE), "rda", "linear", "conv", "hyper", "diffusion" (of N-jet scales); or one for each part
                   of a filter's state, {"alpha": "linear", "s": "diffusion"}. Its further options go to `evolution_options`
    nonlinearity, around, wave_numbers, antidiffusion   those of `RDA`
    memory         K of eq. 5d: None (Dirac), "exponential", "box", or {"kind": "exponential", "rate": 5.0, "normalise": true}
    norm           "batch", a set per step: Euler steps only; "group": any solver
    solver         None: Euler, `steps` steps, checkpointed gradient
    """

    def __init__(
        self,
        *,
        architecture: str,
        num_classes: int = 10,
        in_channels: int = 3,
        channels: Sequence[int] = (16,),
        steps: int = 5,
        coupling: "int | str" = 1,
        weight_steps: int | None = None,
        evolution: "str | Mapping[str, str]" = "rda",
        evolution_options: Mapping[str, Any] | None = None,
        nonlinearity: str = "tanh",
        around: str = "weights",
        wave_numbers: str = "integer",
        antidiffusion: float | None = None,
        memory: Any = None,
        filters: str = "pixel",
        filter_options: Mapping[str, Any] | None = None,
        conv_options: Mapping[str, Any] | None = None,
        norm: str = "batch",
        solver: "SolverConfig | Mapping[str, Any] | None" = None,
    ) -> None:
        super().__init__()
        if filters not in FILTERS:
            raise ConfigError(f"unknown filters {filters!r}; known: {', '.join(FILTERS)}")
        if not isinstance(steps, int) or steps < 1:
            raise ConfigError(f"steps={steps!r}; N_t is a whole number of at least 1")
        self.architecture, self.filters, self.steps, self.norm = architecture, filters, steps, norm
        self.evolution, self.memory = evolution, memory
        self.grid, self.clock = _coupled_grid(coupling, steps, weight_steps)
        rda = dict(nonlinearity=nonlinearity, around=around, wave_numbers=wave_numbers, antidiffusion=antidiffusion)
        self.evolution_options = {**(rda if evolution == "rda" else {}), **(evolution_options or {})}
        if isinstance(evolution, Mapping) and "rda" in evolution.values():
            self.evolution_options = {
                part: {**(rda if kind == "rda" else {}), **self.evolution_options.get(part, {})} for part, kind in evolution.items()
            }
        self.filter_options, self.conv_options = dict(filter_options or {}), dict(conv_options or {})
        self.solver = SolverConfig.of(dict(method="euler", steps=steps) if solver is None else solver)
        self._build(architecture, in_channels, tuple(channels), num_classes)
        for name, module in self.named_modules():
            if isinstance(module, Filter):  # warnings call a filter by its place in the network
                module.label = name.removesuffix(".inner").removesuffix(".filter")

    def make_filter(self, inputs: int, outputs: int) -> Filter:
        """A filter of this network's kind, evolving."""
        options: dict[str, Any] = {"size": self.size} if self.filters == "pixel" else {}
        if self.filters == "njet_schedule":
            options["interval"] = (self.grid.start, self.grid.end)
        inner = FILTERS[self.filters](inputs, outputs, **{**options, **self.filter_options})
        return evolve(inner, self.evolution, options=self.evolution_options, memory=self.memory, grid=self.grid, clock=self.clock)

    def _block(self, channels: int) -> nn.Module:
        field = CoupledField(
            channels, self.make_filter, layers=self.layers, norm=self.norm, steps=self.steps, conv_options=self.conv_options
        )
        return CoupledBlock(field, 1.0, solver=self.solver)


class PooledHead(nn.Module):
    """Max pooling to `pixels` × `pixels`, then linear layers. For 32×32 images that is the paper's pooling; others end at the same size."""

    def __init__(self, channels: int, pixels: int, hidden: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveMaxPool2d(pixels)
        widths = [channels * pixels**2, *hidden, num_classes]
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, h: Tensor) -> Tensor:
        h = self.pool(h).flatten(1)
        for index, layer in enumerate(self.linear):
            h = layer(h)
            h = h.relu() if index + 1 < len(self.linear) else h
        return h


def _coupled_grid(coupling: "int | str", steps: int, weight_steps: int | None) -> tuple[Grid, float]:
    """The weights' grid on [0, 1] and the speed of their clock.

    In configuration 2 the n-th of N Euler steps, at t = n/N, uses θ(n/(N − 1)): the first θ(0), the last θ(1). So the weights' clock runs
    N/(N − 1) times as fast as the activations'.
    """
    if coupling not in COUPLINGS:
        meant = next((f"; did you mean coupling={number}?" for number in ("1", "2") if str(coupling).strip().endswith(number)), "")
        raise ConfigError(
            f"coupling={coupling!r}; expected 1, 2 or 'free': 1 and 2 are the paper's configurations, which the names of the models call "
            f"_anodev2_c1 and _anodev2_c2{meant}"
        )
    if coupling == 1:
        if weight_steps not in (None, steps):
            raise ConfigError(
                f"in coupling 1 weights and activations share one grid, so weight_steps={weight_steps} cannot differ from steps={steps}"
            )
        return Grid(0.0, 1.0, steps), 1.0
    grid = Grid(0.0, 1.0, 10 if weight_steps is None else weight_steps)
    if coupling == "free":
        return grid, 1.0
    if steps < 2:
        raise ConfigError("coupling 2 applies the first and the last weights, so it needs steps of at least 2")
    return grid, steps / (steps - 1)


def _start_like_anode(net: nn.Module) -> None:
    """Xavier-uniform with gain √2 and zero bias for convolutions that have a bias, as ANODE does; PyTorch's default for the others."""
    for module in net.modules():
        if getattr(module, "bias", None) is None:
            continue
        filter: Any = getattr(module, "filter", None)
        pixels = filter.inner if hasattr(filter, "inner") else filter
        weight = module.weight if isinstance(module, nn.Conv2d) else pixels.weight if isinstance(pixels, Pixel) else None
        if weight is not None and weight.requires_grad:
            nn.init.xavier_uniform_(weight, gain=sqrt(2))
            nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType]


WIDTHS = {"alexnet": 1, "resnet4": 1, "resnet10": 2}
HEADS: dict[str, tuple[int, tuple[int, ...]]] = {"alexnet": (8, (384, 192)), "resnet4": (4, ()), "resnet10": (2, ())}
CHANNELS: dict[str, tuple[int, ...]] = {"alexnet": (64,), "resnet4": (16,), "resnet10": (16, 32)}


def _register(
    name: str, row: str, parameters: int, printed: str, build_class: type[_Classifier], architecture: str, **defaults: Any
) -> None:
    """A model of the paper: its architecture stays fixed, everything else is an option."""
    own = [p for p in signature(build_class, eval_str=True).parameters.values() if p.name != "architecture"]
    resolved = {p.name: {"channels": CHANNELS[architecture], **defaults}.get(p.name, p.default) for p in own}

    def build(**options: Any) -> Network:
        chosen = {**resolved, **options}
        net = build_class(architecture=architecture, **chosen)
        net.options = {**chosen, "solver": net.solver} if "solver" in chosen else chosen
        return net

    build.__name__ = name
    parameters_of = [p.replace(default=resolved[p.name], kind=Parameter.KEYWORD_ONLY) for p in own]
    build.__signature__ = signature(build_class, eval_str=True).replace(parameters=parameters_of)  # pyright: ignore[reportFunctionMemberAccess]
    # A small model that any solver suits: batch statistics per step would tie it to Euler.
    tiny: dict[str, Any] = dict(channels=(4, 6)[: WIDTHS[architecture]], **({"norm": "group"} if build_class is Anodev2 else {}))
    register_model(paper="ANODEV2", row=row, parameters=parameters, printed=printed, tiny=tiny)(build)


_COUNTS: dict[str, tuple[str, tuple[int, int, int, int], tuple[str, str, str, str]]] = {
    "alexnet": ("AlexNet", (1_756_682, 1_756_810, 1_757_514, 1_757_130), ("1756.68K", "1757.13K", "1757.51K", "1757.13K")),
    "resnet4": ("ResNet-4", (7_706, 7_802, 8_154, 7_962), ("7.71K", "7.96K", "8.23K", "7.99K")),
    "resnet10": ("ResNet-10", (44_186, 44_474, 45_530, 44_954), ("44.19K", "44.95K", "45.77K", "45.05K")),
}
for _name, (_row, _ours, _printed) in _COUNTS.items():
    _register(_name, _row, _ours[0], _printed[0], Baseline, _name)
    _register(f"{_name}_neural_ode", f"{_row}, Neural ODE", _ours[1], _printed[1], Anodev2, _name, evolution="static", steps=2)
    _register(f"{_name}_anodev2_c1", f"{_row}, ANODEV2 config. 1", _ours[2], _printed[2], Anodev2, _name, coupling=1, steps=5)
    _register(
        f"{_name}_anodev2_c2", f"{_row}, ANODEV2 config. 2", _ours[3], _printed[3], Anodev2, _name, coupling=2, steps=2, weight_steps=10
    )
