"""Neural fields as networks: a sheet of neurons that excite and inhibit each other, from an image or a state to the pattern it settles in.

    neural_field    one population, excitation near and inhibition farther off (Amari 1977)
    wilson_cowan    excitatory and inhibitory neurons of different speed (Wilson and Cowan 1973)

    images → stem (1×1, or nothing: the images are u(0)) → ODE block of a `NeuralField`, t in ms → mean potential → linear

The block is the field: `net.blocks[0].field.dispersion(height, width)` says which waves grow, `net.states(u, 0, times)` how they do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from continua.blocks import NeuralField, ODEBlock
from continua.errors import ConfigError
from continua.filters import Filter, FilterConv2d, LateralGaussians, NJet, Pixel, jet_orders
from continua.models.bounded import check_order
from continua.models.classifier import make_classifier
from continua.models.config import ClassifierConfig, InTime, check_choice, check_counts
from continua.models.network import Network
from continua.models.registry import register_model
from continua.ode import SolverConfig
from continua.options import option

LATERAL = ("gaussians", "njet")
STEMS = ("mix", "none")


@dataclass(frozen=True, kw_only=True)
class NeuralFieldConfig(InTime, ClassifierConfig):
    """A neural field between a stem and a linear layer. Lateral weights are listed term by term, from each population to each."""

    populations: int = option(1, "channels of the sheet, kinds of neurons")
    lateral: str = option("gaussians", "lateral kernel: gaussians, or njet for −amplitude · σ²∇²G, an N-jet that is free to learn others")
    amplitudes: Sequence[float] = option((6.0, -6.0), "strength of each Gaussian, (term, to, from) in a row; negative ones inhibit")
    sigmas: Sequence[float] = option((1.5, 3.0), "σ of each Gaussian in pixels, in the same order; of an N-jet one")
    order: int = option(2, "highest Gaussian derivative, where the lateral kernel is an N-jet")
    tau: Sequence[float] = option((10.0,), "time constant in ms, one for all populations or one each")
    slope: Sequence[float] = option((2.0,), "steepness of the firing rate, one for all populations or one each")
    threshold: Sequence[float] = option((0.0,), "potential at which half of the neurons fire, one for all populations or one each")
    rest: Sequence[float] = option((0.0,), "potential without any input, one for all populations or one each")
    stem: str = option("mix", "mix: a 1×1 convolution makes u(0) of an image; none: images are u(0), a channel for each population")
    t1: float = option(400.0, "end time in ms")

    def check(self) -> None:
        super().check()
        check_counts(populations=self.populations)
        check_choice("lateral", self.lateral, LATERAL)
        check_choice("stem", self.stem, STEMS)
        check_order(self.order)
        pairs, strengths, scales = self.populations**2, len(self.amplitudes), len(self.sigmas)
        if self.lateral == "gaussians" and (not strengths or strengths % pairs or scales != strengths):
            raise ConfigError(
                f"{strengths} amplitudes and {scales} sigmas for populations={self.populations}; expected as many of each, a multiple "
                f"of {pairs}: for every Gaussian one from each population to each"
            )
        if self.lateral == "njet" and (strengths != pairs or scales != 1 or self.order < 2):
            raise ConfigError(
                f"{strengths} amplitudes, {scales} sigmas and order={self.order} for lateral='njet' with populations={self.populations}; "
                f"expected amplitudes of {pairs}, sigmas of one number such as (2.0,), and an order of at least 2"
            )
        if self.stem == "none" and self.in_channels != self.populations:
            raise ConfigError(
                f"stem='none' with in_channels={self.in_channels} and populations={self.populations}; expected as many of each, as "
                "images are u(0)"
            )


class NeuralFieldNet(Network):
    """A stem, one block that is a neural field, and a linear layer on the mean potential of each population."""

    def __init__(self, config: NeuralFieldConfig) -> None:
        super().__init__()
        self.options, self.solver = config, SolverConfig.of(config.solver)
        count = config.populations
        mix = config.stem == "mix"
        self.stem = FilterConv2d(Pixel(config.in_channels, count, size=1), padding=0, bias=True) if mix else nn.Identity()
        field = NeuralField(
            lateral_kernel(config),
            tau=_each(config.tau),
            slope=_each(config.slope),
            threshold=_each(config.threshold),
            rest=_each(config.rest),
        )
        self.blocks = nn.ModuleList([ODEBlock(field, config.t1, solver=self.solver)])
        self.transitions = nn.ModuleList()
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), make_classifier(count, config.num_classes))


def lateral_kernel(config: NeuralFieldConfig) -> Filter:
    """The filter that connects the populations."""
    count = config.populations
    if config.lateral == "gaussians":
        amplitudes, sigmas = (torch.tensor(values).reshape(-1, count, count) for values in (config.amplitudes, config.sigmas))
        return LateralGaussians(amplitudes, sigmas)
    jet = NJet(count, count, order=config.order, radius_factor=4.0)  # wide enough for a sum near 0
    strength = torch.tensor(config.amplitudes).reshape(count, count).t()  # α is (order, from, to)
    alpha = torch.zeros(len(jet_orders(config.order)), count, count)
    for place, pair in enumerate(jet_orders(config.order)):
        if pair in ((2, 0), (0, 2)):
            alpha[place] = -strength
    return jet.with_values(alpha, torch.tensor(config.sigmas))


def _each(values: Sequence[float]) -> "float | Sequence[float]":
    return values[0] if len(values) == 1 else values


field_model = partial(register_model, paper="Neural fields", tiny=dict(t1=10.0))


@field_model(config=NeuralFieldConfig, row="Amari", parameters=31)
def neural_field(config: NeuralFieldConfig) -> NeuralFieldNet:
    """One population with a difference of Gaussians: noise becomes a pattern, and a strong input a bump that stays."""
    return NeuralFieldNet(config)


@field_model(
    config=NeuralFieldConfig(
        populations=2,
        amplitudes=(9.0, -8.0, 8.0, -1.0),
        sigmas=(1.0, 2.0, 1.0, 2.0),
        tau=(10.0, 15.0),
        slope=(1.0,),
        threshold=(0.5, 1.0),
    ),
    row="Wilson–Cowan",
    parameters=52,
)
def wilson_cowan(config: NeuralFieldConfig) -> NeuralFieldNet:
    """Excitation and inhibition of different speed: waves that oscillate."""
    return NeuralFieldNet(config)
