"""How large the registered models are, known without building any: `continua models` answers at once."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from continua.models.describe import describe_model

COUNTS_FILE = Path(__file__).with_name("counts.json")


@dataclass(frozen=True)
class Counts:
    """Numbers of a registered model with its default options: trained numbers, and arithmetic as `Description.flops` counts it."""

    parameters: int
    flops: int


def model_counts(name: str) -> Counts:
    """The counts of a registered model; those of our own models are kept beside this file, so that none is built.

    Args:
        name: of the model.

    Returns:
        Parameters and multiply–adds.

    Examples:
        >>> from continua.models import model_counts
        >>> counts = model_counts("dcn_ode")
    """
    kept = _kept_counts().get(name)
    if kept is not None:
        return Counts(*kept)
    described = describe_model(name)
    return Counts(described.parameters, described.flops)


@cache
def _kept_counts() -> dict[str, list[int]]:
    """Written and checked by tests/models/test_describe.py."""
    return json.loads(COUNTS_FILE.read_text("utf-8"))
