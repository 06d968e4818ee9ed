"""`continua train`: options in, lines for people out."""

import json
import os
from argparse import SUPPRESS
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words, spellings
from continua.errors import ConfigError, typed
from continua.files import Json
from continua.runs import FREE, Recipe, load_recipe, merged, parse_value, recipe_fields, recipe_names, write_yaml
from continua.showing import harmless


def add_train_arguments(parser: Parser, words: Words) -> None:
    """Options that say how to run, then every field of the recipe under its own name."""
    parser.option("recipe", str | None, None, f"a recipe by name, or the path of a YAML file: {', '.join(recipe_names())}")
    parser.option("resume", Path | None, None, "go on with this run where it was stopped")
    parser.option("out", Path | None, None, "folder of the run (else one named after the recipe, under --runs)")
    parser.common("runs", "data_dir", "device")
    parser.option("threads", int | None, None, "processor threads; a run is repeatable bit for bit at the same number")
    parser.option("progress", str, "auto", "auto, bar, lines or off")
    parser.common("checkpoint_minutes")
    parser.option("rank_timeout", float, 600.0, "seconds after which a rank gives up waiting for another one")
    parser.flag("print_config", "print the resolved recipe and stop")
    parser.flag("tensorboard", "write TensorBoard files too")
    parser.option("track", str, "", "send the numbers of each epoch to tensorboard, wandb, mlflow or trackio; several separated by commas")
    group = parser.add_argument_group("fields of the recipe [where it is silent]; another number of epochs stretches the schedule with it")
    for name, kind in recipe_fields():
        kind = Json | None if name.endswith("resized_crop") else kind
        group.add_argument(*spellings(name), type=kind, default=SUPPRESS, help=_help(name))


def gather_free_options(words: Words) -> Words:
    """`--model_options.solver.rtol 1e-4 --model-options.channels "[8, 16]"` as one option that holds both."""
    rest, free, waiting = [], {}, iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if word.startswith("--") and name.split(".")[0] in FREE:
            value = parse_value(value if equals else next(waiting, ""), name)
            free = merged(free, {name: value})
        else:
            rest.append(f"--{name}{equals}{value}" if word.startswith("--") else word)
    return rest + [f"--{name}={json.dumps(value)}" for name, value in free.items()]


def train_command(options: Namespace) -> None:
    """Run `continua train`."""
    from continua.runs import chosen_device, resolve
    from continua.train import Interrupted, RunOptions, resume, train

    given = options.as_dict()
    how = RunOptions(**{item.name: given.pop(item.name) for item in fields(RunOptions)})
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
            print(f"stopped and saved at {stop}; go on with: continua train --resume {typed(folder)}")
        raise SystemExit(128 + stop.signal if stop.signal else 1) from None
    if os.environ.get("RANK", "0") == "0":
        _say(run.folder, run.result or {})


def _say(folder: Path, result: Json) -> None:
    if not result:  # `Run.result` has warned why
        print(harmless(f"finished {folder}, whose result.json cannot be read at the moment"))
        return
    split = result.get("split", "test")
    if "test_accuracy" in result:
        quality = f"{split} accuracy {result['test_accuracy']:.2%}"
    else:
        quality = f"{split} error {result['test_loss']:.5g} per pixel"
    spent = f"{result['parameters']:,} parameters, {result['seconds']:.0f} s"
    print(harmless(f"finished {folder}: {quality} ({result['selection']}), {spent}"))


def _help(name: str) -> str:
    """The field's sentence, and what it is where neither recipe nor command line says so."""
    default: Any = Recipe()
    text = ""
    for part in name.split("."):
        text = type(default).__dataclass_fields__[part].metadata["help"]
        default = getattr(default, part)
    return f"{text} [{default}]" if default not in (None, {}, ()) else text


COMMAND = Command(
    "Train a network by a recipe, or go on with a training that was stopped.",
    train_command,
    add_train_arguments,
    rewrite=gather_free_options,
)
