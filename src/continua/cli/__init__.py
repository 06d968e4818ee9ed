"""The command `continua`: one thin file per command that parses options, calls the package and prints."""

from continua.cli.commands import main, parse

__all__ = ["main", "parse"]
