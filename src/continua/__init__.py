"""Neural networks that are continuous in space, depth and weight."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError, SolverError
from continua.machine import keep_freed_memory
from continua.models import Network, create_model, from_pretrained, list_models, register_model, zoo
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
    "zoo",
]
_LATER = ("analysis", "blocks", "data", "filters", "models", "ode", "report", "runs", "studies", "train")  # `ct.train` imports it


def __getattr__(name: str) -> object:
    if name in _LATER:
        return _import_module(f"continua.{name}")
    raise AttributeError(f"module 'continua' has no attribute {name!r}; its modules are {', '.join(_LATER)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})
