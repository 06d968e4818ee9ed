"""One program, `continua`, and the table of its commands. The file of a command is imported when it is chosen: help answers at once."""

import os
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TextIO

from jsonargparse import Namespace

from continua.cli.parsing import Command, Parser, Words
from continua.errors import ContinuaError, ContinuaWarning
from continua.machine import claim_process, keep_freed_memory

# Each is a file of this room with a `COMMAND`; the words are those of `continua --help`.
COMMANDS = {
    "demo": "train and compare three networks on the embedded digits",
    "train": "train a network by a recipe, or resume a run",
    "evaluate": "look closely at a finished run",
    "sweep": "carry out a grid of trainings, here or on a Slurm cluster",
    "analyse": "ask a question of trained networks",
    "report": "an HTML page about runs and studies",
    "explore": "look into a network in the browser",
    "reproduce": "a table or figure of a paper, ours beside the printed values",
    "data": "list, fetch and check data sets",
    "doctor": "what this machine is, and what Continua will do on it",
    "models": "list models, draw one",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one line on stderr on an error a person can act on."""
    keep_freed_memory()
    if argv is None:  # called with words, this is part of somebody else's program
        claim_process()
    warnings.showwarning = _show_warning
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words:
            _program({}).print_help()
            return 0
        command, options = parse(words)
        if command.run is not None:
            command.run(options)
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


def parse(words: Words) -> tuple[Command, Namespace]:
    """The command that the words name, and its options. Raises what `main` prints: nothing is run."""
    flags, words = _leading_flags(words)
    if not words or words[0] not in COMMANDS:  # --version and --help end the program here
        program = _program({})
        program.check([*flags, *words])
        return Command(""), program.parse_args(flags)
    name, rest = words[0], words[1:]
    command: Command = import_module(f"continua.cli.{name}").COMMAND
    parser = Parser(command.description)
    command.add_arguments(parser, rest)
    program = _program({name: parser})  # before the commands below it: jsonargparse wants levels in their order
    below = {child: Parser(each.description) for child, (_, each) in command.subcommands.items()}
    if below:
        children = parser.add_subcommands(dest="command", metavar="COMMAND")
        for child, (summary, each) in command.subcommands.items():
            each.add_arguments(below[child], rest[1:])
            children.add_subcommand(child, below[child], help=summary)
    rest = command.rewrite(rest)
    program.check([name, *rest])
    options = program.parse_args([*flags, name, *rest])[name]
    return (command.subcommands[options.command][1], options[options.command]) if below else (command, options)


def _leading_flags(words: Words) -> tuple[Words, Words]:
    """The options of `continua` itself, which stand before the command, and the rest."""
    start = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
    return words[:start], words[start:]


def _program(chosen: dict[str, Parser]) -> Parser:
    """The parser of the whole line; only the commands in `chosen` have options, the others are there to be listed."""
    program = Parser("Neural networks that are continuous in space, depth and weight.")
    program.add_argument("--version", action="version", version=f"continua {version('continua')}", help="print the version and exit")
    commands = program.add_subcommands(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_subcommand(name, chosen.get(name) or Parser(summary), help=summary)
    return program


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """Our own warnings are for people; those of others keep the place they come from."""
    if issubclass(category, ContinuaWarning):
        print(f"continua: warning: {message}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
