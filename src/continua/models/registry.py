"""Models by name: register, create, list; and their configuration as plain data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from inspect import signature
from typing import Any

from continua.errors import ConfigError
from continua.models.network import Network
from continua.models.option_types import check_option_types


@dataclass(frozen=True)
class ModelEntry:
    """A registered model.

    `parameters` is exact and part of the contract; `printed` is what the paper's table says. `tiny` are options that make it small and
    quick without changing its structure: `create_model(name, **model_entry(name).tiny)` is what tests and first tries want.
    """

    name: str
    build: Callable[..., Network]
    paper: str
    row: str
    parameters: int
    printed: str
    image_size: int
    tiny: Mapping[str, Any]


Spelled = Callable[[str], "tuple[str, dict[str, Any]] | None"]
_ENTRIES: dict[str, ModelEntry] = {}
_SPELLINGS: list[Spelled] = []


def register_model(
    *, paper: str, row: str, parameters: int, printed: str, image_size: int = 32, tiny: Mapping[str, Any] | None = None
) -> Callable[[Any], Any]:
    """Decorator: make `build(**options) -> Network` known under its own name."""

    def register(build: Callable[..., Network]) -> Callable[..., Network]:
        name = build.__name__
        if name in _ENTRIES:
            raise ConfigError(f"a model named {name!r} is registered already")
        _ENTRIES[name] = ModelEntry(name, build, paper, row, parameters, printed, image_size, dict(tiny or {}))
        return build

    return register


def register_spelling(spelled: Spelled) -> None:
    """Names that a paper makes by rule: `spelled(name)` gives the registered model and the options it stands for, or None."""
    _SPELLINGS.append(spelled)


def model_entry(name: str) -> ModelEntry:
    """What is known about a model besides its layers."""
    name, _ = _unspelled(name)
    if name not in _ENTRIES:
        near = get_close_matches(name, _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "list_models() shows what there is"
        raise ConfigError(f"unknown model {name!r}; {hint}")
    return _ENTRIES[name]


def list_models(pattern: str = "*") -> list[str]:
    """Names of the registered models that match a pattern such as "dcn*"."""
    return [name for name in _ENTRIES if fnmatchcase(name, pattern)]


def create_model(name: str, **options: Any) -> Network:
    """Build a registered model. `net.config` holds its name and every option, and builds the same model again."""
    name, meant = _unspelled(name)
    entry = model_entry(name)
    known = option_names(name)
    for option in meant.keys() & options.keys():
        if options[option] != meant[option]:
            raise ConfigError(f"the name says {option}={meant[option]!r} and the option {options[option]!r}; leave out the option")
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{name} has no option {option!r}; {hint}")
    check_option_types(name, options, signature(entry.build).parameters)
    try:
        net = entry.build(**{**meant, **options})
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ConfigError(f"{name}: {error}; it is in one of the options that hold options, such as filter_options") from error
    net.name = name
    return net


def _unspelled(name: str) -> tuple[str, dict[str, Any]]:
    """A registered name and options, from a name that may be spelled as in a paper."""
    if name not in _ENTRIES:
        for spelled in _SPELLINGS:
            if (found := spelled(name)) is not None:
                return found
    return name, {}


def option_names(name: str) -> list[str]:
    """The options a model takes."""
    return [p.name for p in signature(model_entry(name).build).parameters.values()]
