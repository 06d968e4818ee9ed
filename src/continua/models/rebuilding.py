"""What saves must load: a network is compared with what its name and options would build, before anything is written.

A file holds a name, options and weights, no code. So a layer of one's own, put in by hand, cannot come back; it is refused by its place.
"""

import torch
from torch import nn

from continua.blocks import Activation, ODEBlock
from continua.errors import ConfigError, ContinuaError
from continua.models.classifier import find_classifier
from continua.models.config import ClassifierConfig, ModelConfig
from continua.models.network import Network
from continua.models.registry import build_model

HOW = (
    "a file holds options and weights, no code. Register a model of your own that builds it (docs: own-parts), "
    "or keep net.state_dict() beside your code"
)


def options_that_rebuild(net: Network) -> ModelConfig | None:
    """The options that build this network again; a linear classifier of another length, put in by hand, is taken into them.

    Raises:
        ConfigError: Something in the network is not what its options say; the message names it.
    """
    if not net.name:
        raise ConfigError(f"{type(net).__name__} was not made by create_model, so it cannot be rebuilt by name; register it first")
    options, twin = net.options, _twin(net)
    place, mine = find_classifier(twin), find_classifier(net)
    same_place = place is not None and mine is not None and place[0] == mine[0]
    if same_place and isinstance(options, ClassifierConfig) and options.num_classes == twin.num_classes != net.num_classes:
        options = options.vary(num_classes=net.num_classes)
        twin = _twin(net, options)
    problem = _first_difference(net, twin)
    if problem is not None:
        raise ConfigError(f"{net.name} cannot be saved: {problem}, and {HOW}")
    return options


def _twin(net: Network, options: ModelConfig | None = None) -> Network:
    """What the options build: without memory where that is possible, and without a trace in the random numbers."""
    config = options or net.options
    chosen = {} if config is None else config.plain()
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return build_model(net.name, chosen)
        except ContinuaError as error:
            raise ConfigError(f"{net.name} cannot be saved: its options no longer build it ({error})") from error
        except (RuntimeError, NotImplementedError, ValueError, TypeError):  # it looks at numbers while it is built
            return build_model(net.name, chosen)


def _first_difference(net: Network, twin: Network) -> str | None:
    """What comes back otherwise than it is, in words; None if all comes back."""
    mine, theirs = dict(net.named_modules()), dict(twin.named_modules())
    for name, expected in theirs.items():
        if name not in mine:
            return f"{name} ({type(expected).__name__}) is missing"
        if (problem := _another(mine[name], expected)) is not None:
            return f"{name or 'the network'} is {problem}"
    added = [name for name in mine if name not in theirs]
    if added:
        return f"{added[0]} ({type(mine[added[0]]).__name__}) was added"
    shapes, wanted = ({key: tuple(value.shape) for key, value in module.state_dict().items()} for module in (net, twin))
    for key in (*wanted, *shapes):
        if shapes.get(key) != wanted.get(key):
            return f"{key} has shape {shapes.get(key)} where its options make {wanted.get(key)}"
    return None


def _another(mine: nn.Module, expected: nn.Module) -> str | None:
    """What is wrong with a module, in words; None if it is what was expected."""
    given, wanted = type(mine), type(expected)
    ours = given.__module__.partition(".")[0] == "continua" and issubclass(given, wanted)  # such as batch norms that ranks share
    if given is not wanted and not ours:
        return f"a {given.__name__} where its options make a {wanted.__name__}"
    if isinstance(expected, Activation | ODEBlock) and mine.extra_repr() != expected.extra_repr():
        how = "; net.with_solver(...) changes a solver in the options too" if isinstance(expected, ODEBlock) else ""
        return f"{given.__name__}({mine.extra_repr()}) where its options make {wanted.__name__}({expected.extra_repr()}){how}"
    return None
