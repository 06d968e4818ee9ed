"""One family of errors. Each message says what was given, what was expected and what to do next."""

from collections.abc import Sequence
from math import nan


class ContinuaError(Exception):
    """Base of every error that Continua raises on purpose; the command line prints it as one line."""


class DataError(ContinuaError):
    """A data set is missing, damaged or not what it claims to be."""


class ConfigError(ContinuaError, ValueError):
    """An option, or a combination of options, that cannot work."""


class SolverError(ContinuaError, ArithmeticError):
    """An ODE solve that could not reach its end time: how it ended, where, and which samples of the batch were at fault."""

    def __init__(
        self, message: str, *, status: object = None, t: float = nan, h: float = nan, norm: float = nan, samples: Sequence[int] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.t, self.h, self.norm, self.samples = status, t, h, norm, list(samples)


class ContinuaWarning(UserWarning):
    """Something works, but probably not as intended."""
