"""Weights on disk: safetensors beside a config.json. Loading builds a registered model from plain data and runs no code from the files."""

import json
from pathlib import Path

import torch

from continua.errors import ConfigError, ContinuaError
from continua.files import write_synced
from continua.models.network import Network
from continua.models.registry import create_model
from continua.models.upgrade import FORMAT, upgrade_config, upgrade_weights

WEIGHTS_FILE = "model.safetensors"
"""The file of a saved network's weights."""
CONFIG_FILE = "config.json"
"""The file of a saved network's configuration."""


def save_pretrained(net: Network, folder: "str | Path") -> None:
    """Write the network's weights and configuration; each file appears whole or not at all."""
    from safetensors.torch import save

    if not net.name:
        raise ConfigError(f"{type(net).__name__} was not made by create_model, so it cannot be rebuilt by name; register it first")
    try:
        text = json.dumps({**net.config, "format": FORMAT}, indent=2, ensure_ascii=False)
    except TypeError as error:
        raise ConfigError(
            f"the options of {net.name} cannot be written as JSON ({error}); use names instead of objects (method='rk4')"
        ) from None
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_synced(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt", "model": net.name}))
    write_synced(folder / CONFIG_FILE, (text + "\n").encode())


def from_pretrained(folder: "str | Path", **options: object) -> Network:
    """The network saved in a folder, in evaluation mode; `options` override saved ones (solver=dict(rtol=1e-4, atol=1e-4))."""
    from safetensors.torch import load_file

    folder = Path(folder)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder} has no {name}; expected a folder written by save_pretrained")
    try:
        config = json.loads((folder / CONFIG_FILE).read_text())
        name, saved = upgrade_config(config)
    except ContinuaError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{folder / CONFIG_FILE} is not a model configuration ({type(error).__name__}: {error}); save the model again"
        ) from None
    net = _build(name, {**saved, **options}, folder / CONFIG_FILE)
    try:
        tensors = upgrade_weights(config, load_file(folder / WEIGHTS_FILE))
    except Exception as error:
        raise ConfigError(f"{folder / WEIGHTS_FILE} cannot be read ({error}); the file is damaged or not safetensors") from None
    _check_same(net.state_dict(), tensors, folder / WEIGHTS_FILE)
    net.load_state_dict(tensors)
    return net.eval()


def _build(name: str, options: dict[str, object], path: Path) -> Network:
    try:
        return create_model(name, **options)
    except ContinuaError:
        raise
    except (TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise ConfigError(f"{path}: {name} cannot be built with its options ({type(error).__name__}: {error})") from None


def _check_same(expected: dict[str, torch.Tensor], stored: dict[str, torch.Tensor], path: Path) -> None:
    missing, surplus = sorted(expected.keys() - stored.keys()), sorted(stored.keys() - expected.keys())
    if missing or surplus:
        raise ConfigError(
            f"{path} does not fit its configuration: missing {missing[:3] or 'nothing'}, unexpected {surplus[:3] or 'nothing'}"
        )
    for name, tensor in expected.items():
        if tensor.shape != stored[name].shape:
            raise ConfigError(f"{path}: {name} has shape {tuple(stored[name].shape)}; the configuration expects {tuple(tensor.shape)}")
