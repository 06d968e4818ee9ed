"""ANODEV2 (Zhang, Yao, Gholami et al. 2019): small networks on CIFAR-10 whose kernels evolve by a differential equation of their own.

    alexnet     conv 5×5 → pool → [conv 5×5] → pool → three linear layers
    resnet4     conv → [two convs] → pool → linear
    resnet10    conv, block → [two convs] → block ÷2 → [two convs] → pool → linear

What stands in brackets are the `blocks`: ordinary residual blocks in the baselines, ODE blocks in the others. No code of the authors is
public; the layouts come from the parameter counts of their table 3 (docs/anodev2.md says which reading is ours, and where the
printed counts cannot be explained).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import sqrt
from typing import Literal, Self

from torch import Tensor, nn

from continua.blocks import Activation, CoupledBlock, CoupledField, PostActResidualBlock
from continua.errors import ConfigError
from continua.filters import Evolved, Filter, FilterConv2d, Grid, NJet, Pixel, ScheduledNJet, evolve
from continua.models.bounded import check_steps
from continua.models.classifier import make_classifier
from continua.models.config import ClassifierConfig, Options, Solved, SolverOptions, check_choice, check_widths
from continua.models.network import Network, label_filters
from continua.models.registry import register_model
from continua.ode import SolverConfig
from continua.options import option

Architecture = Literal["alexnet", "resnet4", "resnet10"]
FILTERS: dict[str, Callable[..., Filter]] = {"pixel": Pixel, "njet": NJet, "njet_schedule": ScheduledNJet}
COUPLINGS = (1, 2, "free")
WIDTHS: dict[Architecture, int] = {"alexnet": 1, "resnet4": 1, "resnet10": 2}
HEADS: dict[Architecture, tuple[int, tuple[int, ...]]] = {"alexnet": (8, (384, 192)), "resnet4": (4, ()), "resnet10": (2, ())}


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Motion:
    """How the weights of a block move: by which evolution, on which grid, on a clock that runs how fast."""

    evolution: str | Mapping[str, str]
    options: Options
    memory: str | Options | None
    grid: Grid
    clock: float


@dataclass(frozen=True, kw_only=True)
class DiscreteConfig(ClassifierConfig):
    """The ordinary networks."""

    channels: Sequence[int] = option((16,), "width of each block: one number, two in ResNet-10")

    def check(self) -> None:
        super().check()
        check_widths("channels", self.channels)


@dataclass(frozen=True, kw_only=True)
class NeuralODEConfig(Solved, DiscreteConfig):
    """ODE blocks whose weights stand still."""

    steps: int = option(2, "N_t, the Euler steps of the activations, each with its own BatchNorm")
    filters: str = option("pixel", f"what a filter is: {', '.join(FILTERS)}")
    filter_options: Options | None = option(None, "further options of the filters")
    conv_options: Options | None = option(None, "how filters are applied, such as {route: dense}; see FilterConv2d")
    norm: str = option("batch", "batch, a set per step, for Euler steps only; or group, for any solver")
    last_activation: bool = option(True, "end f with an activation, as ANODE does: what is added to the state is then never negative")
    solver: SolverOptions = option(None, "keywords of continua.solve (default: Euler, `steps` steps)")

    def check(self) -> None:
        check_choice("filters", self.filters, tuple(FILTERS))
        if self.steps < 1:
            raise ConfigError(f"steps={self.steps!r}; N_t is a whole number of at least 1")
        if self.solver is None:
            self._settle("solver", _euler(self.steps))
        super().check()

    def vary(self, **options: object) -> Self:
        """Other `steps` are other steps of the solver too, unless the solver is one of its own."""
        if "steps" in options and "solver" not in options and self.solver == _euler(self.steps):
            options["solver"] = None
        return super().vary(**options)

    def motion(self) -> Motion:
        """How the weights move: not at all."""
        return Motion("static", {}, None, Grid(0.0, 1.0, self.steps), 1.0)


@dataclass(frozen=True, kw_only=True)
class CoupledConfig(NeuralODEConfig):
    """ODE blocks whose weights evolve."""

    steps: int = option(5, "N_t, the Euler steps of the activations, each with its own BatchNorm")
    coupling: int | str = option(
        1,
        "1: weights and activations on one grid; 2: weights on `weight_steps` steps of their own, taken at `steps` times from θ(0) to "
        "θ(1); free: θ(t) at the activations' own time, for any solver",
    )
    weight_steps: int | None = option(None, "steps of the weights in coupling 2 and free (default 10)")
    evolution: str | Mapping[str, str] = option(
        "rda",
        "static, rda, linear, conv, hyper or diffusion (of N-jet scales); or one for each part of a filter's state, "
        "{alpha: linear, s: diffusion}",
    )
    evolution_options: Options | None = option(None, "further options of the evolution")
    nonlinearity: str = option("tanh", "the nonlinearity σ of rda, the reaction–diffusion–advection equation")
    around: str = option("weights", "what the nonlinearity of rda is applied to: weights or rate")
    wave_numbers: str = option("integer", "wave numbers of rda: integer or radian")
    antidiffusion: float | None = option(None, "how far the diffusion of rda may be negative (default: no limit)")
    memory: str | Options | None = option(
        None, "K of eq. 5d: exponential, box or {kind: exponential, rate: 5.0, normalise: true} (default: Dirac)"
    )

    def check(self) -> None:
        super().check()
        _coupled_grid(self.coupling, self.steps, self.weight_steps)
        kinds = [self.evolution] if isinstance(self.evolution, str) else list(self.evolution.values())
        for name, value in self._rda().items():
            if "rda" not in kinds and value != CoupledConfig.__dataclass_fields__[name].default:
                raise ConfigError(
                    f"{name}={value!r} is an option of evolution='rda', and the evolution is {self.evolution!r}; leave it out"
                )

    def motion(self) -> Motion:
        """How the weights move: by their evolution, on the grid of the coupling."""
        rda, own = self._rda(), self.evolution_options or {}
        if isinstance(self.evolution, str):
            options = {**(rda if self.evolution == "rda" else {}), **own}
        elif "rda" in self.evolution.values():
            options = {part: {**(rda if kind == "rda" else {}), **own.get(part, {})} for part, kind in self.evolution.items()}
        else:
            options = dict(own)
        return Motion(self.evolution, options, self.memory, *_coupled_grid(self.coupling, self.steps, self.weight_steps))

    def _rda(self) -> Options:
        """The options that belong to the reaction–diffusion–advection equation."""
        return dict(nonlinearity=self.nonlinearity, around=self.around, wave_numbers=self.wave_numbers, antidiffusion=self.antidiffusion)


def _euler(steps: int) -> SolverConfig:
    check_steps("steps", steps)
    return SolverConfig(method="euler", steps=steps)


def _coupled_grid(coupling: "int | str", steps: int, weight_steps: int | None) -> tuple[Grid, float]:
    """The weights' grid on [0, 1] and the speed of their clock.

    In configuration 2 the n-th of N Euler steps, at t = n/N, uses θ(n/(N − 1)): the first θ(0), the last θ(1). So the weights' clock runs
    N/(N − 1) times as fast as the activations'.
    """
    check_steps("steps", steps)
    check_steps("weight_steps", weight_steps)
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


# --- the network ------------------------------------------------------------------------------------------------------


class AnodeNet(Network):
    """An ordinary network or its continuous form: they differ in the blocks alone."""

    def __init__(self, config: DiscreteConfig, architecture: Architecture) -> None:
        super().__init__()
        self.options, self.architecture, channels = config, architecture, tuple(config.channels)
        if len(channels) != WIDTHS[architecture]:
            raise ConfigError(f"channels={channels!r}; {architecture} has {WIDTHS[architecture]} width(s), whole numbers of at least 1")
        if isinstance(config, Solved):
            self.solver = SolverConfig.of(config.solver)
        first, last = channels[0], channels[-1]
        self.size = 5 if architecture == "alexnet" else 3
        self.layers = 1 if architecture == "alexnet" else 2
        stem: list[nn.Module] = [
            nn.Conv2d(config.in_channels, first, self.size, padding=self.size // 2, bias=architecture == "alexnet"),
            nn.BatchNorm2d(first),
            Activation("relu"),
        ]
        if architecture == "alexnet":
            stem.append(nn.MaxPool2d(2))
        if architecture == "resnet10":
            stem.append(PostActResidualBlock(first, first))
        self.stem = nn.Sequential(*stem)
        self.transitions = nn.ModuleList([PostActResidualBlock(first, last, stride=2)] if architecture == "resnet10" else [])
        self.blocks = nn.ModuleList(self.make_block(width) for width in channels)
        pixels, hidden = HEADS[architecture]
        self.head = PooledHead(last, pixels, hidden, config.num_classes)
        _start_like_anode(self)
        label_filters(self)

    def make_block(self, channels: int) -> nn.Module:
        """A block of this network's kind: residual with ReLU after the addition, or an ODE."""
        config = self.options
        if not isinstance(config, NeuralODEConfig):
            return PostActResidualBlock(channels, channels, layers=self.layers, size=self.size, bias=self.architecture == "alexnet")
        motion = config.motion()

        def make_filter(inputs: int, outputs: int) -> Filter:
            options: Options = {"size": self.size} if config.filters == "pixel" else {}
            if config.filters == "njet_schedule":
                options["interval"] = (motion.grid.start, motion.grid.end)
            inner = FILTERS[config.filters](inputs, outputs, **{**options, **(config.filter_options or {})})
            return evolve(inner, motion.evolution, options=motion.options, memory=motion.memory, grid=motion.grid, clock=motion.clock)

        field = CoupledField(
            channels,
            make_filter,
            layers=self.layers,
            norm=config.norm,
            steps=config.steps,
            last_activation=config.last_activation,
            conv_options=dict(config.conv_options or {}),
        )
        return CoupledBlock(field, 1.0, solver=config.solver)


