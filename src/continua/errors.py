"""One family of errors. Each message says what was given, what was expected and what to do next."""


class ContinuaError(Exception):
    """Base of every error that Continua raises on purpose; the command line prints it as one line."""


class DataError(ContinuaError):
    """A data set is missing, damaged or not what it claims to be."""


class ConfigError(ContinuaError, ValueError):
    """An option, or a combination of options, that cannot work."""


class SolverError(ContinuaError, ArithmeticError):
    """An ODE solve that could not reach its end time."""


class ContinuaWarning(UserWarning):
    """Something works, but probably not as intended."""
