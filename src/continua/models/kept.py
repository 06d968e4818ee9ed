"""Trained networks that come with the package: `create_model(name, pretrained=True)`, `list_models(pretrained=True)`, `model_card(name)`.

A folder `weights/MODEL.TAG/` holds one of them: config.json and model.safetensors as `save_pretrained` writes them, card.json with what
is known about it, README.md with the same for people, recipe.yaml with the resolved recipe of its training. The tag says what it was
trained on. `scripts/keep-weights` makes the folders from finished runs. A file whose checksum is not that of its card is refused.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from continua.errors import ConfigError, unknown_name
from continua.files import Json
from continua.models.network import Network
from continua.models.pretrained import CONFIG_FILE, WEIGHTS_FILE, from_pretrained, read_options

KEPT = Path(__file__).with_name("weights")
CARD_FILE = "card.json"
RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True)
class ModelCard:
    """What is known about a trained network.

    `accuracies` are test accuracies of trainings that differ in their seed alone; the first is that of these weights. `mean` and `std` are
    of the images it was trained on, per channel, for values in [0, 1]; None where images were only divided by 255.
    """

    name: str
    model: str
    data: str
    images: int
    recipe: str
    epochs: int
    accuracies: tuple[float, ...]
    parameters: int
    image_size: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    classes: tuple[str, ...]
    licence: str
    run: str
    sha256: str

    @property
    def accuracy(self) -> str:
        """Test accuracy of these weights, and mean ± standard deviation over seeds where there are several."""
        own = f"{self.accuracies[0]:.1%}"
        if len(self.accuracies) < 2:
            return f"{own} (one training)"
        return f"{own} ({100 * mean(self.accuracies):.1f} ± {100 * stdev(self.accuracies):.1f} % over {len(self.accuracies)} seeds)"

    @property
    def continuous(self) -> bool:
        """Whether a solver integrates its blocks."""
        return "solver" in read_options(self.folder)[1]

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return KEPT / self.name

    def markdown(self) -> str:
        """The card for people, as Hugging Face has it."""
        training = f"{self.epochs} epochs; recipe `{self.recipe}` as {RECIPE_FILE} has it"
        scaled = "divided by 255" if self.mean is None else f"divided by 255, minus {list(self.mean)}, divided by {list(self.std or ())}"
        return f"""---
license: {self.licence.lower()}
library_name: continua
tags: [image-classification{", neural-ode" if self.continuous else ""}]
datasets: [{self.data}]
---
# {self.name}

`continua.create_model("{self.name}", pretrained=True)`

| | |
|---|---|
| model | `{self.model}`, {self.parameters:,} parameters; every option in {CONFIG_FILE} |
| trained on | {self.images:,} images of the training set of {self.data}, {training} |
| test accuracy | {self.accuracy} |
| images | {self.image_size} × {self.image_size}, {scaled} |
| classes | {", ".join(self.classes)} |
| weights of | `{self.run}`, the first seed; not chosen by accuracy |
| sha256 | `{self.sha256}` |
| licence | {self.licence} |

A small network trained on a small part of a data set on two cores of a CPU: a start for fine-tuning and for looking inside, no classifier
to rely on. It was trained by Continua's authors; no weights of others are in it.
"""


@cache
def model_cards() -> dict[str, ModelCard]:
    """The cards of all trained networks that come with the package, by name."""
    cards = {}
    for path in sorted(KEPT.glob(f"*/{CARD_FILE}")):
        stored = json.loads(path.read_text("utf-8"))
        facts: Json = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
        cards[path.parent.name] = ModelCard(**facts)
    return cards


def model_card(name: str) -> ModelCard:
    """The card of a trained network: "dcn_ode.cifar10_520", or "dcn_ode" for the first of that model.

    Args:
        name: MODEL.TAG, or MODEL.

    Returns:
        Data, recipe, accuracy with its spread, licence.

    Raises:
        ConfigError: there is no trained network of this name.

    Examples:
        >>> import continua as ct
        >>> from continua.models import model_card
        >>> print(model_card(ct.list_models(pretrained=True)[0]).markdown())  # doctest: +SKIP
    """
    cards = model_cards()
    if name in cards:
        return cards[name]
    model, _, tag = name.partition(".")
    known = [card for card in cards.values() if card.model == model]
    if tag and known:
        raise unknown_name("trained network", name, [card.name for card in known])
    if not known:
        raise ConfigError(
            f"there are no trained weights of {name}: list_models(pretrained=True) shows of which there are ({', '.join(cards)}); "
            "continua train makes your own, and from_pretrained(folder) loads them"
        )
    return known[0]


def load_kept(name: str, **options: Any) -> Network:
    """A trained network that comes with the package, in training mode as every new network is; `options` as for `from_pretrained`."""
    card = model_card(name)
    check_whole(card)
    return from_pretrained(card.folder, **options).train()


def kept_options(name: str) -> dict[str, object]:
    """The options of a trained network."""
    return read_options(model_card(name).folder)[1]


def check_whole(card: ModelCard) -> None:
    """Refuse weights that are not those of their card."""
    path = card.folder / WEIGHTS_FILE
    given = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
    if given != card.sha256:
        raise ConfigError(
            f"{path}: its sha256 is {given}, and that of its card {card.sha256}; the file is damaged or changed: install Continua again"
        )
