"""The network under the lens: a run's weights and data, loaded as plain data. Nothing in a run's folder is ever executed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from continua.data import CATALOGUE, Augmentation, DataSet, ImageFolder, MemorySplit, Split, load
from continua.errors import ConfigError, ContinuaError
from continua.explore.image import Picture, from_data
from continua.explore.usual import Usual, usual
from continua.models import CONFIG_FILE, WEIGHTS_FILE, Network, from_pretrained, model_entry, network_digest
from continua.reading import read_json_object
from continua.runs import Run, RunIndex, RunView

STAND_IN = "digits32"  # embedded: there is always something to look at
SHOWN = 200  # images of a data set that can be picked


@dataclass(frozen=True, eq=False)
class Explored:
    """A network ready to be looked into.

    `shape` is that of its images; `preprocess` makes floats of their bytes; `pictures` are there to pick from, and `absent` says why they
    are not of the network's own data where they are not. `key` is a digest of its weights; `usual`, where the training images are at hand,
    is what they look like.
    """

    name: str
    key: str
    model: Network
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    preprocess: Augmentation
    pictures: tuple[Picture, ...]
    about: str
    absent: str = ""
    usual: Usual | None = None

    def floats(self, image: UInt8[Tensor, "1 channels height width"]) -> Float32[Tensor, "1 channels height width"]:
        """Bytes as the network reads them."""
        return self.preprocess.apply(image, 0, 0, torch.zeros(len(image), dtype=torch.int64))


def open_run(folder: "str | Path", data_dir: Path | None = None) -> Explored:
    """The network of a finished run, or of a folder that `save_pretrained` wrote. Every problem is a `ContinuaError` in one sentence."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; expected that of a finished run, as `continua train` and `continua demo` make them")
    try:
        if (folder / "config.yaml").is_file():
            return _tried(_of_run(folder, data_dir))
        if (folder / CONFIG_FILE).is_file():
            return _tried(_of_weights(folder))
    except ContinuaError as error:
        raise error if str(folder) in str(error) else ConfigError(f"{folder}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RuntimeError) as error:  # files that are not what their names say
        raise ConfigError(f"{folder} has files that no training wrote ({type(error).__name__}: {error}); train it again") from error
    names = sorted(path.name for path in folder.iterdir())
    contents = f"it holds {', '.join(names[:4])}{' …' if len(names) > 4 else ''}" if names else "it is empty"
    raise ConfigError(f"{folder} is not a run: it has neither config.yaml nor {CONFIG_FILE}; {contents}")


@torch.no_grad()
def _tried(network: Explored) -> Explored:
    """A network that has seen an image: one that cannot is refused here, and the first pass, which is always slow, is over."""
    network.model(network.floats(torch.zeros(1, *network.shape, dtype=torch.uint8)))
    return network


def known_runs(runs: "str | Path | None" = None) -> list[Path]:
    """Folders of finished classifiers under the folder of all runs."""
    finished = RunIndex(runs).known.values()
    return [
        run.folder for run in finished if (run.best / WEIGHTS_FILE).is_file() and (run.best / CONFIG_FILE).is_file() and _classifies(run)
    ]


def run_label(folder: Path) -> str:
    """What tells a run apart in a list: its model, data, accuracy and day, then its folder."""
    run, name = Run(folder), _shown_name(folder)
    if not (folder / "config.yaml").is_file():
        return f"{name} · weights alone"
    try:
        recipe, result = run.recipe, run.result or {}
        accuracy = result.get("test_accuracy")
        parts = [model_entry(recipe.model).row, recipe.data, *([f"{accuracy:.1%}"] if isinstance(accuracy, float) else []), _day(folder)]
    except (ContinuaError, OSError, ValueError, AttributeError):
        return name
    return " · ".join([*parts, name])


def _day(folder: Path) -> str:
    """When it was finished; the year where it is another one: the list of networks is narrow."""
    files = [path for path in (folder / "result.json", folder / WEIGHTS_FILE, folder) if path.exists()]
    day = datetime.fromtimestamp(files[0].stat().st_mtime)
    return f"{day.day} {day:%b}" if day.year == datetime.now().year else f"{day.day} {day:%b %Y}"


def _classifies(run: Run) -> bool:
    try:
        return run.recipe.task == "classify"
    except (ContinuaError, OSError, ValueError):
        return False


def _of_run(folder: Path, data_dir: Path | None) -> Explored:
    run = RunView(folder, device="cpu", data_dir=data_dir)
    if run.recipe.task != "classify":
        raise ConfigError(f"{folder} holds a decoder of images; the explorer looks into classifiers. Try the run it was trained from")
    model = run.network
    _ = run.metrics  # a file that no training wrote is said before anything is shown
    pictures, classes, shape, absent = _data_of(run, model)
    about = [f"`{model.name}`, {count_parameters(model):,} parameters", f"trained on {run.data}"]
    if run.result and run.result.get("test_accuracy") is not None:
        about.append(f"{run.result.get('split', 'test')} accuracy {run.result['test_accuracy']:.1%}")
    about.append(_day(folder))
    known = None if absent else _usual(run)
    return Explored(_shown_name(folder), run.weights, model, shape, classes, run.preprocess, pictures, " · ".join(about), absent, known)


def _usual(run: RunView) -> Usual | None:
    split = run.dataset()["train"]
    return usual(split.images) if isinstance(split, MemorySplit) else None


def _of_weights(folder: Path) -> Explored:
    model = from_pretrained(folder)
    channels = model.in_channels or 3
    side = model_entry(model.name).image_size
    key = network_digest(folder / WEIGHTS_FILE, read_json_object(folder / CONFIG_FILE))
    absent = "These are weights alone, which name no data set: the bundled digits stand in. Upload an image of the kind it was trained on."
    classes = _numbered(model, (channels, side, side))
    about = f"`{model.name}`, {count_parameters(model):,} parameters"
    return Explored(_shown_name(folder), key, model, (channels, side, side), classes, Augmentation(), _stand_ins(), about, absent)


def _data_of(run: RunView, model: Network) -> tuple[tuple[Picture, ...], tuple[str, ...], tuple[int, int, int], str]:
    """Pictures, names of classes and the shape of images; stand-ins where the data set is not here."""
    try:
        data: DataSet = run.dataset()
        images = run.images(limit=SHOWN, batch_size=SHOWN)
        pixels, labels = _pixels(images.split)
        pictures = tuple(
            from_data(image, f"image {place + 1}", data.classes[int(label)])
            for place, (image, label) in enumerate(zip(pixels, labels, strict=True))
        )
        channels, height, width = pixels.shape[1:]
        return pictures, data.classes, (channels, height, width), ""
    except ContinuaError as error:
        if run.data not in CATALOGUE:
            raise
        shape = CATALOGUE[run.data].shape
        absent = f"The images of {run.data} are not here, so the bundled digits stand in ({error})."
        return _stand_ins(), _numbered(model, shape), shape, absent


def _pixels(split: Split) -> tuple[Tensor, Tensor]:
    """Bytes of all images of a small split."""
    if isinstance(split, MemorySplit):
        return split.images, split.labels
    if not isinstance(split, ImageFolder):
        raise ConfigError(f"pictures can be picked from memory or from a folder of images; this split is a {type(split).__name__}")
    return torch.stack([split.decode(index) for index in range(len(split))]), split.labels


def _stand_ins() -> tuple[Picture, ...]:
    split = load(STAND_IN, splits=("test",))["test"]
    pixels, labels = _pixels(split)
    return tuple(from_data(image, f"digit {int(label)}", None) for image, label in zip(pixels[:SHOWN], labels, strict=False))


@torch.no_grad()
def _numbered(model: Network, shape: Sequence[int]) -> tuple[str, ...]:
    """Names for classes that nobody named."""
    return tuple(f"class {number}" for number in range(model(torch.zeros(1, *shape)).shape[1]))


def count_parameters(model: Network) -> int:
    """Learned numbers of a network."""
    return sum(parameter.numel() for parameter in model.parameters())


def _shown_name(folder: Path) -> str:
    """The run's name; with its parent's where that says more."""
    whole = folder.resolve()
    return whole.name if whole.parent.name in ("", "runs", "explore") else f"{whole.parent.name}/{whole.name}"
