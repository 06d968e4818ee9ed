"""Models by name: register, create, list; and their options as typed configurations and as plain data."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar, overload

from continua.errors import ConfigError, ContinuaError, unknown_name
from continua.files import Json
from continua.models.bounded import BoundedBuilding
from continua.models.config import ModelConfig, Options, check_types, option_types, type_words
from continua.models.extractor import FeatureExtractor
from continua.models.hub import PREFIX
from continua.models.network import Network, label_filters

Builder = TypeVar("Builder", bound=Callable[..., Network])
Spelled = Callable[[str], "tuple[str, Json] | None"]
Task = Literal["classify", "reconstruct"]
Levels = int | Sequence[int] | None


@dataclass(frozen=True)
class ModelEntry:
    """A registered model.

    `config` holds its options with their defaults. `parameters` is exact and part of the contract; `printed` is what the paper's table
    says. `tiny` are options that make it small and quick without changing its structure: `create_model(name, **model_entry(name).tiny)` is
    what tests and first tries want. `task` is what its output is for.
    """

    name: str
    build: Callable[..., Network]
    config: ModelConfig
    paper: str
    row: str
    parameters: int
    printed: str
    image_size: int
    tiny: Options
    task: Task

    @property
    def options(self) -> list[str]:
        """The names of its options."""
        return [item.name for item in fields(self.config)]


@dataclass(frozen=True)
class ModelOption:
    """An option of a model: its name, its type in words, its default as plain data, and what it does."""

    name: str
    type: str
    default: object
    help: str


_ENTRIES: dict[str, ModelEntry] = {}
_SPELLINGS: list[Spelled] = []


def register_model(
    *,
    config: "ModelConfig | type[ModelConfig]",
    paper: str = "",
    row: str = "",
    parameters: int = 0,
    printed: str = "",
    image_size: int = 32,
    tiny: Options | None = None,
    task: Task = "classify",
) -> Callable[[Builder], Builder]:
    """Decorator: make `build(config) -> Network` known under the function's name.

    Args:
        config: The family's configuration dataclass, or an object of it that holds this model's own defaults.
        paper, row, parameters, printed: For tables: where the model is from, and its exact and printed number of parameters.
        image_size: Pixels per side of the images it is meant for.
        tiny: Options that make it small without changing its structure.
        task: What its output is for.

    Returns:
        The decorator.

    Raises:
        ConfigError: the name is registered already.

    Examples:
        >>> from continua.models import register_model
        >>> @register_model(config=MyConfig)  # doctest: +SKIP
        ... def my_network(config): return MyNetwork(config)
    """
    default = config() if isinstance(config, type) else config

    def register(build: Builder) -> Builder:
        name = build.__name__
        if name in _ENTRIES:
            raise ConfigError(f"a model named {name!r} is registered already")
        _ENTRIES[name] = ModelEntry(name, build, default, paper, row, parameters, printed, image_size, dict(tiny or {}), task)
        return build

    return register


def register_spelling(spelled: Spelled) -> None:
    """Names that a paper makes by rule: `spelled(name)` gives the registered model and the options it stands for, or None."""
    _SPELLINGS.append(spelled)


def model_entry(name: str) -> ModelEntry:
    """What is known about a model besides its layers.

    Args:
        name: of the model.

    Returns:
        Its paper, row, parameters and image size.

    Raises:
        ConfigError: there is no such model; the nearest names are suggested.

    Examples:
        >>> from continua.models import model_entry
        >>> model_entry("dcn_ode").row
        'DCN-ODE'
    """
    name, _ = _unspelled(name)
    if name not in _ENTRIES:
        raise unknown_name("model", name, _ENTRIES, see="list_models() shows what there is")
    return _ENTRIES[name]


def list_models(pattern: str = "*", task: Task | None = None, pretrained: bool = False) -> list[str]:
    """Names of the registered models that match a pattern such as "dcn*"; of one task, where it is given.

    With `pretrained`, names of the trained networks that come with the package, MODEL.TAG, for `create_model(name, pretrained=True)`.

    Args:
        pattern: shell-style pattern of names.
        task: only models of this task; None: of all tasks.
        pretrained: list trained networks instead of models.

    Returns:
        Names in alphabetical order of their paper's family.

    Examples:
        >>> import continua as ct
        >>> ct.list_models("dcn_sigma_t*")
        ['dcn_sigma_t', 'dcn_sigma_t2']
    """
    if pretrained:
        from continua.models.kept import model_cards

        return [name for name, card in model_cards().items() if fnmatchcase(name, pattern) and task in (None, model_entry(card.model).task)]
    return [name for name, entry in _ENTRIES.items() if fnmatchcase(name, pattern) and task in (None, entry.task)]


@overload
def create_model(
    name: str, pretrained: bool = ..., *, features_only: Literal[False] = ..., out_indices: None = ..., **options: Any
) -> Network: ...
@overload
def create_model(
    name: str, pretrained: bool = ..., *, features_only: Literal[True], out_indices: Levels = ..., **options: Any
) -> FeatureExtractor: ...
def create_model(
    name: str, pretrained: bool = False, *, features_only: bool = False, out_indices: Levels = None, **options: Any
) -> "Network | FeatureExtractor":
    """Build a registered model. `net.config` holds its name and every option, and builds the same model again.

    Args:
        name: A name that `list_models()` shows, or one spelled as in a paper; MODEL.TAG for the options of a trained network;
            "hf-hub:user/name" for a network on the Hugging Face hub, with its weights.
        pretrained: Load trained weights that come with the package; `list_models(pretrained=True)` shows which there are, and
            `model_card(name)` what they were trained on. Options may be changed: `num_classes=4` makes a new classifier.
        features_only: Give a network that ends in a list of maps, the states after its blocks, with `feature_info` about them.
        out_indices: Which blocks those are, by index, or the last so many; default all. Only with `features_only`.
        options: Those of the model's configuration; `continua models --options NAME` lists them. `num_classes=0`: pooled features.

    Returns:
        The network, in training mode; with `features_only`, one that gives the maps of its blocks.

    Raises:
        ConfigError: A name, an option or a value that does not exist; the message says which exist.

    Examples:
        >>> import torch
        >>> import continua as ct
        >>> net = ct.create_model("dcn_ode", num_classes=10, channels=[8, 16], norm_groups=4)
        >>> net(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if out_indices is not None and not features_only:
        raise ConfigError(f"out_indices={out_indices!r} chooses maps of features_only=True; give both, or use net.forward_intermediates")
    if PREFIX.match(name):
        from continua.models.pretrained import from_pretrained

        net = from_pretrained(name, **options).train()
    elif pretrained or "." in name:
        from continua.models.kept import kept_options, load_kept, model_card
        from continua.models.pretrained import overridden

        net = load_kept(name, **options) if pretrained else build_model(model_card(name).model, overridden(kept_options(name), options))
    else:
        net = build_model(name, options)
    return FeatureExtractor(net, out_indices) if features_only else net


def build_model(name: str, options: Options) -> Network:
    """The network of a name and options, with weights as they are before training."""
    entry, config = model_entry(name), model_config(name, **options)
    try:
        with BoundedBuilding(entry.name):
            net = entry.build(config)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error) and "multiple values for" not in str(error):
            raise
        raise ConfigError(_wrong_inner_option(entry, options, str(error))) from error
    net.name, net.options = entry.name, config
    label_filters(net)
    return net


