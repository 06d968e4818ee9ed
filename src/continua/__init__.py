"""Neural networks that are continuous in space, depth and weight."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError, SolverError

if TYPE_CHECKING:
    from continua.machine import keep_freed_memory
    from continua.models import Network, create_model, from_pretrained, list_models, register_model, zoo
    from continua.ode import Solution, SolverConfig, Stats, Status, Tableau, broadcast_time, solve

    __version__: str

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
# What needs PyTorch is imported at first use, so that `continua --help` and a wrong option are answered at once.
_ROOMS = {
    "continua.machine": ("keep_freed_memory",),
    "continua.models": ("Network", "create_model", "from_pretrained", "list_models", "register_model", "zoo"),
    "continua.ode": ("Solution", "SolverConfig", "Stats", "Status", "Tableau", "broadcast_time", "solve"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
# `ct.train` imports it
_LATER = ("analysis", "blocks", "compat", "data", "filters", "models", "neuro", "ode", "report", "runs", "studies", "train")


def __getattr__(name: str) -> object:
    if name in _LATER:
        return _import_module(f"continua.{name}")
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("continua")
    elif name in _ROOM_OF:
        value = getattr(_import_module(_ROOM_OF[name]), name)
    else:
        raise AttributeError(f"module 'continua' has no attribute {name!r}; its modules are {', '.join(_LATER)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER, "__version__"})
