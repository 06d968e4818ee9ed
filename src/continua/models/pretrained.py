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
from continua.models.config import Options
from continua.models.network import Network
from continua.models.registry import buildable, create_model, model_entry
from continua.models.weights_file import SUM, packed, sum_of, unpacked
from continua.ode import upgrade_solver_options
from continua.reading import UnreadableFile, read_json_object

WEIGHTS_FILE = "model.safetensors"
"""The file of a saved network's weights."""
CONFIG_FILE = "config.json"
"""The file of a saved network's configuration."""
FORMAT = 2
# By paper: options that 0.1 accepted for all of its models, and that today only some of them have.
RDA = ("nonlinearity", "around", "wave_numbers", "antidiffusion")
SHARED_IN_0_1 = {
    "DCN": ("order", "t1", "solver", "stem_padding", "augment_channels"),
    "ANODEV2": ("coupling", "weight_steps", "evolution", "evolution_options", "memory", *RDA),
}
DECODER_KEYS_IN_0_1 = {"encoder.": "stem.network.", "squeeze.": "transitions.0.conv.", "norm.": "head.norm.", "to_image.": "head.conv."}
Value = TypeVar("Value")


def save_pretrained(net: Network, folder: "str | Path") -> None:
    """Write the network's weights and configuration; each file appears whole or not at all."""
    if not net.name:
        raise ConfigError(f"{type(net).__name__} was not made by create_model, so it cannot be rebuilt by name; register it first")
    try:
        data = packed(net.state_dict(), net.name)
        text = json.dumps({**net.config, "format": FORMAT, SUM: sum_of(data)}, indent=2, ensure_ascii=False)
    except TypeError as error:
        raise ConfigError(
            f"the options of {net.name} cannot be written as JSON ({error}); use names instead of objects (method='rk4')"
        ) from None
    folder = Path(folder)
    make_folder(folder)
    write_synced(folder / WEIGHTS_FILE, data)
    write_synced(folder / CONFIG_FILE, (text + "\n").encode())


def from_pretrained(folder: "str | Path", **options: object) -> Network:
    """The network saved in a folder, in evaluation mode; `options` override saved ones (solver=dict(rtol=1e-4, atol=1e-4))."""
    folder = Path(folder)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder} has no {name}; expected a folder written by save_pretrained")
    try:
        config = read_json_object(folder / CONFIG_FILE, advice="this is not a model configuration; save the model again")
        name, saved = upgrade_config(config)
    except UnreadableFile:
        raise
    except ContinuaError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{folder / CONFIG_FILE} is not a model configuration ({type(error).__name__}: {error}); save the model again"
        ) from None
    with buildable(name, folder / CONFIG_FILE):
        net = create_model(name, **{**saved, **options})
    tensors = upgrade_weights(config, unpacked(folder / WEIGHTS_FILE, config.get(SUM)))
    _check_same(net.state_dict(), tensors, folder / WEIGHTS_FILE)
    net.load_state_dict(tensors)
    return net.eval()


def _check_same(expected: dict[str, torch.Tensor], stored: dict[str, torch.Tensor], path: Path) -> None:
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
