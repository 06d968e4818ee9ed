"""Names and signatures that a redesign may change, called here and nowhere else in the golden outputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

import continua


def solver_options(**flat: Any) -> dict[str, Any]:
    """Keywords of `solve` and keys of a model's `solver`, from one flat list of settings."""
    from continua.ode import upgrade_solver_options

    return upgrade_solver_options(flat)


def inner_states(net: Any, images: Tensor, block: int) -> Tensor:
    """The states at the start and end of a block, (time, batch, ...)."""
    return net.states(images, block=block) if hasattr(net, "states") else net.forward_intermediates(images, block)


def reconstructor(encoder: Any) -> Any:
    """A fresh decoder on a frozen encoder."""
    from continua.models import Reconstructor

    return Reconstructor(encoder)


# Names of the reconstruction network's parameters that have changed since it was first written, and what they were then.
DECODER_NAMES = {"stem.network.": "encoder.", "transitions.0.conv.": "squeeze.", "head.norm.": "norm.", "head.conv.": "to_image."}


def first_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to each parameter, by the parameter's first name: networks are then compared whatever their parts are called."""
    if not any(name.startswith("stem.network.") for name in values):
        return dict(values)
    old = [next((prefix for prefix in DECODER_NAMES if name.startswith(prefix)), "") for name in values]
    return {DECODER_NAMES.get(prefix, "") + name.removeprefix(prefix): values[name] for prefix, name in zip(old, values, strict=True)}


def load_network(run: Path) -> Any:
    """The network of a finished run."""
    saved = json.loads((run / "best" / "config.json").read_text("utf-8"))
    if saved.get("task") == "reconstruct" and "model" not in saved:
        from continua.runs import load_reconstructor

        return load_reconstructor(run / "best")
    return continua.from_pretrained(run / "best").eval()


def run_identity(run: Path) -> str:
    """The identity of a run, computed anew from its config.yaml."""
    from continua.train import Run, run_id

    return run_id(Run(run).recipe)
