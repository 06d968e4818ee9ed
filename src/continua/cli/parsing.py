"""What a command is, and its words, each refused by us where it is wrong: what was given, what was expected, what to do next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from jsonargparse import ArgumentParser, Namespace

from continua.errors import ConfigError, ContinuaError, unknown_name
from continua.options import typed_value

Words = list[str]


def spellings(name: str) -> list[str]:
    """The spellings of an option, with underscores and with dashes: `--data-dir` and `--data_dir` are the same."""
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


def underscored(word: str) -> str:
    """A word of the command line with the dashes of an option's name as underscores."""
    name, equals, value = word.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word


class WrongValue(ContinuaError):
    """A value that its option cannot have. No ValueError: the parser would put its own words in place of ours."""


class Value:
    """The type of an option, as the parser calls it: a word, or a value that was read already, to what its annotation says."""

    def __init__(self, name: str, hint: Any) -> None:
        self.name, self.hint = name, hint

    def __call__(self, word: object) -> Any:
        try:
            return typed_value(self.name, word, self.hint)
        except ConfigError as error:
            raise WrongValue(str(error)) from None

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

    def add_argument(self, *names: str, **how: Any) -> Any:
        """An option or a word, as argparse has it; `type` is an annotation."""
        # jsonargparse gives this method to groups of options too, whose `parser` is the command.
        command: Parser = getattr(self, "parser", self)
        return super().add_argument(*names, **command.noted(names, how))

    def noted(self, names: Sequence[str], how: dict[str, Any]) -> dict[str, Any]:
        """Remember an option; how to add it so that its value is checked by us."""
        hint = how.get("type")
        if hint is not None:
            how = how | {"type": Value(names[0].lstrip("-").replace("-", "_"), hint)}
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

    def _check_words(self, given: Sequence[str], name: str) -> None:
        words, waiting = [], iter(given)
        for word in waiting:
            if word in ("--help", "-h"):
                return
            if not word.startswith("--"):
                words.append(word)
            elif self._check_option(word, name) and "=" not in word and next(waiting, None) is None:
                raise ConfigError(f"{word} needs a value; {name} --help says which")
        needed = [metavar for metavar, number in self.words if number is None]
        if len(words) < len(needed):
            raise ConfigError(f"{name}: {needed[len(words)]} is required; {name} --help says what it is")
        if len(words) > len(self.words) and not any(number == "*" for _, number in self.words):
            raise ConfigError(f"{words[len(self.words)]} is not known here; {name} --help shows what is")

    def _check_option(self, word: str, name: str) -> bool:
        """Whether it takes a value."""
        option = word.partition("=")[0]
        if option not in self.takes_value:
            known = [known for known in self.takes_value if known.startswith("--")]
            raise unknown_name("option", option, known, see=f"{name} --help shows all")
        return self.takes_value[option]


def _no_arguments(parser: Parser, words: Words) -> None:
    """A command without options of its own."""


def _as_typed(words: Words) -> Words:
    return words


@dataclass(frozen=True)
class Command:
    """One command: a sentence for its help, what it takes, what it does. One with `subcommands` does nothing itself."""

    description: str
    run: Callable[[Namespace], None] | None = None
    # The words that follow the command are known: `analyse` adds the options of the analysis they name.
    add_arguments: Callable[[Parser, Words], None] = _no_arguments
    rewrite: Callable[[Words], Words] = _as_typed  # words as the parser wants them
    subcommands: Mapping[str, tuple[str, "Command"]] = field(default_factory=dict)  # by name: a few words for the list, the command
