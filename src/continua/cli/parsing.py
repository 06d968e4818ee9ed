"""What a command is, how its options are spelt, and what is said of one that does not exist."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, unknown_name

Words = list[str]


def _no_arguments(parser: ArgumentParser, words: Words) -> None:
    """A command without options of its own."""


def _as_typed(words: Words) -> Words:
    return words


@dataclass(frozen=True)
class Command:
    """One command: a sentence for its help, what it takes, what it does. One with `subcommands` does nothing itself."""

    description: str
    run: Callable[[Namespace], None] | None = None
    # The words that follow the command are known: `analyse` adds the options of the analysis they name.
    add_arguments: Callable[[ArgumentParser, Words], None] = _no_arguments
    rewrite: Callable[[Words], Words] = _as_typed  # words as the parser wants them
    free: tuple[str, ...] = ()  # options with parts that nobody knows beforehand: --model_options.solver.rtol
    subcommands: Mapping[str, tuple[str, "Command"]] = field(default_factory=dict)  # by name: a few words for the list, the command


def new_parser(description: str) -> ArgumentParser:
    parser = ArgumentParser(prog="continua", description=description, exit_on_error=False, print_config=None)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def spellings(name: str) -> list[str]:
    """The spellings of an option, with underscores and with dashes: `--data-dir` and `--data_dir` are the same."""
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


def underscored(word: str) -> str:
    """A word of the command line with the dashes of an option's name as underscores."""
    name, equals, value = word.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word


def options_of(parser: ArgumentParser) -> list[str]:
    """The options that a parser knows, in their first spelling."""
    return list(dict.fromkeys(action.option_strings[0] for action in parser._actions if action.option_strings))


def check_options(name: str, words: Sequence[str], parser: ArgumentParser, free: Iterable[str] = ()) -> None:
    """Refuse options that a command does not have, with the nearest that it has: the parser itself would guess or list everything."""
    known = {underscored(option) for action in parser._actions for option in action.option_strings}
    for word in words:
        if word == "--":
            return
        option = underscored(word).partition("=")[0]
        if word.startswith("--") and option not in known and option[2:].split(".")[0] not in free:
            listed = [option for option in options_of(parser) if option.startswith("--")]
            raise unknown_name(f"option of continua {name}", word.partition("=")[0], listed, see=f"continua {name} --help lists them")


def check_command(words: Sequence[str], known: Sequence[str], above: str = "") -> str:
    """The first word, which must be one of the commands `known`; `above` is the command it follows."""
    if not words or words[0].startswith("-"):
        raise ConfigError(f"continua {above} is followed by one of {', '.join(known)}")
    if words[0] not in known:
        spelt = [f"{above} {name}".strip() for name in known]
        raise unknown_name("command", f"{above} {words[0]}".strip(), spelt)
    return words[0]
