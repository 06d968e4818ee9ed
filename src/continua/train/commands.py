"""`continua train` and `continua evaluate`: options in, lines for people out."""

import json
import os
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError
from continua.train.parse import FREE, load_recipe, merged, parse_value, recipe_fields, recipe_names, unknown_option, write_yaml
from continua.train.recipe import Recipe

HOW: dict[str, tuple[Any, Any, str]] = {
    "recipe": (str | None, None, "a recipe by name, or the path of a YAML file"),
    "resume": (Path | None, None, "go on with this run where it was stopped"),
    "out": (Path | None, None, "folder of the run (else one named after the recipe, under --runs)"),
    "runs": (Path | None, None, "folder of all runs (else CONTINUA_RUNS, else ./runs)"),
    "data_dir": (Path | None, None, "folder of all data sets (else CONTINUA_DATA, else the user's cache)"),
    "device": (str, "auto", "auto, cpu or cuda"),
    "threads": (int | None, None, "processor threads; a run is repeatable bit for bit at the same number"),
    "progress": (str, "auto", "auto, bar, lines or off"),
    "checkpoint_minutes": (float, 5.0, "within long epochs, save this often"),
    "rank_timeout": (float, 600.0, "seconds after which a rank gives up waiting for another one"),
}
FLAGS = {"print_config": "print the resolved recipe and stop", "tensorboard": "write TensorBoard files too"}
FRACTIONS = ("top1", "top5", "calibration_error")  # of an evaluation; shown in per cent
RUN_ONLY = ("data_dir", "device", "threads", "progress", "checkpoint_minutes", "rank_timeout", "tensorboard")


def add_train_arguments(parser: ArgumentParser) -> None:
    """Options that say how to run, then every field of the recipe under its own name."""
    for name, (kind, default, text) in HOW.items():
        more = f": {', '.join(recipe_names())}" if name == "recipe" else ""
        parser.add_argument(*_spellings(name), type=kind, default=default, help=text + more)
    for name, text in FLAGS.items():
        parser.add_argument(*_spellings(name), action="store_true", help=text)
    group = parser.add_argument_group("fields of the recipe [where it is silent]; another number of epochs stretches the schedule with it")
    for name, kind in recipe_fields():
        kind = dict[str, Any] | None if name.endswith("resized_crop") else kind
        group.add_argument(*_spellings(name), type=kind, default=SUPPRESS, help=_help(name))


def checked_words(words: list[str]) -> list[str]:
    """The words after `continua train`, with misspelt options refused by name: the parser itself would guess or list everything."""
    known = [*HOW, *FLAGS, "debug", "help", *(name for name, _ in recipe_fields())]
    for word in words:
        name = word[2:].partition("=")[0].replace("-", "_")
        if word.startswith("--") and name not in known and name.split(".")[0] not in FREE:
            raise unknown_option(word[2:].partition("=")[0], known)
    return _gathered([_underscored(word) for word in words])


def _gathered(words: list[str]) -> list[str]:
    """`--model_options.solver.rtol 1e-4 --model_options.channels "[8, 16]"` as one option that holds both."""
    rest, found, waiting = [], {}, iter(words)
    for word in waiting:
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and name.split(".")[0] in FREE:
            value = parse_value(value if equals else next(waiting, ""), name)
            found = merged(found, {name: value})
        else:
            rest.append(word)
    return rest + [f"--{name}={json.dumps(value)}" for name, value in found.items()]


