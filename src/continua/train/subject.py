"""A run as the analyses see it."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from continua.analysis import Subject
from continua.errors import ConfigError
from continua.models import CONFIG_FILE, WEIGHTS_FILE, from_pretrained
from continua.train.devices import chosen_device
from continua.train.run import Run
from continua.train.tasks import load_reconstructor


def subject_of(folder: "str | Path", *, device: str = "auto", data_dir: Path | None = None, quiet: bool = False) -> Subject:
    """The network of a finished run with its data, for `continua.analysis`."""
    run = Run(folder)
    recipe = run.recipe
    if not (run.best / WEIGHTS_FILE).is_file():
        raise ConfigError(f"{folder} has no weights in best/ yet; `continua train --resume {folder}` goes on with it")
    weights = hashlib.sha256((run.best / WEIGHTS_FILE).read_bytes() + (run.best / CONFIG_FILE).read_bytes()).hexdigest()

    def load_model() -> Any:
        return load_reconstructor(run.best) if recipe.task == "reconstruct" else from_pretrained(run.best)

    return Subject(
        name=run.folder.resolve().name,
        folder=run.folder,
        weights=weights,
        load_model=load_model,
        data=recipe.data,
        preprocess=recipe.augmentation.evaluation(),
        batch_size=recipe.evaluation_batch_size,
        recipe=asdict(recipe),
        metrics=run.lines(),
        result=run.result,
        device=chosen_device(device),
        data_dir=data_dir,
        quiet=quiet,
    )