@contextmanager
def buildable(name: str, where: object) -> Iterator[None]:
    """Around a model made from options that a file gave: whatever is wrong with them is a `ConfigError` that says which file.

    Args:
        name: of the model.
        where: the file that the options came from.

    Returns:
        A context.

    Raises:
        ConfigError: the options do not fit the model.

    Examples:
        >>> from continua.models import buildable
        >>> with buildable("dcn_ode", "config.json"): pass
    """
    try:
        yield
    except ContinuaError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        said = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{where}: {name} cannot be built with these options ({type(error).__name__}: {said}); "
            f"`continua models --options {name}` shows what it takes"
        ) from error


def model_config(name: str, **options: object) -> ModelConfig:
    """The configuration that `create_model` would build from: typed, complete and checked, without building anything.

    Args:
        name: of the model.
        options: of the model.

    Returns:
        The family's configuration dataclass.

    Raises:
        ConfigError: the model has no such option, or its value is wrong.

    Examples:
        >>> from continua.models import model_config
        >>> model_config("dcn_ode", channels=[8, 16]).t1
        2.0
    """
    name, implied = _unspelled(name)
    entry = model_entry(name)
    for option in implied.keys() & options.keys():
        if options[option] != implied[option]:
            raise ConfigError(f"the name says {option}={implied[option]!r} and the option {options[option]!r}; leave out the option")
    for option in options:
        if option not in entry.options:
            raise _no_option(entry, option)
    check_types(name, options, type(entry.config))
    return entry.config.vary(**{**implied, **options})


