"""Configurations that earlier versions stored, in today's terms. Only readers of stored files use this; a user's options are refused.

    format 1    version 0.1: every option of a paper's models stood in the file of each, also those that a model never had
    format 2    today: the options of the model's own configuration

A decoder of format 1 held its encoder's configuration and was no model of its own.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from continua.errors import ConfigError
from continua.models.registry import model_entry
from continua.ode import upgrade_solver_options

FORMAT = 2
# By paper: options that 0.1 accepted for all of its models, and that today only some of them have.
RDA = ("nonlinearity", "around", "wave_numbers", "antidiffusion")
SHARED_IN_0_1 = {
    "DCN": ("order", "t1", "solver", "stem_padding", "augment_channels"),
    "ANODEV2": ("coupling", "weight_steps", "evolution", "evolution_options", "memory", *RDA),
}
DECODER_KEYS_IN_0_1 = {"encoder.": "stem.network.", "squeeze.": "transitions.0.conv.", "norm.": "head.norm.", "to_image.": "head.conv."}
Value = TypeVar("Value")


def upgrade_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that version 0.1 stored for a model, as the model takes them today.

    What 0.1 wrote down for all models of a paper and this one never used is left out. A key that no version had stays, to be refused.
    """
    entry = model_entry(name)
    if name.endswith("_neural_ode") and options.get("evolution", "static") != "static":
        raise ConfigError(
            f"{name} was stored with evolution={options['evolution']!r}; weights that evolve are now those of "
            f"{name.replace('_neural_ode', '_anodev2_c1')}: write that name in the file"
        )
    unused = set(SHARED_IN_0_1.get(entry.paper, ())) - set(entry.options)
    kept = {option: value for option, value in options.items() if option not in unused}
    if "evolution" in kept and "rda" not in _evolutions(kept["evolution"]):  # 0.1 stored these whatever the evolution was
        kept = {option: value for option, value in kept.items() if option not in RDA}
    if isinstance(kept.get("solver"), Mapping):
        kept["solver"] = upgrade_solver_options(kept["solver"])
    return kept


def _evolutions(evolution: object) -> list[object]:
    return list(evolution.values()) if isinstance(evolution, Mapping) else [evolution]


def upgrade_config(stored: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model and its options of a config.json of any format."""
    version = stored.get("format", 1)
    if version not in (1, FORMAT):
        raise ConfigError(f"its format is {version!r}, and this version of Continua reads formats 1 to {FORMAT}; update Continua")
    if stored.get("task") == "reconstruct":
        encoder, options = upgrade_config(stored["encoder"])
        return "reconstruction", {"encoder": encoder, "encoder_options": options}
    name, options = str(stored["model"]), dict(stored["options"])
    return name, options if version == FORMAT else upgrade_options(name, options)


def upgrade_weights(stored: Mapping[str, Any], weights: Mapping[str, Value]) -> dict[str, Value]:
    """Weights by today's names, from the names they had beside a config.json of any format."""
    if stored.get("task") != "reconstruct":
        return dict(weights)
    renamed = {}
    for key, value in weights.items():
        old = next((start for start in DECODER_KEYS_IN_0_1 if key.startswith(start)), "")
        renamed[DECODER_KEYS_IN_0_1.get(old, "") + key.removeprefix(old)] = value
    return renamed
