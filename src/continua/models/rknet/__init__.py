"""Runge–Kutta networks (RKNet): configuration, network, the rows of the paper's tables, and conversion from DenseNet and CliqueNet."""

from continua.models.rknet.config import familiar_method
from continua.models.rknet.convert import Converted, from_cliquenet, from_densenet
from continua.models.rknet.network import RKNet
from continua.models.rknet.sources import CliqueNet, CliqueNetSpec, DenseNet, DenseNetSpec

__all__ = [
    "CliqueNet",
    "CliqueNetSpec",
    "Converted",
    "DenseNet",
    "DenseNetSpec",
    "RKNet",
    "familiar_method",
    "from_cliquenet",
    "from_densenet",
]