def complete_options(name: str, options: Options | None = None) -> Json:
    """Every option of a model as plain data, the given ones in place of its defaults; builds nothing.

    Args:
        name: of the model.
        options: those that are given.

    Returns:
        Every option with its value.

    Raises:
        ConfigError: the model has no such option, or its value is wrong.

    Examples:
        >>> from continua.models import complete_options
        >>> complete_options("dcn_ode", {"channels": [8, 16]})["channels"]
        [8, 16]
    """
    return model_config(name, **(options or {})).plain()


def option_names(name: str) -> list[str]:
    """The options a model takes.

    Args:
        name: of the model.

    Returns:
        Their names.

    Examples:
        >>> from continua.models import option_names
        >>> "channels" in option_names("dcn_ode")
        True
    """
    return model_entry(name).options


def options_in_common(name: str, options: Options) -> Json:
    """Those of the options that a model has: for a setting that several families share.

    Args:
        name: of the model.
        options: for several families.

    Returns:
        Those that this model takes.

    Examples:
        >>> from continua.models import options_in_common
        >>> options_in_common("resnet_blocks", {"channels": [8], "solver": {"method": "rk4"}})
        {'channels': [8]}
    """
    return {option: value for option, value in options.items() if option in model_entry(name).options}


def model_options(name: str) -> list[ModelOption]:
    """The options a model takes, each with type, default and help.

    Args:
        name: of the model.

    Returns:
        The options, in the order of the dataclass.

    Examples:
        >>> from continua.models import model_options
        >>> "solver" in [option.name for option in model_options("dcn_ode")]
        True
    """
    config = model_config(name)
    hints, defaults = option_types(type(config)), config.plain()
    return [
        ModelOption(item.name, type_words(hints[item.name]), defaults[item.name], item.metadata.get("help", "")) for item in fields(config)
    ]


def _unspelled(name: str) -> tuple[str, Json]:
    """A registered name and options, from a name that may be spelled as in a paper."""
    if name not in _ENTRIES:
        for spelled in _SPELLINGS:
            if (read := spelled(name)) is not None:
                return read
    return name, {}


def _no_option(entry: ModelEntry, option: str) -> ContinuaError:
    """The error for an option that a model lacks: who has it, or what it may be a slip for."""
    if (other := _nearest_with(option, entry, _ENTRIES.values())) is not None:
        return ConfigError(
            f"{entry.name} has no option {option!r}; the nearest model that has it is {other.name}. "
            f"{entry.name} has: {', '.join(entry.options)}"
        )
    return unknown_name("option", option, entry.options, see=f"{entry.name} has: {', '.join(entry.options)}")


def _wrong_inner_option(entry: ModelEntry, options: Options, message: str) -> str:
    """What Python said of a keyword, in words of the option that held it."""
    maker, name = re.search(r"(\w+)(?:\.__init__)?\(\)", message), message.rpartition(" ")[2].strip("'")
    holder, given = next(
        ((option, f"{name!r} to {value[name]!r}") for option, value in options.items() if isinstance(value, Mapping) and name in value),
        ("one of the options that hold options", repr(name)),
    )
    if "multiple values for" in message:
        return f"{entry.name}: {holder} sets {name!r}, which the network sets itself; leave it out"
    return (
        f"{entry.name}: {holder} sets {given}, an option that {maker[1] if maker else 'what it is for'} does not have; leave it out. "
        "Weights that were trained with it need training again"
    )


def _nearest_with(option: str, entry: ModelEntry, entries: Iterable[ModelEntry]) -> ModelEntry | None:
    """The model with that option that is most like another: of its paper, with most options in common, whose name begins alike."""
    own = set(entry.options)

    def likeness(other: ModelEntry) -> tuple[bool, int, bool]:
        alike = other.name.partition("_")[0] == entry.name.partition("_")[0]
        return other.paper == entry.paper, -len(own ^ set(other.options)), alike

    return max((other for other in entries if option in other.options), key=likeness, default=None)
