"""One command, `continua`. Rooms are imported only when their subcommand runs, so that help answers at once."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ContinuaError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one line on stderr on an error a person can act on."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser, actions = _parser()
    if not words:
        parser.print_help()
        return 0
    options = parser.parse_args(words)
    try:
        action, arguments = _chosen(options, actions)
        action(arguments)
    except ContinuaError as error:
        if options.debug:
            raise
        print(f"continua: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("continua: interrupted", file=sys.stderr)
        return 130
    return 0


Action = Callable[[Namespace], None]


def _parser() -> tuple[ArgumentParser, dict[str, Action]]:
    parser = ArgumentParser(prog="continua", description="Neural networks that are continuous in space, depth and weight.")
    parser.add_argument("--version", action="version", version=f"continua {_version()}", help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subcommands(dest="command", metavar="COMMAND")
    actions: dict[str, Action] = {}

    demo = ArgumentParser(description="Run the main job on the embedded data set and write what it made.")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the results")
    commands.add_subcommand("demo", demo, help="run the main job on the embedded data set")
    actions["demo"] = _demo

    return parser, actions


def _chosen(options: Namespace, actions: dict[str, Action]) -> tuple[Action, Namespace]:
    """The action of the innermost subcommand and its own options."""
    name, arguments = options.command, options[options.command]
    while "command" in arguments:
        name, arguments = f"{name} {arguments.command}", arguments[arguments.command]
    return actions[name], arguments


def _version() -> str:
    from importlib.metadata import version

    return version("continua")


def _demo(options: Namespace) -> None:
    raise ContinuaError("the demo is not here yet")
