"""DEPTH: integrate dh/dt = f(t, h) for batches of states of any shape. Knows tensors, knows nothing of images or networks."""

from continua.ode.config import SolverConfig
from continua.ode.control import StepControl
from continua.ode.dense import between
from continua.ode.events import Event, steady_state
from continua.ode.forcing import Forcing
from continua.ode.gradients import Adjoint, Checkpoint, Direct, ForwardPass, Gradient, Leapfrog, Reversible, connect
from continua.ode.implicit import Implicit, ImplicitStepper
from continua.ode.integration import AcceptedSteps, Integration
from continua.ode.plain import upgrade_solver_options
from continua.ode.rate import Rate, broadcast_time, graph_nodes, hidden_leaves, replaying, time_dtype, with_graph_size
from continua.ode.solution import EventLog, Solution, Stats, Status, StepLog
from continua.ode.solving import solve, solve_with
from continua.ode.stepper import Attempt, ExplicitStepper, ParameterGradients, Step, Stepper, local_error
from continua.ode.tableau import METHODS, Tableau, find_method
from continua.ode.watch import Watch

__all__ = [
    "METHODS",
    "AcceptedSteps",
    "Adjoint",
    "Attempt",
    "Checkpoint",
    "Direct",
    "Event",
    "EventLog",
    "ExplicitStepper",
    "Forcing",
    "ForwardPass",
    "Gradient",
    "Implicit",
    "ImplicitStepper",
    "Integration",
    "Leapfrog",
    "ParameterGradients",
    "Rate",
    "Reversible",
    "Solution",
    "SolverConfig",
    "Stats",
    "Status",
    "Step",
    "StepControl",
    "StepLog",
    "Stepper",
    "Tableau",
    "Watch",
    "between",
    "broadcast_time",
    "connect",
    "find_method",
    "graph_nodes",
    "hidden_leaves",
    "local_error",
    "replaying",
    "solve",
    "solve_with",
    "steady_state",
    "time_dtype",
    "upgrade_solver_options",
    "with_graph_size",
]
