"""Neural networks that are continuous in space, depth and weight."""

from importlib.metadata import version as _version

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError, SolverError
from continua.machine import keep_freed_memory
from continua.models import Network, create_model, from_pretrained, list_models, register_model
from continua.ode import Solution, SolverConfig, Stats, Status, Tableau, broadcast_time, solve

__version__ = _version("continua")

__all__ = [
    "ConfigError",
    "ContinuaError",
    "ContinuaWarning",
    "DataError",
    "Network",
    "Solution",
    "SolverConfig",
    "SolverError",
    "Stats",
    "Status",
    "Tableau",
    "broadcast_time",
    "create_model",
    "from_pretrained",
    "keep_freed_memory",
    "list_models",
    "register_model",
    "solve",
]
