"""The zoo: models by name, each with the exact parameter count of its paper."""

from continua.files import write_synced
from continua.models import anodev2 as _anodev2  # registers its models  # noqa: F401
from continua.models import dcn as _dcn  # registers its models  # noqa: F401
from continua.models import features as _features  # noqa: F401
from continua.models import rknet as _rknet  # noqa: F401
from continua.models.cliquenet import CliqueNet, CliqueNetSpec
from continua.models.densenet import DenseNet, DenseNetSpec
from continua.models.describe import describe_model
from continua.models.draw import draw_model
from continua.models.export import export_onnx, export_program
from continua.models.frozen import frozen, pinned
from continua.models.network import Network
from continua.models.pretrained import CONFIG_FILE, WEIGHTS_FILE, from_pretrained, save_pretrained
from continua.models.reconstruction import Reconstructor
from continua.models.registry import ModelEntry, create_model, list_models, model_entry, option_names, register_model
from continua.models.rk_convert import Converted, from_cliquenet, from_densenet
from continua.models.rk_familiar import familiar_method

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "CliqueNet",
    "CliqueNetSpec",
    "Converted",
    "DenseNet",
    "DenseNetSpec",
    "ModelEntry",
    "Network",
    "Reconstructor",
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
    "model_entry",
    "option_names",
    "pinned",
    "register_model",
    "save_pretrained",
    "write_synced",
]
