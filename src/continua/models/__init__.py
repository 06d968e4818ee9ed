"""The zoo: models by name, each with its exact parameter count, beside the one that its paper prints."""

from continua.files import write_synced
from continua.models import anodev2 as _anodev2  # registers its models  # noqa: F401
from continua.models import features as _features  # noqa: F401
from continua.models.config import ClassifierConfig, ModelConfig
from continua.models.describe import describe_model
from continua.models.draw import draw_model
from continua.models.export import export_onnx, export_program, frozen, pinned
from continua.models.network import Network
from continua.models.pretrained import CONFIG_FILE, WEIGHTS_FILE, from_pretrained, save_pretrained, upgrade_options
from continua.models.reconstruction import Reconstructor
from continua.models.registry import (
    ModelEntry,
    ModelOption,
    complete_options,
    create_model,
    list_models,
    model_config,
    model_entry,
    model_options,
    option_names,
    options_in_common,
    register_model,
)
from continua.models.rknet.config import familiar_method
from continua.models.rknet.convert import Converted, from_cliquenet, from_densenet
from continua.models.rknet.sources import CliqueNet, CliqueNetSpec, DenseNet, DenseNetSpec

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "ClassifierConfig",
    "CliqueNet",
    "CliqueNetSpec",
    "Converted",
    "DenseNet",
    "DenseNetSpec",
    "ModelConfig",
    "ModelEntry",
    "ModelOption",
    "Network",
    "Reconstructor",
    "complete_options",
    "create_model",
    "describe_model",
    "draw_model",
    "export_onnx",
    "export_program",
    "familiar_method",
    "from_cliquenet",
    "from_densenet",
    "from_pretrained",
    "frozen",
    "list_models",
    "model_config",
    "model_entry",
    "model_options",
    "option_names",
    "options_in_common",
    "pinned",
    "register_model",
    "save_pretrained",
    "upgrade_options",
    "write_synced",
]
