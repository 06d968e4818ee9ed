"""What may stand in the small files of a run: a result, a line of metrics, the machine it ran on. What does not fit is called damaged.

Names that are not known here are let through: a later version may write more.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from continua.files import Json
from continua.reading import read_json_lines, read_json_object, unreadable

Kind = Callable[[Any], bool]  # whether a value is of a kind
REMEDY = "it is damaged; `continua train --resume RUN` writes it again where the run has its checkpoints"


def read_run_result(path: Path, root: Path) -> Json:
    """result.json of a run."""
    data = read_json_object(path, root, REMEDY)
    _check(data, _RESULT, path)
    return data


def read_metrics(path: Path, root: Path) -> list[Json]:
    """metrics.jsonl of a run, every line checked."""
    lines = read_json_lines(path, root, REMEDY)
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        _check(line, _LINE, where)
        if line.get("event") == "epoch" and "epoch" not in line:
            raise unreadable(where, "the line of an epoch does not say which", REMEDY)
    return lines


def read_environment(path: Path, root: Path) -> Json:
    """environment.json of a run."""
    data = read_json_object(path, root, "it is damaged; the next --resume of the run writes it again")
    _check(data, {"packages": _by_name}, path)
    return data


def _check(data: Mapping[str, Any], kinds: Mapping[str, Kind], where: object) -> None:
    for name, value in data.items():
        fits = kinds.get(name)
        if fits is not None and not fits(value):
            raise unreadable(where, f"{name} is {str(value)[:60]!r}, expected {_WORDS[fits]}", REMEDY)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_number(item) and item is not None for item in value)


def _by_name(value: Any) -> bool:
    return isinstance(value, dict)


def _scales(value: Any) -> bool:
    """σ of each layer: one number, or the least, the mean and the largest."""
    return isinstance(value, dict) and all(_scale(item) for item in value.values())


def _scale(value: Any) -> bool:
    return _numbers(value) and len(value) == 3 if isinstance(value, list) else value is not None and _number(value)


_WORDS: dict[Kind, str] = {_text: "text", _count: "a whole number", _number: "a number", _numbers: "a list of numbers"}
_WORDS |= {_scales: "numbers by layer", _by_name: "values by name"}


def _all_of(kind: Kind, *names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, kind)


_SHOWN = [f"{split}_{what}" for split in ("train", "holdout", "test") for what in ("loss", "accuracy", "failed")]
_RESULT = _all_of(_text, "identity", "model", "data", "selection", "split") | _all_of(_count, "parameters", "epoch", "test_images")
_RESULT |= _all_of(_number, "test_loss", "test_accuracy", "test_failed", "seconds")
_LINE = _all_of(_text, "event") | _all_of(_count, "epoch", "step", "batch") | _all_of(_numbers, "nfe", "nfe_backward", "rejected")
_LINE |= _all_of(_number, "lr", "loss", "penalty", "gradient_norm", "images", "skipped", "images_per_second", "seconds", *_SHOWN)
_LINE |= _all_of(_scales, "sigma")
