"""Implicit Runge–Kutta methods: the stages of a step are found together, by iteration."""

from continua.ode.implicit.stepper import Implicit, ImplicitStepper

__all__ = ["Implicit", "ImplicitStepper"]
