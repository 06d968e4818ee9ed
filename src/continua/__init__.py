"""Neural networks that are continuous in space, depth and weight."""

from importlib.metadata import version as _version

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, DataError, SolverError

__version__ = _version("continua")

__all__ = ["ConfigError", "ContinuaError", "ContinuaWarning", "DataError", "SolverError"]
