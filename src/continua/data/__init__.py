"""Data sets by name, `load("cifar10", per_class=52)`, and batches of them: in memory as uint8 tensors, or read from folders of images."""

from continua.data.augment import Augmentation
from continua.data.catalogue import CATALOGUE, catalogue_entry, check_data, data_presence, folder_size, load
from continua.data.crop import ResizedCrop
from continua.data.dataset import DataSet, MemorySplit, Split
from continua.data.draws import hold_out, permutation, take_per_class
from continua.data.fetch import Patience, fetch_data, forget_fetched
from continua.data.files import Advance, data_folder, progress_bar
from continua.data.image_folder import ImageFolder, load_image_folder
from continua.data.loader import Batch, Loader
from continua.data.pictures import IMAGE_FORMATS, TooManyPixels, open_image, to_rgb
from continua.data.sources import REMOTES

__all__ = [
    "CATALOGUE",
    "IMAGE_FORMATS",
    "REMOTES",
    "Advance",
    "Augmentation",
    "Batch",
    "DataSet",
    "ImageFolder",
    "Loader",
    "MemorySplit",
    "Patience",
    "ResizedCrop",
    "Split",
    "TooManyPixels",
    "catalogue_entry",
    "check_data",
    "data_folder",
    "data_presence",
    "fetch_data",
    "folder_size",
    "forget_fetched",
    "hold_out",
    "load",
    "load_image_folder",
    "open_image",
    "permutation",
    "progress_bar",
    "take_per_class",
    "to_rgb",
]
