"""The program `continua`: the table of its commands, what a command is, and a parser that refuses wrong words itself.

A wrong word is answered by what was given, what was expected and what to do next. The file of a command is imported when it is chosen:
help answers at once.
"""

import json
import os
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TextIO, get_args, get_origin

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, ContinuaError, ContinuaWarning, unknown_name
from continua.files import Json
from continua.machine import claim_process, keep_freed_memory, memory_asked
from continua.options import british, typed_value
from continua.showing import harmless

Words = list[str]
# Each is a file of this package with a `COMMAND`; the words are those of `continua --help`.
COMMANDS = {
    "demo": "train and compare three networks on the bundled digits",
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
OPTIONS_FILE = Path(__file__).with_name("options.json")
# Options that several commands have: annotation, default, help.
COMMON: dict[str, tuple[Any, object, str]] = {
    "runs": (Path | None, None, "folder of all runs (else CONTINUA_RUNS, else ./runs)"),
    "data_dir": (Path | None, None, "folder of all data sets (else CONTINUA_DATA, else the user's cache)"),
    "device": (str, "auto", "auto (cuda where there is one, else cpu), cpu, cuda, mps or xpu"),
    "checkpoint_minutes": (float, 5.0, "within long epochs, save this often"),
}


# --- what a command is, and its words -----------------------------------------------------------------------------------


def spellings(name: str) -> list[str]:
    """The spellings of an option, with underscores and with dashes: `--data-dir` and `--data_dir` are the same."""
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


class WrongValue(ContinuaError):
    """A value that its option cannot have. No ValueError: the parser would put its own words in place of ours."""


class Value:
    """The type of an option, as the parser calls it: a word, or a value that was read already, to what its annotation says."""

    def __init__(self, name: str, hint: Any, help: str = "") -> None:
        self.name, self.hint, self.help = name, hint, help

    def __call__(self, word: object) -> Any:
        try:
            return typed_value(self.name, word, self.hint)
        except ConfigError as error:
            raise WrongValue(f"{error}: {self.help}" if self.help else str(error)) from None

    def __repr__(self) -> str:
        """As --help shows it."""
        return self.hint.__name__ if isinstance(self.hint, type) and not hasattr(self.hint, "__args__") else str(self.hint)


class Parser(ArgumentParser):
    """`continua` or one of its commands. It knows which options and words it takes, and checks their values itself."""

    def __init__(self, description: str) -> None:
        self.takes_value: dict[str, bool] = {}
        self.words: list[tuple[str, str | None]] = []  # what they are called, and how many of them, as argparse's nargs says it
        self.commands: Mapping[str, Parser] = {}
        super().__init__(prog="continua", description=description, exit_on_error=False, print_config=None)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def option(self, name: str, hint: Any, default: object, help: str) -> None:
        """An option with a value, spelt with underscores or with dashes: `--data-dir` and `--data_dir` are the same."""
        self.add_argument(*spellings(name), type=hint, default=default, help=help)

    def flag(self, name: str, help: str) -> None:
        """An option without a value."""
        self.add_argument(*spellings(name), action="store_true", help=help)

    def common(self, *names: str) -> None:
        """Options that other commands have too."""
        for name in names:
            self.option(name, *COMMON[name])

    def add_argument(self, *names: str, **how: Any) -> Any:
        """An option or a word, as argparse has it; `type` is an annotation."""
        # jsonargparse gives this method to groups of options too, whose `parser` is the command.
        command: Parser = getattr(self, "parser", self)
        return super().add_argument(*names, **command.noted(names, how))

    def noted(self, names: Sequence[str], how: Json) -> Json:
        """Remember an option; how to add it so that its value is checked by us."""
        hint = how.get("type")
        if hint is not None:
            how = how | {"type": Value(names[0].lstrip("-").replace("-", "_"), hint, str(how.get("help", "")))}
        if not names[0].startswith("-"):
            self.words.append((how.get("metavar", names[0].upper()), how.get("nargs")))
            return how
        self.takes_value |= dict.fromkeys(names, "action" not in how)
        choices = {"metavar": f"{{{','.join(map(str, get_args(hint)))}}}"} if get_origin(hint) is Literal else {}
        return choices | how

    def add_subcommands(self, *args: Any, **how: Any) -> Any:
        added = super().add_subcommands(*args, **how)
        self.commands = added.choices
        return added

    def check(self, given: Sequence[str], path: tuple[str, ...] = ("continua",)) -> None:
        """Refuse the first word that is wrong: a command or an option that does not exist, a word or a value that is missing."""
        if self.commands:
            self._check_command(given, path)
        else:
            self._check_words(given, " ".join(path))

    def _check_command(self, given: Sequence[str], path: tuple[str, ...]) -> None:
        rest = [word for word in given if word != "--debug"]
        if not rest:
            raise ConfigError(f"{' '.join(path)} is followed by one of {', '.join(self.commands)}")
        word, *rest = rest
        if word in self.commands:
            self.commands[word].check(rest, (*path, word))
        elif word.startswith("-"):
            self._check_option(word, " ".join(path))
        else:
            raise unknown_name("command", word, self.commands, see=f"{' '.join(path)} is followed by one of {', '.join(self.commands)}")

    def check_options(self, given: Sequence[str], name: str) -> "Words | None":
        """Refuse the first option that does not exist or has no value; the other words, or None where help is asked for."""
        words, waiting = [], iter(given)
        for word in waiting:
            if word in ("--help", "-h"):
                return None
            if not word.startswith("--"):
                words.append(word)
            elif self._check_option(word, name) and "=" not in word and next(waiting, None) is None:
                raise ConfigError(f"{word} needs a value; {name} --help says which")
        return words

    def _check_words(self, given: Sequence[str], name: str) -> None:
        words = self.check_options(given, name)
        if words is None:
            return
        needed = [metavar for metavar, number in self.words if number is None]
        if len(words) < len(needed):
            raise ConfigError(f"{needed[len(words)]} is missing; {name} --help says what it is")
        if len(words) > len(self.words) and not any(number == "*" for _, number in self.words):
            extra = words[len(self.words)]
            raise ConfigError(f"unexpected word {extra!r}; {name} --help shows what it takes (a path with spaces needs quotes)")

    def _check_option(self, word: str, name: str) -> bool:
        """Whether it takes a value."""
        option = word.partition("=")[0]
        if option not in self.takes_value:
            known = [known for known in self.takes_value if known.startswith("--")]
            raise unknown_name("option", option, known, see=f"{name} --help shows all")
        return self.takes_value[option]


@dataclass(frozen=True)
class Command:
    """One command: a sentence for its help, what it takes, what it does. One with `subcommands` does nothing itself."""

    description: str
    run: Callable[[Namespace], None] | None = None
    # The words that follow the command are known: `analyse` adds the options of the analysis they name.
    add_arguments: Callable[[Parser, Words], None] = lambda parser, words: None
    rewrite: Callable[[Words], Words] = list  # words as the parser wants them
    subcommands: Mapping[str, tuple[str, "Command"]] = field(default_factory=dict)  # by name: a few words for the list, the command


# --- the program --------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one line on stderr on an error a person can act on.

    Args:
        argv: the words after `continua`; None: those of this process.

    Returns:
        The exit code.

    Examples:
        >>> from continua.cli import main
        >>> main(["models", "dcn_ode"])  # doctest: +SKIP
        0
    """
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
        print(f"continua: {harmless(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        size = memory_asked(error)
        if size is None or "--debug" in words:
            raise
        smaller = "smaller batches (--batch_size), a narrower network or smaller images need less"
        print(f"continua: there is not enough memory for `continua {words[0]}`{size}; {smaller}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("continua: interrupted", file=sys.stderr)
        return 130
    return 0


def parse(words: Words) -> tuple[Command, Namespace]:
    """The command that the words name, and its options. Raises what `main` prints: nothing is run.

    Args:
        words: the words after `continua`.

    Returns:
        The command and its options.

    Examples:
        >>> from continua.cli import parse
        >>> command, options = parse(["models", "dcn*"])
    """
    # The options of `continua` itself stand before the command.
    start = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
    flags, words = words[:start], [british(word) if place == 0 else word for place, word in enumerate(words[start:])]
    if words == ["help"]:
        flags, words = [*flags, "--help"], []
    if not words or words[0] not in COMMANDS:  # --version and --help end the program here
        program = _program({})
        program.check([*flags, *words])
        return Command(""), program.parse_args(flags)
    name, rest = words[0], [_in_our_spelling(word) for word in words[1:]]
    check_options(name, rest)
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


def _in_our_spelling(word: str) -> str:
    """`--optimizer.lr=0.1` as `--optimiser.lr=0.1`."""
    name, equals, value = word.partition("=")
    return f"--{british(name[2:])}{equals}{value}" if name.startswith("--") else word


def check_options(name: str, rest: Words) -> None:
    """Refuse an option that the command lacks before its file, and PyTorch with it, is imported. tests/test_cli.py checks what is kept."""
    kept: dict[str, dict[str, bool]] = json.loads(OPTIONS_FILE.read_text("utf-8"))
    if name not in kept:  # its options depend on the word that follows: `analyse steps`
        name = f"{name} {next((word for word in rest if not word.startswith('-')), '')}"
    if name not in kept:
        return
    options = [word.partition("=")[0] for word in rest]
    free = {option: True for option in options if option.partition(".")[0] in kept[name]}  # `--model_options.channels`
    quick = Parser("")
    quick.takes_value = free | kept[name]
    quick.check_options(rest, f"continua {name}")


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
        print(f"continua: warning: {harmless(message)}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