def train_command(options: Namespace) -> None:
    """Run `continua train`."""
    from continua.train.devices import chosen_device
    from continua.train.loop import Interrupted
    from continua.train.resolution import resolve
    from continua.train.setup import RunOptions
    from continua.train.start import resume, train

    given = options.as_dict()
    how = RunOptions(**{name: given.pop(name) for name in RUN_ONLY})
    asked = {name: given.pop(name) for name in ("recipe", "resume", "out", "runs", "print_config")}
    given.pop("debug", None)
    if (asked["recipe"] is None) == (asked["resume"] is None):
        raise ConfigError(f"give either --recipe ({', '.join(recipe_names())}, or a YAML file) or --resume RUN")
    if asked["resume"] is not None and (given or asked["out"] or asked["runs"]):
        extra = next(iter(given), "out")
        raise ConfigError(f"--resume goes on with a run as it is: --{extra} cannot be changed; start a new run for that")
    try:
        if asked["resume"] is not None:
            run = resume(asked["resume"], how)
        else:
            recipe = load_recipe(asked["recipe"], given)
            if asked["print_config"]:
                print(write_yaml(resolve(recipe, chosen_device(how.device), how.data_dir)), end="")
                return
            run = train(recipe, asked["out"], how, runs=asked["runs"])
    except Interrupted as stop:
        if os.environ.get("RANK", "0") == "0":
            folder = asked["resume"] or stop.folder
            print(f"stopped and saved at {stop}; go on with: continua train --resume {folder}")
        raise SystemExit(128 + stop.signal if stop.signal else 1) from None
    if os.environ.get("RANK", "0") == "0":
        _say(run.folder, run.result or {})


def _say(folder: Path, result: dict[str, Any]) -> None:
    if "test_accuracy" in result:
        found = f"test accuracy {result['test_accuracy']:.2%}"
    else:
        found = f"test error {result['test_loss']:.5g} per pixel"
    print(f"finished {folder}: {found} ({result['selection']}), {result['parameters']:,} parameters, {result['seconds']:.0f} s")


def add_evaluate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a finished run")
    parser.add_argument("--data", type=str | None, default=None, help="another data set (else the run's own)")
    parser.add_argument("--split", type=str | None, default=None, help="which of its splits (else test, or val)")
    parser.add_argument("--tolerance", type=float | None, default=None, help="rtol and atol of every adaptive solve")
    parser.add_argument("--batch_size", "--batch-size", type=int | None, default=None, help="images per batch (else the recipe's)")
    parser.add_argument("--data_dir", "--data-dir", type=Path | None, default=None, help="folder of all data sets")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path | None, default=None, help="JSON file for the numbers (else in the run's folder)")


def evaluate_command(options: Namespace) -> None:
    """Run `continua evaluate`."""
    from continua.report import show_table, written_whole
    from continua.train.evaluation import evaluate

    asked = {name: getattr(options, name) for name in ("data", "split", "tolerance", "batch_size", "data_dir", "device")}
    found = evaluate(options.run, **asked)
    tolerance = f"-tolerance{options.tolerance:g}" if options.tolerance is not None else ""
    target = options.out or options.run / f"evaluation-{found['data']}-{found['split']}{tolerance}.json"
    with written_whole(target) as temporary:
        temporary.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
    told = {name: value for name, value in found.items() if value is not None and not isinstance(value, list | dict)}
    rows = [(name.replace("_", " "), f"{value:.2%}" if name in FRACTIONS else _cell(value)) for name, value in told.items()]
    rows += [("NFE per block", " ".join(f"{value:.1f}" for value in found["nfe"]) or "no solver")]
    show_table(str(options.run), ("", ""), rows, text=(0, 1))
    if "per_class" in found:
        classes = [(name, one["images"], f"{one['accuracy']:.2%}", one["confused_with"] or "") for name, one in found["per_class"].items()]
        show_table("per class", ("class", "images", "accuracy", "most often taken for"), classes, text=(0, 3))
    print(f"wrote {target}")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _spellings(name: str) -> list[str]:
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


def _underscored(word: str) -> str:
    name, equals, value = word.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word


def _help(name: str) -> str:
    """The field's sentence, and what it is where neither recipe nor command line says so."""
    default: Any = Recipe()
    text = ""
    for part in name.split("."):
        text = type(default).__dataclass_fields__[part].metadata["help"]
        default = getattr(default, part)
    return f"{text} [{default}]" if default not in (None, {}, ()) else text
