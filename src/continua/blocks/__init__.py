"""A field and an integrator, as modules that carry a feature map from the start of a block to its end.

    ODEBlock(ConvField(...), t1=2.0)     dh/dt = f(t, h), integrated by the solver
    ResidualBlock(...)                   h + g(h): one Euler step of size 1
    CoupledBlock(CoupledField(...))      dz/dt = f(z, θ(t)), θ(t) by a differential equation of its own
    OrdinaryBlock(...)                   relu(h + g(h)), what a coupled block replaces
    Period([ERKStep(...), ...])          time-steps of a Runge–Kutta method that is learned: explicit, or implicit with IRKStep

A *field* is a module with `prepare(h, t0, t1)`, which realises its filters for one solve and returns f(t, h) with the tensors that need
gradients. Any module with `forward(t, h)` is a field too.
"""

from continua.blocks.coupled import CoupledBlock, CoupledField
from continua.blocks.erk import ERKStep
from continua.blocks.field import ConvField, Field
from continua.blocks.irk import Clique, IRKStep
from continua.blocks.known_methods import write_method
from continua.blocks.norm import ACTIVATIONS, Activation, group_norm
from continua.blocks.ode import ODEBlock
from continua.blocks.ordinary import OrdinaryBlock
from continua.blocks.period import Period
from continua.blocks.ranks import norms_over_batches, share_batch_statistics
from continua.blocks.residual import ResidualBlock
from continua.blocks.standardise import Style

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Clique",
    "ConvField",
    "CoupledBlock",
    "CoupledField",
    "ERKStep",
    "Field",
    "IRKStep",
    "ODEBlock",
    "OrdinaryBlock",
    "Period",
    "ResidualBlock",
    "Style",
    "group_norm",
    "norms_over_batches",
    "share_batch_statistics",
    "write_method",
]
