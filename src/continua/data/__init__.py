"""Data sets by name, `load("cifar10", per_class=52)`, and batches of them: in memory as uint8 tensors, or read from folders of images."""

from continua.data.augment import Augmentation
from continua.data.catalogue import CATALOGUE, load
from continua.data.crop import ResizedCrop
from continua.data.dataset import DataSet, MemorySplit, Split
from continua.data.folder import data_folder
from continua.data.image_folder import ImageFolder, load_image_folder
from continua.data.loader import Batch, Loader
from continua.data.subset import hold_out, take_per_class

__all__ = [
    "CATALOGUE",
    "Augmentation",
    "Batch",
    "DataSet",
    "ImageFolder",
    "Loader",
    "MemorySplit",
    "ResizedCrop",
    "Split",
    "data_folder",
    "hold_out",
    "load",
    "load_image_folder",
    "take_per_class",
]
