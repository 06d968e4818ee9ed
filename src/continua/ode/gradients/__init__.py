"""How a solve is differentiated: one class in one file each. `base` says how to write another."""

from continua.ode.gradients.adjoint import Adjoint
from continua.ode.gradients.base import ForwardPass, Gradient, connect
from continua.ode.gradients.checkpoint import Checkpoint
from continua.ode.gradients.direct import Direct
from continua.ode.gradients.leapfrog import Leapfrog
from continua.ode.gradients.reversible import Reversible

__all__ = ["Adjoint", "Checkpoint", "Direct", "ForwardPass", "Gradient", "Leapfrog", "Reversible", "connect"]
