"""Data sets as uint8 tensors in memory, found by name: `load("cifar10", per_class=52)`."""

from continua.data.catalogue import CATALOGUE, load
from continua.data.dataset import DataSet, MemorySplit, Split
from continua.data.folder import data_folder
from continua.data.subset import hold_out, take_per_class

__all__ = ["CATALOGUE", "DataSet", "MemorySplit", "Split", "data_folder", "hold_out", "load", "take_per_class"]
