"""DEPTH: integrate dh/dt = f(t, h) for batches of states of any shape. Knows tensors, knows nothing of images or networks."""

from continua.ode.config import Controller, ImplicitOptions, SolverConfig
from continua.ode.rate import Rate, broadcast_time, replaying
from continua.ode.solution import Solution, Stats, Status, StepLog
from continua.ode.solve import solve, solve_with
from continua.ode.stepper import ExplicitStepper
from continua.ode.tableau import METHODS, Tableau, find_method

__all__ = [
    "METHODS",
    "Controller",
    "ExplicitStepper",
    "ImplicitOptions",
    "Rate",
    "Solution",
    "SolverConfig",
    "Stats",
    "Status",
    "StepLog",
    "Tableau",
    "broadcast_time",
    "find_method",
    "replaying",
    "solve",
    "solve_with",
]
