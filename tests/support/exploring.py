"""Runs to explore without training any: random weights in folders as `continua train` leaves them."""

import json
from pathlib import Path
from typing import Any

import torch

from continua.models import create_model
from continua.train import Recipe, Run, identity, resolve

SMALL: dict[str, Any] = {"channels": [4, 6], "norm_groups": 2, "stem_padding": 1, "solver": {"method": "bosh3", "rtol": 0.02, "atol": 0.02}}


def make_run(folder: Path, model: str = "dcn_ode", data: str = "digits", seed: int = 0, **options: Any) -> Path:
    """A finished run of a network with random weights."""
    options = options or SMALL
    recipe = resolve(Recipe(model=model, model_options=options, data=data, seed=seed, epochs=1), "cpu")
    torch.manual_seed(seed)
    net = create_model(recipe.model, **recipe.model_options)
    run = Run(folder)
    run.create(recipe)
    net.save_pretrained(run.best)
    line = {"event": "epoch", "epoch": 1, "loss": 2.3, "nfe": [14.0], "sigma": {}}
    run.metrics.write_text(json.dumps(line) + "\n")
    run.write_json(run.result_file, {"identity": identity(recipe), "model": model, "data": data, "test_accuracy": 0.125, "parameters": 1})
    return folder
