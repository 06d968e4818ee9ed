"""Weights on disk: safetensors beside a config.json. Loading builds a registered model from plain data and runs no code from the files.

Configurations that earlier versions stored are read in today's terms (a user's options are not: they are refused).

    format 1    version 0.1: every option of a paper's models stood in the file of each, also those that a model never had
    format 2    today: the options of the model's own configuration

A decoder of format 1 held its encoder's configuration and was no model of its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch

from continua.errors import ConfigError, ContinuaError
from continua.files import Json, make_folder, write_synced
from continua.models.classifier import find_classifier
from continua.models.config import Options
from continua.models.hub import CONFIG_FILE, SLACK, WEIGHTS_FILE, hub_files, hub_name
from continua.models.network import Network
from continua.models.rebuilding import options_that_rebuild
from continua.models.registry import build_model, buildable, model_entry
from continua.models.weights_file import SUM, packed, sum_of, unpacked
from continua.ode import upgrade_solver_options
from continua.reading import UnreadableFile, read_json_object

FORMAT = 2
# By paper: options that 0.1 accepted for all of its models, and that today only some of them have.
RDA = ("nonlinearity", "around", "wave_numbers", "antidiffusion")
SHARED_IN_0_1 = {
    "DCN": ("order", "t1", "solver", "stem_padding", "augment_channels"),
    "ANODEV2": ("coupling", "weight_steps", "evolution", "evolution_options", "memory", *RDA),
}
DECODER_KEYS_IN_0_1 = {"encoder.": "stem.network.", "squeeze.": "transitions.0.conv.", "norm.": "head.norm.", "to_image.": "head.conv."}
Value = TypeVar("Value")
Tensors = dict[str, torch.Tensor]


def save_pretrained(net: Network, folder: "str | Path") -> None:
    """Write the network's weights and configuration; each file appears whole or not at all.

    Args:
        net: the network.
        folder: for model.safetensors and config.json; made where it is missing.

    Raises:
        ConfigError: Something in the network would not come back: a layer that was put in by hand, a gradient of one's own. It is named.

    Examples:
        >>> import continua as ct
        >>> ct.create_model("resnet4").save_pretrained("my-network")  # doctest: +SKIP
    """
    options = options_that_rebuild(net)
    config = {"model": net.name, "options": {} if options is None else options.plain(), "format": FORMAT}
    if (place := _no_plain_data(config["options"])) is not None:
        raise ConfigError(f"{net.name} cannot be saved: {place} is an object of your own, and a file holds names and numbers only")
    data = packed(net.state_dict(), net.name)
    text = json.dumps({**config, SUM: sum_of(data)}, indent=2, ensure_ascii=False)
    folder = Path(folder)
    make_folder(folder)
    write_synced(folder / WEIGHTS_FILE, data)
    write_synced(folder / CONFIG_FILE, (text + "\n").encode())


def from_pretrained(
    folder: "str | Path",
    *,
    revision: str | None = None,
    token: "str | bool | None" = None,
    cache_dir: "str | Path | None" = None,
    force_download: bool = False,
    local_files_only: bool = False,
    **options: object,
) -> Network:
    """The network saved in a folder, or in a repository of the Hugging Face hub, in evaluation mode.

    Args:
        folder: Written by `save_pretrained`; or "user/name", which `push_to_hub` wrote (needs `huggingface_hub`), where there is no
            such folder. Of a repository config.json and model.safetensors are read, nothing else, and no code of it is run.
        revision: Of the repository: a branch, a tag or a commit. This and what follows matter to the hub only.
        token: Of a user who may read it; None: as `hf auth login` left it.
        cache_dir: Where fetched files are kept; None: where the hub's own package keeps them.
        force_download: Fetch the files even if they are there.
        local_files_only: Fetch nothing: what was fetched before is taken.
        options: Override saved ones: `solver=dict(rtol=1e-4, atol=1e-4)`; `num_classes=4` for a new classifier, as fresh as before
            training, on top of weights that are all loaded; `num_classes=0` for the features before it.

    Returns:
        The network.

    Raises:
        ConfigError: There is no such network, a file is damaged or too large, or an option does not exist.

    Examples:
        >>> import continua as ct
        >>> net = ct.from_pretrained("runs/x/best", num_classes=4)  # doctest: +SKIP
        >>> net = ct.from_pretrained("ann/digits")  # of the hub  # doctest: +SKIP
    """
    repo = hub_name(folder)
    hub: Json = dict(token=token, cache_dir=cache_dir, force_download=force_download, local_files_only=local_files_only)
    folder = Path(folder) if repo is None else hub_files(repo, revision=revision, **hub)
    name, saved = read_options(folder, whole=repo is None)
    with buildable(name, folder / CONFIG_FILE):
        net = build_model(name, overridden(saved, options))
    config = _read_config(folder)
    if repo is not None:  # its folder is called as the commit: the weights are those of the same
        hub_files(repo, revision=folder.name, **hub, weights_bytes=_most_bytes(name, saved))
    _refuse_too_large(folder / WEIGHTS_FILE, net, name, saved)
    tensors = upgrade_weights(config, unpacked(folder / WEIGHTS_FILE, config.get(SUM)))
    expected = net.state_dict()
    if options.get("num_classes", saved.get("num_classes")) != saved.get("num_classes"):
        expected, tensors = _keep_classifier_apart(net, expected, tensors)
    try:
        _check_same(expected, tensors, folder / WEIGHTS_FILE)
    except ConfigError as error:
        changed = {key: saved[key] for key in options.keys() & saved.keys() - {"num_classes", "solver"} if saved[key] != options[key]}
        if not changed:
            raise
        were = ", ".join(f"{key}={value!r}" for key, value in sorted(changed.items()))
        raise ConfigError(
            f"these weights of {name} are for {were}; num_classes and solver can be changed, not the shape of weights"
        ) from error
    net.load_state_dict(tensors, strict=False)  # compared above
    return net.eval()


def overridden(saved: Options, options: Options) -> Json:
    """Options in the place of saved ones. A solver for the whole network, or another number of blocks, leaves none for single blocks."""
    own, channels = saved.get("block_solvers"), options.get("channels")
    others = isinstance(channels, list | tuple) and own is not None and len(channels) != len(own)
    kept = {name: value for name, value in saved.items() if name != "block_solvers"} if "solver" in options or others else saved
    return {**kept, **options}


def _most_bytes(name: str, saved: Options) -> int:
    """How large a file of weights can honestly be: eight bytes for each number of the network that was saved."""
    with torch.device("meta"):
        return _bytes_of(build_model(name, saved))


def _bytes_of(net: Network) -> int:
    return SLACK + 8 * sum(tensor.numel() for tensor in net.state_dict().values())


def _refuse_too_large(path: Path, net: Network, name: str, saved: Options) -> None:
    """A file is read whole: one that holds more than the network could need is refused before."""
    size = path.stat().st_size
    if size > _bytes_of(net) and size > (most := _most_bytes(name, saved)):
        raise ConfigError(f"{path} has {size:,} bytes, and weights of this {name} need at most {most:,}: it was not read")


def read_options(folder: Path, *, whole: bool = True) -> tuple[str, Json]:
    """The model and its options of a folder that `save_pretrained` wrote; if it is not to be `whole`, the weights may be missing."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"{folder} {what}; expected a folder written by save_pretrained, or user/name of the Hugging Face hub")
    for name in (CONFIG_FILE, WEIGHTS_FILE) if whole else (CONFIG_FILE,):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder} has no {name}; expected a folder written by save_pretrained")
    try:
        config = _read_config(folder)
        _check_registered(str(config.get("model", "reconstruction")))
        return upgrade_config(config)
    except UnreadableFile:
        raise
    except ContinuaError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{folder / CONFIG_FILE} is not a model configuration ({type(error).__name__}: {error}); save the model again"
        ) from None


