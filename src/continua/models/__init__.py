"""The zoo: models by name, each with its exact parameter count, beside the one that its paper prints."""

from continua.files import write_synced
from continua.models import anodev2 as _anodev2  # registers its models  # noqa: F401
from continua.models import features as _features  # noqa: F401
from continua.models import neural_field as _neural_field  # noqa: F401
from continua.models.completion import zoo
from continua.models.config import ClassifierConfig, ModelConfig
from continua.models.counts import model_counts
from continua.models.describe import describe_model
from continua.models.draw import draw_model
from continua.models.export import export_onnx, export_program, frozen, pinned
from continua.models.extractor import FeatureExtractor, FeatureInfo
from continua.models.hub import CONFIG_FILE, WEIGHTS_FILE, hub_card, push_to_hub
from continua.models.kept import ModelCard, model_card
from continua.models.network import Network
from continua.models.pretrained import from_pretrained, save_pretrained, upgrade_options
from continua.models.reconstruction import Reconstructor
from continua.models.registry import (
    ModelEntry,
    ModelOption,
    buildable,
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
from continua.models.stopping import Confident
from continua.models.weights_file import network_digest, tensors_digest

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "ClassifierConfig",
    "CliqueNet",
    "CliqueNetSpec",
    "Confident",
    "Converted",
    "DenseNet",
    "DenseNetSpec",
    "FeatureExtractor",
    "FeatureInfo",
    "ModelCard",
    "ModelConfig",
    "ModelEntry",
    "ModelOption",
    "Network",
    "Reconstructor",
    "buildable",
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
    "hub_card",
    "list_models",
    "model_card",
    "model_config",
    "model_counts",
    "model_entry",
    "model_options",
    "network_digest",
    "option_names",
    "options_in_common",
    "pinned",
    "push_to_hub",
    "register_model",
    "save_pretrained",
    "tensors_digest",
    "upgrade_options",
    "write_synced",
    "zoo",
]
