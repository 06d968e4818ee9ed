"""A field and an integrator, as modules that carry a feature map from the start of a block to its end.

    ODEBlock(ConvField(...), t1=2.0)     dh/dt = f(t, h), integrated by the solver
    ODEBlock(NeuralField(...), t1=400)   a sheet of neurons that excite and inhibit each other, in ms
    ResidualBlock(...)                   h + g(h): one Euler step of size 1
    CoupledBlock(CoupledField(...))      dz/dt = f(z, θ(t)), θ(t) by a differential equation of its own
    PostActResidualBlock(...)            relu(h + g(h)), what a coupled block replaces
    Period([ERKStep(...), ...])          time-steps of a Runge–Kutta method that is learned: explicit (also SummedStep), or IRKStep

A `Field` realises its filters for one solve: `prepare(h, t0, t1)` returns f(t, h) with the tensors that need gradients (`Prepared`). Any
module with `forward(t, h)` can be integrated too.
"""

from continua.blocks.coupled import CoupledBlock, CoupledField
from continua.blocks.erk import ERKStep
from continua.blocks.field import ConvField, Field, Prepared
from continua.blocks.irk import Clique, IRKStep
from continua.blocks.known_methods import embed_tableau
from continua.blocks.neural_field import Dispersion, NeuralField, dominant_wave
from continua.blocks.norm import ACTIVATIONS, Activation, Style, group_norm, norm_then_act
from continua.blocks.ode import ODEBlock
from continua.blocks.optimality import OptimalityGradients, optimality_gradients
from continua.blocks.period import Period, RKStep
from continua.blocks.residual import PostActResidualBlock, ResidualBlock
from continua.blocks.summed import SummedStep, as_concatenated
from continua.blocks.sync_batchnorm import norms_over_batches, share_batch_statistics

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Clique",
    "ConvField",
    "CoupledBlock",
    "CoupledField",
    "Dispersion",
    "ERKStep",
    "Field",
    "IRKStep",
    "NeuralField",
    "ODEBlock",
    "OptimalityGradients",
    "Period",
    "PostActResidualBlock",
    "Prepared",
    "RKStep",
    "ResidualBlock",
    "Style",
    "SummedStep",
    "as_concatenated",
    "dominant_wave",
    "embed_tableau",
    "group_norm",
    "norm_then_act",
    "norms_over_batches",
    "optimality_gradients",
    "share_batch_statistics",
]