def _read_config(folder: Path) -> Json:
    return read_json_object(folder / CONFIG_FILE, advice="this is not a model configuration; save the model again")


def _no_plain_data(value: object, place: str = "") -> str | None:
    """Where in the options something is that JSON does not hold, as `solver.gradient (MyGradient)`; None if nowhere."""
    if value is None or isinstance(value, str | bool | int | float):
        return None
    if isinstance(value, Mapping):
        items = [(f"{place}.{name}" if place else str(name), item) for name, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return f"{place} ({type(value).__name__})"
    return next((where for name, item in items if (where := _no_plain_data(item, name)) is not None), None)


def _check_registered(name: str) -> None:
    try:
        model_entry(name)
    except ConfigError as error:
        raise ConfigError(f"{error}. Is it a model of your own? Then import the module that registers it first") from None


def _keep_classifier_apart(net: Network, expected: Tensors, stored: Tensors) -> tuple[Tensors, Tensors]:
    """The tensors that a network with a new classifier should load and those that are there, both without the classifier's."""
    place = find_classifier(net)
    if place is None:
        return expected, stored
    theirs = (f"{place[0]}.weight", f"{place[0]}.bias")

    def others(tensors: Tensors) -> Tensors:
        return {key: value for key, value in tensors.items() if key not in theirs}

    return others(expected), others(stored)


def _check_same(expected: Tensors, stored: Tensors, path: Path) -> None:
    missing, surplus = sorted(expected.keys() - stored.keys()), sorted(stored.keys() - expected.keys())
    if missing or surplus:
        raise ConfigError(
            f"{path} does not fit its configuration: missing {missing[:3] or 'nothing'}, unexpected {surplus[:3] or 'nothing'}"
        )
    for name, tensor in expected.items():
        if tensor.shape != stored[name].shape:
            raise ConfigError(f"{path}: {name} has shape {tuple(stored[name].shape)}; the configuration expects {tuple(tensor.shape)}")


# --- what earlier versions stored ---------------------------------------------------------------------------------------


def upgrade_options(name: str, options: Options) -> Json:
    """Options that version 0.1 stored for a model, as the model takes them today.

    What 0.1 wrote down for all models of a paper and this one never used is left out. A key that no version had stays, to be refused.

    Args:
        name: of the model.
        options: as stored.

    Returns:
        Options that the model takes.

    Raises:
        ConfigError: options of an earlier version that belong to another model now, which the message names.

    Examples:
        >>> from continua.models import upgrade_options
        >>> upgrade_options("dcn_ode", {"channels": [8, 16]})["channels"]
        [8, 16]
    """
    entry = model_entry(name)
    if name.endswith("_neural_ode") and options.get("evolution", "static") != "static":
        raise ConfigError(
            f"{name} was stored with evolution={options['evolution']!r}; weights that evolve are now those of "
            f"{name.replace('_neural_ode', '_anodev2_c1')}: write that name in the file"
        )
    unused = set(SHARED_IN_0_1.get(entry.paper, ())) - set(entry.options)
    kept = {option: value for option, value in options.items() if option not in unused}
    evolution = kept.get("evolution", "rda")
    if "rda" not in (evolution.values() if isinstance(evolution, Mapping) else [evolution]):  # 0.1 stored these whatever it was
        kept = {option: value for option, value in kept.items() if option not in RDA}
    if isinstance(kept.get("solver"), Mapping):
        kept["solver"] = upgrade_solver_options(kept["solver"])
    return kept


def upgrade_config(stored: Options) -> tuple[str, Json]:
    """The model and its options of a config.json of any format."""
    version = stored.get("format", 1)
    if version not in (1, FORMAT):
        raise ConfigError(f"its format is {version!r}, and this version of Continua reads formats 1 to {FORMAT}; update Continua")
    if stored.get("task") == "reconstruct":
        encoder, options = upgrade_config(stored["encoder"])
        return "reconstruction", {"encoder": encoder, "encoder_options": options}
    name, options = str(stored["model"]), dict(stored["options"])
    return name, options if version == FORMAT else upgrade_options(name, options)


def upgrade_weights(stored: Options, weights: Mapping[str, Value]) -> dict[str, Value]:
    """Weights by today's names, from the names they had beside a config.json of any format."""
    if stored.get("task") != "reconstruct":
        return dict(weights)
    renamed = {}
    for key, value in weights.items():
        old = next((start for start in DECODER_KEYS_IN_0_1 if key.startswith(start)), "")
        renamed[DECODER_KEYS_IN_0_1.get(old, "") + key.removeprefix(old)] = value
    return renamed
