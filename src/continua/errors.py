"""One family of errors. Each message says what was given, what was expected and what to do next."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from math import nan


class ContinuaError(Exception):
    """Base of every error that Continua raises on purpose; the command line prints it as one line."""


class DataError(ContinuaError):
    """A data set is missing, damaged or not what it claims to be."""


class ConfigError(ContinuaError, ValueError):
    """An option, or a combination of options, that cannot work."""


class SolverError(ContinuaError, ArithmeticError):
    """An ODE solve that could not reach its end time: how it ended, where, and which samples of the batch were at fault."""

    status: object
    t: float
    h: float
    norm: float
    samples: list[int]

    def __init__(
        self, message: str, *, status: object = None, t: float = nan, h: float = nan, norm: float = nan, samples: Sequence[int] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.t, self.h, self.norm, self.samples = status, t, h, norm, list(samples)


class ContinuaWarning(UserWarning):
    """Something works, but probably not as intended."""


def unknown_name(
    what: str, given: object, known: Iterable[str], *, most: int = 20, see: str = "", error: type[ContinuaError] = ConfigError
) -> ContinuaError:
    """The error for a name that does not exist: "unknown model 'dcn_od'; did you mean dcn_ode? known: …".

    Args:
        what: The kind of thing, as in "unknown model".
        given: What was asked for.
        known: The names there are; up to `most` of them are listed.
        see: A sentence that says where to look instead of the list.
        error: The class of the error.
    """
    names, word = list(known), str(given).lstrip("-")
    plain = {name.lstrip("-"): name for name in names}  # options are compared without their dashes
    near = [name for name in plain if name.endswith(f".{word}")]  # the last part of a longer name: `lr` for `optimiser.lr`
    near = near or get_close_matches(word.lower().replace("-", "_"), plain, n=1, cutoff=0.5) or get_close_matches(word, plain, n=1)
    hint = f" did you mean {plain[near[0]]}?" if near else ""
    listed = see or f"known: {', '.join(names[:most])}{f', … ({len(names)} in all)' if len(names) > most else ''}"
    return error(f"unknown {what} {given!r};{hint} {listed}")


def typed(path: object) -> str:
    """A path as a shell takes it, for a command that a message advises: with quotes where it has spaces."""
    return shlex.quote(str(path))


def refuse_second(what: str, name: str, known: Callable[..., object], new: Callable[..., object]) -> None:
    """Refuse a second thing of a name, unless both come from the same module: that is one module read twice."""
    if known.__module__ != new.__module__:
        raise ConfigError(f"there is {what} {name!r} already, of {known.__module__}; give this one another name")