class PooledHead(nn.Module):
    """Max pooling to `pixels` × `pixels`, then linear layers. For 32×32 images that is the paper's pooling; others end at the same size."""

    def __init__(self, channels: int, pixels: int, hidden: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveMaxPool2d(pixels)
        widths = [channels * pixels**2, *hidden]
        self.linear = nn.ModuleList([*(nn.Linear(a, b) for a, b in pairwise(widths)), make_classifier(widths[-1], num_classes)])

    def pre_logits(self, h: Tensor) -> Tensor:
        """What the last linear layer reads."""
        h = self.pool(h).flatten(1)
        for layer in self.linear[:-1]:
            h = layer(h).relu()
        return h

    def forward(self, h: Tensor) -> Tensor:
        return self.linear[-1](self.pre_logits(h))


def _start_like_anode(net: nn.Module) -> None:
    """Xavier-uniform with gain √2 and zero bias for convolutions that have a bias, as ANODE does; PyTorch's default for the others."""
    for module in net.modules():
        weight = _pixels(module)
        if weight is not None and weight.requires_grad and isinstance(module, nn.Conv2d | FilterConv2d) and module.bias is not None:
            nn.init.xavier_uniform_(weight, gain=sqrt(2))
            nn.init.zeros_(module.bias)


def _pixels(module: nn.Module) -> Tensor | None:
    """The pixels of a convolution's kernel, where it is made of pixels."""
    if isinstance(module, FilterConv2d):
        filter = module.filter.inner if isinstance(module.filter, Evolved) else module.filter
        return filter.weight if isinstance(filter, Pixel) else None
    return module.weight if isinstance(module, nn.Conv2d) else None


# --- the models of the paper ------------------------------------------------------------------------------------------

anodev2_model = partial(register_model, paper="ANODEV2")
ALEXNET, RESNET4, RESNET10 = (64,), (16,), (16, 32)
C2: Options = dict(coupling=2, steps=2, weight_steps=10)
TINY, TINY10 = dict(channels=(4,)), dict(channels=(4, 6))
SMALL, SMALL10 = dict(**TINY, norm="group"), dict(**TINY10, norm="group")  # batch statistics per step would tie them to Euler


@anodev2_model(config=DiscreteConfig(channels=ALEXNET), row="AlexNet", parameters=1_756_682, printed="1756.68K", tiny=TINY)
def alexnet(config: DiscreteConfig) -> AnodeNet:
    """The ordinary AlexNet."""
    return AnodeNet(config, "alexnet")


@anodev2_model(config=NeuralODEConfig(channels=ALEXNET), row="AlexNet, Neural ODE", parameters=1_756_810, printed="1757.13K", tiny=SMALL)
def alexnet_neural_ode(config: NeuralODEConfig) -> AnodeNet:
    """AlexNet with ODE blocks whose weights stand still."""
    return AnodeNet(config, "alexnet")


@anodev2_model(
    config=CoupledConfig(channels=ALEXNET), row="AlexNet, ANODEV2 config. 1", parameters=1_757_514, printed="1757.51K", tiny=SMALL
)
def alexnet_anodev2_c1(config: CoupledConfig) -> AnodeNet:
    """AlexNet with weights and activations on one grid."""
    return AnodeNet(config, "alexnet")


@anodev2_model(
    config=CoupledConfig(channels=ALEXNET, **C2), row="AlexNet, ANODEV2 config. 2", parameters=1_757_130, printed="1757.13K", tiny=SMALL
)
def alexnet_anodev2_c2(config: CoupledConfig) -> AnodeNet:
    """AlexNet with weights on a grid of their own."""
    return AnodeNet(config, "alexnet")


@anodev2_model(config=DiscreteConfig(channels=RESNET4), row="ResNet-4", parameters=7_706, printed="7.71K", tiny=TINY)
def resnet4(config: DiscreteConfig) -> AnodeNet:
    """The ordinary ResNet-4."""
    return AnodeNet(config, "resnet4")


@anodev2_model(config=NeuralODEConfig(channels=RESNET4), row="ResNet-4, Neural ODE", parameters=7_802, printed="7.96K", tiny=SMALL)
def resnet4_neural_ode(config: NeuralODEConfig) -> AnodeNet:
    """ResNet-4 with ODE blocks whose weights stand still."""
    return AnodeNet(config, "resnet4")


@anodev2_model(config=CoupledConfig(channels=RESNET4), row="ResNet-4, ANODEV2 config. 1", parameters=8_154, printed="8.23K", tiny=SMALL)
def resnet4_anodev2_c1(config: CoupledConfig) -> AnodeNet:
    """ResNet-4 with weights and activations on one grid."""
    return AnodeNet(config, "resnet4")


@anodev2_model(
    config=CoupledConfig(channels=RESNET4, **C2), row="ResNet-4, ANODEV2 config. 2", parameters=7_962, printed="7.99K", tiny=SMALL
)
def resnet4_anodev2_c2(config: CoupledConfig) -> AnodeNet:
    """ResNet-4 with weights on a grid of their own."""
    return AnodeNet(config, "resnet4")


@anodev2_model(config=DiscreteConfig(channels=RESNET10), row="ResNet-10", parameters=44_186, printed="44.19K", tiny=TINY10)
def resnet10(config: DiscreteConfig) -> AnodeNet:
    """The ordinary ResNet-10."""
    return AnodeNet(config, "resnet10")


@anodev2_model(config=NeuralODEConfig(channels=RESNET10), row="ResNet-10, Neural ODE", parameters=44_474, printed="44.95K", tiny=SMALL10)
def resnet10_neural_ode(config: NeuralODEConfig) -> AnodeNet:
    """ResNet-10 with ODE blocks whose weights stand still."""
    return AnodeNet(config, "resnet10")


@anodev2_model(
    config=CoupledConfig(channels=RESNET10), row="ResNet-10, ANODEV2 config. 1", parameters=45_530, printed="45.77K", tiny=SMALL10
)
def resnet10_anodev2_c1(config: CoupledConfig) -> AnodeNet:
    """ResNet-10 with weights and activations on one grid."""
    return AnodeNet(config, "resnet10")


@anodev2_model(
    config=CoupledConfig(channels=RESNET10, **C2), row="ResNet-10, ANODEV2 config. 2", parameters=44_954, printed="45.05K", tiny=SMALL10
)
def resnet10_anodev2_c2(config: CoupledConfig) -> AnodeNet:
    """ResNet-10 with weights on a grid of their own."""
    return AnodeNet(config, "resnet10")
