"""Implicit Runge–Kutta methods: the stages of a step are found by iteration, all together or one after another."""

from continua.ode.implicit.diagonal import DiagonalStepper
from continua.ode.implicit.options import Implicit
from continua.ode.implicit.stepper import ImplicitStepper

__all__ = ["DiagonalStepper", "Implicit", "ImplicitStepper"]
