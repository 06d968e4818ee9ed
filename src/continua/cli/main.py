"""One command, `continua`. Rooms are imported only when their subcommand runs, so that help answers at once."""

import os
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from jsonargparse import Namespace

from continua.cli.data import add_data_commands
from continua.cli.doctor import add_doctor_arguments, doctor_command
from continua.cli.models import add_models_arguments, models_command
from continua.cli.parser import Command
from continua.errors import ContinuaError, ContinuaWarning
from continua.machine import claim_process, keep_freed_memory

Action = Callable[[Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one line on stderr on an error a person can act on."""
    keep_freed_memory()
    if argv is None:  # called with words, this is part of somebody else's program
        claim_process()
    warnings.showwarning = _warned
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser, actions = _parser(words)
        if not words:
            parser.print_help()
            return 0
        words = _gathered(words)
        parser.check(words)
        action, arguments = _chosen(parser.parse_args(words), actions)
        action(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ContinuaError, ArgumentError, OSError) as error:
        if "--debug" in words:
            raise
        print(f"continua: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("continua: interrupted", file=sys.stderr)
        return 130
    return 0


def _warned(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    """Our own warnings are for people; those of others keep the place they come from."""
    if issubclass(category, ContinuaWarning):
        print(f"continua: warning: {message}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _parser(words: list[str]) -> tuple[Command, dict[str, Action]]:
    parser = Command("Neural networks that are continuous in space, depth and weight.")
    parser.add_argument("--version", action="version", version=f"continua {_version()}", help="print the version and exit")
    from continua.cli.analyse import add_analyse_arguments
    from continua.cli.demo import add_demo_arguments
    from continua.cli.evaluate import add_evaluate_arguments
    from continua.cli.explore import add_explore_arguments
    from continua.cli.report import add_report_arguments
    from continua.cli.reproduce import add_reproduce_arguments
    from continua.cli.sweep import add_sweep_arguments
    from continua.cli.train import add_train_arguments

    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    actions: dict[str, Action] = {}

    demo = Command("Train three small networks on the embedded digits, compare them and look inside, on one page (about five minutes).")
    add_demo_arguments(demo)
    commands.add_subcommand("demo", demo, help="train and compare three networks on the embedded digits")
    actions["demo"] = _late("continua.cli.demo", "demo_command")

    train = Command("Train a network by a recipe, or go on with a training that was stopped.")
    evaluate = Command("Accuracy, confusion, calibration and cost of a finished run.")
    add_train_arguments(train)
    add_evaluate_arguments(evaluate)
    commands.add_subcommand("train", train, help="train a network by a recipe, or resume a run")
    commands.add_subcommand("evaluate", evaluate, help="look closely at a finished run")
    actions |= {name: _late(f"continua.cli.{name}", f"{name}_command") for name in ("train", "evaluate")}

    sweep = Command("A grid of trainings from one YAML file, here or on a Slurm cluster; does only what is missing.")
    add_sweep_arguments(sweep)
    commands.add_subcommand("sweep", sweep, help="carry out a grid of trainings, here or on a Slurm cluster")
    actions["sweep"] = _late("continua.cli.sweep", "sweep_command")

    analyse = Command("Ask a question of trained networks.")
    add_analyse_arguments(analyse, _after("analyse", words))
    commands.add_subcommand("analyse", analyse, help="ask a question of trained networks")
    report = Command(
        "One self-contained HTML page about runs and studies: ours beside the printed values, curves, cost, what was analysed."
    )
    add_report_arguments(report)
    commands.add_subcommand("report", report, help="an HTML page about runs and studies")
    actions |= {name: _late(f"continua.cli.{name}", f"{name}_command") for name in ("analyse", "report")}

    explore = Command("A page in the browser for looking into a network: its depth, filters and weights, changed images, two side by side.")
    add_explore_arguments(explore)
    commands.add_subcommand("explore", explore, help="look into a network in the browser")
    actions["explore"] = _late("continua.cli.explore", "explore_command")

    reproduce = Command("Every table and figure of the papers: train what is missing, ask, and compare with the printed values.")
    add_reproduce_arguments(reproduce)
    commands.add_subcommand("reproduce", reproduce, help="a table or figure of a paper, ours beside the printed values")
    actions["reproduce"] = _late("continua.cli.reproduce", "reproduce_command")

    data = Command("Data sets: what is known, what is here, whether it is right.")
    commands.add_subcommand("data", data, help="list, fetch and check data sets")
    actions |= add_data_commands(data, Command)

    doctor = Command(
        "What this machine is and what Continua will therefore do, on one screen, to be pasted into a report of a bug. "
        "Tries everything anew (a minute or two); exit code 1 if something is broken."
    )
    add_doctor_arguments(doctor)
    commands.add_subcommand("doctor", doctor, help="what this machine is, and what Continua will do on it")
    actions["doctor"] = doctor_command

    models = Command("The zoo: every model, the table row it reproduces, its parameters and its arithmetic.")
    add_models_arguments(models)
    commands.add_subcommand("models", models, help="list models, draw one")
    actions["models"] = models_command
    return parser, actions


def _gathered(words: list[str]) -> list[str]:
    """Options of the model, which only the model knows, are one option of `continua train`."""
    from continua.cli.train import gathered_words

    if not _after("train", words):
        return words
    start = words.index("train") + 1
    return words[:start] + gathered_words(words[start:])


def _after(command: str, words: list[str]) -> list[str]:
    """What follows the command, if it is this one."""
    given = words[words.index(command) + 1 :] if command in words else []
    return given if words[: len(words) - len(given)] in ([command], ["--debug", command]) else []


def _chosen(options: Namespace, actions: dict[str, Action]) -> tuple[Action, Namespace]:
    """The action of the innermost subcommand and its own options."""
    name, arguments = options.command, options[options.command]
    while "command" in arguments:
        name, arguments = f"{name} {arguments.command}", arguments[arguments.command]
    return actions[name], arguments


def _version() -> str:
    from importlib.metadata import version

    return version("continua")


def _late(module: str, function: str) -> Action:
    """The function that carries out a command, imported when it does."""
    return lambda options: getattr(import_module(module), function)(options)
