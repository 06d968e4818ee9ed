"""Names and signatures that a redesign may change, called here and nowhere else in the golden outputs."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

import continua


def solver_options(**flat: Any) -> dict[str, Any]:
    """Keywords of `solve` and keys of a model's `solver`, from one flat list of settings."""
    return flat


def inner_states(net: Any, images: Tensor, block: int) -> Tensor:
    """The states at the start and end of a block, (time, batch, ...)."""
    return net.states(images, block=block) if hasattr(net, "states") else net.forward_intermediates(images, block)


def reconstructor(encoder: Any) -> Any:
    """A fresh decoder on a frozen encoder."""
    from continua.models import Reconstructor

    return Reconstructor(encoder)


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
